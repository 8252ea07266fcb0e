// The main loop of every target: the next tile's loads are in flight, to registers, while this tile is multiplied from
// shared memory; two buffers there, one barrier a tile. The tile that K does not fill comes first, so that all others
// are whole and the loop masks nothing.
//
// Where two groups of four waves ping-pong (kPingPong), registers hold the next tile when a step begins. While one
// group multiplies, the other stores it to shared memory, puts the one after it in flight and reads its next operands:
// so stores wait for no loads, and the matrix pipe for neither.
//
// On gfx12 (kPassesOn) registers hold the next tile as well, and the operands of the next step: a wave passes its part
// on and reads ahead among its products.
#pragma once

#include <wmma/gemm/operands.hpp>
#include <wmma/tile/staged_loader.hpp>
#include <wmma/tile/wave_tile.hpp>

namespace wmma {

// `kThreads` of the block, where its waves hold nothing beside.
template <class Product, class LoaderA, class LoaderB, int kM, int kN, int kDepth, int kWavesK, int kThreads = 0>
struct StagedLoop {
  using Wave = WaveTile<Product, kM, kN>;
  using TileA = typename LoaderA::Tile;
  using TileB = typename LoaderB::Tile;
  static constexpr int kSteps = kDepth / Product::kDepth / kWavesK;
  static constexpr int kBufferBytes = TileA::kBytes + TileB::kBytes;
  static constexpr int kBytes = 2 * kBufferBytes;
  static_assert(kSteps * Product::kDepth * kWavesK == kDepth, "the waves share a tile's steps evenly");
  // Two groups of waves, of which one multiplies while the other is at memory: where a lane's 256 registers hold the
  // sums, the operands of two steps, its part of a tile on its way, and what transposes that. More than 16 on their
  // way, odd loads and prologues spill, or have addresses worked out again.
  static constexpr int kOnTheirWay = LoaderA::kRegisters + LoaderB::kRegisters;
  static constexpr int kTransposing =
      LoaderA::kTransposing > LoaderB::kTransposing ? LoaderA::kTransposing : LoaderB::kTransposing;
  static constexpr int kHeld = (sizeof(Wave) + 2 * sizeof(typename Wave::Operands)) / 4 + kOnTheirWay + kTransposing;
  static constexpr bool kPingPong = arch::kTakesTurns && kThreads == 8 * arch::kWaveSize && LoaderA::kWhole &&
                                    LoaderB::kWhole && kSteps > 1 && kOnTheirWay <= 16 && kHeld <= 208;
  // The same by each wave for itself, between its products, where these are enough to hide its loads behind. What a
  // lane may hold was found by compiling.
  static constexpr int kBlocks = LoaderA::kBlocks + LoaderB::kBlocks;
  static constexpr int kLoadsA = LoaderA::kBlocks * LoaderA::kBlockLoads;
  static constexpr int kLoads = kLoadsA + LoaderB::kBlocks * LoaderB::kBlockLoads;
  static constexpr int kRows = kSteps * Wave::kTilesM;  // of products
  static constexpr bool kHidesLoads = 5 * kLoads <= kRows * Wave::kTilesN;
  static constexpr bool kPassesOn = arch::kReadsRowsAhead && kThreads != 0 && LoaderA::kWhole && LoaderB::kWhole &&
                                    kSteps > 1 && kHidesLoads&& kHeld <= 232;
  using Reader = OperandReader<LineReader<Product, TileA, true, Wave::kTilesM, kSteps>,
                               LineReader<Product, TileB, false, Wave::kTilesN, kSteps>>;

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
    uint32_t left = tiles - 1;
    if constexpr (kPingPong || kPassesOn) {
      run_ahead(wave, a, b, shared, left, reader);
      return;
    }
    arch::tile_barrier();
    // 2. Of an even number of tiles one by itself: the loop takes two a round, so that each buffer's addresses are
    //    constants, and one remains after it.
    if (left % 2 != 0) {
      fetch(a, b);
      multiply(wave, shared, reader);
      arch::tile_barrier();
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
  using Operands = typename Wave::Operands;

  // The same where registers hold a tile and a step's operands ahead: `left` tiles come after the one in the first
  // buffer.
  static WMMA_DEVICE void run_ahead(Wave& wave, LoaderA& a, LoaderB& b, unsigned char* shared, uint32_t left,
                                    const Reader& reader) {
    unsigned char* const other = shared + kBufferBytes;
    if (left != 0) fetch(a, b);
    arch::shared_barrier();
    if (left == 0) return multiply(wave, shared, reader);
    if (left % 2 == 0) {
      multiply(wave, shared, reader);
      arch::shared_barrier();
      store(a, b, shared);
      fetch(a, b);
      --left;
    }
    const bool second = kPingPong && arch::uniform(threadIdx.x / (kThreads / 2)) != 0;
    Operands operands[2];
    read(operands[0], shared, reader, 0);
    if (second) arch::shared_barrier();
    for (; left != 1; left -= 2) {
      step_ahead<true, 0>(wave, a, b, shared, other, reader, operands);
      step_ahead<true, kSteps % 2>(wave, a, b, other, shared, reader, operands);
    }
    step_ahead<false, 0>(wave, a, b, shared, other, reader, operands);
    if (kPingPong && !second) arch::shared_barrier();
#pragma unroll
    for (int step = kSteps; step < 2 * kSteps; ++step) {
      if (step + 1 < 2 * kSteps) read(operands[(step + 1) % 2], other, reader, step + 1 - kSteps);
      wave.multiply(operands[step % 2]);
    }
  }

  // Multiplies the tile in `from`, of which the first step's operands are there, while the next one goes from registers
  // to `to` and the one after it is put in flight.
  template <bool kFetches, int kAt>
  static WMMA_DEVICE void step_ahead(Wave& wave, LoaderA& a, LoaderB& b, const unsigned char* from, unsigned char* to,
                                     const Reader& reader, Operands (&operands)[2]) {
    if constexpr (kPingPong) {
      step_ping_pong<kFetches, kAt>(wave, a, b, from, to, reader, operands);
    } else {
      step_passing_on<kFetches, kAt>(wave, a, b, from, to, reader, operands);
    }
  }

  // Each step is a turn at memory and one at the matrix unit.
  template <bool kFetches, int kAt>
  static WMMA_DEVICE void step_ping_pong(Wave& wave, LoaderA& a, LoaderB& b, const unsigned char* from,
                                         unsigned char* to, const Reader& reader, Operands (&operands)[2]) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const bool last = step + 1 == kSteps;
      Operands& next = operands[(kAt + step + 1) % 2];
      // What `to` holds of the next tile the other group wrote a turn ago.
      read(next, last ? to : from, reader, last ? 0 : step + 1);
      if (!last) {
        pass<kFetches>(a, b, to, step);
      } else {
        a.stored();
        b.stored();
        if constexpr (kFetches) {
          a.advance(kDepth);
          b.advance(kDepth);
        }
      }
      arch::shared_barrier();
      arch::schedule_barrier();
      arch::priority<1>();
      wave.multiply(operands[(kAt + step) % 2]);
      arch::priority<0>();
      arch::schedule_barrier();
      arch::shared_barrier();
      arch::schedule_barrier();
    }
  }

