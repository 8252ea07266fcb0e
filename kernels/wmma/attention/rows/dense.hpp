// The rows of a block of the attention kernels: which query and head each is, how they come to shared memory, which
// keys they may look at.
#pragma once

#include <wmma/attention/arguments.hpp>
#include <wmma/attention/math.hpp>
#include <wmma/grid.hpp>
#include <wmma/tile/config.hpp>
#include <wmma/tile/rounding.hpp>

namespace wmma {

// The batch's matrix of a head.
template <class T>
WMMA_DEVICE T* matrix_of(const AttentionOperand& x, uint32_t batch, uint32_t head) {
  return static_cast<T*>(const_cast<void*>(x.data)) + batch * x.batch_stride + head * x.head_stride;
}

// Which tile of which head a block has: some heads together, whose rows the L2 cache holds, and of these the tiles by
// their number, so that those that take longest under a causal mask come first and none of them is left for the end.
struct HeadTile {
  uint32_t head;  // of all in the batch
  uint32_t tile;

  WMMA_DEVICE HeadTile(uint32_t at, uint32_t heads, uint32_t tiles) : HeadTile(at, heads, tiles, 8) {}
  WMMA_DEVICE HeadTile(uint32_t at, uint32_t heads, uint32_t tiles, uint32_t most) {
    const uint32_t part = at / (most * tiles);
    const uint32_t inside = at - part * (most * tiles);
    const uint32_t left = heads - part * most;
    const uint32_t together = left < most ? left : most;
    tile = inside / together;
    head = part * most + (inside - tile * together);
  }
};

// Where a block works: a tile of rows of one head, or, where heads are packed, of all heads that share a key head, one
// query's after the other's.
template <bool kPacked>
struct AttentionPlace {
  uint32_t batch;
  uint32_t head;  // the (first) query head
  uint32_t key_head;
  uint32_t tile;
  uint32_t slice;
  uint32_t rows;   // of the head or the group
  uint32_t group;  // rows of one query

  WMMA_DEVICE AttentionPlace(const AttentionArguments& p, uint32_t block) {
    slice = block % p.slices;
    const uint32_t heads = kPacked ? p.heads / p.group : p.heads;
    find(p, HeadTile(block / p.slices, heads * p.batch, p.tiles), heads);
  }
  WMMA_DEVICE AttentionPlace(const AttentionArguments& p, const HeadTile& at) : slice(0) {
    find(p, at, kPacked ? p.heads / p.group : p.heads);
  }
  // `index` is that of a head, or of a group.
  WMMA_DEVICE AttentionPlace(const AttentionArguments& p, uint32_t of_batch, uint32_t index, uint32_t of_tile)
      : batch(of_batch), tile(of_tile), slice(0) {
    find(p, index);
  }

  WMMA_DEVICE uint32_t query(uint32_t row) const { return kPacked ? row / group : row; }
  WMMA_DEVICE uint32_t head_of(uint32_t row) const { return kPacked ? head + row % group : head; }
  // In elements, from the operand's start.
  WMMA_DEVICE int64_t offset(const AttentionOperand& x, uint32_t row) const {
    return batch * x.batch_stride + head_of(row) * x.head_stride + query(row) * x.row_stride;
  }

