// Rows of keys or values that lie in pages, on their way to shared memory: the loaders that bring tiles of rows, told
// where each page starts. Tiles start at multiples of what they hold, and a page has a multiple of 16 rows: so many
// that follow each other always lie in one page, and where a page is whole tiles, a tile does.
//
// Tiles come from the last to the first. A page's number is loaded when the tile behind it has been asked for, and
// looked at when it is needed; where some are left out, once it is known which one is next.
#pragma once

#include <wmma/attention/rows/dense.hpp>

namespace wmma {

constexpr int kRowsTogether = 16;

// The pages of one sequence, whose row the table is. Whatever it has, nothing outside the pages is read.
template <int kPageSize>
class PageTable {
  static_assert(kPageSize % kRowsTogether == 0, "as the library checks");

 public:
  WMMA_DEVICE PageTable(const PageArguments& p, int rows)
      : table_(static_cast<const int32_t*>(p.table)),
        column_stride_(p.column_stride),
        last_page_(p.count - 1),
        last_row_(rows - 1) {}

  // What the table has for a row; rows that do not exist are as the nearest one.
  WMMA_DEVICE int32_t number_of(int row) const {
    return table_[static_cast<uint32_t>(clamped(row, 0, last_row_)) / kPageSize * column_stride_];
  }
  WMMA_DEVICE int page(int32_t number) const { return clamped(number, 0, last_page_); }

 private:
  const int32_t* table_;
  int64_t column_stride_;
  int last_page_;
  int last_row_;
};

// The rows of one sequence and head.
template <class T, int kPageSize>
class PagedRows : public PageTable<kPageSize> {
 public:
  // `start` is where the first page's are, `rows` how many there are.
  WMMA_DEVICE PagedRows(const PageArguments& p, const T* start, int64_t page_stride, int64_t row_stride, int rows)
      : PageTable<kPageSize>(p, rows),
        start_(start),
        page_step_(page_stride * static_cast<int64_t>(sizeof(T))),
        row_step_(row_stride * static_cast<int64_t>(sizeof(T))) {}

  WMMA_DEVICE const T* start() const { return start_; }
  // Where a row is, in bytes from the first page's rows, in the page of that number.
  WMMA_DEVICE int64_t offset(int32_t number, int row) const {
    return this->page(number) * page_step_ + static_cast<uint32_t>(row) % kPageSize * row_step_;
  }

 private:
  const T* start_;
  int64_t page_step_;
  int64_t row_step_;
};

// The page numbers that a thread needs of a tile of kRows rows, of which it brings some with each of kLoads loads: all
// threads of the block kPass rows together, if it is not 0.
template <class T, int kPageSize, int kRows, int kPass, int kLoads>
class TilePages {
  static constexpr bool kInPasses = kPass > 0 && kRowsTogether % (kPass > 0 ? kPass : 1) == 0;

 public:
  static constexpr bool kInOne = kPageSize % kRows == 0;  // a tile is in one page
  static constexpr bool kUniform = kInOne || kInPasses;   // what a load needs is the same for all threads
  static constexpr int kCount = kInOne ? 1 : kInPasses ? kRows / kRowsTogether : kLoads;

  // The tile starts at row `first`; row_of(i) is that of load i in it.
  template <class RowOf>
  WMMA_DEVICE TilePages(const PagedRows<T, kPageSize>& rows, int first, const RowOf& row_of)
      : rows_(rows), first_(first) {
    look(number_, first, row_of);
  }

  // Where the rows start that load i is one of, in bytes.
  template <class RowOf>
  WMMA_DEVICE int64_t offset(int i, const RowOf& row_of) const {
    const int n = kInOne ? 0 : kInPasses ? i * kPass / kRowsTogether : i;
    int32_t number = number_[n];
    if constexpr (kUniform) number = static_cast<int32_t>(uniform(static_cast<uint32_t>(number)));
    return rows_.offset(number, first_ + together(n, row_of));
  }
  // To a tile so many rows before it.
  template <class RowOf>
  WMMA_DEVICE void go_back(int rows, const RowOf& row_of) {
    first_ -= rows;
    look(number_, first_, row_of);
  }

 private:
  // The first of the rows in whose page number n's are.
  template <class RowOf>
  static WMMA_DEVICE int together(int n, const RowOf& row_of) {
    return kInOne ? 0 : kInPasses ? n * kRowsTogether : row_of(n) / kRowsTogether * kRowsTogether;
  }
  template <class RowOf>
  WMMA_DEVICE void look(int32_t (&numbers)[kCount], int first, const RowOf& row_of) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) numbers[n] = rows_.number_of(first + together(n, row_of));
  }

  PagedRows<T, kPageSize> rows_;
  int first_;
  int32_t number_[kCount];
};

