// The result of one product as an operand of the next, without memory: an accumulator's elements, rounded to the
// operand's type, moved to the lanes that the operand's layout wants. From accumulator_swapped to A the element order
// is already right on CDNA, RDNA4 and NVIDIA for 16-bit types; everything else goes through shuffles.
#pragma once

#include <wmma/fragment.hpp>

namespace wmma {
namespace detail {

// The element of the source that lane `lane` needs for its element i of the target.
template <class Target, class Source>
WMMA_CONSTEXPR int source_element(uint32_t lane, int i) {
  using To = typename Target::Shape;
  const int tile = i / To::kElements;
  const int row = tile / Target::kTilesAcross * To::kTileRows + To::row(lane, i % To::kElements);
  const int col = tile % Target::kTilesAcross * To::kTileCols + To::col(lane, i % To::kElements);
  return row < To::kRows && col < To::kCols ? Source::Shape::block_owner_element(row, col) : -1;
}

template <class Target, class Source>
WMMA_CONSTEXPR int source_lane(uint32_t lane, int i) {
  using To = typename Target::Shape;
  const int tile = i / To::kElements;
  const int row = tile / Target::kTilesAcross * To::kTileRows + To::row(lane, i % To::kElements);
  const int col = tile % Target::kTilesAcross * To::kTileCols + To::col(lane, i % To::kElements);
  return Source::Shape::block_owner_lane(row, col);
}

// For element i of the target: which elements of the source any lane needs, one bit each, and whether each lane has its
// own.
struct Needs {
  uint64_t elements;
  bool stays;
};

template <class Target, class Source>
WMMA_CONSTEXPR Needs needs(int i) {
  Needs result{0, true};
  for (uint32_t lane = 0; lane < uint32_t{arch::kWaveSize}; ++lane) {
    const int e = source_element<Target, Source>(lane, i);
    if (e < 0) continue;
    result.elements |= uint64_t{1} << e;
    if (source_lane<Target, Source>(lane, i) != static_cast<int>(lane)) result.stays = false;
  }
  return result;
}

template <class Target, class Source, int kI>
struct NeedsOf {
  static constexpr Needs kNeeds = needs<Target, Source>(kI);
};

template <class Target, class Source, int kI, class T>
WMMA_DEVICE void gather(Target& target, const T* x) {
  if constexpr (kI < Target::num_elements) {
    constexpr Needs kNeeds = NeedsOf<Target, Source, kI>::kNeeds;
    const uint32_t lane = arch::lane_id();
    const int wanted = source_element<Target, Source>(lane, kI);
    T value = T(0);
#pragma unroll
    for (int e = 0; e < Source::num_elements; ++e) {
      if (!(kNeeds.elements >> e & 1)) continue;
      const T candidate = kNeeds.stays ? x[e] : shuffle(x[e], source_lane<Target, Source>(lane, kI));
      if (wanted == e) value = candidate;
    }
    target.x[kI] = value;
    gather<Target, Source, kI + 1>(target, x);
  }
}

template <class Target, class Source>
WMMA_DEVICE Target relayout(const Source& source) {
  using T = typename Target::element_type;
  static_assert(Source::num_elements <= 64, "a bit for each element");
  T rounded[Source::num_elements];
#pragma unroll
  for (int i = 0; i < Source::num_elements; ++i) rounded[i] = convert<T>(source.x[i]);
  Target target;
  gather<Target, Source, 0>(target, rounded);
  return target;
}

}  // namespace detail

// The M×N result as A of an M×kNextN product whose depth is N.
template <class To, int kNextN = 0, class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE auto to_matrix_a(const fragment<Kind, M, N, K, T, Layout>& result) {
  return detail::relayout<fragment<matrix_a, M, kNextN == 0 ? N : kNextN, N, To, row_major>>(result);
}

// The M×N result as B of a kNextM×N product whose depth is M.
template <class To, int kNextM = 0, class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE auto to_matrix_b(const fragment<Kind, M, N, K, T, Layout>& result) {
  return detail::relayout<fragment<matrix_b, kNextM == 0 ? M : kNextM, N, M, To, col_major>>(result);
}

}  // namespace wmma
