// The GEMM kernel of loops in which waves multiply by themselves, for any configuration; see gemm.hip. The loop's own
// header stands before: it says how a kernel runs by it.
#pragma once

#include <wmma/gemm/operands.hpp>
#include <wmma/tile/epilogue.hpp>
#include <wmma/tile/gated_store.hpp>

namespace wmma {

// The same loop over the second pair, into the same sums; nothing where there is none.
template <class Config, int kThreads, int kM, int kN, bool kThere = kHasSecondPair<Config>>
struct SecondLoop {
  static constexpr int kBytes = 0;
};
template <class Config, int kThreads, int kM, int kN>
struct SecondLoop<Config, kThreads, kM, kN, true> {
  using Pair = SecondPair<Config>;
  using Loops = LoopsOf<typename Config::Loop, Pair, StageOf<false, Pair>, kThreads, kM, kN>;
  using Loop = typename Loops::Type;
  using Reader = typename Loop::Reader;
  static constexpr int kBytes = Loop::kBytes;

  static WMMA_DEVICE void run(typename Loop::Wave& sums, const GemmArguments& p, uint32_t batch, int64_t row,
                              int64_t column, const KPart& part, uint32_t thread, unsigned char* shared,
                              const Reader& reader) {
    auto loader_a = Loops::Loaders::a(p, batch, row, part.first, thread);
    auto loader_b = Loops::Loaders::b(p, batch, column, part.first, thread);
    if constexpr (kBytes > 0) arch::block_barrier();  // its tiles lie where the first pair's lay
    Loop::run(sums, loader_a, loader_b, shared, part.count, reader);
  }
};

template <class Config, class Way = typename Config::Loop>
struct GemmKernel {
  using Element = typename Config::Element;
  using Tiles = typename Config::Tiles;
  static constexpr int kWaves = Config::kWavesM * Config::kWavesN * Config::kWavesK;
  static constexpr int kThreads = kWaves * arch::kWaveSize;
  static constexpr int kClusterBlocks = Tiles::kCluster;
  static constexpr int kWaveM = Config::kBlockM / Config::kWavesM;
  static constexpr int kWaveN = Config::kBlockN / Config::kWavesN;
  using Stage = StageOf<!kIsNone<typename Config::AScale> || Config::kAActivation != kNone, Config>;

  using Loops = LoopsOf<typename Config::Loop, Config, Stage, kThreads, kWaveM, kWaveN>;
  using Product = typename Loops::Product;
  using Wave = WaveTile<Product, kWaveM, kWaveN>;
  using Store = Choose<kIsGated<Config>, GatedStore<Config, Product, kWaveM, kWaveN, Loops::kSlabSums>,
                       WaveStore<Config, Product, kWaveM, kWaveN, Loops::kSlabSums, Loops::kMostSlabs>>;
  using Loaders = typename Loops::Loaders;
  using Loop = typename Loops::Type;
  using Arguments = typename Loaders::Arguments;

  using Second = SecondLoop<Config, kThreads, kWaveM, kWaveN>;

  static constexpr int kStoreBytes = kWaves * Store::kWaveBytes;
  static constexpr int kLoopBytes = Loop::kBytes > Second::kBytes ? Loop::kBytes : Second::kBytes;
  static constexpr int kSharedBytes = kLoopBytes > kStoreBytes ? kLoopBytes : kStoreBytes;

