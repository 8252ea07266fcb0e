// Whose rows a block of attention's gradients owns, of the queries or of the keys, and which others they meet.
#pragma once

#include <wmma/attention/rows/blocks.hpp>
#include <wmma/attention/terms/window.hpp>

namespace wmma {

// Where a block works: a tile of rows of one head, of the queries or of the keys.
template <bool kOwnsKeys>
struct GradientPlace {
  uint32_t batch;
  uint32_t head;  // of its own tensors
  uint32_t tile;
  uint32_t slice;
  uint32_t rows;

  template <class Arguments>
  WMMA_DEVICE GradientPlace(const Arguments& p, uint32_t block_rows, uint32_t slice_columns) {
    rows = kOwnsKeys ? p.skv : p.sq;
    const uint32_t most = kOwnsKeys ? most_keys(p) : most_queries(p);
    const uint32_t tiles = (most + block_rows - 1) / block_rows;
    const uint32_t columns = kOwnsKeys && p.ev > p.e ? p.ev : p.e;
    const uint32_t slices = (columns + slice_columns - 1) / slice_columns;
    const uint32_t heads = kOwnsKeys ? p.heads / p.group : p.heads;
    slice = blockIdx.x % slices;
    const HeadTile at(blockIdx.x / slices, heads * p.batch, tiles);
    tile = kOwnsKeys ? at.tile : tiles - 1 - at.tile;  // earlier keys are seen by more queries, later queries see more
    head = at.head % heads;
    batch = at.head / heads;
  }
  WMMA_DEVICE int64_t offset(const AttentionOperand& x, uint32_t row) const {
    return batch * x.batch_stride + head * x.head_stride + static_cast<int64_t>(row) * x.row_stride;
  }
};

// The tile of kOthers other rows that a block meets: heads one after the other, and each from its first row on.
template <bool kOwnsKeys, int kOthers>
struct OthersVisit {
  const AttentionArguments& p;
  const GradientPlace<kOwnsKeys>& place;
  int others;
  int at;
  uint32_t other_head;

  WMMA_DEVICE OthersVisit(const AttentionArguments& arguments, const GradientPlace<kOwnsKeys>& of, int length,
                          int begin, int = 0, int = 0, uint32_t = 0)
      : p(arguments),
        place(of),
        others(length),
        at(begin),
        other_head(kOwnsKeys ? of.head * arguments.group : of.head / arguments.group) {}
  WMMA_DEVICE bool is_there(int i, int visits) const { return i < visits; }
  WMMA_DEVICE int rows() const { return others - at < kOthers ? others - at : kOthers; }
  WMMA_DEVICE void advance(int end, int begin) {
    at += kOthers;
    if (at >= end) {
      at = begin;
      ++other_head;
    }
  }
};

// The same of the tiles that a block mask has. None is left when it is not there.
template <bool kOwnsKeys, int kBlockRows, int kOthers, class Rules>
class BlockedVisit : public OthersVisit<kOwnsKeys, kOthers> {
  using Visit = OthersVisit<kOwnsKeys, kOthers>;
  using Line = BlockLine<kOwnsKeys ? Rules::kBlockQueries : Rules::kBlockKeys>;
  static constexpr int kOwnBlock = kOwnsKeys ? Rules::kBlockKeys : Rules::kBlockQueries;
  static_assert(kOwnBlock % kBlockRows == 0, "a tile's rows are in one block");

 public:
  WMMA_DEVICE BlockedVisit(const RuledAttentionArguments& p, const GradientPlace<kOwnsKeys>& place, int length,
                           int begin, int end, int first_row, uint32_t lane)
      : Visit(p, place, length, begin),
        blocks_(p.rules.blocks),
        own_(first_row / kOwnBlock),
        lane_(lane),
        heads_end_(kOwnsKeys ? (place.head + 1) * p.group : place.head + 1),
        head_(kOwnsKeys ? this->other_head : place.head),
        line_(line()) {
    find(end, begin);
  }
  WMMA_DEVICE bool is_there(int, int) const { return head_ < heads_end_; }
  WMMA_DEVICE bool is_whole() { return line_.is_whole(this->at); }
  WMMA_DEVICE void advance(int end, int begin) {
    this->at += kOthers;
    find(end, begin);
  }

