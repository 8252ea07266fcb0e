// A mask's rows: what it adds to the scores of a query of a head, or which of them count.
#pragma once

#include <wmma/attention/rows/dense.hpp>

namespace wmma {

template <class Mask>
WMMA_DEVICE Mask number_of_pair(uint32_t pair, int which) {
  return arch::bit_cast<Mask>(static_cast<uint16_t>(which == 0 ? pair : pair >> 16));
}

template <class Mask, int kRows>
class MaskRows {
 public:
  WMMA_DEVICE explicit MaskRows(const AttentionArguments& p) : stride_(p.mask.column_stride) {}
  WMMA_DEVICE void begin(const AttentionArguments& p, uint32_t batch, uint32_t head, uint32_t query, int i) {
    if constexpr (!kIsNone<Mask>) rows_[i] = matrix_of<const Mask>(p.mask, batch, head) + query * p.mask.row_stride;
  }
  WMMA_DEVICE void ask(int) {}
  // False where the mask forbids the key; otherwise the score, a lane's f-th, has what it adds.
  template <class Number>
  WMMA_DEVICE bool add(Number& score, int key, int i, int f) const {
    const Mask* mask = rows_[i] + key * stride_;
    if constexpr (kSame<Mask, uint8_t>) {
      return *mask != 0;
    } else {
      score += convert<Number>(*mask);
      return true;
    }
  }

 private:
  const Mask* rows_[kRows];
  int64_t stride_;
};

// Numbers of 16 bits, two neighbours at once, of all of a tile's keys before their scores are there.
template <class Mask, class Link, int kKeys>
class MaskPairs {
 public:
  WMMA_DEVICE explicit MaskPairs(const AttentionArguments& p) : end_(p.skv) {}
  WMMA_DEVICE void begin(const AttentionArguments& p, uint32_t batch, uint32_t head, uint32_t query, int i) {
    rows_[i] = matrix_of<const Mask>(p.mask, batch, head) + query * p.mask.row_stride + Link::place(lane_id(), 0);
  }
  WMMA_DEVICE void ask(int first_key) {
    static_assert(Link::row_of(0) == Link::row_of(1) && Link::place(0, 1) == Link::place(0, 0) + 1);
    const int left = end_ - first_key - static_cast<int>(Link::place(lane_id(), 0));
#pragma unroll
    for (int f = 0; f < kKeys / 2; f += 2) {
      const int place = static_cast<int>(Link::place(0, f));
      uint32_t& pair = asked_[f / 2];
      pair = 0;
      if (place < left) {
        arch::copy<1>(&pair, reinterpret_cast<const uint32_t*>(rows_[Link::row_of(f)] + first_key + place));
      }
    }
  }
  template <class Number>
  WMMA_DEVICE bool add(Number& score, int, int, int f) const {
    score += convert<Number>(number_of_pair<Mask>(asked_[f / 2], f % 2));
    return true;
  }

 private:
  const Mask* rows_[Link::kLaneRows];
  int end_;
  uint32_t asked_[kKeys / 4];
};

}  // namespace wmma
