// Two products in one kernel by sm_90a's warpgroups: each has 64 rows. The copy engine brings tiles in the order in
// which they are taken: A's, with the first weights, then the second weights slice by slice; or, where all weights stay
// in shared memory, A's alone, and each warpgroup is persistent over the rows. D0 is rounded in registers and is the
// second product's first operand there.
#pragma once

#include <wmma/arch/wgmma.hpp>
#include <wmma/gemm_gemm/finish.hpp>
#include <wmma/tile/box_loader.hpp>
#include <wmma/tile/box_store.hpp>
#include <wmma/tile/tile_order.hpp>
#include <wmma/tile/tile_queue.hpp>

namespace wmma {

template <class Config>
struct WgmmaKernel {
  using Arguments = MappedGemmGemmArguments;
  using T = typename Config::Element;
  using E = typename Config::Number;
  using Product = MatrixProduct<T, 16>;
  static constexpr bool kResident = Config::kResident;
  static constexpr int kWaves = Config::kWavesM * Config::kWavesN;
  static constexpr int kThreads = (kWaves + 4) * arch::kWaveSize;  // the last warpgroup is the producer
  static constexpr int kGroupsN =
      Config::kWavesN;  // that share rows: each computes all of D0, and a part of D1's columns
  static constexpr int kTeams = kResident ? kWaves / 4 : 1;  // that have rows of their own, and take items in turn
  static constexpr int kTeamWaves = kWaves / kTeams;
  static constexpr int kRows = Config::kBlockM / kTeams;  // of a team
  static constexpr int kBlockH = Config::kBlockH;
  static constexpr int kBlockN = Config::kBlockN;
  static constexpr int kWaveN = kBlockN / kGroupsN;
  static constexpr int kDepth = 64;  // of K, and of H: a line of 128 bytes
  static constexpr int kStep = 16;
  static constexpr int kSlices = kBlockH / kDepth;
  static constexpr int kStages = Config::kStages;
  static constexpr int kTilesK = Config::kBlockK / kDepth;  // where weights are resident: all there are
  static constexpr int kChunks = Config::kPadN / kBlockN;   // the same of D1's columns
  static_assert(kTeamWaves / kGroupsN * 16 == kRows && kBlockH % kDepth == 0, "whole warpgroups and slices");
  static_assert(!kResident || kGroupsN == 1, "a team is a warpgroup");
  // Otherwise a team could look for its item while an earlier one of another team has not come to the same place.
  static_assert(kStages % (kResident ? kTeams * kTilesK : 1) == 0, "each place serves one team");

  template <Order kOrder, int kOuter>
  using Loader = BoxLoader<T, kOrder, kOuter, kDepth, Config::kBatchDims>;
  using RowBlocks = RowOrder<Config::kBatchDims, kRows>;  // one after the other through the whole batch
  using Rows = Loader<Config::kAOrder, kRows>;
  using First = Loader<Config::kB0Order, kBlockH>;
  using Gate = Loader<Config::kGateOrder, kBlockH>;
  using Last = Loader<Config::kB1Order, kBlockN>;
  static constexpr bool kAlongA = Config::kAOrder == Order::kAlongK;

  static constexpr int kFirstBytes = First::Tile::kBytes + (Config::kGate ? Gate::Tile::kBytes : 0);
  static constexpr int kPairBytes = Rows::Tile::kBytes + kFirstBytes;
  static constexpr int kStreamedBytes = kPairBytes > Last::Tile::kBytes ? kPairBytes : Last::Tile::kBytes;
  static constexpr int kResidentBytes = kResident ? kTilesK * kFirstBytes + kChunks * kSlices * Last::Tile::kBytes : 0;
  using Queue = TileQueue<kStages, kResident ? Rows::Tile::kBytes : kStreamedBytes>;
  using Item = typename Queue::Item;
  using Sums = WaveTile<Product, 16, kBlockH>;
  using LastSums = WaveTile<Product, 16, kWaveN>;
  using Store = BoxOrSlabStore<Config::kMappedD, typename Config::Last, Product, kWaveN>;
  static constexpr int kStores = kResidentBytes + Queue::kBytes;  // where they start
  static constexpr int kBarriers = kStores + kWaves * Store::kWaveBytes;
  static constexpr int kSharedBytes = kBarriers + Queue::kBarrierBytes + arch::kBarrierBytes;

  static WMMA_DEVICE void run(const Arguments& p) {
    unsigned char* shared = dynamic_shared<unsigned char>();
    const uint32_t start = arch::shared_address(shared);
    const Queue queue(start + kResidentBytes, start + kBarriers);
    const uint32_t resident = start + kBarriers + Queue::kBarrierBytes;  // the barrier of what stays
    if (threadIdx.x == kWaves * arch::kWaveSize) prefetch_maps(p);
    if (threadIdx.x == 0) {
      queue.make(kTeamWaves);
      arch::barrier_make(resident, 1);
      arch::fence_barriers();
    }
    arch::block_barrier();
    const uint32_t wave = uniform(threadIdx.x / arch::kWaveSize);
    if (wave >= kWaves) {
      if constexpr (Config::kProducerRegisters > 0) arch::release_registers<Config::kProducerRegisters>();
      if (wave == kWaves && lane_id() == 0) produce(p, queue, start, resident);
    } else {
      if constexpr (Config::kProducerRegisters > 0) arch::take_registers<Config::kConsumerRegisters>();
      consume(p, queue, start, resident, shared + kStores + wave * Store::kWaveBytes, wave);
    }
  }

