// The main loop of sm_80 and later where whole 16-byte chunks go to shared memory as they are: kStages tiles there,
// filled by asynchronous copies while one is multiplied. Operands of 16 bits whose memory runs across K stay that way;
// ldmatrix transposes them on the way to registers. The tile that K does not fill comes first.
#pragma once

#include <wmma/gemm/operands.hpp>
#include <wmma/tile/async_loader.hpp>
#include <wmma/tile/wave_tile.hpp>

namespace wmma {

// Where a wave's lanes find an operand's chunks. Along K, steps lie apart by more than a sum and tiles by a constant;
// across K it is the other way round.
template <class Product, class Tile, bool kAlong, bool kIsA, int kTiles, int kSteps>
class ChunkReader {
  static constexpr int kSide = kIsA ? Product::kRows : Product::kCols;
  static constexpr int kAddresses = kAlong ? kSteps : kTiles;

 public:
  WMMA_DEVICE ChunkReader(uint32_t lane, uint32_t first, uint32_t first_step, uint32_t step_stride) {
    constexpr int kChunksOfStep = Product::kDepth / Product::kPerChunk;
#pragma unroll
    for (int i = 0; i < kAddresses; ++i) {
      if constexpr (kAlong) {
        const uint32_t line = first + (kIsA ? Product::a_line(lane, 0) : Product::b_line(lane, 0));
        const uint32_t chunk = (first_step + i * step_stride) * kChunksOfStep +
                               (kIsA ? Product::a_chunk(lane, 0) : Product::b_chunk(lane, 0));
        at_[i] = Tile::offset(line, chunk);
      } else {
        const uint32_t line =
            first_step * Product::kDepth + (kIsA ? Product::a_depth_line(lane) : Product::b_depth_line(lane));
        const uint32_t chunk = (first + i * kSide) / Product::kPerChunk +
                               (kIsA ? Product::a_outer_chunk(lane) : Product::b_outer_chunk(lane));
        at_[i] = Tile::offset(line, chunk);
      }
    }
    step_bytes_ = step_stride * Product::kDepth * Tile::kPitch * 16;
  }

  WMMA_DEVICE Chunk read(uint32_t tile, int index, int step) const {
    Chunk chunk;
    if constexpr (kAlong) {
      arch::ldmatrix_x4<false>(chunk.words, tile + at_[step] + index * (kSide * Tile::kPitch * 16));
    } else {
      arch::ldmatrix_x4<true>(chunk.words, tile + at_[index] + step * step_bytes_);
    }
    return chunk;
  }

 private:
  static_assert((kAlong ? kSide : Product::kDepth) % Tile::kPeriod == 0, "the swizzle repeats");
  uint32_t at_[kAddresses];
  uint32_t step_bytes_;
};

template <class Product, class Half, bool kAlong, bool kIsA, int kTiles, int kSteps>
class ChunkReader<Product, TilePair<Half>, kAlong, kIsA, kTiles, kSteps>
    : public PairReader<ChunkReader<Product, Half, kAlong, kIsA, kTiles / 2, kSteps>, Half::kBytes> {
  static_assert(kTiles % 2 == 0, "as many of either");

 public:
  using PairReader<ChunkReader<Product, Half, kAlong, kIsA, kTiles / 2, kSteps>, Half::kBytes>::PairReader;
};

// kStages tiles of A and B in shared memory, filled in turn by asynchronous copies; all but one are asked for at once.
// The tile that K does not fill comes first, so that only its copies are masked.
template <class LoaderA, class LoaderB, int kDepth, int kStages>
class TileRing {
  using Places = StagePlaces<typename LoaderA::Tile, typename LoaderB::Tile>;

 public:
  static constexpr int kBytes = kStages * static_cast<int>(Places::kStageBytes);

  // `k` is not 0.
  WMMA_DEVICE TileRing(LoaderA& a, LoaderB& b, unsigned char* shared, int64_t k)
      : places_{arch::shared_address(shared)}, tiles_(static_cast<uint32_t>((k + kDepth - 1) / kDepth)), asked_(1) {
    const int first = static_cast<int>(k - static_cast<int64_t>(tiles_ - 1) * kDepth);
    a.template copy<true>(places_.a(0), first);
    b.template copy<true>(places_.b(0), first);
    arch::commit_async();
    a.advance(first);
    b.advance(first);
#pragma unroll 1  // what code runs first is fetched from memory: the less of it, the sooner the last tile is asked for
    for (int stage = 1; stage < kStages - 1; ++stage) ask(a, b, stage);
  }

  WMMA_DEVICE uint32_t tiles() const { return tiles_; }
  WMMA_DEVICE uint32_t a(uint32_t stage) const { return places_.a(stage); }
  WMMA_DEVICE uint32_t b(uint32_t stage) const { return places_.b(stage); }

