// Queries, keys and values of 8 bits that are multiplied as they are. What they stand for is so many times as much, a
// number of each head: that of queries and keys is part of what scores are multiplied by, that of values of what
// results are.
#pragma once

#include <wmma/attention/terms/scores.hpp>

namespace wmma {

template <class Others, class NarrowType>
struct ScaledRules : Others {
  using Narrow = NarrowType;
  using Arguments = ScaledArguments;
  static constexpr bool kScaled = true;
};

WMMA_DEVICE float scale_at(const AttentionOperand& x, uint32_t batch, uint32_t head) {
  if (x.data == nullptr) return 1.0f;
  return static_cast<const float*>(x.data)[batch * x.batch_stride + head * x.head_stride];
}

template <class Place>
WMMA_DEVICE double scale_of_scores(const ScaledArguments& p, const Place& place) {
  return p.scale * static_cast<double>(scale_at(p.scales.q, place.batch, place.head)) *
         static_cast<double>(scale_at(p.scales.k, place.batch, place.key_head));
}

template <class Place>
WMMA_DEVICE float scale_of_values(const ScaledArguments& p, const Place& place) {
  return scale_at(p.scales.v, place.batch, place.key_head);
}

}  // namespace wmma
