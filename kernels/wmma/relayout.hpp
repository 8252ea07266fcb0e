// Fragments in another layout of the lanes, without memory: the result of one product as an operand of the next, and
// conversions. Each element is rounded to the new type and moved to the lanes that want it. From accumulator_swapped to
// A the order is already right on CDNA, RDNA4 and NVIDIA for 16-bit types; everything else goes through shuffles.
#pragma once

#include <wmma/fragment_type.hpp>

namespace wmma {
namespace detail {

// The element of the source, and its lane, that lane `lane` needs for its element i of the target; -1 beyond the
// matrix.
template <class Target, class Source>
WMMA_CONSTEXPR int source_element(uint32_t lane, int i) {
  using To = typename Target::Shape;
  const int row = To::block_row(lane, i);
  const int col = To::block_col(lane, i);
  return row < To::kRows && col < To::kCols ? Source::Shape::block_owner_element(row, col) : -1;
}

template <class Target, class Source>
WMMA_CONSTEXPR int source_lane(uint32_t lane, int i) {
  using To = typename Target::Shape;
  return Source::Shape::block_owner_lane(To::block_row(lane, i), To::block_col(lane, i));
}

// For element i of the target: which elements of the source any lane needs, a bit for each, the tiles of the source
// that they are in, and whether each lane has its own.
template <int kElements>
struct Needs {
  int first;
  int end;
  int count;
  bool stays;
  uint64_t bits[(kElements + 63) / 64];
};

template <class Target, class Source>
WMMA_CONSTEXPR auto needs(int i) {
  Needs<Source::num_elements> result{Source::num_elements, 0, 0, true, {}};
  for (uint32_t lane = 0; lane < uint32_t{arch::kWaveSize}; ++lane) {
    const int e = source_element<Target, Source>(lane, i);
    if (e < 0) continue;
    if (!(result.bits[e / 64] >> e % 64 & 1)) ++result.count;
    result.bits[e / 64] |= uint64_t{1} << e % 64;
    const int tile = e / Source::Shape::kElements * Source::Shape::kElements;
    if (tile < result.first) result.first = tile;
    if (tile + Source::Shape::kElements > result.end) result.end = tile + Source::Shape::kElements;
    if (source_lane<Target, Source>(lane, i) != static_cast<int>(lane)) result.stays = false;
  }
  return result;
}

template <class Target, class Source, int kI>
struct NeedsOf {
  static constexpr auto kNeeds = needs<Target, Source>(kI);
};

// Elements kFirst to kFirst + kCount of the target. By halves, because compilers leave long loops rolled.
template <class Target, class Source, int kFirst, int kCount, class T>
WMMA_DEVICE void gather(Target& target, const T* x) {
  if constexpr (kCount > 1) {
    gather<Target, Source, kFirst, kCount / 2>(target, x);
    gather<Target, Source, kFirst + kCount / 2, kCount - kCount / 2>(target, x);
  } else {
    constexpr auto kNeeds = NeedsOf<Target, Source, kFirst>::kNeeds;
    constexpr int kPerWord = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
    const uint32_t lane = arch::lane_id();
    const int wanted = source_element<Target, Source>(lane, kFirst);
    T value = T(0);
    if constexpr (kNeeds.stays || kNeeds.count <= 1 || kPerWord == 1 || Source::Shape::kElements % kPerWord != 0) {
#pragma unroll
      for (int e = kNeeds.first; e < kNeeds.end; ++e) {
        if (!(kNeeds.bits[e / 64] >> e % 64 & 1)) continue;
        const T candidate = kNeeds.stays ? x[e] : shuffle(x[e], source_lane<Target, Source>(lane, kFirst));
        if (wanted == e) value = candidate;
      }
    } else {
      // Whole registers move, of whose elements each lane takes its own.
      constexpr uint32_t kMask = (1u << kPerWord) - 1;
      uint32_t found = 0;
#pragma unroll
      for (int e = kNeeds.first; e < kNeeds.end; e += kPerWord) {
        if (!(kNeeds.bits[e / 64] >> e % 64 & kMask)) continue;
        uint32_t word;
        arch::copy_bytes<4>(&word, x + e);
        const uint32_t candidate = shuffle(word, source_lane<Target, Source>(lane, kFirst));
        if (wanted / kPerWord == e / kPerWord) found = candidate;
      }
      if (wanted >= 0) found >>= wanted % kPerWord * 8 * sizeof(T);
      arch::copy_bytes<sizeof(T)>(&value, &found);
    }
    target.x[kFirst] = value;
  }
}

template <class Target, class Source>
WMMA_DEVICE Target relayout(const Source& source) {
  using T = typename Target::element_type;
  using From = typename Source::element_type;
  T rounded[Source::num_elements];
#pragma unroll
  for (int i = 0; i < Source::num_elements; ++i) rounded[i] = convert<T>(static_cast<From>(source.x[i]));
  Target target;
  if constexpr (kLieAlike<Target, Source>) {
#pragma unroll
    for (int i = 0; i < Target::num_elements; ++i) target.x[i] = rounded[i];
  } else {
    gather<Target, Source, 0, Target::num_elements>(target, rounded);
  }
  return target;
}

template <class Kind>
WMMA_CONSTEXPR bool is_result() {
  constexpr bool kIs = kSame<Kind, accumulator> || kSame<Kind, accumulator_swapped>;
  static_assert(kIs, "wmma: to_matrix_a and to_matrix_b take an accumulator; convert_fragment takes operands too");
  return kIs;
}

}  // namespace detail

// The M×N result as A of an M×kNextN product whose depth is N.
template <class To, int kNextN = 0, class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE auto to_matrix_a(const fragment<Kind, M, N, K, T, Layout>& result) {
  static_assert(detail::is_result<Kind>());
  return detail::relayout<fragment<matrix_a, M, kNextN == 0 ? N : kNextN, N, To, row_major>>(result);
}

// The M×N result as B of a kNextM×N product whose depth is M.
template <class To, int kNextM = 0, class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE auto to_matrix_b(const fragment<Kind, M, N, K, T, Layout>& result) {
  static_assert(detail::is_result<Kind>());
  return detail::relayout<fragment<matrix_b, kNextM == 0 ? M : kNextM, N, M, To, col_major>>(result);
}

// The fragment in another element type, each element rounded.
template <class To, class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE fragment<Kind, M, N, K, To, Layout> convert_fragment(const fragment<Kind, M, N, K, T, Layout>& frag) {
  return detail::relayout<fragment<Kind, M, N, K, To, Layout>>(frag);
}

}  // namespace wmma
