// The GEMM kernel of sm_90a for operands of 16 and 8 bits that go to shared memory as they are: warpgroups multiply
// them straight from there, 64 rows each, and a wave that does nothing else has the copy engine bring tiles as far
// ahead as there is room. Neighbouring blocks may share: those one below the other B's tiles, those side by side A's;
// each brings a part, to all of them.
//
// All warpgroups have a part of one tile's rows; or two go by ping-pong, each through every second tile: one finishes
// its own while the other multiplies. They take turns at the queue, in which the tiles' steps stand one behind the
// other: whether an item has come can only be asked by who has seen, or knows that another has, what lay there before.
//
// Where the rows of A are to be summed up, they are multiplied by ones: each tile of a row does that in a share of its
// steps, all together in all of K.
#pragma once

#include <wmma/gemm/kernel.hpp>
#include <wmma/tile/add_parts.hpp>
#include <wmma/tile/box_store.hpp>
#include <wmma/tile/row_sums.hpp>
#include <wmma/tile/tile_queue.hpp>

namespace wmma {

// A block's place among those it shares with: kDown one below the other and kAcross side by side, by columns.
template <int kDown, int kAcross>
struct Neighbours {
  static constexpr int kBlocks = kDown * kAcross;
  static constexpr int kPeers = kDown + kAcross - 1;  // that bring this block something, itself too

  WMMA_DEVICE static uint32_t down() { return kBlocks > 1 ? blockIdx.x % kBlocks % kDown : 0; }
  WMMA_DEVICE static uint32_t across() { return kBlocks > 1 ? blockIdx.x % kBlocks / kDown : 0; }
  // Who takes the same tiles of A (they are in its row), or of B: a bit for each block.
  WMMA_DEVICE static uint16_t of_row() {
    uint32_t blocks = 0;
#pragma unroll
    for (int i = 0; i < kAcross; ++i) blocks |= 1u << (i * kDown);
    return static_cast<uint16_t>(blocks << down());
  }
  WMMA_DEVICE static uint16_t of_column() { return static_cast<uint16_t>(((1u << kDown) - 1) << (across() * kDown)); }
  // The i-th of its peers.
  WMMA_DEVICE static uint32_t peer(uint32_t i) {
    if (i < kDown) return across() * kDown + i;
    const uint32_t other = i - kDown;
    return (other + (other >= across() ? 1 : 0)) * kDown + down();
  }
};

// A product by warpgroups.
struct Warpgroup {};
template <class Config>
struct GemmKernel<Config, Warpgroup> {
  static constexpr bool kPaired = kHasSecondPair<Config>;
  static constexpr bool kAux = kKeepsAux<Config>;
  static_assert(!kPaired || !kAux, "either has maps of its own");
  static constexpr bool kGated = kIsGated<Config>;
  static_assert(!kGated || (Config::kMappedD && !kPaired), "lanes of other ways do not have both sums");
  using Arguments = Choose<kPaired, MappedPairArguments,
                           Choose<kGated, MappedGatedArguments, Choose<kAux, MappedAuxArguments, MappedGemmArguments>>>;
  using A = typename Config::A;
  using B = typename Config::B;
  using Tiles = typename Config::Tiles;
  using Product = MatrixProduct<typename Config::Element, Config::kSide>;
  using Sum = typename Product::Compute;
  using Sharing = Neighbours<Config::kShare, Config::kShareA>;
  static constexpr int kWaves = Config::kWavesM;
  static constexpr int kThreads = Config::kThreads;  // after those that multiply, a producer wave
  static constexpr int kConsumers = kWaves * arch::kWaveSize;
  static constexpr bool kReleasesRegisters =
      kThreads - kConsumers > arch::kWaveSize;  // a warpgroup of which one wave produces
  static constexpr int kProducerRegisters = 24;
  // Where all start with 168, with 128, or with 96.
  static constexpr int kConsumerRegisters = kWaves == 8 ? 240 : kWaves == 12 ? 160 : 112;
  static_assert(kThreads == kConsumers + arch::kWaveSize || (kThreads == kConsumers + 128 && kWaves >= 8),
                "one wave produces, or a warpgroup that leaves its registers to two, three or four");
  static constexpr int kClusterBlocks = Tiles::kCluster * Sharing::kBlocks;
  static constexpr bool kPingPong = Config::kPingPong;
  static constexpr uint32_t kGroups = kPingPong ? kWaves / 4 : 1;      // that have a tile each
  static constexpr uint32_t kTogether = kWaves / kGroups;              // waves that have one together
  static constexpr int kParts = kPingPong ? Config::kBlockM / 64 : 1;  // that a warpgroup has, 64 rows each
  static_assert(Config::kBlockM == kTogether * 16 * kParts && kWaves % 4 == 0 && Config::kWavesN == 1 &&
                    Config::kWavesK == 1,
                "four waves down are a warpgroup");
  static_assert(!kPingPong || (Tiles::kPersistent && kGroups == 2), "each goes on to the next tile but one");
  static constexpr int kTurns = 3;  // barriers, one for each of two warpgroups
  static_assert(Sharing::kBlocks == 1 ||
                    (Tiles::kCluster == 1 && Tiles::kGroup % Config::kShare == 0 &&
                     (Config::kShareA == 1 || Tiles::kGroup == (Config::kShare > 1 ? Config::kShare : 0) ||
                      Tiles::kGroup == 1)),
                "a cluster's blocks have tiles one below the other, then side by side");

