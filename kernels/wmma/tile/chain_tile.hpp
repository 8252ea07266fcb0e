// Tiles in shared memory for two products in a row (chain_link.hpp), and how lanes read them.
#pragma once

#include <wmma/tile/chain_link.hpp>

namespace wmma {

// Lines without a rank of their own.
struct PlainLines {
  static constexpr int kWhole = 16;
  static WMMA_CONSTEXPR uint32_t rank(uint32_t line) { return line; }
};

// A tile of kLineCount lines, swizzled so that the lines of `rank` 0, 1, 2, … read at one chunk touch every bank once.
// kTrades: where several lines share a row of all banks, those of one `half` trade places. Blocks of lines that a
// loader transposes and stores together then lie side by side.
// Where there are two sets of banks, rows alternate between them, and lines of more than a row are cut into panels of
// one: lines of rank r and r + 8 are in different sets then, and a lane's chunks at constant distances beyond a row.
// Slices of trading tiles are tiles themselves, so these are not cut.
template <class Lines, int kLineCount, int kLineBytes, bool kTrades = false>
class ChainTile : public SharedTile<kLineCount, kLineBytes> {
  using Base = SharedTile<kLineCount, kLineBytes>;
  static constexpr int kLinesOfRow = Base::kChunks < Base::kRow ? Base::kRow / Base::kChunks : 1;
  static constexpr bool kPanels =
      arch::kBankSets == 2 && !kTrades && Base::kChunks > Base::kRow&& Base::kChunks % Base::kRow == 0;
  static constexpr bool kAlternates = kPanels || (arch::kBankSets == 2 && Base::kExchanges &&
                                                  2 * Base::kChunks >= Base::kRow && Base::kChunks <= Base::kRow);

  // Lines lie in the order that they are read in.
  static constexpr bool kByRank = kAlternates && !kTrades && Lines::kWhole == 16;

 public:
  static constexpr int kPitch = kPanels ? Base::kRow : Base::kPitch;
  static constexpr int kPeriodChunks =
      Base::kExchanges && Base::kChunks >= Base::kRow ? Base::kRow : Base::kPeriodChunks;
  // So many lines further down the exchange is the same.
  static constexpr int kPeriod = Lines::kWhole;
  static_assert(kPeriod % Base::kRow == 0, "ranks go round the banks");

  static WMMA_CONSTEXPR uint32_t offset(uint32_t line, uint32_t chunk) {
    const uint32_t place = kByRank ? line / 16 * 16 + Lines::rank(line) % 16 : line;
    const uint32_t at = place * kPitch + (kPanels ? along(chunk) / 16 : chunk);
    if (!Base::kExchanges) return at * 16;
    const uint32_t other_set = kAlternates ? Lines::rank(line) / 8 % 2 * Base::kRow : 0;
    const uint32_t exchange = Lines::rank(line) / kLinesOfRow % kPeriodChunks + other_set;
    if constexpr (kTrades && kLinesOfRow > 1) return (at ^ (exchange + Lines::half(line) * Base::kChunks)) * 16;
    return (at ^ exchange) * 16;
  }

  static WMMA_CONSTEXPR uint32_t along(uint32_t chunk) {
    return kPanels ? (chunk / Base::kRow * (kLineCount * Base::kRow) + chunk % Base::kRow) * 16 : chunk * 16;
  }
};

// The same by lines an odd number of chunks apart: larger, and a lane's chunks are at constant distances. Behind eight
// lines kGap chunks are left out.
template <int kLineCount, int kLineBytes, int kGap = 0>
struct PaddedTile {
  static_assert(kLineBytes % 16 == 0 && kLineCount % 8 == 0, "lines are made of chunks");
  static constexpr int kLines = kLineCount;
  static constexpr int kPitch = kLineBytes / 16 | 1;
  static constexpr int kBytes = (kLineCount * kPitch + kLineCount / 8 * kGap) * 16;
  static constexpr int kPeriodChunks = 1;