  static WMMA_DEVICE void run(const Arguments& p) {
    unsigned char* shared = dynamic_shared<unsigned char>();
    const uint32_t thread = threadIdx.x;
    const uint32_t lane = lane_id();
    const uint32_t wave = uniform(thread / arch::kWaveSize);
    const uint32_t wave_k = wave % Config::kWavesK;
    const uint32_t wave_n = wave / Config::kWavesK % Config::kWavesN;
    const uint32_t wave_m = wave / Config::kWavesK / Config::kWavesN;
    // 1. Which tile, and which part of its K.
    Tiles tiles;
    const BlockTile tile = tiles.tile(p);
    const TileIndex index = Tiles::index(p, tile.number);
    const int64_t row = Tiles::row(index);
    const int64_t column = Tiles::column(index);
    const KPart part = Tiles::k(p, tile);
    const typename Loop::Reader reader(lane, wave_m * kWaveM, wave_n * kWaveN, wave_k, Config::kWavesK);
    unsigned char* slab = shared + (wave - wave_k) * Store::kWaveBytes;

    arch::await_previous();
    // Not before: what comes next relies on all but this kernel being done.
    if constexpr (Tiles::kIsSplit) arch::let_next_start();
    do {
      const uint32_t batch = tiles.batch(p);
      auto loader_a = Loaders::a(p, batch, row, part.first, thread);
      auto loader_b = Loaders::b(p, batch, column, part.first, thread);
      if (!tile.is_partial) {
        const Epilogue<Config, typename Product::Compute> epilogue(p, batch);
        epilogue.template prefetch<Config::kBlockM, kColumnsOf<Config>, kThreads>(row, column, thread);
      }
      // 2. The loop, over the first pair and then over the second.
      Wave sums;
      sums.clear();
      Loop::run(sums, loader_a, loader_b, shared, part.count, reader);
      if constexpr (kHasSecondPair<Config>) {
        if (const KPart more = Tiles::second_k(p, tile); more.count > 0) {
          // As new: what the first loop had worked out of them would keep its registers until here.
          uint32_t same_thread = thread, same_lane = lane;
          arch::renew(same_thread);
          arch::renew(same_lane);
          const typename Second::Reader second(same_lane, wave_m * kWaveM, wave_n * kWaveN, wave_k, Config::kWavesK);
          Second::run(sums, p, batch, row, column, more, same_thread, shared, second);
        }
      }
      // Not before: blocks that came sooner would lie where this kernel's left room, not one on each unit.
      if constexpr (!Tiles::kIsSplit) arch::let_next_start();
      // 3. The results, by way of shared memory.
      if constexpr (Loop::kBytes > 0) arch::block_barrier();  // the slabs lie where the tiles lay
      const Store store(p, slab, lane, wave_k, Tiles::kCluster > 1 ? tile.split : 0, batch, tile.number, tile.split,
                        row, column, wave_m * kWaveM, wave_n * kWaveN);
      if (tile.is_partial) {
        store.template run<Tiles::kIsSplit>(sums);
      } else {
        store.template run<Tiles::kEveryPartial>(sums);
      }
      if constexpr (!Tiles::kGoesOn) break;
      arch::block_barrier();
      tiles.next();
    } while (tiles.valid(p));
  }
};

// Adds the splits up and finishes: a thread for each kDVec columns of a tile's row.
template <class Config>
WMMA_DEVICE void gemm_reduce(const typename GemmKernel<Config>::Arguments& p) {
  using Sum = typename GemmKernel<Config>::Product::Compute;
  using Tiles = typename Config::Tiles;
  constexpr int kVec = Config::kDVec;
  const uint64_t item = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  constexpr uint32_t kAcross = Config::kBlockN / kVec;
  constexpr uint32_t kOfTile = Config::kBlockM * kAcross;
  const uint32_t tile = p.whole + static_cast<uint32_t>(item / kOfTile);
  if (tile >= p.tiles_m * p.tiles_n) return;
  const TileIndex index = Tiles::index(p, tile);
  const uint32_t tile_row = static_cast<uint32_t>(item % kOfTile) / kAcross;
  const uint32_t tile_column = static_cast<uint32_t>(item % kAcross) * kVec;
  const int64_t row = Tiles::row(index) + tile_row;
  const int64_t column = Tiles::column(index) + tile_column;
  if (row >= p.m || column >= p.n) return;
  arch::await_previous();
  for (uint32_t batch = blockIdx.y; batch < p.batch; batch += gridDim.y) {
    const Epilogue<Config, Sum> epilogue(p, batch);
    typename Epilogue<Config, Sum>::Elements elements;
    epilogue.fetch(elements, row, column);
    alignas(16) Sum sums[kVec];
    epilogue.load_partials(sums, tile, tile_row, tile_column);
    epilogue.store(sums, epilogue.columns(column), elements, row, column);
  }
}

}  // namespace wmma
