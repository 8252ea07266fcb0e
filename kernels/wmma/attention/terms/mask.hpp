// A mask's rows: what it adds to the scores of a query of a head, or which of them count.
#pragma once

#include <wmma/attention/rows/dense.hpp>

namespace wmma {

template <class Mask, int kRows>
class MaskRows {
 public:
  WMMA_DEVICE explicit MaskRows(const AttentionArguments& p) : stride_(p.mask.column_stride) {}
  WMMA_DEVICE void begin(const AttentionArguments& p, uint32_t batch, uint32_t head, uint32_t query, int i) {
    if constexpr (!kIsNone<Mask>) rows_[i] = matrix_of<const Mask>(p.mask, batch, head) + query * p.mask.row_stride;
  }
  // False where the mask forbids the key; otherwise the score has what it adds.
  template <class Number>
  WMMA_DEVICE bool add(Number& score, int key, int i) const {
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

}  // namespace wmma