 private:
  WMMA_DEVICE Line line() const {
    const int64_t own = own_ * (kOwnsKeys ? blocks_.column_stride : blocks_.row_stride);
    return Line(block_line(blocks_, this->place.batch, head_, own),
                kOwnsKeys ? blocks_.row_stride : blocks_.column_stride, this->others, lane_);
  }
  WMMA_DEVICE void find(int end, int begin) {
    while (true) {
      this->at = line_.template first<kOthers>(this->at, end);
      if (this->at < end) return;
      this->at = begin;
      ++head_;
      if (head_ >= heads_end_) return;
      if constexpr (kOwnsKeys) this->other_head = head_;
      line_ = line();
    }
  }

  const AttentionOperand& blocks_;
  int own_;
  uint32_t lane_;
  uint32_t heads_end_;
  uint32_t head_;  // of the queries
  Line line_;
};

// From which of the others on, up to which, a block's rows meet them.
template <bool kOwnsKeys, bool kCausal, class Rules>
struct OthersSpan {
  using Sight = wmma::Sight<kCausal, Rules>;
  int others;
  int begin;
  int end;

  template <class Arguments>
  WMMA_DEVICE OthersSpan(const Arguments& p, const GradientPlace<kOwnsKeys>& place, int first_row, int block_rows,
                         int tile_rows)
      : others(kOwnsKeys ? p.sq : p.skv), begin(0), end(others) {
    const int64_t after = first_row + block_rows < static_cast<int>(place.rows) ? first_row + block_rows : place.rows;
    if constexpr (kOwnsKeys) {
      begin = Sight::first_query(p, first_row, 0, others) / tile_rows * tile_rows;
      end = Sight::queries_end(p, after - 1, 0, others);
    } else {
      begin = Sight::first_key(p, first_row, 0, others) / tile_rows * tile_rows;
      end = Sight::keys_end(p, after - 1, 0, others);
    }
  }
  WMMA_DEVICE int tiles(int tile_rows) const { return end > begin ? (end - begin + tile_rows - 1) / tile_rows : 0; }
};

// Whether not all of a block's rows look at all of a tile's others (or are looked at by them).
template <bool kOwnsKeys, int kBlockRows, int kOthers, class Sight, class Arguments>
WMMA_DEVICE bool is_bounded(const Arguments& p, int first_row, int at) {
  const int64_t first_query = kOwnsKeys ? at : first_row;
  const int64_t last_key = kOwnsKeys ? first_row + kBlockRows - 1 : at + kOthers - 1;
  const int64_t first_key = kOwnsKeys ? first_row : at;
  const int64_t last_query = kOwnsKeys ? at + kOthers - 1 : first_row + kBlockRows - 1;
  return Sight::bounds(p, first_query, last_query, first_key, last_key);
}

// A wave's sums to a result's rows and columns from the first on, times a factor.
template <class Link, int kVec, class T = typename Link::Element, int kTilesM, int kSums, class Number, class Place>
WMMA_DEVICE void store_gradient(const Number (&sums)[kTilesM][kSums], const AttentionOperand& x, int columns,
                                Number factor, const Place& place, int first_row, int first_column, uint32_t lane) {
#pragma unroll
  for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
    for (int i = 0; i < Link::kLaneRows; ++i) {
      const uint32_t row = first_row + m * Link::kRows + Link::row(lane, i);
      if (row >= place.rows) continue;
      T* to = static_cast<T*>(const_cast<void*>(x.data)) + place.offset(x, row);
      store_sums<Link, kVec, kSums>(to, x.column_stride, columns, first_column, lane, i,
                                    [&](int f) { return sums[m][f] * factor; });
    }
  }
}

// A wave's results: g_K and g_V where it owns keys, else g_Q.
template <class Link, class Config, class First, class Second, class Arguments, class Number, class Place>
WMMA_DEVICE void store_gradients(const First& first, const Second& second, const Arguments& p, Number factor,
                                 const Place& place, int first_row, int first_column, uint32_t lane) {
  store_gradient<Link, Config::kOutVec>(first, Config::kOwnsKeys ? p.g_k : p.g_q, p.e, factor, place, first_row,
                                        first_column, lane);
  if constexpr (Config::kOwnsKeys) {
    store_gradient<Link, Config::kOutVec>(second, p.g_v, p.ev, Number(1), place, first_row, first_column, lane);
  }
}

}  // namespace wmma
