// Two products in one kernel by sm_90a's warpgroups: each has 64 rows. One ring of tiles in shared memory, filled by
// asynchronous copies, brings A with the first weights, then the second weights slice by slice; D0 is rounded in
// registers and is the second product's first operand there.
#pragma once

#include <wmma/tile/async_loop.hpp>
#include <wmma/tile/gemm_gemm_finish.hpp>
#include <wmma/tile/panel_tile.hpp>

namespace wmma {

// Until the next of kStages tiles is there for everyone, and everyone is done with the product before the last.
template <int kStages>
WMMA_DEVICE void arrive_for_products() {
  arch::wait_async<kStages - 3>();
  arch::fence_matrix_unit();
  arch::block_barrier();
}

template <class Config>
struct WgmmaKernel {
  using T = typename Config::Element;
  using E = typename Config::Number;
  using Product = MatrixProduct<T, 16>;
  static constexpr int kThreads = Config::kThreads;
  static constexpr int kGroupsN =
      Config::kWavesN;  // that share rows: each computes all of D0, and a part of D1's columns
  static constexpr int kBlockM = kThreads / 2 / kGroupsN;
  static constexpr int kBlockH = Config::kBlockH;
  static constexpr int kBlockN = Config::kBlockN;
  static constexpr int kWaveN = kBlockN / kGroupsN;
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
  using LastSums = WaveTile<Product, 16, kWaveN>;
  using Store = WaveStore<typename Config::Last, Product, 16, kWaveN>;
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kSharedBytes = kRingBytes + kThreads / arch::kWaveSize * Store::kWaveBytes;

  static WMMA_DEVICE void run(const GemmGemmArguments& p) {
    unsigned char* shared = dynamic_shared<unsigned char>();
    const uint32_t start = arch::shared_address(shared);
    const uint32_t wave = uniform(threadIdx.x / arch::kWaveSize);
    const uint32_t group = arch::shuffle_word(wave / 4, 0);
    const uint32_t group_m = group / kGroupsN;
    const uint32_t group_n = group % kGroupsN;
    const uint32_t rows_at = group_m * (kAlongA ? 64 * 128 : Rows::Tile::kPanelBytes);
    const uint32_t columns_at =
        group_n * (Config::kB1Order == Order::kAlongK ? kWaveN * 128 : kWaveN / 64 * Last::Tile::kPanelBytes);
    Feed feed(p, start);
#pragma unroll
    for (int i = 0; i < kStages - 2; ++i) feed.next();
    uint32_t tile = 0;  // of the ring's
    for (Rounds at(p); at.more(); at.next()) {
      uint32_t d0[kBlockH / 4];
      {
        Sums sums;
        Sums gate;
        sums.clear();
        if constexpr (Config::kGate) gate.clear();
        hold(sums);
        hold(gate);
        const uint32_t tiles = static_cast<uint32_t>((p.k + kDepth - 1) / kDepth);
        for (uint32_t i = 0; i < tiles; ++i) {
          arrive_for_products<kStages>();
          const uint32_t from = start + tile * kStageBytes;
          arch::wgmma_fence();
          multiply<First, Config::kB0Order>(sums, from + rows_at, from + Rows::Tile::kBytes);
          if constexpr (Config::kGate) {
            multiply<Gate, Config::kGateOrder>(gate, from + rows_at, from + Rows::Tile::kBytes + First::Tile::kBytes);
          }
          arch::wgmma_commit();
          feed.next();
          arch::wgmma_wait<1>();
          tile = tile + 1 == kStages ? 0 : tile + 1;
        }
        arch::wgmma_wait<0>();
        hold(sums);
        hold(gate);
        finish(p, d0, sums, gate, at.batch());
      }
      for (int64_t column = 0; column < p.last.n; column += kBlockN) {
        LastSums sums;
        sums.clear();
        hold(sums);
#pragma unroll
        for (int slice = 0; slice < kSlices; ++slice) {
          arrive_for_products<kStages>();
          arch::wgmma_fence();
          multiply_last(sums, d0 + slice * (kDepth / 4), start + tile * kStageBytes + columns_at);
          arch::wgmma_commit();
          feed.next();
          arch::wgmma_wait<1>();
          tile = tile + 1 == kStages ? 0 : tile + 1;
        }
        arch::wgmma_wait<0>();
        hold(sums);
        const Store store(p.last, shared + kRingBytes + wave * Store::kWaveBytes, lane_id(), 0, 0, at.batch(), 0, 0,
                          at.row(), column, group_m * 64 + wave % 4 * 16, group_n * kWaveN);
        store.template run<false>(sums);
      }
    }
  }

 private:
  template <class X>
  static WMMA_DEVICE const X* operand(const GemmGemmArguments& p, const GemmOperand& x, uint32_t batch) {
    return static_cast<const X*>(x.data) + batch_offset<Config::kBatchDims>(p.last, x, batch);
  }

