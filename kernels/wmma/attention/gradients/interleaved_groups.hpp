// What waves of loops/interleaved_gradients.hpp do in which order: groups of products, each of one chunk of the others
// a lane, and what is computed, stored and read beside which of them.
#pragma once

#include <wmma/tile/chain_link.hpp>

namespace wmma {

namespace detail {

// Of kCount things that are dealt to the steps kStart … kEnd − 1 in order, the first of step i.
template <int kStart, int kEnd, int kCount>
WMMA_CONSTEXPR int first_of(int i) {
  return i <= kStart ? 0 : i >= kEnd ? kCount : ((i - kStart) * kCount + kEnd - kStart - 1) / (kEnd - kStart);
}

}  // namespace detail

template <class Config>
struct GradientGroups {
  using T = typename Config::Element;
  using Link = ChainLink<MatrixProduct<T, Config::kSide>>;
  using Number = typename Link::Sum;
  static constexpr bool kOwnsKeys = Config::kOwnsKeys;
  static constexpr int kTilesM = Config::kTilesM;
  static constexpr int kOthers = Config::kOthers;
  static constexpr int kWaveRows = kTilesM * Link::kRows;
  static constexpr int kBlockRows = Config::kWaves * kWaveRows;
  static constexpr int kThreads = Config::kWaves * arch::kWaveSize;
  static constexpr int kTiles = kOthers / Link::kCols;  // of scores
  static constexpr int kSums = kTiles * Link::kElements;
  static constexpr int kWeightSteps = kOthers / Link::kDepth;
  static constexpr int kSteps = Config::kDepth / Link::kDepth;
  static constexpr int kValueSteps = Config::kValueDepth / Link::kDepth;
  static constexpr int kOutTiles = Config::kDepth / Link::kCols;
  static constexpr int kValueTiles = Config::kValueDepth / Link::kCols;
  static_assert(Config::kDepth % Link::kWhole == 0 && Config::kValueDepth % Link::kWhole == 0, "whole tiles");
  static_assert(Config::kColumns == Config::kDepth && Config::kValueColumns == Config::kValueDepth, "without a rest");
  static_assert(Link::kStays && Link::kShare == Link::kRowChunks * Link::kPerChunk && sizeof(T) == 2, "pairs of sums");

  using Sums = Number[kTilesM][kSums];
  using Weights = Chunk[kTilesM][kWeightSteps][Link::kRowChunks];

  // The groups: scores, g_P, then of the tile before g_V and g_K, or g_Q; and what is given to g_Q.
  static constexpr int kScores = kTiles * kSteps;
  static constexpr int kBefore = kScores + kTiles * kValueSteps;  // the results
  static constexpr int kValues = kOwnsKeys ? kValueTiles * kWeightSteps : 0;
  static constexpr int kOuts = kOutTiles * kWeightSteps;
  static constexpr int kDqProducts = Config::kStoresDq ? kBlockRows / Link::kDepth : 0;
  static constexpr int kAfter = kValues + kOuts + kDqProducts;  // from the first result on
  static constexpr int kCount = kBefore + kAfter;

  // What is given is dealt among g_K's groups, as each of its products waits for the one before: of the groups behind
  // g_V the ones before the i-th, and whether that is one.
  static WMMA_CONSTEXPR int dq_before(int i) { return i * kDqProducts / (kOuts + kDqProducts); }
  static WMMA_CONSTEXPR bool is_dq(int i) { return dq_before(i + 1) > dq_before(i); }

  // Chunks are read kAhead groups before their products; phases have their barriers kSettle groups before their ends.
  static constexpr int kAhead = Config::kAhead;
  static constexpr int kRing = kAhead + 1;
  static constexpr int kSettle = kRing / 2;
  static_assert(kCount % kRing == 0 && kAhead < kAfter, "chunks keep their registers from round to round");
  // Rows are stored until shortly before.
  static constexpr int kStoringTransposed = kBefore - kSettle - 3;
  static constexpr int kStoring = kAfter - kSettle - 2;

  // Scores become weights from two groups behind their last on, and are rounded when g_V has the tile's before; then
  // g_P becomes g_S, which is rounded beside the next scores, until its registers take the next g_P.
  static constexpr int kWeighing = kScores + 2;
  static constexpr int kWeighingEnd = kOwnsKeys ? kBefore + kValues : kCount - 1;
  static constexpr int kInclining = kScores - 2;
  // What was multiplied to be given is given until the next is.
  static constexpr int kDqProductsStart = kScores;
  static constexpr int kDqProductsEnd = kBefore + kValues;
  // Beside which results the next tile's statistics go to shared memory, and its scores start from them.
  static constexpr int kNextStart =
      kOwnsKeys ? detail::upper(kWeighingEnd - kBefore, kAfter - kSettle - 4) : kAfter - 1;
  static constexpr int kPut = kNextStart - 2;
  static_assert(kBefore + kNextStart >= kWeighingEnd && kNextStart < kAfter, "scores are weights by then");
  static_assert(!kOwnsKeys || kPut >= 0, "statistics are there");
};

}  // namespace wmma
