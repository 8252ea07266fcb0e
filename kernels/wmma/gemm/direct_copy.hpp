// The main loop of gfx950 where whole 16-byte chunks go straight to shared memory: two tiles there, one on its way
// while the other is multiplied. Operands whose memory runs across K are turned as they are read. The tile that K does
// not fill comes first, by way of registers, so that all others are whole and the loop masks nothing.
//
// Eight waves take turns (kInTurns): while four multiply, the others read their next operands and put what comes next
// in flight. Of a tile's reads the last are a turn before its last products: so the first half of the tile after next
// is asked for in that turn, the second in the one that follows, and both are waited for two steps later.
#pragma once

#include <wmma/gemm/operands.hpp>
#include <wmma/tile/direct_loader.hpp>
#include <wmma/tile/wave_tile.hpp>

namespace wmma {

// `kThreads` of the block, where its waves hold nothing beside.
template <class Product, class LoaderA, class LoaderB, int kM, int kN, int kDepth, int kWavesK, int kThreads = 0>
struct DirectLoop {
  using Wave = WaveTile<Product, kM, kN>;
  using TileA = typename LoaderA::Tile;
  using TileB = typename LoaderB::Tile;
  static constexpr int kSteps = kDepth / Product::kDepth / kWavesK;
  static constexpr int kBufferBytes = TileA::kBytes + TileB::kBytes;
  static constexpr int kBytes = 2 * kBufferBytes;
  static_assert(kSteps * Product::kDepth * kWavesK == kDepth, "the waves share a tile's steps evenly");
  static constexpr int kHeld = (sizeof(Wave) + 2 * sizeof(typename Wave::Operands)) / 4;
  static constexpr bool kInTurns = kThreads == 8 * arch::kWaveSize && kSteps % 2 == 0 && kHeld <= 208;
  static constexpr int kParts = kInTurns && kSteps > 2 ? 2 : 1;  // of a tile's copies, in a step each
  using Reader = OperandReader<typename LoaderA::template Reader<Product, true, Wave::kTilesM, kSteps>,
                               typename LoaderB::template Reader<Product, false, Wave::kTilesN, kSteps>>;

  // Sums up K from where the loaders stand.
  static WMMA_DEVICE void run(Wave& wave, LoaderA& a, LoaderB& b, unsigned char* shared, int64_t k,
                              const Reader& reader) {
    if (k <= 0) return;
    const uint32_t tiles = static_cast<uint32_t>((k + kDepth - 1) / kDepth);
    // 1. The tile that K does not fill, and of the next one the first part.
    const int first = static_cast<int>(k - static_cast<int64_t>(tiles - 1) * kDepth);
    if (first == kDepth) {
      copy<0, kParts>(a, b, shared);
    } else {
      a.fill(shared, first);
      b.fill(shared + TileA::kBytes, first);
      a.advance(first);
      b.advance(first);
    }
    if (tiles > 1) copy<0, 1>(a, b, shared + kBufferBytes);
    if (tiles > 1) {
      arch::wait_copies<kFirstPart>();
    } else {
      arch::wait_copies<0>();
    }
    arch::shared_barrier();
    // 2. Tile by tile, one on its way while the other is multiplied.
    if constexpr (kInTurns) {
      run_in_turns(wave, a, b, shared, tiles - 1, reader);
    } else {
      uint32_t buffer = 0;
      for (uint32_t left = tiles - 1; left != 0; --left, buffer ^= 1) {
        multiply(wave, shared + buffer * kBufferBytes, reader);
        arch::copies_barrier();
        if (left > 1) copy<0, kParts>(a, b, shared + buffer * kBufferBytes);
      }
      multiply(wave, shared + buffer * kBufferBytes, reader);
    }
  }

 private:
  using Operands = typename Wave::Operands;
  static constexpr int kCopies = LoaderA::kCopies + LoaderB::kCopies;
  static constexpr int kFirst = kCopies / kParts;
  // At least so many copies of each wave are a tile's first part.
  static constexpr int kFirstPart =
      kFirst < LoaderA::kCopies
          ? detail::lower(kFirst, LoaderA::kLeastCopies)
          : LoaderA::kLeastCopies + detail::lower(kFirst - LoaderA::kCopies, LoaderB::kLeastCopies);

