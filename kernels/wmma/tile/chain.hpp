// Two products in a row (chain_link.hpp): the steps of one, and where its sums go that do not stay in registers.
#pragma once

#include <wmma/tile/chain_tile.hpp>

namespace wmma {

// sums[m] += rows·columnsᵀ for kTilesM tiles of rows and kTiles of columns, kSteps deep from kFirst on. `take(rows,
// step)` gives the rows' operands. The columns' are read a group ahead of their use, and no further: registers hold no
// more of them. Where a chain's steps loop they are read a group ahead within a step.
#ifdef WMMA_AMD
constexpr int kMostChunks = 4;
#else
constexpr int kMostChunks = 2;
#endif
template <class Chain, int kTiles, int kSteps, int kFirst = 0, int kTilesM, int kSums, class Sum, class Reader,
          class Address, class Take>
WMMA_DEVICE void chain_product(Sum (&sums)[kTilesM][kSums], const Reader& reader, Address tile, const Take& take) {
  constexpr int kGroup =
      detail::divisor_up_to(kTiles, kMostChunks < Chain::kColChunks ? 1 : kMostChunks / Chain::kColChunks);
  constexpr int kGroups = kTiles / kGroup;
  Chunk rows[kTilesM][Chain::kRowChunks];
  Chunk columns[2][kGroup][Chain::kColChunks];
  if constexpr (Chain::kStepsLoop) {
#pragma unroll 1
    for (int step = kFirst; step < kFirst + kSteps; ++step) {
      const auto read = [&](int i) {
#pragma unroll
        for (int n = 0; n < kGroup; ++n) reader.read(columns[i % 2][n], tile, i * kGroup + n, step);
      };
      take(rows, step);
      read(0);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        if (n % kGroup == 0 && n + kGroup < kTiles) read(n / kGroup + 1);
#pragma unroll
        for (int m = 0; m < kTilesM; ++m) {
          Chain::mma(sums[m] + n * Chain::kElements, rows[m], columns[n / kGroup % 2][n % kGroup]);
        }
        arch::schedule_barrier();
      }
    }
  } else {
    const auto read = [&](int i) {
#pragma unroll
      for (int n = 0; n < kGroup; ++n)
        reader.read(columns[i % 2][n], tile, i % kGroups * kGroup + n, kFirst + i / kGroups);
    };
    read(0);
#pragma unroll
    for (int i = 0; i < kSteps * kGroups; ++i) {
      if (i + 1 < kSteps * kGroups) read(i + 1);
      if (i % kGroups == 0) take(rows, kFirst + i / kGroups);
#pragma unroll
      for (int n = 0; n < kGroup; ++n) {
#pragma unroll
        for (int m = 0; m < kTilesM; ++m) {
          Chain::mma(sums[m] + (i % kGroups * kGroup + n) * Chain::kElements, rows[m], columns[i % 2][n]);
        }
      }
      arch::schedule_barrier();
    }
  }
#pragma unroll
  for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) arch::settle(sums[m][n * Chain::kElements]);
  }
}

// Sums of a tile of rows as lines of shared memory, for chains whose sums do not stay.
template <class Chain, class Tile, int kCount, class Sum>
WMMA_DEVICE void write_sums(unsigned char* tile, uint32_t lane, uint32_t first_row, const Sum* sums) {
  using T = typename Chain::Element;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const uint32_t byte = Chain::place(lane, i) * static_cast<uint32_t>(sizeof(T));
    const uint32_t line = first_row + Chain::row(lane, Chain::row_of(i));
    *reinterpret_cast<T*>(tile + Tile::offset(line, byte / 16) + byte % 16) = convert<T>(sums[i]);
  }
}

}  // namespace wmma