 private:
  WMMA_DEVICE void find(const AttentionArguments& p, const HeadTile& at, uint32_t heads) {
    tile = p.tiles - 1 - at.tile;  // later ones see more keys
    const uint32_t index = at.head % heads;
    batch = at.head / heads;
    find(p, index);
  }
  WMMA_DEVICE void find(const AttentionArguments& p, uint32_t index) {
    head = kPacked ? index * p.group : index;
    key_head = kPacked ? index : index / p.group;
    group = kPacked ? p.group : 1;
    rows = p.sq * group;
  }
};

// Of a sequence, where there are several.
WMMA_DEVICE int most_queries(const AttentionArguments& p) { return p.sq; }
WMMA_DEVICE int most_queries(const SequencesArguments& p) { return p.sequences.most_q; }
WMMA_DEVICE int most_keys(const AttentionArguments& p) { return p.skv; }
WMMA_DEVICE int most_keys(const SequencesArguments& p) { return p.sequences.most_k; }

// Rows of all heads, one head after the other.
WMMA_DEVICE int64_t rows_of_all(const AttentionArguments& p) { return static_cast<int64_t>(p.batch) * p.heads * p.sq; }
WMMA_DEVICE bool is_row(const AttentionArguments& p, int64_t row) { return row < rows_of_all(p); }
// Where one of them starts in an operand, in elements.
WMMA_DEVICE auto offsets_of(const AttentionArguments& p, int64_t row) {
  const int64_t query = row % p.sq;
  const int64_t head = row / p.sq % p.heads;
  const int64_t batch = row / p.sq / p.heads;
  return
      [=](const AttentionOperand& x) { return batch * x.batch_stride + head * x.head_stride + query * x.row_stride; };
}

WMMA_DEVICE int clamped(int64_t x, int low, int high) { return x < low ? low : x < high ? static_cast<int>(x) : high; }

// Rows of `x` to the lines of a tile, columns first … first + kWidth − 1, zero beyond `columns`, each multiplied by
// `sign`. Rows beyond the last repeat it. For what is loaded once; kAtOnce of a thread's chunks are in flight together.
template <class Tile, class T, int kWidth, int kVec, int kThreads, int kAtOnce, class Number, class Place>
WMMA_DEVICE void load_rows(unsigned char* tile, const AttentionOperand& x, const Place& place, uint32_t first_row,
                           int first_column, int columns, uint32_t thread, Number sign) {
  constexpr int kPerChunk = 16 / sizeof(T);
  constexpr int kPiece = detail::lower(kVec, kPerChunk);
  constexpr uint32_t kChunks = kWidth / kPerChunk;
  constexpr uint32_t kTotal = Tile::kLines * kChunks;
  constexpr int kShare = (kTotal + kThreads - 1) / kThreads;
  constexpr int kBatch = detail::lower(kShare, kPiece == kPerChunk ? kAtOnce : detail::lower(kAtOnce, 2));
  constexpr int kUnrolled = kBatch == 1 ? 2 : 1;
#pragma unroll kUnrolled
  for (uint32_t from = thread; from < kTotal; from += kBatch * kThreads) {
    alignas(16) T values[kBatch][kPerChunk];
#pragma unroll
    for (int n = 0; n < kBatch; ++n) {
      const uint32_t at = from + n * kThreads;
      if (kTotal % (kBatch * kThreads) != 0 && at >= kTotal) break;
      const uint32_t line = at / kChunks;
      const uint32_t row = first_row + line < place.rows ? first_row + line : place.rows - 1;
      const int column = first_column + static_cast<int>(at % kChunks) * kPerChunk;
      const int64_t step = kPiece > 1 ? 1 : x.column_stride;
      const T* data = static_cast<const T*>(x.data) + place.offset(x, row) + column * step;
#pragma unroll
      for (int i = 0; i < kPerChunk; i += kPiece) {
        if (column + i < columns) {
          arch::copy<kPiece>(values[n] + i, data + i * step);
        } else {
#pragma unroll
          for (int j = 0; j < kPiece; ++j) values[n][i + j] = T(0.0f);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kBatch; ++n) {
      const uint32_t at = from + n * kThreads;
      if (kTotal % (kBatch * kThreads) != 0 && at >= kTotal) break;
      if (sign != Number(1)) {
#pragma unroll
        for (int i = 0; i < kPerChunk; ++i) values[n][i] = convert<T>(convert<Number>(values[n][i]) * sign);
      }
      arch::copy<kPerChunk>(reinterpret_cast<T*>(tile + Tile::offset(at / kChunks, at % kChunks)), values[n]);
    }
  }
}

// kCount neighbouring elements of a lane, `stride` apart, as many of them at once as kVec allows.
template <int kCount, int kVec, class T>
WMMA_DEVICE void store_run(T* to, int64_t stride, const T* values, int left) {
  constexpr int kPiece = detail::lower(detail::lower(kVec, kCount), 16 / static_cast<int>(sizeof(T)));
#pragma unroll
  for (int i = 0; i < kCount; i += kPiece) {
    if (i < left) arch::copy<kPiece>(to + i * (kPiece > 1 ? int64_t{1} : stride), values + i);
  }
}

// Where the keys of a row are split, a block leaves its part of it in memory: a head, whose last numbers are the
// largest score and the sum of weights, and the results. Eights of columns in float start with a sector each.
constexpr int kPartHead = 8;

// A lane's sums of its row `i`, as value(sum) of each, to the row that starts at `to` and has `columns` columns.
template <class Link, int kVec, int kSums, class T, class Value>
WMMA_DEVICE void store_sums(T* to, int64_t stride, int columns, int first_column, uint32_t lane, int i,
                            const Value& value) {
#pragma unroll
  for (int f = 0; f < kSums; f += Link::kRun) {
    if (Link::row_of(f) != i) continue;
    const int column = first_column + static_cast<int>(Link::place(lane, f));
    if (column >= columns) continue;
    typename Link::Sum values[Link::kRun];
#pragma unroll
    for (int j = 0; j < Link::kRun; ++j) values[j] = value(f + j);
    alignas(16) T result[Link::kRun];
    if constexpr (sizeof(T) == 2 && Link::kRun % 2 == 0) {
      uint32_t words[Link::kRun / 2];
      detail::pack<T, Link::kRun>(words, values);
      arch::copy_bytes<sizeof(words)>(result, words);
    } else {
#pragma unroll
      for (int j = 0; j < Link::kRun; ++j) result[j] = convert<T>(values[j]);
    }
    store_run<Link::kRun, kVec>(to + column * stride, stride, result, columns - column);
  }
}

}  // namespace wmma
