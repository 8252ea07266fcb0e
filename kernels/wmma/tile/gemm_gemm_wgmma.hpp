// Two products in one kernel by sm_90a's warpgroups: each has 64 rows. One ring of tiles in shared memory, filled by
// asynchronous copies, brings A with the first weights, then the second weights slice by slice; D0 is rounded in
// registers and is the second product's first operand there.
#pragma once

#include <wmma/tile/gemm_gemm_finish.hpp>
#include <wmma/tile/wgmma_loop.hpp>

namespace wmma {

template <class Config>
struct WgmmaKernel {
  using T = typename Config::Element;
  using E = typename Config::Number;
  using Product = MatrixProduct<T, 16>;
  static constexpr int kThreads = Config::kThreads;
  static constexpr int kBlockM = kThreads / 2;
  static constexpr int kBlockH = Config::kBlockH;
  static constexpr int kBlockN = Config::kBlockN;
  static constexpr int kDepth = 64;  // of K, and of H: a line of 128 bytes
  static constexpr int kStep = 16;
  static constexpr int kSlices = kBlockH / kDepth;
  static constexpr int kStages = Config::kStages;
  static constexpr int kWeights = Config::kGate ? 2 : 1;  // of the first product
  static_assert(kBlockM == Config::kBlockM && kBlockH % kDepth == 0 && kStages >= 4, "whole warpgroups and slices");

  template <Order kOrder, int kOuter>
  using Loader = AsyncLoader<T, kOrder, kOuter, kDepth, kThreads, PanelTile>;
  using Rows = Loader<Config::kAOrder, kBlockM>;
  using First = Loader<Config::kB0Order, kBlockH>;
  using Gate = Loader<Config::kGateOrder, kBlockH>;
  using Last = Loader<Config::kB1Order, kBlockN>;
  static constexpr bool kAlongA = Config::kAOrder == Order::kAlongK;

  static constexpr int kFirstBytes = Rows::Tile::kBytes + kWeights * First::Tile::kBytes;
  static constexpr int kStageBytes = kFirstBytes > Last::Tile::kBytes ? kFirstBytes : Last::Tile::kBytes;
  using Sums = WaveTile<Product, 16, kBlockH>;
  using LastSums = WaveTile<Product, 16, kBlockN>;
  using Store = WaveStore<typename Config::Last, Product, 16, kBlockN>;
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kSharedBytes = kRingBytes + kThreads / arch::kWaveSize * Store::kWaveBytes;

  static WMMA_DEVICE void run(const GemmGemmArguments& p) {
    unsigned char* shared = dynamic_shared<unsigned char>();
    const uint32_t start = arch::shared_address(shared);
    const uint32_t wave = uniform(threadIdx.x / arch::kWaveSize);
    const uint32_t rows_at = arch::shuffle_word(wave / 4, 0) * (kAlongA ? 64 * 128 : Rows::Tile::kPanelBytes);
    const int64_t row = static_cast<int64_t>(blockIdx.x) * kBlockM;
    uint32_t batch = Config::kBatchDims > 0 ? blockIdx.y : 0;
    do {
      Feed feed(p, batch, row, start);
#pragma unroll
      for (int i = 0; i < kStages - 2; ++i) feed.next();
      uint32_t d0[kBlockH / 4];
      uint32_t tile = 0;  // of the ring's
      {
        Sums sums;
        Sums gate;
        sums.clear();
        if constexpr (Config::kGate) gate.clear();
        hold(sums);
        hold(gate);
        const uint32_t tiles = static_cast<uint32_t>((p.k + kDepth - 1) / kDepth);
        for (uint32_t i = 0; i < tiles; ++i) {
          arrive();
          const uint32_t at = start + tile * kStageBytes;
          arch::wgmma_fence();
          multiply<First, Config::kB0Order>(sums, at + rows_at, at + Rows::Tile::kBytes);
          if constexpr (Config::kGate) {
            multiply<Gate, Config::kGateOrder>(gate, at + rows_at, at + Rows::Tile::kBytes + First::Tile::kBytes);
          }
          arch::wgmma_commit();
          feed.next();
          arch::wgmma_wait<1>();
          tile = tile + 1 == kStages ? 0 : tile + 1;
        }
        arch::wgmma_wait<0>();
        hold(sums);
        hold(gate);
        finish(p, d0, sums, gate, batch);
      }
      for (int64_t column = 0; column < p.last.n; column += kBlockN) {
        LastSums sums;
        sums.clear();
        hold(sums);
#pragma unroll
        for (int slice = 0; slice < kSlices; ++slice) {
          arrive();
          arch::wgmma_fence();
          multiply_last(sums, d0 + slice * (kDepth / 4), start + tile * kStageBytes);
          arch::wgmma_commit();
          feed.next();
          arch::wgmma_wait<1>();
          tile = tile + 1 == kStages ? 0 : tile + 1;
        }
        arch::wgmma_wait<0>();
        hold(sums);
        const Store store(p.last, shared + kRingBytes + wave * Store::kWaveBytes, lane_id(), 0, 0, batch, 0, 0, row,
                          column, wave * 16, 0);
        store.template run<false>(sums);
      }
      if constexpr (Config::kBatchDims == 0) break;
      arch::block_barrier();
      batch += gridDim.y;
    } while (batch < p.last.batch);
  }