 private:
  static WMMA_DEVICE uint32_t tiles_of(const Arguments& p) {
    return kResident ? kTilesK : static_cast<uint32_t>((p.k + kDepth - 1) / kDepth);
  }

  // ------------------------------------------------------------------------------------------------- the asking thread

  static WMMA_DEVICE void produce(const Arguments& p, const Queue& queue, uint32_t start, uint32_t resident) {
    const uint32_t tiles = tiles_of(p);
    Item item(0);
    for (RowBlocks at(p.last, 0, 1); at.valid(); at.next()) {
      const uint32_t batch = at.batch();
      Rows rows(p.last, p.a, p.a_map, batch, at.row(), 0);
      First first(p.last, p.b0, p.b0_map, batch, 0, 0);
      Gate gate(p.last, p.gate, p.gate_map, batch, 0, 0);
      for (uint32_t i = 0; i < tiles; ++i, item.next()) {
        queue.open(item, kResident ? Rows::Tile::kBytes : kPairBytes);
        const uint32_t to = queue.place(item);
        rows.copy(to, queue.full(item));
        if constexpr (!kResident) ask_first(first, gate, to + Rows::Tile::kBytes, queue.full(item));
      }
      if constexpr (kResident) {  // the first rows come from further away
        if (item.number() == kTilesK) ask_weights(p, start, resident);
      } else {
        for (int64_t column = 0; column < p.last.n; column += kBlockN) {
          Last last(p.last, p.last.b, p.b1_map, batch, column, 0);
#pragma unroll 1
          for (int slice = 0; slice < kSlices; ++slice, item.next()) {
            queue.open(item, Last::Tile::kBytes);
            last.copy(queue.place(item), queue.full(item));
          }
        }
      }
    }
  }

  static WMMA_DEVICE void prefetch_maps(const Arguments& p) {
    arch::prefetch_map(&p.a_map);
    arch::prefetch_map(&p.b0_map);
    if constexpr (Config::kGate) arch::prefetch_map(&p.gate_map);
    arch::prefetch_map(&p.b1_map);
    if constexpr (Config::kMappedD) arch::prefetch_map(&p.d_map);
  }

  static WMMA_DEVICE void ask_first(First& first, Gate& gate, uint32_t to, uint32_t barrier) {
    first.copy(to, barrier);
    if constexpr (Config::kGate) gate.copy(to + First::Tile::kBytes, barrier);
  }

  // All of them, which every index of the batch shares.
  static WMMA_DEVICE void ask_weights(const Arguments& p, uint32_t to, uint32_t barrier) {
    arch::barrier_arrive_for_bytes(barrier, kResidentBytes);
    First first(p.last, p.b0, p.b0_map, 0, 0, 0);
    Gate gate(p.last, p.gate, p.gate_map, 0, 0, 0);
#pragma unroll 1
    for (int i = 0; i < kTilesK; ++i, to += kFirstBytes) ask_first(first, gate, to, barrier);
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      Last last(p.last, p.last.b, p.b1_map, 0, chunk * kBlockN, 0);
#pragma unroll 1
      for (int slice = 0; slice < kSlices; ++slice, to += Last::Tile::kBytes) last.copy(to, barrier);
    }
  }

  // --------------------------------------------------------------------------------------------------- the warpgroups

