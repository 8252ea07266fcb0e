// Two products in one kernel, weights of any size: tiles of them pass through shared memory. A wave's rows of D0 stay
// in its registers; where waves share rows, each computes a part of D0's columns, and all of D0 lies in shared memory
// as the chunks that lanes bring to the second product.
#pragma once

#include <wmma/gemm/staged.hpp>
#include <wmma/gemm_gemm/finish.hpp>
#ifdef WMMA_NVIDIA
#include <wmma/gemm/async_copy.hpp>
#endif

namespace wmma {

// The first product's main loop; kStages of 0 is the one by way of registers.
template <int kStages, class Config, class Link, Order kOrder, int kVec>
struct FirstLoops {
#ifdef WMMA_NVIDIA
  using T = typename Config::Element;
  using Rows = AsyncLoader<T, Config::kAOrder, Config::kBlockM, Config::kBlockK, Config::kThreads>;
  using Weights = AsyncLoader<T, kOrder, Config::kBlockH, Config::kBlockK, Config::kThreads>;
  using Loop =
      AsyncLoop<LinkedProduct<Link>, Rows, Weights, Config::kAOrder == Order::kAlongK, kOrder == Order::kAlongK,
                Config::kTilesM * 16, Config::kBlockH / Config::kWavesN, Config::kBlockK, 1, kStages>;
#endif
};
template <class Config, class Link, Order kOrder, int kVec>
struct FirstLoops<0, Config, Link, kOrder, kVec> {
  using T = typename Config::Element;
  using Rows = StagedLoader<T, T, Config::kAOrder, Config::kBlockM, Config::kBlockK, Config::kThreads, Config::kAVec,
                            Config::kWide, PlainStage<T, T>>;
  using Tile = ChainTile<Link, Config::kBlockH, bytes_of<T>(Config::kBlockK), true>;
  using Weights = StagedLoader<T, T, kOrder, Config::kBlockH, Config::kBlockK, Config::kThreads, kVec, Config::kWide,
                               PlainStage<T, T>, Tile>;
  using Loop = StagedLoop<LinkedProduct<Link>, Rows, Weights, Config::kTilesM * 16, Config::kBlockH / Config::kWavesN,
                          Config::kBlockK, 1>;
};

template <class Config>
struct StreamedKernel {
  using Arguments = GemmGemmArguments;
  using T = typename Config::Element;
  static constexpr int kWaveM = Config::kTilesM * 16;
  static constexpr int kWaveH = Config::kBlockH / Config::kWavesN;
  static constexpr int kWaveN = Config::kBlockN / Config::kWavesN;
  static constexpr int kBlockM = Config::kWavesM * kWaveM;
  static constexpr int kThreads = Config::kWavesM * Config::kWavesN * arch::kWaveSize;
  static_assert(kBlockM == Config::kBlockM, "the planner and the kernel agree");

  using Link = ChainLink<MatrixProduct<T, 16>>;
  using First = FirstLoops<Config::kStages, Config, Link, Config::kB0Order, Config::kB0Vec>;
  using Gating = FirstLoops<Config::kStages, Config, Link, Config::kGateOrder, Config::kGateVec>;
  using Sums = WaveTile<LinkedProduct<Link>, kWaveM, kWaveH>;
  using Part = Between<Config, kWaveM, kWaveH>;

  using Last = LastLink<T, 16>;
  using LastSums = ChainSums<Last, kWaveM, kWaveN>;
  using Tile = ChainTile<Last, Config::kBlockN, bytes_of<T>(Config::kBlockH), true>;
  using Weights = StagedLoader<T, T, Config::kB1Order, Config::kBlockN, Config::kBlockH, kThreads, Config::kB1Vec,
                               Config::kWide, PlainStage<T, T>, Tile>;
  using Reader = ColumnReader<Last, Tile>;

  // D0 as the second product reads it: a wave's own, or that of the waves that share its rows.
  using Held = Choose<Config::kWavesN == 1, Part, SharedBetween<Part, Config::kWavesN>>;
  static constexpr int kHeldBytes = Config::kWavesM * Held::kBytes;

  static constexpr int kTilesBytes = kHeldBytes + 2 * Tile::kBytes;
  static constexpr int kSharedBytes = First::Loop::kBytes > kTilesBytes ? First::Loop::kBytes : kTilesBytes;

  struct Place {
    uint32_t lane;
    uint32_t wave_m;
    uint32_t wave_n;
  };