 private:
  template <class X>
  static WMMA_DEVICE const X* operand(const GemmGemmArguments& p, const GemmOperand& x, uint32_t batch) {
    return static_cast<const X*>(x.data) + batch_offset<Config::kBatchDims>(p.last, x, batch);
  }

  // What goes to the ring, tile after tile. Of K, the tile that it does not fill comes first; of H, it comes last.
  class Feed {
   public:
    WMMA_DEVICE Feed(const GemmGemmArguments& p, uint32_t batch, int64_t row, uint32_t start)
        : p_(p),
          rows_(operand<T>(p, p.a, batch) + row * p.a.row_stride, p.a.row_stride, p.a.column_stride, p.last.m - row,
                threadIdx.x, None{}),
          first_(operand<T>(p, p.b0, batch), p.b0.column_stride, p.b0.row_stride, p.last.k, threadIdx.x, None{}),
          gate_(operand<T>(p, p.gate, batch), p.gate.column_stride, p.gate.row_stride, p.last.k, threadIdx.x, None{}),
          last_(operand<T>(p, p.last.b, batch), p.last.b.column_stride, p.last.b.row_stride, p.last.n, threadIdx.x,
                None{}),
          start_(start),
          stage_(0),
          slice_(0),
          left_(static_cast<int>((p.k + kDepth - 1) / kDepth)),
          depth_(static_cast<int>(p.k - static_cast<int64_t>(left_ - 1) * kDepth)),
          column_(0),
          b1_(operand<T>(p, p.last.b, batch)) {}

    WMMA_DEVICE void next() {
      const uint32_t to = start_ + stage_ * kStageBytes;
      stage_ = stage_ + 1 == kStages ? 0 : stage_ + 1;
      if (left_ > 0) {
        --left_;
        rows_.template copy<true>(to, depth_);
        first_.template copy<true>(to + Rows::Tile::kBytes, depth_);
        if constexpr (Config::kGate) {
          gate_.template copy<true>(to + Rows::Tile::kBytes + First::Tile::kBytes, depth_);
          gate_.advance(depth_);
        }
        rows_.advance(depth_);
        first_.advance(depth_);
        depth_ = kDepth;
      } else if (column_ < p_.last.n) {
        last_.template copy<Config::kRaggedH>(to, static_cast<int>(p_.last.k) - slice_ * kDepth);
        last_.advance(kDepth);
        if (++slice_ == kSlices) {
          slice_ = 0;
          column_ += kBlockN;
          last_ = Last(b1_ + column_ * p_.last.b.column_stride, p_.last.b.column_stride, p_.last.b.row_stride,
                       p_.last.n - column_, threadIdx.x, None{});
        }
      }
      arch::commit_async();
    }