  static WMMA_DEVICE void consume(const Arguments& p, const Queue& queue, uint32_t start, uint32_t resident,
                                  unsigned char* place, uint32_t wave) {
    const uint32_t group = arch::shuffle_word(wave / 4, 0);
    const uint32_t team = kTeams > 1 ? group : 0;
    const uint32_t group_m = kTeams > 1 ? 0 : group / kGroupsN;
    const uint32_t group_n = kTeams > 1 ? 0 : group % kGroupsN;
    const uint32_t rows_at = group_m * (kAlongA ? 64 * 128 : Rows::Tile::kBoxBytes);
    const uint32_t columns_at =
        group_n * (Config::kB1Order == Order::kAlongK ? kWaveN * 128 : kWaveN / 64 * Last::Tile::kBoxBytes);
    const uint32_t tiles = tiles_of(p);
    const uint32_t last_weights = start + kTilesK * kFirstBytes;  // where they are resident
    Item item(team * kTilesK);
    Item before = item;
    Store store(p.last, p.d_map, place);
    if constexpr (kResident) arch::barrier_wait(resident, 0);
    for (RowBlocks at(p.last, team, kTeams); at.valid(); at.next()) {
      uint32_t d0[kBlockH / 4];
      {
        Sums sums;
        Sums gate;
        sums.clear();
        if constexpr (Config::kGate) gate.clear();
        hold(sums);
        hold(gate);
        for (uint32_t i = 0; i < tiles; ++i, item.next()) {
          queue.await(item);
          const uint32_t from = queue.place(item);
          const uint32_t weights = kResident ? start + i * kFirstBytes : from + Rows::Tile::kBytes;
          arch::wgmma_fence();
          multiply<First, Config::kB0Order>(sums, from + rows_at, weights);
          if constexpr (Config::kGate) {
            multiply<Gate, Config::kGateOrder>(gate, from + rows_at, weights + First::Tile::kBytes);
          }
          arch::wgmma_commit();
          arch::wgmma_wait<1>();
          if (i > 0) queue.done(before);
          before = item;
        }
        arch::wgmma_wait<0>();
        queue.done(before);
        hold(sums);
        hold(gate);
        finish(p, d0, sums, gate, at.batch());
      }
      for (int64_t column = 0; column < p.last.n; column += kBlockN) {
        LastSums sums;
        sums.clear();
        hold(sums);
        if constexpr (kResident) {
          arch::wgmma_fence();
#pragma unroll
          for (int slice = 0; slice < kSlices; ++slice) {
            multiply_last(
                sums, d0 + slice * (kDepth / 4),
                last_weights + (static_cast<uint32_t>(column) / kBlockN * kSlices + slice) * Last::Tile::kBytes);
          }
          arch::wgmma_commit();
        } else {
#pragma unroll
          for (int slice = 0; slice < kSlices; ++slice, item.next()) {
            queue.await(item);
            arch::wgmma_fence();
            multiply_last(sums, d0 + slice * (kDepth / 4), queue.place(item) + columns_at);
            arch::wgmma_commit();
            arch::wgmma_wait<1>();
            if (slice > 0) queue.done(before);
            before = item;
          }
        }
        store.ask(at.batch(), at.row(), column, group_m * 64 + wave % 4 * 16, group_n * kWaveN);
        arch::wgmma_wait<0>();
        if constexpr (!kResident) queue.done(before);
        hold(sums);
        store.run(sums, at.batch(), at.row(), column, group_m * 64 + wave % 4 * 16, group_n * kWaveN);
      }
      if constexpr (kTeams > 1) item = Item(item.number() + (kTeams - 1) * kTilesK);
    }
    store.close();
  }

  template <class X>
  static WMMA_DEVICE const X* operand(const Arguments& p, const GemmOperand& x, uint32_t batch) {
    return static_cast<const X*>(x.data) + batch_offset<Config::kBatchDims>(p.last, x, batch);
  }

  template <class Tile>
  static WMMA_DEVICE void hold(Tile& x) {
    hold_sums<Tile::kTilesN * 8>(&x.sums[0][0][0]);
  }

  template <class Weights, Order kOrder>
  static WMMA_DEVICE void multiply(Sums& sums, uint32_t rows, uint32_t weights) {
    constexpr bool kAcross = kOrder == Order::kAcrossK;
    const uint64_t a = Rows::Tile::operand(rows), b = Weights::Tile::operand(weights);
#pragma unroll
    for (int step = 0; step < kDepth / kStep; ++step) {
      arch::Wgmma<T, T, kBlockH>::template mma<!kAlongA, kAcross>(
          &sums.sums[0][0][0], Rows::Tile::template step<kAlongA>(a, step, kStep),
          Weights::Tile::template step<!kAcross>(b, step, kStep), true);
    }
  }

  static WMMA_DEVICE void multiply_last(LastSums& sums, const uint32_t* d0, uint32_t weights) {
    constexpr bool kAcross = Config::kB1Order == Order::kAcrossK;
    const uint64_t b = Last::Tile::operand(weights);
#pragma unroll
    for (int step = 0; step < kDepth / kStep; ++step) {
      arch::WgmmaOfRows<T, kWaveN>::template mma<kAcross>(&sums.sums[0][0][0], d0 + step * 4,
                                                          Last::Tile::template step<!kAcross>(b, step, kStep), true);
    }
  }

  // D0 = act(alpha0·S + bias0) [· gate], rounded; zero from column H on. Two neighbours of a row are a word.
  static WMMA_DEVICE void finish(const Arguments& p, uint32_t* d0, const Sums& sums, const Sums& gate, uint32_t batch) {
    constexpr bool kRelu = Config::kActivation == wmma::kRelu && !Config::kGate;  // then rounding does it
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
          if constexpr (!kRelu) y[j] = activate<Config::kActivation, E>(y[j]);
          if constexpr (Config::kGate) y[j] *= g[i * 4 + half * 2 + j];
          y[j] = there[j] ? y[j] : E(0);
        }
        if constexpr (kRelu) {
          d0[i * 2 + half] = kSame<T, half_t> ? arch::half_pair_relu(y[0], y[1]) : arch::bf16_pair_relu(y[0], y[1]);
        } else {
          d0[i * 2 + half] = rounded_pair<T>(y[0], y[1]);
        }
      }
    }
  }
};

}  // namespace wmma
