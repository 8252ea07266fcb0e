// Two products in one kernel, weights of any size: tiles of them pass through shared memory while a wave's rows of D0,
// and then of D1, stay in its registers.
#pragma once

#include <wmma/tile/gemm_gemm_finish.hpp>
#include <wmma/tile/staged_loop.hpp>
#ifdef WMMA_NVIDIA
#include <wmma/tile/async_loop.hpp>
#endif

namespace wmma {

// The first product's main loop, with the weights' lines as its first operand; as in gemm.hpp, kStages of 0 is the one
// by way of registers.
template <int kStages, class Config, Order kOrder, int kVec>
struct FirstLoops {
#ifdef WMMA_NVIDIA
  using T = typename Config::Element;
  using Weights = AsyncLoader<T, kOrder, Config::kBlockH, Config::kBlockK, Config::kThreads>;
  using Rows = AsyncLoader<T, Config::kAOrder, Config::kBlockM, Config::kBlockK, Config::kThreads>;
  using Loop = AsyncLoop<ChainProduct<T>, Weights, Rows, kOrder == Order::kAlongK, Config::kAOrder == Order::kAlongK,
                         Config::kBlockH, Config::kTilesM * 16, Config::kBlockK, 1, kStages>;
#endif
};
template <class Config, Order kOrder, int kVec>
struct FirstLoops<0, Config, kOrder, kVec> {
  using T = typename Config::Element;
  using Weights = StagedLoader<T, T, kOrder, Config::kBlockH, Config::kBlockK, Config::kThreads, kVec, Config::kWide,
                               PlainStage<T, T>>;
  using Rows = StagedLoader<T, T, Config::kAOrder, Config::kBlockM, Config::kBlockK, Config::kThreads, Config::kAVec,
                            Config::kWide, PlainStage<T, T>>;
  using Loop = StagedLoop<ChainProduct<T>, Weights, Rows, Config::kBlockH, Config::kTilesM * 16, Config::kBlockK, 1>;
};

template <class Config>
struct StreamedKernel {
  using T = typename Config::Element;
  static constexpr int kWaveM = Config::kTilesM * 16;
  static constexpr int kBlockM = Config::kWaves * kWaveM;
  static constexpr int kThreads = Config::kWaves * arch::kWaveSize;
  static_assert(kBlockM == Config::kBlockM, "the planner and the kernel agree");

  using First = FirstLoops<Config::kStages, Config, Config::kB0Order, Config::kB0Vec>;
  using Gating = FirstLoops<Config::kStages, Config, Config::kGateOrder, Config::kGateVec>;
  using Sums = WaveTile<ChainProduct<T>, Config::kBlockH, kWaveM>;
  using D0 = Between<Config, Config::kBlockH, kWaveM>;

  using Last = LastProduct<T>;
  using LastSums = WaveTile<Last, Config::kBlockN, kWaveM>;
  using Weights = StagedLoader<T, T, Config::kB1Order, Config::kBlockN, Config::kBlockH, kThreads, Config::kB1Vec,
                               Config::kWide, PlainStage<T, T>>;
  using Tile = typename Weights::Tile;
  using Reader = LineReader<Last, Tile, true, D0::kSteps>;

  static constexpr int kTilesBytes = 2 * Tile::kBytes;
  static constexpr int kSharedBytes = First::Loop::kBytes > kTilesBytes ? First::Loop::kBytes : kTilesBytes;

