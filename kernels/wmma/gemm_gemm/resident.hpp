// Two products in one kernel whose weights all fit into shared memory: a block loads them once, then each of its waves
// is persistent over the rows, the next ones on their way. Memory sees A once and D1 once.
#pragma once

#include <wmma/gemm_gemm/finish.hpp>
#include <wmma/gemm_gemm/rows.hpp>
#include <wmma/tile/staged_loader.hpp>
#include <wmma/tile/tile_order.hpp>

namespace wmma {

// kCount lines of kDepth elements in shared memory, loaded a slice at a time: as many lines as give each thread a
// square of chunks to turn, and no more threads than there are squares.
template <class Config, class Link, Order kOrder, int kVec, int kCount, int kDepth, bool kRagged>
struct ResidentLines {
  using T = typename Config::Element;
  static constexpr int kSquare = elements_in<T>(16) * elements_in<T>(16);
  static constexpr int kLeast = detail::upper(32, Link::kWhole);
  static constexpr int kWanted = Config::kThreads * kSquare / kDepth / kLeast;
  static constexpr int kSlice = kLeast * detail::divisor_up_to(kCount / kLeast, kWanted > 1 ? kWanted : 1);
  static constexpr int kActive = detail::lower(Config::kThreads, kSlice* kDepth / kSquare);
  template <int kLines>
  using TileOf = ChainTile<Link, kLines, bytes_of<T>(kDepth), true>;
  using Loader =
      StagedLoader<T, T, kOrder, kSlice, kDepth, kActive, kVec, Config::kWide, PlainStage<T, T>, TileOf<kSlice>>;
  using Tile = TileOf<kCount>;
  static_assert(kCount % kSlice == 0 && kSlice % Tile::kPeriod == 0, "slices are as the whole");

  // `lines` of them exist, `depth` elements each. Those beyond hold others' values, which end in nothing that is kept.
  static WMMA_DEVICE void load(unsigned char* shared, const T* data, int64_t line_step, int64_t depth_step,
                               int64_t lines, int64_t depth, uint32_t thread) {
    if (kActive < Config::kThreads && thread >= kActive) return;
#pragma unroll 1
    for (int slice = 0; slice < kCount; slice += kSlice) {
      const int64_t first = slice < lines ? slice : 0;
      Loader loader(data + first * line_step, line_step, depth_step, lines - first, thread, PlainStage<T, T>{});
      loader.template fetch<kRagged>(static_cast<int>(depth));
      loader.template store<kRagged>(shared + slice * (Tile::kPitch * 16), static_cast<int>(depth));
    }
  }
};

template <class Config>
struct ResidentKernel {
  using Arguments = GemmGemmArguments;
  using T = typename Config::Element;
  static constexpr int kWaveM = Config::kTilesM * 16;
  static constexpr int kThreads = Config::kWavesM * arch::kWaveSize;
  using First = ChainLink<MatrixProduct<T, 16>>;
  using Sums = ChainSums<First, kWaveM, Config::kBlockH>;
  using D0 = Between<Config, kWaveM, Config::kBlockH>;
  using Last = LastLink<T, 16>;
  using LastSums = ChainSums<Last, kWaveM, Config::kBlockN>;

  template <Order kOrder, int kVec>
  using FirstLines = ResidentLines<Config, First, kOrder, kVec, Config::kBlockH, Config::kBlockK, Config::kRaggedK>;
  using B0 = FirstLines<Config::kB0Order, Config::kB0Vec>;
  using Gate = FirstLines<Config::kGateOrder, Config::kGateVec>;
  using B1 =
      ResidentLines<Config, Last, Config::kB1Order, Config::kB1Vec, Config::kPadN, Config::kBlockH, Config::kRaggedH>;
  static constexpr int kSteps = Config::kBlockK / First::kDepth;
  static constexpr int kFirstBytes = B0::Tile::kBytes;
  static constexpr int kWeightBytes = (Config::kGate ? 2 : 1) * kFirstBytes + B1::Tile::kBytes;
  static constexpr int kSharedBytes = kWeightBytes + Config::kWavesM * Rows<Config>::kWaveBytes;