// A StagedLoader of such rows, which are its lines (kLines) or run along its K. A thread's block lies in one page.
// kAtOnce: each tile is fetched once, none is left out, and the loader goes on by itself; else what advances it along
// the rows does.
template <class Loader, class T, int kPageSize, int kRows, bool kLines, bool kAtOnce>
class PagedStagedLoader : public Loader {
  using Pages = TilePages<T, kPageSize, kRows, kLines ? Loader::kPassLines : 0, Loader::kBlocks>;

 public:
  WMMA_DEVICE PagedStagedLoader(const PagedRows<T, kPageSize>& rows, int first, int64_t outer_stride, int64_t k_stride,
                                int64_t lines, uint32_t thread)
      : Loader(rows.start(), outer_stride, k_stride, lines, thread, {}),
        pages_(rows, first, [&](int i) { return row_of(i); }),
        last_line_(static_cast<uint32_t>(lines) - Loader::kBlockLines) {}

  template <bool kMasked>
  WMMA_DEVICE void fetch(int limit = 0) {
    const auto row = [&](int i) { return row_of(i); };
    if constexpr (Pages::kInOne) {
      const int64_t bytes = pages_.offset(0, row);
      Loader::move(bytes);
      Loader::template fetch<kMasked>(limit);
      Loader::move(-bytes);
    } else {
      Loader::template fetch_blocks<kMasked>([&](int i) { return pages_.offset(i, row); },
                                             [&](int i) { return offset_of(i); }, limit);
    }
    if constexpr (kAtOnce) pages_.go_back(kRows, row);
  }
  WMMA_DEVICE void advance_lines(int64_t lines) {
    if constexpr (kLines && !kAtOnce) go(lines);
  }
  WMMA_DEVICE void advance(int64_t k) {
    if constexpr (kAtOnce) return;
    if constexpr (kLines) {
      Loader::advance(k);
    } else {
      go(k);
    }
  }

 private:
  WMMA_DEVICE void go(int64_t rows) {
    pages_.go_back(static_cast<int>(-rows), [&](int i) { return row_of(i); });
  }
  WMMA_DEVICE int row_of(int i) const {
    const auto place = Loader::block_place(i);
    return static_cast<int>(kLines ? place.line : place.k);
  }
  // Of block i, from the first of the rows together; columns that do not exist are as the last one.
  WMMA_DEVICE typename Loader::Offset offset_of(int i) const {
    using Offset = typename Loader::Offset;
    const auto place = Loader::block_place(i);
    const Offset line = kLines ? place.line % kRowsTogether : place.line < last_line_ ? place.line : last_line_;
    const Offset k = kLines ? place.k : place.k % kRowsTogether;
    return line * static_cast<Offset>(Loader::outer_step_) + k * static_cast<Offset>(Loader::k_step_);
  }

  Pages pages_;
  uint32_t last_line_;  // that a block starts on
};

#ifdef WMMA_NVIDIA
// An AsyncLoader of such rows, which are the lines of its tile. kAtOnce: as above.
template <class Loader, class T, int kPageSize, int kRows, bool kAtOnce>
class PagedAsyncLoader : public Loader {
  using Pages = TilePages<T, kPageSize, kRows, Loader::kPass, Loader::kCopies>;

 public:
  WMMA_DEVICE PagedAsyncLoader(const PagedRows<T, kPageSize>& rows, int first, int64_t outer_stride, int64_t k_stride,
                               int64_t lines, uint32_t thread)
      : Loader(rows.start(), outer_stride, k_stride, lines, thread),
        pages_(rows, first, [&](int i) { return static_cast<int>(Loader::copied_line(i)); }) {}

  template <bool kMasked>
  WMMA_DEVICE void copy(uint32_t tile, int limit = 0) {
    const auto row = [&](int i) { return static_cast<int>(Loader::copied_line(i)); };
    if constexpr (Pages::kInOne) {
      const int64_t bytes = pages_.offset(0, row);
      Loader::move(bytes);
      Loader::template copy<kMasked>(tile, limit);
      Loader::move(-bytes);
    } else {
      Loader::template copy_lines<kMasked, kRowsTogether>(tile, [&](int i) { return pages_.offset(i, row); }, limit);
    }
    if constexpr (kAtOnce) pages_.go_back(kRows, row);
  }
  WMMA_DEVICE void advance_lines(int64_t lines) { go(lines); }
  WMMA_DEVICE void advance(int64_t k) { go(k); }

 private:
  WMMA_DEVICE void go(int64_t rows) {
    if constexpr (kAtOnce) return;
    pages_.go_back(static_cast<int>(-rows), [&](int i) { return static_cast<int>(Loader::copied_line(i)); });
  }

  Pages pages_;
};
#endif

}  // namespace wmma