  // The next tile is stored in all rows of products but the last ones, which read its first operands behind the
  // barrier, each part making room for the same of the tile after it. Until the barrier a wave goes first, so that
  // blocks on a SIMD alternate.
  template <bool kFetches, int kAt>
  static WMMA_DEVICE void step_passing_on(Wave& wave, LoaderA& a, LoaderB& b, const unsigned char* from,
                                          unsigned char* to, const Reader& reader, Operands (&operands)[2]) {
    constexpr int kLastRows = (Wave::kTilesM + 1) / 2;
    constexpr int kStoreRows = kRows - kLastRows;
    constexpr int kReads = Wave::kTilesM + Wave::kTilesN;
    arch::priority<1>();
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const int step = row / Wave::kTilesM;
      const int of_step = row % Wave::kTilesM;
      const bool last = step + 1 == kSteps;
      if (row == kStoreRows) {
        arch::shared_barrier();
        arch::priority<0>();
      }
#pragma unroll
      for (int i = 0; i < kReads; ++i) {
        const int at = last ? Wave::kTilesM - kLastRows + i * kLastRows / kReads : i * Wave::kTilesM / kReads;
        if (at != of_step) continue;
        const unsigned char* const tile = last ? to : from;
        reader.read_tile(operands[(kAt + step + 1) % 2], tile, tile + TileA::kBytes, last ? 0 : step + 1, i);
      }
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        if (i * kStoreRows / kBlocks == row) store_block(a, b, to, i);
      }
#pragma unroll
      for (int i = 0; kFetches && i < kLoads; ++i) {
        const int block =
            i < kLoadsA ? i / LoaderA::kBlockLoads : LoaderA::kBlocks + (i - kLoadsA) / LoaderB::kBlockLoads;
        const int stored = block * kStoreRows / kBlocks;
        if (detail::upper(i * kStoreRows / kLoads, stored) == row) fetch_load(a, b, i);
      }
      wave.multiply_row(operands[(kAt + step) % 2], of_step);
      arch::schedule_barrier();
    }
    a.stored();
    b.stored();
    if constexpr (kFetches) {
      a.advance(kDepth);
      b.advance(kDepth);
    }
  }

  // A tile goes to shared memory in parts, in all steps but the last, each making room for the same of the tile after
  // it.
  template <bool kFetches>
  static WMMA_DEVICE void pass(LoaderA& a, LoaderB& b, unsigned char* to, int part) {
#pragma unroll
    for (int i = part; i < kBlocks; i += kSteps - 1) {
      if (i < LoaderA::kBlocks) {
        a.store_block(to, i);
        if constexpr (kFetches) a.fetch_block(i);
      } else {
        b.store_block(to + TileA::kBytes, i - LoaderA::kBlocks);
        if constexpr (kFetches) b.fetch_block(i - LoaderA::kBlocks);
      }
    }
  }

  // A thread's blocks and loads, A's before B's.
  static WMMA_DEVICE void store_block(LoaderA& a, LoaderB& b, unsigned char* to, int i) {
    if (i < LoaderA::kBlocks) {
      a.store_block(to, i);
    } else {
      b.store_block(to + TileA::kBytes, i - LoaderA::kBlocks);
    }
  }
  static WMMA_DEVICE void fetch_load(LoaderA& a, LoaderB& b, int i) {
    if (i < kLoadsA) {
      a.fetch_load(i);
    } else {
      b.fetch_load(i - kLoadsA);
    }
  }

  static WMMA_DEVICE void read(Operands& operands, const unsigned char* tile, const Reader& reader, int step) {
    reader.read(operands, tile, tile + TileA::kBytes, step);
  }

  // Multiplies the tile in `from` while the next one is on its way to `to`.
  static WMMA_DEVICE void step(Wave& wave, LoaderA& a, LoaderB& b, const unsigned char* from, unsigned char* to,
                               const Reader& reader) {
    if constexpr (arch::kSpreadsLoads) {
      multiply_and_fetch(wave, a, b, from, reader);
    } else {
      fetch(a, b);
      multiply(wave, from, reader);
    }
    store(a, b, to);
  }

  // The loads of the tile that comes next lie evenly among the products, so that the memory's queue has room for each.
  static WMMA_DEVICE void multiply_and_fetch(Wave& wave, LoaderA& a, LoaderB& b, const unsigned char* from,
                                             const Reader& reader) {
    constexpr int kLoadsOfRow = (kLoads + kRows - 1) / kRows;
    Operands operands;
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      if (row % Wave::kTilesM == 0) read(operands, from, reader, row / Wave::kTilesM);
#pragma unroll
      for (int i = row * kLoadsOfRow; i < (row + 1) * kLoadsOfRow && i < kLoads; ++i) fetch_load(a, b, i);
      wave.multiply_row(operands, row % Wave::kTilesM);
      arch::schedule_barrier();
    }
    a.advance(kDepth);
    b.advance(kDepth);
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
    if constexpr (arch::kSpreadsLoads) arch::priority<1>();
    a.template store<false>(to);
    b.template store<false>(to + TileA::kBytes);
    arch::tile_barrier();
    if constexpr (arch::kSpreadsLoads) arch::priority<0>();
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
  using OfColumns = StagedLoader<typename Config::B, Element, Config::kBOrder, kColumnsOf<Config>, Config::kBlockK,
                                 kThreads, Config::kBVec, Config::kWide, StageOfB<Config>>;
  using StagedB = Choose<kIsGated<Config>, StagedPair<OfColumns>, OfColumns>;
  using Loaders = WalkingLoaders<Config, Stage, StagedA, StagedB>;
  using Type = StagedLoop<Product, StagedA, StagedB, kM, kN, Config::kBlockK, Config::kWavesK,
                          kHasSecondPair<Config> ? 0 : kThreads>;
  static constexpr int kSlabSums = 1024;
  static constexpr int kMostSlabs = kAllSlabs;
};

}  // namespace wmma