  static WMMA_DEVICE void run(const GemmGemmArguments& p) {
    unsigned char* shared = dynamic_shared<unsigned char>();
    const uint32_t wave = uniform(threadIdx.x / arch::kWaveSize);
    const Place place{lane_id(), wave / Config::kWavesN, wave % Config::kWavesN};
    const int64_t row = static_cast<int64_t>(blockIdx.x) * kBlockM;
    const int64_t wave_row = row + place.wave_m * kWaveM;
    BatchAlongY<Config::kBatchDims> along;
    do {
      const uint32_t batch = along.batch(p.last);
      LastSums sums;
      if constexpr (Config::kChunked) sums.clear();
      int64_t h = 0;
      do {
        Held d0(shared + place.wave_m * Held::kBytes, place.lane);
        {
          Part part;
          first(p, part, shared, batch, row, h, place);
          arch::block_barrier();  // what follows lies where the first product's tiles lay
          d0.take(part, place.wave_n);
        }
        last(p, sums, d0, shared + kHeldBytes, batch, h, wave_row, place);
        h += Config::kBlockH;
        if (Config::kChunked || Config::kBatchDims > 0) arch::block_barrier();
      } while (Config::kChunked && h < p.last.k);
      if constexpr (Config::kChunked) {
        store_last<Config>(p, sums, batch, wave_row, place.wave_n * kWaveN, place.lane);
      }
      if constexpr (!along.kGoesOn) break;
      along.next();
    } while (along.valid(p.last));
  }

 private:
  template <class X>
  static WMMA_DEVICE const X* operand(const GemmGemmArguments& p, const GemmOperand& x, uint32_t batch) {
    return static_cast<const X*>(x.data) + batch_offset<Config::kBatchDims>(p.last, x, batch);
  }

  // The wave's part of D0's columns from `h` on.
  static WMMA_DEVICE void first(const GemmGemmArguments& p, Part& part, unsigned char* shared, uint32_t batch,
                                int64_t row, int64_t h, const Place& place) {
    const int64_t mine = h + place.wave_n * kWaveH;
    Sums sums;
    product<First>(p, p.b0, sums, shared, batch, row, h, place);
    if constexpr (Config::kGate) {
      Sums gate;
      arch::block_barrier();
      product<Gating>(p, p.gate, gate, shared, batch, row, h, place);
      part.finish(p, &sums.sums[0][0][0], &gate.sums[0][0][0], batch, mine, place.lane);
    } else {
      part.finish(p, &sums.sums[0][0][0], None{}, batch, mine, place.lane);
    }
  }

  // The wave's rows of A times its part of the weights' columns from `h` on.
  template <class Loops>
  static WMMA_DEVICE void product(const GemmGemmArguments& p, const GemmOperand& weights, Sums& sums,
                                  unsigned char* shared, uint32_t batch, int64_t row, int64_t h, const Place& place) {
    const PlainStage<T, T> plain;
    typename Loops::Rows rows(operand<T>(p, p.a, batch) + row * p.a.row_stride, p.a.row_stride, p.a.column_stride,
                              p.last.m - row, threadIdx.x, plain);
    typename Loops::Weights columns(operand<T>(p, weights, batch) + h * weights.column_stride, weights.column_stride,
                                    weights.row_stride, p.last.k - h, threadIdx.x, plain);
    const typename Loops::Loop::Reader reader(place.lane, place.wave_m * kWaveM, place.wave_n * kWaveH, 0, 1);
    sums.clear();
    Loops::Loop::run(sums, rows, columns, shared, p.k, reader);
  }

  // D1 by chunks of columns, each next chunk's weights on their way meanwhile; where H has chunks too, all of D1's
  // columns, summed up.
  static WMMA_DEVICE void last(const GemmGemmArguments& p, LastSums& sums, const Held& d0, unsigned char* tiles,
                               uint32_t batch, int64_t h, int64_t row, const Place& place) {
    const int depth = p.last.k - h < Config::kBlockH ? static_cast<int>(p.last.k - h) : Config::kBlockH;
    const T* b1 = operand<T>(p, p.last.b, batch) + h * p.last.b.row_stride;
    const Reader reader(place.lane);
    {
      Weights weights = weights_of(p, b1, 0);
      weights.template fetch<Config::kRaggedH>(depth);
      weights.template store<Config::kRaggedH>(tiles, depth);
    }
    arch::block_barrier();
    uint32_t buffer = 0;
    int64_t column = 0;
    do {
      const int64_t next = column + Config::kBlockN;
      const bool more = !Config::kChunked && next < p.last.n;
      Weights weights = weights_of(p, b1, more ? next : column);
      if (more) weights.template fetch<Config::kRaggedH>(depth);
      arch::schedule_barrier();
      if constexpr (!Config::kChunked) sums.clear();
      const unsigned char* tile = tiles + buffer * Tile::kBytes + place.wave_n * (kWaveN * Tile::kPitch * 16);
      multiply_last(sums, d0, reader, tile);
      if constexpr (!Config::kChunked) {
        store_last<Config>(p, sums, batch, row, column + place.wave_n * kWaveN, place.lane);
      }
      buffer ^= 1;
      if (more) {
        weights.template store<Config::kRaggedH>(tiles + buffer * Tile::kBytes, depth);
        arch::block_barrier();
      }
      column = next;
    } while (!Config::kChunked && column < p.last.n);
  }

  static WMMA_DEVICE Weights weights_of(const GemmGemmArguments& p, const T* b1, int64_t column) {
    return Weights(b1 + column * p.last.b.column_stride, p.last.b.column_stride, p.last.b.row_stride, p.last.n - column,
                   threadIdx.x, PlainStage<T, T>{});
  }
};

}  // namespace wmma
