// Weights as the rows of the next product: from registers where they stay there, else from the wave's lines of a tile.
#pragma once

#include <wmma/tile/chain.hpp>

namespace wmma {

// Weights, which are no NaN that a sum beside them would not show, to the words of T.
template <class T, int kCount, class Number>
WMMA_DEVICE void pack_weights(uint32_t* words, const Number* weights) {
  if constexpr (kSame<T, bf16_t>) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) words[i / 2] = arch::bf16_pair_quick(weights[i], weights[i + 1]);
  } else {
    detail::pack<T, kCount>(words, weights);
  }
}

// out += weights·columns for kTiles tiles of columns, kSteps deep.
template <class Link, int kTiles, int kSteps, int kTilesM, int kSums, int kOutSums, class Number, class Rows,
          class Columns, class Address>
WMMA_DEVICE void multiply_weights(Number (&out)[kTilesM][kOutSums], const Number (&weights)[kTilesM][kSums],
                                  const Rows& reader, const unsigned char* weights_tile, const Columns& columns,
                                  Address tile) {
  using T = typename Link::Element;
  chain_product<Link, kTiles, kSteps>(out, columns, tile, [&](Chunk(&rows)[kTilesM][Link::kRowChunks], int step) {
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
      if constexpr (Link::kStays) {
        uint32_t words[Link::kShare * sizeof(T) / 4];
        pack_weights<T, Link::kShare>(words, weights[m] + step * Link::kShare);
        Link::join(rows[m], words);
      } else {
        reader.read(rows[m], weights_tile, m, step);
      }
    }
  });
}

}  // namespace wmma