   private:
    const GemmGemmArguments& p_;
    Rows rows_;
    First first_;
    Gate gate_;
    Last last_;
    uint32_t start_;
    uint32_t stage_;
    int slice_;
    int left_;   // tiles of K
    int depth_;  // of the next one
    int64_t column_;
    const T* b1_;
  };

  // The next tile is there for everyone, and everyone is done with the product before the last.
  static WMMA_DEVICE void arrive() {
    arch::wait_async<kStages - 3>();
    arch::fence_matrix_unit();
    arch::block_barrier();
  }

  template <class Tile>
  static WMMA_DEVICE void hold(Tile& x) {
    float* sums = &x.sums[0][0][0];
#pragma unroll
    for (int i = 0; i < Tile::kTilesN * 8; ++i) arch::hold(sums[i]);
  }

  // Where a step of 16 starts in a tile.
  template <class Tile, Order kOrder>
  static WMMA_CONSTEXPR uint32_t step_bytes(int step) {
    return kOrder == Order::kAlongK ? step * 32 : step * kStep * 128;
  }

  template <class Weights, Order kOrder>
  static WMMA_DEVICE void multiply(Sums& sums, uint32_t rows, uint32_t weights) {
    constexpr bool kAcross = kOrder == Order::kAcrossK;
#pragma unroll
    for (int step = 0; step < kDepth / kStep; ++step) {
      arch::Wgmma<T, T, kBlockH>::template mma<!kAlongA, kAcross>(
          &sums.sums[0][0][0],
          arch::wgmma_operand(rows + step_bytes<Rows, Config::kAOrder>(step), Rows::Tile::kPanelBytes),
          arch::wgmma_operand(weights + step_bytes<Weights, kOrder>(step), Weights::Tile::kPanelBytes), true);
    }
  }

  static WMMA_DEVICE void multiply_last(LastSums& sums, const uint32_t* d0, uint32_t weights) {
#pragma unroll
    for (int step = 0; step < kDepth / kStep; ++step) {
      arch::WgmmaOfRows<T, kBlockN>::template mma<Config::kB1Order == Order::kAcrossK>(
          &sums.sums[0][0][0], d0 + step * 4,
          arch::wgmma_operand(weights + step_bytes<Last, Config::kB1Order>(step), Last::Tile::kPanelBytes), true);
    }
  }

  // D0 = act(alpha0·S + bias0) [· gate], rounded; zero from column H on. Two neighbours of a row are a word.
  static WMMA_DEVICE void finish(const GemmGemmArguments& p, uint32_t* d0, const Sums& sums, const Sums& gate,
                                 uint32_t batch) {
    const float* s = &sums.sums[0][0][0];
    const float* g = &gate.sums[0][0][0];
    const uint32_t lane = lane_id();
#pragma unroll
    for (int i = 0; i < kBlockH / 8; ++i) {
      const int64_t column = i * 8 + lane % 4 * 2;
      const bool there[2] = {!Config::kRaggedH || column < p.last.k, !Config::kRaggedH || column + 1 < p.last.k};
      E bias[2] = {E(0), E(0)};
      if constexpr (!kIsNone<typename Config::Bias0>) {
        using Bias = typename Config::Bias0;
        const Bias* at = operand<Bias>(p, p.bias0, batch);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          if (there[j]) bias[j] = convert<E>(at[(column + j) * p.bias0.column_stride]);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // eight rows further down
        E y[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          y[j] = static_cast<E>(p.alpha0) * s[i * 4 + half * 2 + j] + bias[j];
          y[j] = activate<Config::kActivation, E>(y[j]);
          if constexpr (Config::kGate) y[j] *= g[i * 4 + half * 2 + j];
          y[j] = there[j] ? y[j] : E(0);
        }
        d0[i * 2 + half] = kSame<T, half_t> ? arch::half_pair(y[0], y[1]) : arch::bf16_pair(y[0], y[1]);
      }
    }
  }
};

}  // namespace wmma
