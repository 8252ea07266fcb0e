// The main loop of every target: the next tile's loads are in flight, to registers, while this tile is multiplied from
// shared memory; two buffers there, one barrier a tile. The tile that K does not fill comes first, so that all others
// are whole and the loop masks nothing.
#pragma once

#include <wmma/gemm/operands.hpp>
#include <wmma/tile/staged_loader.hpp>
#include <wmma/tile/wave_tile.hpp>

namespace wmma {

template <class Product, class LoaderA, class LoaderB, int kM, int kN, int kDepth, int kWavesK>
struct StagedLoop {
  using Wave = WaveTile<Product, kM, kN>;
  using TileA = typename LoaderA::Tile;
  using TileB = typename LoaderB::Tile;
  static constexpr int kSteps = kDepth / Product::kDepth / kWavesK;
  static constexpr int kBufferBytes = TileA::kBytes + TileB::kBytes;
  static constexpr int kBytes = 2 * kBufferBytes;
  static_assert(kSteps * Product::kDepth * kWavesK == kDepth, "the waves share a tile's steps evenly");
  using Reader = OperandReader<Product, TileA, TileB, Wave::kTilesM, Wave::kTilesN, kSteps>;

  // Sums up K from where the loaders stand.
  static WMMA_DEVICE void run(Wave& wave, LoaderA& a, LoaderB& b, unsigned char* shared, int64_t k,
                              const Reader& reader) {
    if (k <= 0) return;
    const uint32_t tiles = static_cast<uint32_t>((k + kDepth - 1) / kDepth);
    // 1. The tile that K does not fill, to the first buffer.
    const int first = static_cast<int>(k - static_cast<int64_t>(tiles - 1) * kDepth);
    a.template fetch<true>(first);
    b.template fetch<true>(first);
    a.template store<true>(shared, first);
    b.template store<true>(shared + TileA::kBytes, first);
    a.advance(first);
    b.advance(first);
    arch::block_barrier();
    // 2. Of an even number of tiles one by itself: the loop takes two a round, so that each buffer's addresses are
    //    constants, and one remains after it.
    uint32_t left = tiles - 1;
    if (left % 2 != 0) {
      fetch(a, b);
      multiply(wave, shared, reader);
      arch::block_barrier();
      store(a, b, shared);
      --left;
    }
    // 3. Two tiles a round: one is on its way to a buffer while the other buffer's is multiplied.
    for (; left != 0; left -= 2) {
      step(wave, a, b, shared, shared + kBufferBytes, reader);
      step(wave, a, b, shared + kBufferBytes, shared, reader);
    }
    // 4. The last tile: nothing is on its way.
    multiply(wave, shared, reader);
  }

 private:
  // Multiplies the tile in `from` while the next one is on its way to `to`.
  static WMMA_DEVICE void step(Wave& wave, LoaderA& a, LoaderB& b, const unsigned char* from, unsigned char* to,
                               const Reader& reader) {
    fetch(a, b);
    multiply(wave, from, reader);
    store(a, b, to);
  }

  // The whole tile that comes next, put in flight.
  static WMMA_DEVICE void fetch(LoaderA& a, LoaderB& b) {
    a.template fetch<false>();
    b.template fetch<false>();
    a.advance(kDepth);
    b.advance(kDepth);
    arch::schedule_barrier();
  }

  static WMMA_DEVICE void store(LoaderA& a, LoaderB& b, unsigned char* to) {
    arch::schedule_barrier();
    a.template store<false>(to);
    b.template store<false>(to + TileA::kBytes);
    arch::block_barrier();
  }

  static WMMA_DEVICE void multiply(Wave& wave, const unsigned char* buffer, const Reader& reader) {
    typename Wave::Operands operands;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      reader.read(operands, buffer, buffer + TileA::kBytes, step);
      wave.multiply(operands);
    }
  }
};

// A product by this loop, on every target.
struct Staged {};
template <class Config, class Stage, int kThreads, int kM, int kN>
struct LoopsOf<Staged, Config, Stage, kThreads, kM, kN> {
  using Product = typename ProductOf<Config::kLanes, typename Config::Element, Config::kSide>::Type;
  using Element = typename Config::Element;
  using StagedA = StagedLoader<typename Config::A, Element, Config::kAOrder, Config::kBlockM, Config::kBlockK, kThreads,
                               Config::kAVec, Config::kWide, typename Stage::Type>;
  using StagedB = StagedLoader<typename Config::B, Element, Config::kBOrder, Config::kBlockN, Config::kBlockK, kThreads,
                               Config::kBVec, Config::kWide, PlainStage<typename Config::B, Element>>;
  using Loaders = WalkingLoaders<Config, Stage, StagedA, StagedB>;
  using Type = StagedLoop<Product, StagedA, StagedB, kM, kN, Config::kBlockK, Config::kWavesK>;
  static constexpr int kSlabSums = 1024;
};

}  // namespace wmma