  static WMMA_CONSTEXPR uint32_t offset(uint32_t line, uint32_t chunk) {
    return (line * kPitch + line / 8 * kGap + chunk) * 16;
  }
  static WMMA_CONSTEXPR uint32_t along(uint32_t chunk) { return chunk * 16; }
};

// Where a lane finds a line's chunks step by step. Steps differ by more than a sum only within a tile's period, so no
// more addresses than that has are kept.
template <class Tile, int kChunksOfStep, bool kStepsLoop = false>
class StepPlaces {
  static constexpr int kKept = Tile::kPeriodChunks > kChunksOfStep ? Tile::kPeriodChunks / kChunksOfStep : 1;

 public:
  WMMA_DEVICE StepPlaces() = default;
  WMMA_DEVICE StepPlaces(uint32_t line, uint32_t chunk) {
#pragma unroll
    for (int i = 0; i < kKept; ++i) at_[i] = Tile::offset(line, chunk + i * kChunksOfStep);
  }
  // In bytes, `line` lines further down: a number by which the swizzle repeats.
  WMMA_DEVICE uint32_t at(int step, int line) const {
    return at_[step % kKept] + Tile::along(step / kKept * kKept * kChunksOfStep) + line * (Tile::kPitch * 16);
  }

 private:
  uint32_t at_[kKept];
};

// The same for a step that is known at run time only, of one chunk from a line's first on: the swizzle is an exchange
// of bits below the period, which are the step's own there.
template <class Tile>
class StepPlaces<Tile, 1, true> {
  static constexpr uint32_t kPeriod = Tile::kPeriodChunks;
  static_assert((kPeriod & (kPeriod - 1)) == 0 && Tile::kPitch % kPeriod == 0, "bits of their own");

 public:
  WMMA_DEVICE StepPlaces() = default;
  WMMA_DEVICE StepPlaces(uint32_t line, uint32_t) : first_(Tile::offset(line, 0)) {}
  WMMA_DEVICE uint32_t at(uint32_t step, int line) const {
    return (first_ ^ step % kPeriod * 16) + Tile::along(step / kPeriod * kPeriod) + line * (Tile::kPitch * 16);
  }

 private:
  uint32_t first_;
};

// A wave's rows as an operand: tile m, step by step.
template <class Link, class Tile>
class RowReader {
 public:
  WMMA_DEVICE RowReader(uint32_t lane, uint32_t first_row) {
#pragma unroll
    for (int i = 0; i < Link::kRowChunks; ++i) {
      places_[i] = Places(first_row + Link::row_line(lane, i), Link::row_chunk(lane, i));
    }
  }
  template <class Address>
  WMMA_DEVICE void read(Chunk* x, Address tile, int m, int step) const {
#pragma unroll
    for (int i = 0; i < Link::kRowChunks; ++i) {
      x[i] = Link::Product::load(tile + places_[i].at(step, m * Link::kRows));
    }
  }

 private:
  using Places = StepPlaces<Tile, Link::kDepth / Link::kPerChunk, Link::kStepsLoop>;
  Places places_[Link::kRowChunks];
};

// Columns as an operand: tile n, step by step.
template <class Link, class Tile>
class ColumnReader {
 public:
  WMMA_DEVICE explicit ColumnReader(uint32_t lane) {
#pragma unroll
    for (int i = 0; i < Link::kColChunks; ++i) {
      places_[i] = Places(Link::col_line(lane, i), Link::col_chunk(lane, i));
    }
  }
  template <class Address>
  WMMA_DEVICE void read(Chunk* x, Address tile, int n, int step) const {
#pragma unroll
    for (int i = 0; i < Link::kColChunks; ++i) {
      x[i] = Link::Product::load(tile + places_[i].at(step, Link::first_line(n)));
    }
  }

 private:
  using Places = StepPlaces<Tile, Link::kDepth / Link::kPerChunk, Link::kStepsLoop>;
  Places places_[Link::kColChunks];
};

}  // namespace wmma