  // The next tile, if there is one, is on its way to a stage: a group of copies either way.
  WMMA_DEVICE void ask(LoaderA& a, LoaderB& b, uint32_t stage) {
    if (asked_ < tiles_) {
      a.template copy<false>(places_.a(stage));
      b.template copy<false>(places_.b(stage));
      a.advance(kDepth);
      b.advance(kDepth);
    }
    ++asked_;
    arch::commit_async();
  }

 private:
  Places places_;
  uint32_t tiles_;
  uint32_t asked_;  // tiles whose copies were started
};

template <class Product, class LoaderA, class LoaderB, bool kAlongA, bool kAlongB, int kM, int kN, int kDepth,
          int kWavesK, int kStages>
struct AsyncLoop {
  using Wave = WaveTile<Product, kM, kN>;
  using TileA = typename LoaderA::Tile;
  using TileB = typename LoaderB::Tile;
  static constexpr int kSteps = kDepth / Product::kDepth / kWavesK;
  using Ring = TileRing<LoaderA, LoaderB, kDepth, kStages>;
  static constexpr int kBytes = Ring::kBytes;
  static_assert(kSteps * Product::kDepth * kWavesK == kDepth, "the waves share a tile's steps evenly");
  static_assert(kStages >= 2, "one tile is multiplied while others arrive");

  struct Reader {
    ChunkReader<Product, TileA, kAlongA, true, Wave::kTilesM, kSteps> a;
    ChunkReader<Product, TileB, kAlongB, false, Wave::kTilesN, kSteps> b;

    WMMA_DEVICE Reader(uint32_t lane, uint32_t first_row, uint32_t first_col, uint32_t first_step, uint32_t step_stride)
        : a(lane, first_row, first_step, step_stride), b(lane, first_col, first_step, step_stride) {}

    WMMA_DEVICE void read(typename Wave::Operands& x, uint32_t stage, int step) const {
#pragma unroll
      for (int m = 0; m < Wave::kTilesM; ++m) x.a[m][0] = a.read(stage, m, step);
#pragma unroll
      for (int n = 0; n < Wave::kTilesN; ++n) x.b[n][0] = b.read(stage + TileA::kBytes, n, step);
    }
  };

  static WMMA_DEVICE void run(Wave& wave, LoaderA& a, LoaderB& b, unsigned char* shared, int64_t k,
                              const Reader& reader) {
    if (k <= 0) return;
    // 1. All stages but one are asked for; the first has come when no more than the others are on their way.
    Ring ring(a, b, shared, k);
    arch::wait_async<kStages - 2>();
    arch::block_barrier();
    uint32_t stage = 0;             // that is multiplied
    uint32_t filled = kStages - 1;  // that is filled next
    typename Wave::Operands operands[2];
    // 2. Tile by tile, operands being read a step ahead of their product, over the tile's end too.
    reader.read(operands[0], ring.a(0), 0);
    for (uint32_t tile = 0; tile < ring.tiles(); ++tile) {
      const uint32_t next = stage + 1 == kStages ? 0 : stage + 1;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (step + 1 < kSteps) {
          reader.read(operands[(step + 1) % 2], ring.a(stage), step + 1);
        } else {
          // 3. The next tile is there, and everyone is done with reading this one.
          arch::wait_async<kStages - 2>();
          arch::block_barrier();
          reader.read(operands[(step + 1) % 2], ring.a(next), 0);
        }
        if (step == 0) ring.ask(a, b, filled);  // 4. into the stage that the tile before this one left
        wave.multiply(operands[step % 2]);
      }
      if constexpr (kSteps % 2 != 0) operands[0] = operands[1];
      filled = stage;
      stage = next;
    }
  }
};

// A product by this loop.
struct AsyncCopy {};
template <class Config, class Stage, int kThreads, int kM, int kN>
struct LoopsOf<AsyncCopy, Config, Stage, kThreads, kM, kN> {
  using Product = MatrixProduct<typename Config::Element, Config::kSide>;
  template <class T, Order kOrder, int kOuter>
  using Loader = AsyncLoader<T, kOrder, kOuter, Config::kBlockK, kThreads>;
  using LoaderA = Loader<typename Config::A, Config::kAOrder, Config::kBlockM>;
  using OfColumns = Loader<typename Config::B, Config::kBOrder, kColumnsOf<Config>>;
  using LoaderB = Choose<kIsGated<Config>, AsyncPair<OfColumns>, OfColumns>;
  using Loaders = WalkingLoaders<Config, Stage, LoaderA, LoaderB>;
  using Type = AsyncLoop<Product, LoaderA, LoaderB, Config::kAOrder == Order::kAlongK,
                         Config::kBOrder == Order::kAlongK, kM, kN, Config::kBlockK, Config::kWavesK, Config::kStages>;
  static constexpr int kSlabSums = 1024;
  static constexpr int kMostSlabs = kAllSlabs;
};

}  // namespace wmma
