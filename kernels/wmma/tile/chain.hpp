// Two products in a row (chain_link.hpp): the steps of one, and where its sums go that do not stay in registers.
#pragma once

#include <wmma/tile/chain_tile.hpp>

namespace wmma {

// A wave's sums of kRows rows by kColumns columns.
template <class Link, int kRows, int kColumns>
struct ChainSums {
  static constexpr int kTilesM = kRows / Link::kRows;
  static constexpr int kTiles = kColumns / Link::kCols;
  static constexpr int kSums = kTiles * Link::kElements;
  static_assert(kRows % Link::kRows == 0 && kColumns % Link::kWhole == 0, "whole tiles");

  typename Link::Sum sums[kTilesM][kSums];

  WMMA_DEVICE void clear() {
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[m][i] = 0;
    }
  }
};

// A product's columns are read and multiplied in groups, step by step: kTiles tiles of them, kSteps deep.
template <class Link, int kTiles, int kSteps>
struct ChainGroups {
  static constexpr int kGroup = detail::divisor_up_to(kTiles, detail::upper(arch::kMostChunks / Link::kColChunks, 1));
  static constexpr int kGroups = kTiles / kGroup;  // of a step
  static constexpr int kCount = kSteps * kGroups;

  // The part-th of as many parts of a group.
  template <class Columns, class Reader>
  static WMMA_DEVICE void read(Columns& columns, const Reader& reader, const unsigned char* tile, int i, int part,
                               int parts) {
#pragma unroll
    for (int n = part * kGroup / parts; n < (part + 1) * kGroup / parts; ++n) {
      reader.read(columns[n], tile, i % kGroups * kGroup + n, i / kGroups);
    }
  }

  // `rows` are all steps' operands. `beside(n)` is done behind the products with the n-th tile.
  template <class Columns, int kTilesM, int kSums, class Sum, class Beside>
  static WMMA_DEVICE void multiply(Sum (&sums)[kTilesM][kSums], const Chunk (&rows)[kTilesM][kSteps][Link::kRowChunks],
                                   const Columns& columns, int i, const Beside& beside) {
#pragma unroll
    for (int n = 0; n < kGroup; ++n) {
#pragma unroll
      for (int m = 0; m < kTilesM; ++m) {
        Link::mma(sums[m] + (i % kGroups * kGroup + n) * Link::kElements, rows[m][i / kGroups], columns[n]);
      }
      beside(n);
    }
  }
};

// sums[m] += rows·columnsᵀ for kTilesM tiles of rows and kTiles of columns, kSteps deep from kFirst on. `take(rows,
// step)` gives the rows' operands. The columns' are read a group ahead of their use, and no further: registers hold no
// more of them; rows, where there is room, a step ahead with them. Where a chain's steps loop they are read a group
// ahead within a step.
template <class Link, int kTiles, int kSteps, int kFirst = 0, int kTilesM, int kSums, class Sum, class Reader,
          class Address, class Take>
WMMA_DEVICE void chain_product(Sum (&sums)[kTilesM][kSums], const Reader& reader, Address tile, const Take& take) {
  constexpr int kGroup = ChainGroups<Link, kTiles, kSteps>::kGroup;
  constexpr int kGroups = kTiles / kGroup;
  constexpr int kHeld = arch::kReadsRowsAhead && !Link::kStepsLoop ? 2 : 1;  // steps' rows
  Chunk rows[kHeld][kTilesM][Link::kRowChunks];
  Chunk columns[2][kGroup][Link::kColChunks];
  if constexpr (Link::kStepsLoop) {
#pragma unroll 1
    for (int step = kFirst; step < kFirst + kSteps; ++step) {
      const auto read = [&](int i) {
#pragma unroll
        for (int n = 0; n < kGroup; ++n) reader.read(columns[i % 2][n], tile, i * kGroup + n, step);
      };
      take(rows[0], step);
      read(0);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        if (n % kGroup == 0 && n + kGroup < kTiles) read(n / kGroup + 1);
#pragma unroll
        for (int m = 0; m < kTilesM; ++m) {
          Link::mma(sums[m] + n * Link::kElements, rows[0][m], columns[n / kGroup % 2][n % kGroup]);
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
    if (kHeld == 2) take(rows[0], kFirst);
#pragma unroll
    for (int i = 0; i < kSteps * kGroups; ++i) {
      if (i + 1 < kSteps * kGroups) read(i + 1);
      const int taken = kHeld == 2 ? i + 1 : i;
      if (taken % kGroups == 0 && taken < kSteps * kGroups) {
        take(rows[taken / kGroups % kHeld], kFirst + taken / kGroups);
      }
#pragma unroll
      for (int n = 0; n < kGroup; ++n) {
#pragma unroll
        for (int m = 0; m < kTilesM; ++m) {
          Link::mma(sums[m] + (i % kGroups * kGroup + n) * Link::kElements, rows[i / kGroups % kHeld][m],
                    columns[i % 2][n]);
        }
      }
      arch::schedule_barrier();
    }
  }
#pragma unroll
  for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) arch::settle(sums[m][n * Link::kElements]);
  }
}

// Sums of a tile of rows as lines of shared memory, for chains whose sums do not stay.
template <class Link, class Tile, int kCount, class Sum>
WMMA_DEVICE void write_sums(unsigned char* tile, uint32_t lane, uint32_t first_row, const Sum* sums) {
  using T = typename Link::Element;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const uint32_t byte = bytes_of<T>(Link::place(lane, i));
    const uint32_t line = first_row + Link::row(lane, Link::row_of(i));
    *reinterpret_cast<T*>(tile + Tile::offset(line, byte / 16) + byte % 16) = convert<T>(sums[i]);
  }
}

}  // namespace wmma