  static constexpr int kN = Config::kBlockN;
  static constexpr int kDepth = Config::kBlockK;
  static constexpr int kStages = Config::kStages;
  static constexpr bool kAlongA = Config::kAOrder == Order::kAlongK;
  static constexpr bool kAlongB = Config::kBOrder == Order::kAlongK;
  static constexpr int kDims = Config::kBatchDims;
  static constexpr bool kPersistent = Tiles::kPersistent;
  static constexpr int kKeptBytes = 16 << 20;  // of an operand, for the next kernel to find in the L2 cache
  static_assert(!kPersistent || (!Tiles::kIsSplit && Tiles::kCluster == 1), "whole tiles");
  using LoaderA = BoxLoader<A, Config::kAOrder, Config::kBlockM, kDepth, kDims, Config::kShareA>;
  using LoaderB = BoxLoader<B, Config::kBOrder, kColumnsOf<Config>, kDepth, kDims, Config::kShare, kGated ? 2 : 1>;
  using TileA = typename LoaderA::Tile;
  using TileB = typename LoaderB::Tile;
  static constexpr int kStageBytes = TileA::kBytes + TileB::kBytes;
  using Queue = TileQueue<kStages, kStageBytes>;
  using Item = typename Queue::Item;
  static_assert(kStages >= 2, "one tile is multiplied while another arrives");
  // The matrix unit keeps some 14 bits of a sum of fp8 products, so each tile's is added to the others in float32.
  static constexpr bool kAddsParts = kIsFp8<A>;
  static constexpr int kStep = elements_in<A>(32);  // of K that one product takes
  static constexpr int kSteps = kDepth / kStep;

  static constexpr int kHeld = (kN + Product::kCols - 1) / Product::kCols * Product::kCols;
  static_assert(kN == kHeld || Config::kMappedD, "slabs are whole products");
  using Wave = WaveTile<Product, 16, kHeld>;  // a wave's part of its warpgroup's 64 rows
  using Store = WaveStore<Config, Product, 16, kHeld>;
  using BoxesOrSlabs = BoxOrSlabStore<Config::kMappedD, Config, Product, kColumnsOf<Config>>;
  static constexpr int kWaveBytes = Config::kMappedD || kPersistent ? BoxesOrSlabs::kWaveBytes : Store::kWaveBytes;
  static constexpr int kStores = kPersistent ? Queue::kBytes : 0;  // where they start: otherwise where the tiles lay
  static constexpr int kStoreBytes = kStores + kWaves * kWaveBytes;
  static constexpr int kBarriers = Queue::kBytes > kStoreBytes ? Queue::kBytes : kStoreBytes;
  using Ones = OnesBeside<kSumsRows<Config>, B>;
  static constexpr int kOnes = kBarriers + Queue::kBarrierBytes;
  static constexpr int kSharedBytes = kOnes + Ones::kBytes;
  static_assert(Ones::kBytes == 0 || (kDims == 0 && !kPaired && !kAddsParts), "of one product of 16 bits");

