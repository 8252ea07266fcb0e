// What waves of loops/lockstep_gradients.hpp do in which order: groups of products, each of what a lane reads of 16
// others at once.
#pragma once

#include <wmma/tile/chain_link.hpp>

namespace wmma {

template <class Config>
struct LockstepGroups {
  using T = typename Config::Element;
  using Link = ChainLink<MatrixProduct<T, Config::kSide>>;
  using Number = typename Link::Sum;
  static constexpr bool kOwnsKeys = Config::kOwnsKeys;
  static constexpr int kOthers = Config::kOthers;
  static constexpr int kDepth = Config::kDepth;
  static constexpr int kWaveRows = Link::kRows;
  static constexpr int kBlockRows = Config::kWaves * kWaveRows;
  static constexpr int kThreads = Config::kWaves * arch::kWaveSize;
  static constexpr int kTiles = kOthers / Link::kCols;  // of scores
  static constexpr int kSums = kTiles * Link::kElements;
  static constexpr int kWeightSteps = kOthers / Link::kDepth;
  static constexpr int kSteps = kDepth / Link::kDepth;
  static constexpr int kOutTiles = kDepth / Link::kCols;
  static constexpr int kOutSums = kOutTiles * Link::kElements;
  static_assert(Config::kTilesM == 1 && kOthers % Link::kWhole == 0 && kDepth % Link::kWhole == 0, "whole tiles");
  static_assert(Config::kColumns == kDepth && Config::kValueColumns == kDepth && Config::kValueDepth == kDepth,
                "rows of both are alike, without a rest");
  static_assert(Link::kStays && Link::kLaneRows == 1 && sizeof(T) == 2, "sums become operands");

  // The groups: scores, g_P, then g_V and g_K, or g_Q.
  static constexpr int kScores = kTiles * kSteps;
  static constexpr int kBefore = 2 * kScores;  // the results
  static constexpr int kOut = kOutTiles * kWeightSteps;
  static constexpr int kValues = kOwnsKeys ? kOut : 0;
  static constexpr int kCount = kBefore + kValues + kOut;

  // What a group reads is read kAhead groups before its products, and the barriers of phases are met as much earlier.
  static constexpr int kAhead = Config::kAhead;
  static constexpr int kRing = kAhead + 1;
  static_assert(kCount % kRing == 0 && kAhead < kScores, "what is read keeps its registers from tile to tile");
};

}  // namespace wmma
