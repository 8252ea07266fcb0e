// What a wave of attention's gradients has of a tile where it owns rows in registers, and its groups of products: each
// of what a lane reads of the others at once.
#pragma once

#include <wmma/tile/chain_link.hpp>

namespace wmma {

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
  static constexpr int kOutSums = kOutTiles * Link::kElements;
  static constexpr int kValueSums = kOwnsKeys ? kValueTiles * Link::kElements : 1;
  static_assert(kOthers % Link::kWhole == 0, "whole tiles");
  static_assert(Config::kDepth % Link::kWhole == 0 && Config::kValueDepth % Link::kWhole == 0, "whole tiles");
  static_assert(Config::kColumns == Config::kDepth && Config::kValueColumns == Config::kValueDepth, "without a rest");
  static_assert(Link::kStays && Link::kLaneRows == 1 && sizeof(T) == 2, "sums become operands");

  using Sums = Number[kTilesM][kSums];
  using Weights = Chunk[kTilesM][kWeightSteps][Link::kRowChunks];

  // The groups: scores, g_P, then g_V and g_K, or g_Q; and a partial dQ.
  static constexpr int kScores = kTiles * kSteps;
  static constexpr int kBefore = kScores + kTiles * kValueSteps;  // the results
  static constexpr int kValues = kOwnsKeys ? kValueTiles * kWeightSteps : 0;
  static constexpr int kOuts = kOutTiles * kWeightSteps;
  static constexpr int kDqProducts = Config::kStoresDq ? kBlockRows / Link::kDepth : 0;
  static constexpr int kAfter = kValues + kOuts + kDqProducts;  // from the first result on
  static constexpr int kCount = kBefore + kAfter;

  // What a group reads is read kAhead groups before its products.
  static constexpr int kAhead = Config::kAhead;
  static constexpr int kRing = kAhead + 1;
  static_assert(kCount % kRing == 0, "what is read keeps its registers from tile to tile");
};

}  // namespace wmma