  static WMMA_DEVICE void run(const Arguments& p) {
    unsigned char* shared = dynamic_shared<unsigned char>();
    const uint32_t start = arch::shared_address(shared);
    const Queue queue(start, start + kBarriers);
    const uint32_t wave = uniform(threadIdx.x / arch::kWaveSize);
    const bool is_producer = wave == kWaves;
    if (is_producer && lane_id() == 0) {
      arch::prefetch_map(&p.a_map);
      arch::prefetch_map(&p.b_map);
      if constexpr (kPaired) {
        arch::prefetch_map(&p.a2_map);
        arch::prefetch_map(&p.b2_map);
      }
      if constexpr (kGated) arch::prefetch_map(&p.gate_map);
      if constexpr (Config::kMappedD) arch::prefetch_map(&p.d_map);
      if constexpr (Config::kMappedD && kAux) arch::prefetch_map(aux_map(p));
      if constexpr (kGated && kAux) arch::prefetch_map(&p.gate_aux_map);
      queue.make(Sharing::kPeers * kTogether);
      arch::fence_barriers();
    }
    if (wave == 0) Ones::lay(shared + kOnes);
    arch::wave_barrier();
    if constexpr (Sharing::kBlocks > 1) {
      arch::cluster_start();  // what comes from another block finds the barriers made
    } else if (wave >= kWaves) {
      arch::barrier_pass<kThreads>(1);
    } else {
      arch::barrier_meet<kThreads>(1);
    }
    arch::await_previous();
    // Not before: what comes next relies on all but this kernel being done.
    if constexpr (Tiles::kIsSplit) arch::let_next_start();
    if (wave >= kWaves) {
      if constexpr (kReleasesRegisters) arch::release_registers<kProducerRegisters>();
      if (is_producer && lane_id() == 0) produce(p, queue);
    } else {
      if constexpr (kReleasesRegisters) arch::take_registers<kConsumerRegisters>();
      consume(p, queue, shared + kStores + wave * kWaveBytes, wave);
    }
  }

 private:
  // What a tile is made of.
  struct Work {
    uint32_t batch;
    BlockTile tile;
    TileIndex index;
    int64_t row;
    int64_t column;
    KPart k;
    KPart k2{0, 0};  // of the second pair, whose steps come after the first's
    uint32_t steps;  // items of the queue
    uint32_t more = 0;

    WMMA_DEVICE uint32_t items() const { return steps + more; }
    WMMA_DEVICE Work(const Arguments& p, const Tiles& tiles)
        : batch(tiles.batch(p)),
          tile(tiles.tile(p)),
          index(Tiles::index(p, tile.number)),
          row(Tiles::row(index)),
          column(Tiles::column(index)),
          k(Tiles::k(p, tile)),
          steps(steps_of(k.count)) {
      if constexpr (kPaired) {
        k2 = Tiles::second_k(p, tile);
        more = steps_of(k2.count);
      }
    }
  };

  static WMMA_DEVICE uint32_t steps_of(int64_t k) {
    return k <= 0 ? 0 : static_cast<uint32_t>((k + kDepth - 1) / kDepth);
  }

  // Whether nobody else reads an operand, and it is too large to lie in the L2 cache still when the next kernel runs.
  template <class T>
  static WMMA_DEVICE bool is_read_once(uint32_t tiles, uint32_t together, int64_t lines, int64_t k) {
    return kDims == 0 && tiles <= together && lines * k > elements_in<T>(kKeptBytes);
  }

  // The producer, one of its lanes: every step of every tile, as soon as its room in the queue is free.
  static WMMA_DEVICE void produce(const Arguments& p, const Queue& queue) {
    Item item(0);
    for (Tiles tiles; tiles.valid(p); tiles.next()) {
      const Work work(p, tiles);
      produce(p, queue, work, item, work.steps, p.a, p.b, p.a_map, p.b_map, work.k.first, p.k);
      if constexpr (kPaired)
        produce(p, queue, work, item, work.more, p.a2, p.b2, p.a2_map, p.b2_map, work.k2.first, p.k2);
    }
  }
  // A pair's steps, from k_first of its K on, as the queue's next items.
  static WMMA_DEVICE void produce(const Arguments& p, const Queue& queue, const Work& work, Item& item, uint32_t steps,
                                  const GemmOperand& x, const GemmOperand& y, const TileMap& x_map,
                                  const TileMap& y_map, int64_t k_first, int64_t k) {
    const bool once_a = is_read_once<A>(p.tiles_n, Config::kShareA, p.m, k);
    const bool once_b = is_read_once<B>(p.tiles_m, Config::kShare, p.n, k);
    LoaderA a(p, x, x_map, work.batch, work.row, k_first, once_a, Sharing::across(), Sharing::of_row());
    LoaderB b(p, y, y_map, work.batch, work.column, k_first, once_b, Sharing::down(), Sharing::of_column());
    [[maybe_unused]] LoaderB gate = gate_of(p, b, work, k_first, once_b);
#pragma unroll 1
    for (uint32_t step = 0; step < steps; ++step, item.next()) {
      queue.open(item, kStageBytes);
      a.copy(queue.place(item), queue.full(item));
      b.copy(queue.place(item) + TileA::kBytes, queue.full(item));
      if constexpr (kGated) gate.copy(queue.place(item) + TileA::kBytes, queue.full(item));
    }
  }
  static WMMA_DEVICE LoaderB gate_of(const Arguments& p, const LoaderB& b, const Work& work, int64_t k, bool once) {
    if constexpr (kGated) {
      return LoaderB(p, p.gate, p.gate_map, work.batch, work.column, k, once, Sharing::down(), Sharing::of_column(), 1);
    } else {
      return b;
    }
  }

