// Weights as the rows of the next product: from registers where they stay there, else from the wave's lines of a tile.
#pragma once

#include <wmma/tile/chain.hpp>

namespace wmma {

// Sums before the first product.
template <int kTilesM, int kSums, class Number>
WMMA_DEVICE void clear(Number (&sums)[kTilesM][kSums]) {
#pragma unroll
  for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[m][i] = Number(0);
  }
}

// Where vector instructions wait for the matrix unit, or, kWeightsAreLonger, take longer than the products beside them,
// each that is saved is its time. Weights are then cut off to T's bits, not rounded, and are all larger by so much that
// this takes from them on the average what they have too much: a weight is off by 0.7 units of its last place at most,
// where rounding has 0.5, and by 6 % more in the mean square. They are rounded (kRounds) where one of them may be
// nearly all of a result, and is not 1: where dropout keeps few and multiplies these, and where a sink stands beside a
// single key.
template <class T, class Number, bool kWeightsAreLonger = false, bool kRounds = false>
struct CutWeights {
  static constexpr bool kCuts =
      sizeof(T) == 2 && !kRounds && (arch::kVectorWaits || (kWeightsAreLonger && !arch::kRoundsPairs));
  static constexpr Number kExcess = kCuts ? Number(kSame<T, bf16_t> ? 1.00270761 : 1.00033845) : Number(1);
  static constexpr Number kLogExcess = kCuts ? Number(kSame<T, bf16_t> ? 0.00390099 : 0.000488196) : Number(0);
};

// Weights, which are no NaN that a sum beside them would not show, to the words of T. kCut: the bits that T does not
// have are cut off.
template <class T, int kCount, bool kCut = false, class Number>
WMMA_DEVICE void pack_weights(uint32_t* words, const Number* weights) {
#ifdef WMMA_AMD
  if constexpr (kCut) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      words[i / 2] = kSame<T, bf16_t> ? arch::bf16_pair_cut(weights[i], weights[i + 1])
                                      : arch::half_pair_cut(weights[i], weights[i + 1]);
    }
    return;
  }
#endif
  if constexpr (kSame<T, bf16_t>) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) words[i / 2] = arch::bf16_pair_quick(weights[i], weights[i + 1]);
  } else {
    detail::pack<T, kCount>(words, weights);
  }
}

#ifdef WMMA_NVIDIA
// The same of 8 bits, as the matrix unit takes them in registers: a word of each lane has four neighbours of a row,
// which here are two of a block of eight columns and two of the next, so that no lane needs another's. The columns that
// they are multiplied with lie in this order (passes/transpose.hpp).
template <int kCount>
WMMA_DEVICE void pack_narrow_weights(uint32_t* words, const float* weights) {
#pragma unroll
  for (int i = 0; i < kCount; i += 8) {
    words[i / 4] = arch::e4m3_of(weights[i], weights[i + 1], weights[i + 4], weights[i + 5]);
    words[i / 4 + 1] = arch::e4m3_of(weights[i + 2], weights[i + 3], weights[i + 6], weights[i + 7]);
  }
}
#endif

// out += weights·columns for kTiles tiles of columns, kSteps deep.
template <class Link, int kTiles, int kSteps, bool kCut = false, int kTilesM, int kSums, int kOutSums, class Number,
          class Rows, class Columns, class Address>
WMMA_DEVICE void multiply_weights(Number (&out)[kTilesM][kOutSums], const Number (&weights)[kTilesM][kSums],
                                  const Rows& reader, const unsigned char* weights_tile, const Columns& columns,
                                  Address tile) {
  using T = typename Link::Element;
  chain_product<Link, kTiles, kSteps>(out, columns, tile, [&](Chunk(&rows)[kTilesM][Link::kRowChunks], int step) {
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
      if constexpr (Link::kStays) {
        uint32_t words[Link::kShare * sizeof(T) / 4];
        pack_weights<T, Link::kShare, kCut>(words, weights[m] + step * Link::kShare);
        Link::join(rows[m], words);
      } else {
        reader.read(rows[m], weights_tile, m, step);
      }
    }
  });
}

}  // namespace wmma