  // The blocks of rows that fall to a block, one after the other through the whole batch.
  class Rounds {
   public:
    WMMA_DEVICE explicit Rounds(const GemmGemmArguments& p)
        : down_(static_cast<uint32_t>((p.last.m + kBlockM - 1) / kBlockM)),
          all_(down_ * static_cast<uint32_t>(p.last.batch)),
          index_(blockIdx.x) {}
    WMMA_DEVICE bool more() const { return index_ < all_; }
    WMMA_DEVICE void next() { index_ += gridDim.x; }
    WMMA_DEVICE uint32_t batch() const { return Config::kBatchDims > 0 ? index_ / down_ : 0; }
    WMMA_DEVICE int64_t row() const { return static_cast<int64_t>(index_ - batch() * down_) * kBlockM; }

   private:
    uint32_t down_;
    uint32_t all_;
    uint32_t index_;
  };

  // What goes to the ring, tile after tile. Of K, the tile that it does not fill comes first; of H, it comes last.
  class Feed {
   public:
    WMMA_DEVICE Feed(const GemmGemmArguments& p, uint32_t start)
        : p_(p),
          at_(p),
          rows_(nullptr, 0, 0, 0, 0, None{}),
          first_(nullptr, 0, 0, 0, 0, None{}),
          gate_(nullptr, 0, 0, 0, 0, None{}),
          last_(nullptr, 0, 0, 0, 0, None{}),
          start_(start),
          stage_(0),
          slice_(0) {
      if (at_.more()) begin();
    }

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
      } else if (at_.more()) {
        last_.template copy<Config::kRaggedH>(to, static_cast<int>(p_.last.k) - slice_ * kDepth);
        last_.advance(kDepth);
        if (++slice_ == kSlices) {
          slice_ = 0;
          column_ += kBlockN;
          if (column_ < p_.last.n) {
            begin_columns();
          } else {
            at_.next();
            if (at_.more()) begin();
          }
        }
      }
      arch::commit_async();
    }

   private:
    WMMA_DEVICE void begin() {
      const uint32_t batch = at_.batch();
      const int64_t row = at_.row();
      rows_ = Rows(operand<T>(p_, p_.a, batch) + row * p_.a.row_stride, p_.a.row_stride, p_.a.column_stride,
                   p_.last.m - row, threadIdx.x, None{});
      first_ =
          First(operand<T>(p_, p_.b0, batch), p_.b0.column_stride, p_.b0.row_stride, p_.last.k, threadIdx.x, None{});
      if constexpr (Config::kGate) {
        gate_ = Gate(operand<T>(p_, p_.gate, batch), p_.gate.column_stride, p_.gate.row_stride, p_.last.k, threadIdx.x,
                     None{});
      }
      left_ = static_cast<int>((p_.k + kDepth - 1) / kDepth);
      depth_ = static_cast<int>(p_.k - static_cast<int64_t>(left_ - 1) * kDepth);
      column_ = 0;
      begin_columns();
    }
    WMMA_DEVICE void begin_columns() {
      last_ = Last(operand<T>(p_, p_.last.b, at_.batch()) + column_ * p_.last.b.column_stride, p_.last.b.column_stride,
                   p_.last.b.row_stride, p_.last.n - column_, threadIdx.x, None{});
    }

    const GemmGemmArguments& p_;
    Rounds at_;
    Rows rows_;
    First first_;
    Gate gate_;
    Last last_;
    uint32_t start_;
    uint32_t stage_;
    int slice_;
    int left_ = 0;   // tiles of K
    int depth_ = 0;  // of the next one
    int64_t column_ = 0;
  };

  template <class Tile>
  static WMMA_DEVICE void hold(Tile& x) {
    hold_sums<Tile::kTilesN * 8>(&x.sums[0][0][0]);
  }

  template <class Weights, Order kOrder>
  static WMMA_DEVICE void multiply(Sums& sums, uint32_t rows, uint32_t weights) {
    constexpr bool kAcross = kOrder == Order::kAcrossK;
#pragma unroll
    for (int step = 0; step < kDepth / kStep; ++step) {
      arch::Wgmma<T, T, kBlockH>::template mma<!kAlongA, kAcross>(
          &sums.sums[0][0][0],
          arch::wgmma_operand(rows + Rows::Tile::template step_bytes<kAlongA>(step, kStep), Rows::Tile::kPanelBytes),
          arch::wgmma_operand(weights + Weights::Tile::template step_bytes<!kAcross>(step, kStep),
                              Weights::Tile::kPanelBytes),
          true);
    }
  }

  static WMMA_DEVICE void multiply_last(LastSums& sums, const uint32_t* d0, uint32_t weights) {
    constexpr bool kAcross = Config::kB1Order == Order::kAcrossK;
#pragma unroll
    for (int step = 0; step < kDepth / kStep; ++step) {
      arch::WgmmaOfRows<T, kWaveN>::template mma<kAcross>(
          &sums.sums[0][0][0], d0 + step * 4,
          arch::wgmma_operand(weights + Last::Tile::template step_bytes<!kAcross>(step, kStep),
                              Last::Tile::kPanelBytes),
          true);
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
