// Whose rows a block of attention's gradients owns, of the queries or of the keys, and which others they meet.
#pragma once

#include <wmma/attention/rows.hpp>

namespace wmma {

// Where a block works: a tile of rows of one head, of the queries or of the keys.
template <bool kOwnsKeys>
struct GradientPlace {
  uint32_t batch;
  uint32_t head;  // of its own tensors
  uint32_t tile;
  uint32_t slice;
  uint32_t rows;

  WMMA_DEVICE GradientPlace(const AttentionArguments& p, uint32_t block_rows, uint32_t slice_columns) {
    rows = kOwnsKeys ? p.skv : p.sq;
    const uint32_t tiles = (rows + block_rows - 1) / block_rows;
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
                          int begin)
      : p(arguments),
        place(of),
        others(length),
        at(begin),
        other_head(kOwnsKeys ? of.head * arguments.group : of.head / arguments.group) {}
  WMMA_DEVICE int rows() const { return others - at < kOthers ? others - at : kOthers; }
  WMMA_DEVICE void advance(int end, int begin) {
    at += kOthers;
    if (at >= end) {
      at = begin;
      ++other_head;
    }
  }
};

}  // namespace wmma