  static WMMA_DEVICE void run(const GemmGemmArguments& p) {
    unsigned char* shared = dynamic_shared<unsigned char>();
    const uint32_t thread = threadIdx.x;
    const uint32_t lane = lane_id();
    const uint32_t wave = uniform(thread / arch::kWaveSize);
    const int64_t row = static_cast<int64_t>(blockIdx.x) * kBlockM;
    const int64_t wave_row = row + wave * kWaveM;
    uint32_t batch = Config::kBatchDims > 0 ? blockIdx.y : 0;
    do {
      LastSums sums;
      if constexpr (Config::kChunked) sums.clear();
      int64_t h = 0;
      do {
        D0 d0;
        first(p, d0, shared, batch, row, h, wave, lane);
        // The second product, column chunk by column chunk; each next one is on its way meanwhile.
        const int depth = p.last.k - h < Config::kBlockH ? static_cast<int>(p.last.k - h) : Config::kBlockH;
        const T* b1 = operand<T>(p, p.last.b, batch) + h * p.last.b.row_stride;
        const Reader reader(lane);
        arch::block_barrier();  // the weights lie where the first product's tiles lay
        {
          Weights weights = weights_of(p, b1, 0, thread);
          weights.template fetch<Config::kRaggedH>(depth);
          weights.template store<Config::kRaggedH>(shared, depth);
        }
        arch::block_barrier();
        uint32_t buffer = 0;
        int64_t column = 0;
        do {
          const int64_t next = column + Config::kBlockN;
          const bool more = !Config::kChunked && next < p.last.n;
          Weights weights = weights_of(p, b1, more ? next : column, thread);
          if (more) weights.template fetch<Config::kRaggedH>(depth);
          arch::schedule_barrier();
          if constexpr (!Config::kChunked) sums.clear();
          multiply(sums, d0, shared + buffer * Tile::kBytes, reader);
          if constexpr (!Config::kChunked) {
            store_last<Config, Config::kBlockN, kWaveM>(p, sums, batch, wave_row, column, lane);
          }
          buffer ^= 1;
          if (more) {
            weights.template store<Config::kRaggedH>(shared + buffer * Tile::kBytes, depth);
            arch::block_barrier();
          }
          column = next;
        } while (!Config::kChunked && column < p.last.n);
        h += Config::kBlockH;
        if (Config::kChunked || Config::kBatchDims > 0) arch::block_barrier();
      } while (Config::kChunked && h < p.last.k);
      if constexpr (Config::kChunked) {
        store_last<Config, Config::kBlockN, kWaveM>(p, sums, batch, wave_row, 0, lane);
      }
      if constexpr (Config::kBatchDims == 0) break;
      batch += gridDim.y;
    } while (batch < p.last.batch);
  }

 private:
  template <class X>
  static WMMA_DEVICE const X* operand(const GemmGemmArguments& p, const GemmOperand& x, uint32_t batch) {
    return static_cast<const X*>(x.data) + batch_offset<Config::kBatchDims>(p.last, x, batch);
  }

  // The wave's rows of D0's columns from `h` on.
  static WMMA_DEVICE void first(const GemmGemmArguments& p, D0& d0, unsigned char* shared, uint32_t batch, int64_t row,
                                int64_t h, uint32_t wave, uint32_t lane) {
    Sums sums;
    product<First>(p, p.b0, sums, shared, batch, row, h, wave, lane);
    if constexpr (Config::kGate) {
      Sums gate;
      arch::block_barrier();
      product<Gating>(p, p.gate, gate, shared, batch, row, h, wave, lane);
      d0.finish(p, sums, gate, batch, h, lane);
    } else {
      d0.finish(p, sums, None{}, batch, h, lane);
    }
  }

  // The wave's rows of A times the weights' columns from `h` on.
  template <class Loops>
  static WMMA_DEVICE void product(const GemmGemmArguments& p, const GemmOperand& weights, Sums& sums,
                                  unsigned char* shared, uint32_t batch, int64_t row, int64_t h, uint32_t wave,
                                  uint32_t lane) {
    const PlainStage<T, T> plain;
    typename Loops::Weights lines(operand<T>(p, weights, batch) + h * weights.column_stride, weights.column_stride,
                                  weights.row_stride, p.last.k - h, threadIdx.x, plain);
    typename Loops::Rows rows(operand<T>(p, p.a, batch) + row * p.a.row_stride, p.a.row_stride, p.a.column_stride,
                              p.last.m - row, threadIdx.x, plain);
    const typename Loops::Loop::Reader reader(lane, 0, wave * kWaveM, 0, 1);
    sums.clear();
    Loops::Loop::run(sums, lines, rows, shared, p.k, reader);
  }

  static WMMA_DEVICE Weights weights_of(const GemmGemmArguments& p, const T* b1, int64_t column, uint32_t thread) {
    return Weights(b1 + column * p.last.b.column_stride, p.last.b.column_stride, p.last.b.row_stride, p.last.n - column,
                   thread, PlainStage<T, T>{});
  }

  static WMMA_DEVICE void multiply(LastSums& sums, const D0& d0, const unsigned char* tile, const Reader& reader) {
#pragma unroll
    for (int step = 0; step < D0::kSteps; ++step) {
#pragma unroll
      for (int group = 0; group < LastSums::kTilesM; ++group) {
        Chunk lines[Last::kChunksA];
        reader.read(lines, tile, group, step);
#pragma unroll
        for (int i = 0; i < LastSums::kTilesN; ++i) Last::mma(sums.sums[group][i], lines, d0.chunks[step][i]);
      }
    }
  }
};

}  // namespace wmma
