// What waves of loops/interleaved_gradients.hpp compute, store and read beside which group of products.
#pragma once

#include <wmma/attention/gradients/groups.hpp>

namespace wmma {

namespace detail {

// Of kCount things that are interleaved with the steps kStart … kEnd − 1 in order, the first of step i.
template <int kStart, int kEnd, int kCount>
WMMA_CONSTEXPR int first_of(int i) {
  return i <= kStart ? 0 : i >= kEnd ? kCount : ((i - kStart) * kCount + kEnd - kStart - 1) / (kEnd - kStart);
}

}  // namespace detail

template <class Config>
struct InterleavedGroups : GradientGroups<Config> {
  using Groups = GradientGroups<Config>;
  using Link = typename Groups::Link;
  static constexpr int kBefore = Groups::kBefore;
  static constexpr int kAfter = Groups::kAfter;
  static constexpr int kValues = Groups::kValues;
  static_assert(Link::kShare == Link::kRowChunks * Link::kPerChunk, "pairs of sums");

  // dQ products are interleaved with g_K's groups, as each waits for the one before: of the groups behind
  // g_V the ones before the i-th, and whether that is one.
  static WMMA_CONSTEXPR int dq_before(int i) { return i * Groups::kDqProducts / (Groups::kOuts + Groups::kDqProducts); }
  static WMMA_CONSTEXPR bool is_dq(int i) { return dq_before(i + 1) > dq_before(i); }

  // Phases have their barriers kSettle groups before their ends.
  static constexpr int kSettle = Groups::kRing / 2;
  static_assert(Groups::kAhead < kAfter, "one phase ahead at most");
  // Rows are stored until shortly before.
  static constexpr int kStoringTransposed = kBefore - kSettle - 3;
  static constexpr int kStoring = kAfter - kSettle - 2;

  // Scores become weights from two groups behind their last on, and are rounded when g_V has the tile's before; then
  // g_P becomes g_S, which is rounded beside the next scores, until its registers take the next g_P.
  static constexpr int kWeighing = Groups::kScores + 2;
  static constexpr int kWeighingEnd = Groups::kOwnsKeys ? kBefore + kValues : Groups::kCount - 1;
  static constexpr int kInclining = Groups::kScores - 2;
  // Beside which groups the dQ partial is stored, before the next overwrites it.
  static constexpr int kDqProductsStart = Groups::kScores;
  static constexpr int kDqProductsEnd = kBefore + kValues;
  // Beside which results the next tile's statistics go to shared memory, and its scores start from them.
  static constexpr int kNextStart =
      Groups::kOwnsKeys ? detail::upper(kWeighingEnd - kBefore, kAfter - kSettle - 4) : kAfter - 1;
  static constexpr int kPut = kNextStart - 2;
  static_assert(kBefore + kNextStart >= kWeighingEnd && kNextStart < kAfter, "scores are weights by then");
  static_assert(!Groups::kOwnsKeys || kPut >= 0, "statistics are there");
};

}  // namespace wmma
