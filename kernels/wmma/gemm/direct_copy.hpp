// The main loop of gfx950 where whole 16-byte chunks go straight to shared memory: one tile is multiplied while the
// next is on its way. Operands whose memory runs across K are turned as they are read. The tile that K does not fill
// comes first, by way of registers, so that all others are whole and the loop masks nothing.
//
// Eight waves ping-pong (kPingPong): while four multiply, the others read their next operands and put what comes next
// in flight. There A has a third place, so that its tile is asked for long before the one in front of it is multiplied,
// and B too if there is room. If there is none, B's place is empty a phase before its tile's last products: it is asked
// for in that phase, and A's half a tile apart from it, as what comes at once waits in memory's queue.
#pragma once

#include <wmma/gemm/operands.hpp>
#include <wmma/tile/direct_loader.hpp>
#include <wmma/tile/wave_tile.hpp>

namespace wmma {

// `kThreads` of the block; kPlaces for tiles, which are three where eight waves ping-pong.
template <class Product, class LoaderA, class LoaderB, int kM, int kN, int kDepth, int kWavesK, int kThreads,
          int kPlaces>
struct DirectLoop {
  using Wave = WaveTile<Product, kM, kN>;
  using TileA = typename LoaderA::Tile;
  using TileB = typename LoaderB::Tile;
  static constexpr int kSteps = kDepth / Product::kDepth / kWavesK;
  static constexpr bool kPingPong = kPlaces == 3 && kThreads == 8 * arch::kWaveSize;
  static constexpr bool kSpreads = kPlaces > 2;  // copies among a tile's products; else all come ahead of them
  static constexpr bool kAllFit = kPlaces * (TileA::kBytes + TileB::kBytes) <= arch::kUnitSharedBytes;
  static constexpr int kPlacesB = kAllFit ? kPlaces : 2;
  static constexpr int kBytes = kPlaces * TileA::kBytes + kPlacesB * TileB::kBytes;
  static constexpr int kHeld = (sizeof(Wave) + 2 * sizeof(typename Wave::Operands)) / 4;
  static_assert(kSteps * Product::kDepth * kWavesK == kDepth, "the waves share a tile's steps evenly");
  static_assert(!kPingPong || (kSteps % 2 == 0 && kHeld <= 208), "two sets of registers for operands");
  static_assert(kPingPong || kAllFit, "only ping-pong knows when a place of B is empty");
  using Reader = OperandReader<typename LoaderA::template Reader<Product, true, Wave::kTilesM, kSteps>,
                               typename LoaderB::template Reader<Product, false, Wave::kTilesN, kSteps>>;

  // Sums up K from where the loaders stand.
  static WMMA_DEVICE void run(Wave& wave, LoaderA& a, LoaderB& b, unsigned char* shared, int64_t k,
                              const Reader& reader) {
    if (k <= 0) return;
    const uint32_t tiles = static_cast<uint32_t>((k + kDepth - 1) / kDepth);
    // 1. The tile that K does not fill, and those that come next.
    Places places(shared);
    const int first = static_cast<int>(k - static_cast<int64_t>(tiles - 1) * kDepth);
    if (first == kDepth) {
      copy(a, b, places, 0);
    } else {
      a.fill(places.a(0), first);
      b.fill(places.b(0), first);
      a.advance(first);
      b.advance(first);
    }
    constexpr int kNext = kSpreads ? kPlaces - 2 : 1;
#pragma unroll
    for (uint32_t i = 1; i <= kNext; ++i) {
      if (tiles > i) copy(a, b, places, i);
    }
    if (tiles > kNext) {
      arch::wait_copies<kNext * kTileCopies>();
    } else {
      arch::wait_copies<0>();
    }
    arch::shared_barrier();
    // 2. Tile by tile, others on their way while one is multiplied.
    if constexpr (kPingPong) {
      run_ping_pong(wave, a, b, places, tiles - 1, reader);
    } else {
      uint32_t left = tiles - 1;
      for (; left > kNext; --left) {
        multiply<kSpreads>(wave, a, b, places, reader);
        arch::wait_copies<kSpreads ? kNext * kTileCopies : 0>();
        arch::shared_barrier();
        if constexpr (!kSpreads) copy(a, b, places, 0);
        places.next();
      }
      for (; left != 0; --left) {
        multiply<false>(wave, a, b, places, reader);
        arch::copies_barrier();
        places.next();
      }
      multiply<false>(wave, a, b, places, reader);
    }
  }

 private:
  using Operands = typename Wave::Operands;
  static constexpr int kTileCopies = LoaderA::kLeastCopies + LoaderB::kLeastCopies;  // of a wave, at least

  // Where A's and B's tiles lie.
  class Places {
   public:
    WMMA_DEVICE explicit Places(unsigned char* shared) : start_(shared) {}
    // Of the tile that is multiplied, or the `ahead`-th after it, which is fewer than there are places.
    WMMA_DEVICE unsigned char* a(uint32_t ahead) const { return start_ + after<kPlaces>(a_, ahead) * TileA::kBytes; }
    WMMA_DEVICE unsigned char* b(uint32_t ahead) const {
      return start_ + kPlaces * TileA::kBytes + after<kPlacesB>(b_, ahead) * TileB::kBytes;
    }
    WMMA_DEVICE void next() {
      a_ = after<kPlaces>(a_, 1);
      b_ = after<kPlacesB>(b_, 1);
    }