  static WMMA_DEVICE const TileMap* aux_map(const Arguments& p) {
    if constexpr (kAux) return &p.aux_map;
    return nullptr;
  }
  static WMMA_DEVICE const TileMap* gate_aux_map(const Arguments& p) {
    if constexpr (kAux && kGated) return &p.gate_aux_map;
    return nullptr;
  }

  // The warpgroups.
  static constexpr int kPartBytes = kAlongA ? 64 * 128 : TileA::kBoxBytes;  // of a tile of A
  static WMMA_DEVICE void consume(const Arguments& p, const Queue& queue, unsigned char* slab, uint32_t wave) {
    const uint32_t group = arch::shuffle_word(wave / 4, 0);
    const uint32_t rows_at = kPingPong ? 0 : group * kPartBytes;
    const uint32_t wave_row = (kPingPong ? wave % 4 : wave) * 16;
    const uint32_t rounds = Tiles::count(p);
    BoxesOrSlabs store(p, p.d_map, slab, aux_map(p), gate_aux_map(p));
    const Consumers consumers(queue);
    Item item(0);
    const uint64_t a = TileA::operand(queue.place(item) + rows_at);  // of the first place
    const uint64_t b = TileB::operand(queue.place(item) + TileA::kBytes);
    [[maybe_unused]] const uint64_t ones = arch::wgmma_operand_of_columns(queue.place(item) + kOnes);
    uint32_t round = 0;
    if (kPingPong && group == 1) arch::barrier_pass<kConsumers>(kTurns);
    for (Tiles tiles; tiles.valid(p); tiles.next(), ++round) {
      const Work work(p, tiles);
      if (kPingPong && round % kGroups != group) {
        item.skip(work.items());
        continue;
      }
      // 1. What the tile needs besides: the epilogue's operands to the L2 cache, sums of zero.
      const uint32_t items = kPersistent ? rounds * work.items() : work.items();  // of the queue, altogether
      if (!work.tile.is_partial) {
        const Epilogue<Config, Sum> epilogue(p, work.batch);
        constexpr int kAsking = kTogether * arch::kWaveSize;
        epilogue.template prefetch<Config::kBlockM, kColumnsOf<Config>, kAsking>(work.row, work.column,
                                                                                 threadIdx.x % kAsking);
      }
      Wave parts[kParts];
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        parts[i].clear();
        hold_sums<kN / 2>(sums_of(parts[i]));
      }
      Sum part[kN / 2];
      [[maybe_unused]] RowSums<Config, A, kParts> row_sums;
      Item before = item;
      if constexpr (kPingPong) arch::barrier_meet<kConsumers>(kTurns + static_cast<int>(group));
      // 2. Tile by tile: await it, start its products, and when those before are done give their tile back.
      uint32_t step = 0;
      const auto take = [&](uint32_t end, auto sums_rows) {
#pragma unroll 1
        for (; step < end; ++step, item.next()) {
          queue.await(item);
          const uint32_t further = item.stage() * kStageBytes;
          arch::wgmma_fence();
#pragma unroll
          for (int i = 0; i < kParts; ++i) {
            const uint64_t rows = arch::wgmma_operand_after(a, further + i * kPartBytes);
            multiply(kAddsParts ? part : sums_of(parts[i]), rows, arch::wgmma_operand_after(b, further));
            if constexpr (sums_rows.value) row_sums.template add<TileA, kAlongA, kSteps>(i, rows, ones);
          }
          arch::wgmma_commit();
          if constexpr (kAddsParts) {
            static_assert(kParts == 1, "that are added up by themselves");
            arch::wgmma_wait<0>();
            hold_sums<kN / 2>(part);
            consumers.done(item, items);
#pragma unroll
            for (int i = 0; i < kN / 2; ++i) sums_of(parts[0])[i] += part[i];
          } else {
            arch::wgmma_wait<1>();  // the product before this one has read its tile
            consumers.done(before, step > 0 ? items : 0);
            before = item;
          }
        }
      };
      if constexpr (kSumsRows<Config>) {
        row_sums.clear();
        take(share_from(p, work, work.index.n), Never{});
        take(share_from(p, work, work.index.n + 1), Always{});
      }
      take(work.items(), Never{});
      if constexpr (kPingPong) arch::barrier_pass<kConsumers>(kTurns + 1 - static_cast<int>(group));
      // 3. The last products, while what the results need is asked for.
      if (!Tiles::kIsSplit && tiles.is_last(p)) arch::let_next_start();
      if constexpr (kPersistent || Config::kMappedD) store.ask(work.batch, work.row, work.column, wave_row, 0);
      arch::wgmma_wait<0>();
      if constexpr (!kAddsParts) consumers.done(before, work.items() > 0 ? items : 0);
#pragma unroll
      for (int i = 0; i < kParts; ++i) hold_sums<kN / 2>(sums_of(parts[i]));
      if constexpr (kSumsRows<Config>) {
        row_sums.store(p, work.index, work.tile, Tiles::kIsSplit && !work.tile.is_partial, work.row + wave_row);
      }
      // 4. The results.
      if constexpr (!kPersistent) arch::barrier_meet<kConsumers>(2);  // what is stored lies where the tiles lay
      if constexpr (kPersistent || Config::kMappedD) {
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
          if (i > 0) store.ask(work.batch, work.row, work.column, wave_row + i * 64, 0);
          store.run(parts[i], work.batch, work.row, work.column, wave_row + i * 64, 0);
        }
      } else {
        const Store slabs(p, slab, lane_id(), 0, Tiles::kCluster > 1 ? work.tile.split : 0, work.batch,
                          work.tile.number, work.tile.split, work.row, work.column, wave_row, 0);
        if (work.tile.is_partial) {
          slabs.template run<Tiles::kIsSplit>(parts[0]);
        } else {
          slabs.template run<Tiles::kEveryPartial>(parts[0]);
        }
      }
    }
    store.close();
  }

  // Those that a wave signals when it is done with a tile: where no other one of so many items is to take its place,
  // nobody may be there any more.
  class Consumers {
   public:
    WMMA_DEVICE explicit Consumers(const Queue& queue)
        : free_(queue.empty(Item(0))), tells_(lane_id() < Sharing::kPeers) {
      if constexpr (Sharing::kBlocks > 1) free_ = arch::address_in(Sharing::peer(tells_ ? lane_id() : 0), free_);
    }
    WMMA_DEVICE void done(const Item& item, uint32_t items) const {
      const uint32_t barrier = free_ + item.stage() * arch::kBarrierBytes;
      const bool does = tells_ && item.number() + kStages < items;
      if constexpr (Sharing::kBlocks > 1) {
        arch::barrier_arrive_there(barrier, does);
      } else {
        arch::barrier_arrive(barrier, does);
      }
    }

   private:
    uint32_t free_;  // of the first place, with this block or with the one that the lane tells
    bool tells_;
  };

  // Where a column's share begins among the steps of its tile. Where some tiles are split, and others not, each has
  // what it has of a share of all.
  static WMMA_DEVICE uint32_t share_from(const Arguments& p, const Work& work, uint32_t column) {
    constexpr bool kOfAll = Tiles::kIsSplit && !Tiles::kEveryPartial;
    const uint32_t steps = kOfAll ? steps_of(p.k) : work.items(), more = steps % p.tiles_n;
    const uint32_t from = steps / p.tiles_n * column + (column < more ? column : more);
    const uint32_t before = kOfAll ? static_cast<uint32_t>(work.k.first / kDepth) : 0;
    const uint32_t inside = from > before ? from - before : 0;
    return inside < work.items() ? inside : work.items();
  }

  static WMMA_DEVICE void multiply(Sum* sums, uint64_t a, uint64_t b) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      arch::Wgmma<A, B, kN>::template mma<!kAlongA, !kAlongB>(sums, TileA::template step<kAlongA>(a, step, kStep),
                                                              TileB::template step<kAlongB>(b, step, kStep),
                                                              !kAddsParts || step != 0);
    }
  }
  static WMMA_DEVICE Sum* sums_of(Wave& wave) { return &wave.sums[0][0][0]; }
};

}  // namespace wmma