  // The same by two groups of waves in turns: `left` tiles come after the one in the first buffer, of the next of which
  // the first part is on its way.
  static WMMA_DEVICE void run_in_turns(Wave& wave, LoaderA& a, LoaderB& b, unsigned char* shared, uint32_t left,
                                       const Reader& reader) {
    const bool second = arch::uniform(threadIdx.x / (kThreads / 2)) != 0;
    Operands operands[2];
    read(operands[0], shared, reader, 0);
    if (second) arch::shared_barrier();
    uint32_t buffer = 0;
    for (; left != 0; --left, buffer ^= 1) {
      step_in_turns(wave, a, b, shared + buffer * kBufferBytes, shared + (buffer ^ 1) * kBufferBytes, reader, operands,
                    left > 1);
    }
    if (!second) arch::shared_barrier();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + 1 < kSteps) read(operands[(step + 1) % 2], shared + buffer * kBufferBytes, reader, step + 1);
      wave.multiply(operands[step % 2]);
    }
  }

  // Multiplies the tile in `from`, of which the first step's operands are there. Each step is a turn at memory and one
  // at the matrix unit.
  static WMMA_DEVICE void step_in_turns(Wave& wave, LoaderA& a, LoaderB& b, unsigned char* from, unsigned char* to,
                                        const Reader& reader, Operands (&operands)[2], bool more) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const bool last = step + 1 == kSteps;
      read(operands[(step + 1) % 2], last ? to : from, reader, last ? 0 : step + 1);
      if (step == 0 && kParts == 2) copy<1, 2>(a, b, to);
      if (last && more) copy<0, 1>(a, b, from);
      if (step + 2 == kSteps) arch::wait_copies<0>();  // for what the next turn reads
      arch::shared_barrier();
      arch::schedule_barrier();
      arch::priority<1>();
      wave.multiply(operands[step % 2]);
      arch::priority<0>();
      arch::schedule_barrier();
      arch::shared_barrier();
      arch::schedule_barrier();
    }
  }

  // The parts kBegin … kEnd of the tile that comes next, put in flight.
  template <int kBegin, int kEnd>
  static WMMA_DEVICE void copy(LoaderA& a, LoaderB& b, unsigned char* to) {
#pragma unroll
    for (int i = kBegin * kFirst; i < (kEnd == kParts ? kCopies : kEnd * kFirst); ++i) {
      if (i < LoaderA::kCopies) {
        a.copy(to, i);
      } else {
        b.copy(to + TileA::kBytes, i - LoaderA::kCopies);
      }
    }
    if constexpr (kEnd == kParts) {
      a.advance(kDepth);
      b.advance(kDepth);
    }
  }

  static WMMA_DEVICE void read(Operands& operands, const unsigned char* tile, const Reader& reader, int step) {
    reader.read(operands, tile, tile + TileA::kBytes, step);
  }

  static WMMA_DEVICE void multiply(Wave& wave, const unsigned char* buffer, const Reader& reader) {
    Operands operands;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      read(operands, buffer, reader, step);
      wave.multiply(operands);
    }
  }
};

// A product by this loop.
struct DirectCopy {};
template <class Config, class Stage, int kThreads, int kM, int kN>
struct LoopsOf<DirectCopy, Config, Stage, kThreads, kM, kN> {
  using Product = MatrixProduct<typename Config::Element, Config::kSide>;
  using LoaderA = DirectLoader<typename Config::A, Config::kAOrder, Config::kBlockM, Config::kBlockK, kThreads>;
  using LoaderB = DirectLoader<typename Config::B, Config::kBOrder, Config::kBlockN, Config::kBlockK, kThreads>;
  using Loaders = WalkingLoaders<Config, Stage, LoaderA, LoaderB>;
  using Type = DirectLoop<Product, LoaderA, LoaderB, kM, kN, Config::kBlockK, Config::kWavesK,
                          kHasSecondPair<Config> ? 0 : kThreads>;
  static constexpr int kSlabSums = 1024;
  static constexpr int kMostSlabs = kAllSlabs;
};

}  // namespace wmma