   private:
    template <uint32_t kCount>
    static WMMA_DEVICE uint32_t after(uint32_t place, uint32_t ahead) {
      const uint32_t found = place + ahead;
      return found >= kCount ? found - kCount : found;
    }

    unsigned char* start_;
    uint32_t a_ = 0, b_ = 0;
  };

  // The same by two groups of waves, ping-pong: `left` tiles come after the first, of which the next is on its way.
  static WMMA_DEVICE void run_ping_pong(Wave& wave, LoaderA& a, LoaderB& b, Places places, uint32_t left,
                                        const Reader& reader) {
    const bool second = arch::uniform(threadIdx.x / (kThreads / 2)) != 0;
    Operands operands[2];
    read(operands[0], places, reader, 0, 0);
    if (second) arch::shared_barrier();
    for (; left > 1; --left) {
      multiply_ping_pong<true>(wave, a, b, places, reader, operands);
      places.next();
    }
    if (left != 0) {
      multiply_ping_pong<false>(wave, a, b, places, reader, operands);
      places.next();
    }
    if (!second) arch::shared_barrier();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + 1 < kSteps) read(operands[(step + 1) % 2], places, reader, 0, step + 1);
      wave.multiply(operands[step % 2]);
    }
  }

  // Multiplies a tile of which the first step's operands are there, and puts the one after the next in flight if there
  // is one (kMore). Each step is a turn at memory and one at the matrix unit.
  template <bool kMore>
  static WMMA_DEVICE void multiply_ping_pong(Wave& wave, LoaderA& a, LoaderB& b, const Places& places,
                                             const Reader& reader, Operands (&operands)[2]) {
    constexpr bool kEarlyB = kPlacesB == 3;
    constexpr int kTurnA = kEarlyB ? 0 : kSteps / 2 - 1;
    constexpr int kTurnB = kEarlyB ? kSteps - 2 : kSteps - 1;
    // Copies of the tile after the next that are in flight where the next one is waited for.
    constexpr int kLater = LoaderA::kLeastCopies + (kEarlyB ? LoaderB::kLeastCopies : 0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const bool last = step + 1 == kSteps;
      read(operands[(step + 1) % 2], places, reader, last ? 1 : 0, last ? 0 : step + 1);
      if constexpr (kMore) {
        if (step == kTurnA) copy(a, places.a(2));
        if (step == kTurnB) copy(b, places.b(kEarlyB ? 2 : 0));
      }
      if (step + 2 == kSteps) arch::wait_copies<kMore ? kLater : 0>();  // for what the next turn reads
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

  // Puts a loader's next tile in flight.
  template <class Loader>
  static WMMA_DEVICE void copy(Loader& loader, unsigned char* to) {
    loader.copy(to);
    loader.advance(kDepth);
  }

  // Of both, to the places `ahead` of those that are multiplied.
  static WMMA_DEVICE void copy(LoaderA& a, LoaderB& b, const Places& places, uint32_t ahead) {
    copy(a, places.a(ahead));
    copy(b, places.b(ahead));
  }

  static WMMA_DEVICE void read(Operands& operands, const Places& places, const Reader& reader, int ahead, int step) {
    reader.read(operands, places.a(ahead), places.b(ahead), step);
  }

  // Multiplies a tile, and puts the one in flight that goes where the one before lay (kMore): between the products, so
  // that memory's queue has room for it.
  template <bool kMore>
  static WMMA_DEVICE void multiply(Wave& wave, LoaderA& a, LoaderB& b, const Places& places, const Reader& reader) {
    constexpr int kCopies = LoaderA::kCopies + LoaderB::kCopies;
    Operands operands;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      read(operands, places, reader, 0, step);
#pragma unroll
      for (int i = 0; kMore && i < kCopies; ++i) {
        if (i * kSteps / kCopies != step) continue;
        if (i < LoaderA::kCopies) {
          a.copy(places.a(kPlaces - 1), i);
        } else {
          b.copy(places.b(kPlaces - 1), i - LoaderA::kCopies);
        }
      }
      wave.multiply(operands);
    }
    if constexpr (kMore) {
      a.advance(kDepth);
      b.advance(kDepth);
    }
  }
};

// A product by this loop.
struct DirectCopy {};
template <class Config, class Stage, int kThreads, int kM, int kN>
struct LoopsOf<DirectCopy, Config, Stage, kThreads, kM, kN> {
  using Product = MatrixProduct<typename Config::Element, Config::kSide>;
  using LoaderA = DirectLoader<typename Config::A, Config::kAOrder, Config::kBlockM, Config::kBlockK, kThreads>;
  using OfColumns = DirectLoader<typename Config::B, Config::kBOrder, kColumnsOf<Config>, Config::kBlockK, kThreads>;
  using LoaderB = Choose<kIsGated<Config>, DirectPair<OfColumns>, OfColumns>;
  using Loaders = WalkingLoaders<Config, Stage, LoaderA, LoaderB>;
  using Type =
      DirectLoop<Product, LoaderA, LoaderB, kM, kN, Config::kBlockK, Config::kWavesK, kThreads, Config::kStages>;
  static constexpr int kSlabSums = 1024;
  static constexpr int kMostSlabs = kAllSlabs;
};

}  // namespace wmma
