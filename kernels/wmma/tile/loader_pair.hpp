// Of a gated product two matrices of as many columns, B and the gate: their tiles lie one behind the other as one, so
// that a loop takes them for B's. A wave's products are of either in turn, the same columns of both, so that a lane has
// both sums of an element.
#pragma once

#include <wmma/tile/config.hpp>
#include <wmma/tile/wave_tile.hpp>

namespace wmma {

template <class Half>
struct TilePair {
  static constexpr int kBytes = 2 * Half::kBytes;
};

// Reads a wave's products of such tiles as `Reader` does of one.
template <class Reader, int kHalfBytes>
class PairReader {
 public:
  WMMA_DEVICE PairReader(uint32_t lane, uint32_t first, uint32_t first_step, uint32_t step_stride)
      : of_half_(lane, first / 2, first_step, step_stride) {}

  template <int kTiles, int kChunks>
  WMMA_DEVICE void read(Chunk (&x)[kTiles][kChunks], const unsigned char* tile, int step) const {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) read_tile(x[n], tile, step, n);
  }
  template <int kChunks>
  WMMA_DEVICE void read_tile(Chunk (&x)[kChunks], const unsigned char* tile, int step, int n) const {
    of_half_.read_tile(x, tile + n % 2 * kHalfBytes, step, n / 2);
  }
  WMMA_DEVICE Chunk read(uint32_t tile, int n, int step) const {
    return of_half_.read(tile + n % 2 * kHalfBytes, n / 2, step);
  }

 private:
  Reader of_half_;
};

template <class Product, class Half, bool kIsA, int kTiles, int kSteps>
class LineReader<Product, TilePair<Half>, kIsA, kTiles, kSteps>
    : public PairReader<LineReader<Product, Half, kIsA, kTiles / 2, kSteps>, Half::kBytes> {
  static_assert(kTiles % 2 == 0, "as many of either");

 public:
  using PairReader<LineReader<Product, Half, kIsA, kTiles / 2, kSteps>, Half::kBytes>::PairReader;
};

// What the loaders of all loops have.
template <class Loader>
struct LoaderPair {
  using Half = Loader;
  using Tile = TilePair<typename Loader::Tile>;
  static constexpr int kHalfBytes = Loader::Tile::kBytes;

  Loader of_b, of_gate;

  WMMA_DEVICE void advance(int64_t k) {
    of_b.advance(k);
    of_gate.advance(k);
  }
};

// Those that bring tiles by way of registers.
template <class Loader>
struct StagedPair : LoaderPair<Loader> {
  using Pair = LoaderPair<Loader>;
  using Pair::of_b, Pair::of_gate, Pair::kHalfBytes;
  static constexpr int kBlocks = 2 * Loader::kBlocks;
  static constexpr int kBlockLoads = Loader::kBlockLoads;
  static constexpr int kRegisters = 2 * Loader::kRegisters;
  static constexpr int kTransposing = Loader::kTransposing;
  static constexpr bool kWhole = Loader::kWhole;

  template <bool kMasked>
  WMMA_DEVICE void fetch(int limit = 0) {
    of_b.template fetch<kMasked>(limit);
    of_gate.template fetch<kMasked>(limit);
  }
  template <bool kMasked>
  WMMA_DEVICE void store(unsigned char* tile, int limit = 0) {
    of_b.template store<kMasked>(tile, limit);
    of_gate.template store<kMasked>(tile + kHalfBytes, limit);
  }
  WMMA_DEVICE void fetch_block(int i) {
    i < Loader::kBlocks ? of_b.fetch_block(i) : of_gate.fetch_block(i - Loader::kBlocks);
  }
  WMMA_DEVICE void store_block(unsigned char* tile, int i) {
    i < Loader::kBlocks ? of_b.store_block(tile, i) : of_gate.store_block(tile + kHalfBytes, i - Loader::kBlocks);
  }
  WMMA_DEVICE void fetch_load(int i) {
    constexpr int kLoads = Loader::kBlocks * Loader::kBlockLoads;
    i < kLoads ? of_b.fetch_load(i) : of_gate.fetch_load(i - kLoads);
  }
  WMMA_DEVICE void stored() {
    of_b.stored();
    of_gate.stored();
  }
};

// Those that copy straight to shared memory, asynchronously.
template <class Loader>
struct AsyncPair : LoaderPair<Loader> {
  using Pair = LoaderPair<Loader>;
  using Pair::of_b, Pair::of_gate, Pair::kHalfBytes;

  template <bool kMasked>
  WMMA_DEVICE void copy(uint32_t tile, int limit = 0) const {
    of_b.template copy<kMasked>(tile, limit);
    of_gate.template copy<kMasked>(tile + kHalfBytes, limit);
  }
};

// Those of a wave that copy straight to shared memory.
template <class Loader>
struct DirectPair : LoaderPair<Loader> {
  using Pair = LoaderPair<Loader>;
  using Pair::of_b, Pair::of_gate, Pair::kHalfBytes;
  static constexpr int kCopies = 2 * Loader::kCopies;
  static constexpr int kLeastCopies = 2 * Loader::kLeastCopies;
  template <class Product, bool kIsA, int kTiles, int kSteps>
  using Reader = PairReader<typename Loader::template Reader<Product, kIsA, kTiles / 2, kSteps>, kHalfBytes>;

  WMMA_DEVICE void copy(unsigned char* tile, int i) const {
    i < Loader::kCopies ? of_b.copy(tile, i) : of_gate.copy(tile + kHalfBytes, i - Loader::kCopies);
  }
  WMMA_DEVICE void copy(unsigned char* tile) const {
    of_b.copy(tile);
    of_gate.copy(tile + kHalfBytes);
  }
  WMMA_DEVICE void fill(unsigned char* tile, int limit) const {
    of_b.fill(tile, limit);
    of_gate.fill(tile + kHalfBytes, limit);
  }
};

}  // namespace wmma