  static WMMA_DEVICE void run(const GemmGemmArguments& p) {
    unsigned char* shared = dynamic_shared<unsigned char>();
    const uint32_t thread = threadIdx.x;
    const uint32_t lane = lane_id();
    const uint32_t wave = uniform(thread / arch::kWaveSize);
    const int64_t stride = static_cast<int64_t>(gridDim.x) * Config::kWavesM * kWaveM;
    const ColumnReader<First, typename B0::Tile> first(lane);
    const ColumnReader<Last, typename B1::Tile> last(lane);
    BatchAlongY<Config::kBatchDims> along;
    do {
      const uint32_t batch = along.batch(p.last);
      int64_t row = (static_cast<int64_t>(blockIdx.x) * Config::kWavesM + wave) * kWaveM;
      Rows<Config> rows(operand(p, p.a, batch), p.a, p.last.m, p.k,
                        shared + kWeightBytes + wave * Rows<Config>::kWaveBytes, lane);
#pragma unroll
      for (int i = 0; i < Rows<Config>::kAhead; ++i) rows.ask(row + i * stride, lane);
      load(p, shared, batch, thread);
      arch::block_barrier();
      for (; row < p.last.m; row += stride) {
        uint32_t here = lane;
        arch::renew(here);  // addresses and columns are found anew, or they would fill the registers all the way down
        D0 d0;
        rows.arrive();
        multiply(p, d0, rows, first, shared, batch, row + Rows<Config>::kAhead * stride, here);
#pragma unroll 1
        for (int column = 0; column < Config::kPadN; column += Config::kBlockN) {
          LastSums sums;
          sums.clear();
          const unsigned char* tile = shared + kWeightBytes - B1::Tile::kBytes + column * (B1::Tile::kPitch * 16);
          multiply_last(sums, d0, last, tile);
          store_last<Config>(p, sums, batch, row, column, here);
        }
      }
      if constexpr (!along.kGoesOn) break;
      arch::block_barrier();
      along.next();
    } while (along.valid(p.last));
  }

 private:
  static WMMA_DEVICE const T* operand(const GemmGemmArguments& p, const GemmOperand& x, uint32_t batch) {
    return static_cast<const T*>(x.data) + batch_offset<Config::kBatchDims>(p.last, x, batch);
  }

  static WMMA_DEVICE void load(const GemmGemmArguments& p, unsigned char* shared, uint32_t batch, uint32_t thread) {
    const int64_t h = p.last.k;
    B0::load(shared, operand(p, p.b0, batch), p.b0.column_stride, p.b0.row_stride, h, p.k, thread);
    if constexpr (Config::kGate) {
      Gate::load(shared + kFirstBytes, operand(p, p.gate, batch), p.gate.column_stride, p.gate.row_stride, h, p.k,
                 thread);
    }
    B1::load(shared + kWeightBytes - B1::Tile::kBytes, operand(p, p.last.b, batch), p.last.b.column_stride,
             p.last.b.row_stride, p.last.n, h, thread);
  }

  // The wave's rows of D0; then asks for those from `next` on.
  template <class Reader>
  static WMMA_DEVICE void multiply(const GemmGemmArguments& p, D0& d0, Rows<Config>& rows, const Reader& reader,
                                   const unsigned char* shared, uint32_t batch, int64_t next, uint32_t lane) {
    Sums sums;
    multiply_first(sums, rows, reader, shared);
    if constexpr (Config::kGate) {
      Sums gate;
      multiply_first(gate, rows, reader, shared + kFirstBytes);
      rows.ask(next, lane);
      d0.finish(p, &sums.sums[0][0], &gate.sums[0][0], batch, 0, lane);
    } else {
      rows.ask(next, lane);
      d0.finish(p, &sums.sums[0][0], None{}, batch, 0, lane);
    }
  }

  template <class Reader>
  static WMMA_DEVICE void multiply_first(Sums& sums, const Rows<Config>& rows, const Reader& reader,
                                         const unsigned char* tile) {
    sums.clear();
    chain_product<First, Sums::kTiles, kSteps>(sums.sums, reader, tile,
                                               [&](Chunk(&taken)[Sums::kTilesM][First::kRowChunks], int step) {
#pragma unroll
                                                 for (int m = 0; m < Sums::kTilesM; ++m) rows.read(taken[m], m, step);
                                               });
  }
};

}  // namespace wmma
