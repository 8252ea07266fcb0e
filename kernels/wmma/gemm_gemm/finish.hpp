// What the kernels of two products do with sums: D0's become the second product's operand, D1's go to memory.
#pragma once

#include <wmma/gemm_gemm/arguments.hpp>
#include <wmma/tile/chain.hpp>
#include <wmma/tile/epilogue.hpp>

namespace wmma {

// kRows rows of a wave by kColumns of D0's columns, as the second product's operand.
template <class Config, int kRows, int kColumns>
struct Between {
  using T = typename Config::Element;
  using E = typename Config::Number;
  using Link = ChainLink<MatrixProduct<T, 16>>;
  using Sums = ChainSums<Link, kRows, kColumns>;
  static constexpr int kTiles = Sums::kTilesM;
  static constexpr int kSteps = kColumns / Link::kDepth;
  static constexpr int kBytes = 0;  // of shared memory

  WMMA_DEVICE Between() = default;
  WMMA_DEVICE Between(unsigned char*, uint32_t) {}
  WMMA_DEVICE void take(const Between& all, uint32_t) { *this = all; }
  WMMA_DEVICE void read(Chunk* x, int tile, int step) const {
#pragma unroll
    for (int i = 0; i < Link::kRowChunks; ++i) x[i] = chunks[step][tile][i];
  }

  Chunk chunks[kSteps][kTiles][Link::kRowChunks];

  // D0 = act(alpha0·S + bias0) [· gate], rounded; zero from column H on, whatever the columns beyond it gave. `from` is
  // the first of its columns; sums and gate have those of a row tile one after the other.
  template <class Sum, class Gate>
  WMMA_DEVICE void finish(const GemmGemmArguments& p, const Sum* sums, const Gate& gate, uint32_t batch, int64_t from,
                          uint32_t lane) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        uint32_t words[bytes_of<T>(Link::kShare) / 4];
#pragma unroll
        for (int i = 0; i < Link::kShare; i += kPacked) {
          E y[kPacked];
#pragma unroll
          for (int e = 0; e < kPacked; ++e) {
            const int f = step * Link::kShare + i + e;
            const int64_t column = from + Link::place(lane, f);
            const bool there = !Config::kRaggedH || column < p.last.k;
            y[e] = static_cast<E>(p.alpha0) * convert<E>(sums[tile * Sums::kSums + f]);
            if constexpr (!kIsNone<typename Config::Bias0>) y[e] += bias(p, batch, there ? column : 0);
            y[e] = activate<Config::kActivation, E>(y[e]);
            if constexpr (Config::kGate) y[e] *= static_cast<E>(static_cast<float>(gate[tile * Sums::kSums + f]));
            y[e] = there ? y[e] : E(0);
          }
          detail::pack<T, kPacked>(words + bytes_of<T>(i) / 4, y);
        }
        Link::join(chunks[step][tile], words);
      }
      arch::schedule_barrier();  // a step's sums are given up before the next one's are rounded
    }
  }

 private:
  static constexpr int kPacked = kBitsOf<T> == 8 ? 4 : Link::kShare;  // 8-bit ones, all finished at once, would spill

  static WMMA_DEVICE E bias(const GemmGemmArguments& p, uint32_t batch, int64_t column) {
    using Bias = typename Config::Bias0;
    const Bias* at = static_cast<const Bias*>(p.bias0.data) + batch_offset<Config::kBatchDims>(p.last, p.bias0, batch) +
                     column * p.bias0.column_stride;
    return convert<E>(*at);
  }
};

// The parts of kParts waves that share rows, in shared memory: each lane finds its own chunks there.
template <class Part, int kParts>
class SharedBetween {
  static constexpr int kChunks = Part::Link::kRowChunks;
  static constexpr int kStepBytes = Part::kTiles * kChunks * arch::kWaveSize * 16;

 public:
  static constexpr int kSteps = kParts * Part::kSteps;
  static constexpr int kBytes = kSteps * kStepBytes;

  WMMA_DEVICE SharedBetween(unsigned char* shared, uint32_t lane) : mine_(shared + lane * 16) {}

  // From each wave its own; seen by all of them after a barrier of the block.
  WMMA_DEVICE void take(const Part& part, uint32_t index) {
    unsigned char* to = mine_ + index * (Part::kSteps * kStepBytes);
#pragma unroll
    for (int step = 0; step < Part::kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < Part::kTiles * kChunks; ++i) {
        *reinterpret_cast<Chunk*>(to + step * kStepBytes + i * (arch::kWaveSize * 16)) =
            part.chunks[step][i / kChunks][i % kChunks];
      }
    }
  }
  WMMA_DEVICE void read(Chunk* x, int tile, int step) const {
    const unsigned char* from = mine_ + step * kStepBytes + tile * (kChunks * arch::kWaveSize * 16);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) x[i] = *reinterpret_cast<const Chunk*>(from + i * (arch::kWaveSize * 16));
  }

 private:
  unsigned char* mine_;
};

// D1's sums += D0·columns, of which `tile` holds the lines.
template <class Link, int kRows, int kColumns, class D0, class Reader>
WMMA_DEVICE void multiply_last(ChainSums<Link, kRows, kColumns>& sums, const D0& d0, const Reader& reader,
                               const unsigned char* tile) {
  using Sums = ChainSums<Link, kRows, kColumns>;
  chain_product<Link, Sums::kTiles, D0::kSteps>(sums.sums, reader, tile,
                                                [&](Chunk(&rows)[Sums::kTilesM][Link::kRowChunks], int step) {
#pragma unroll
                                                  for (int m = 0; m < Sums::kTilesM; ++m) d0.read(rows[m], m, step);
                                                });
}

// A wave's part of D1, straight from registers: a lane stores runs of neighbours.
template <class Config, class Link, int kRows, int kColumns>
WMMA_DEVICE void store_last(const GemmGemmArguments& p, const ChainSums<Link, kRows, kColumns>& sums, uint32_t batch,
                            int64_t first_row, int64_t first_column, uint32_t lane) {
  using Sums = ChainSums<Link, kRows, kColumns>;
  using Sum = typename Link::Sum;
  using Finish = Epilogue<typename Config::Last, Sum>;
  constexpr int kVec = Config::Last::kDVec;
  constexpr int kVectors = Link::kRun / kVec;
  constexpr int kRuns = Link::kLaneRows * Link::kRun;  // that have the same columns
  static_assert(kVectors * kVec == Link::kRun, "whole vectors");
  const Finish finish(p.last, batch);
  // Matrix instructions want all lanes: none of them may move behind the edges below.
#pragma unroll
  for (int m = 0; m < Sums::kTilesM; ++m) {
#pragma unroll
    for (int i = 0; i < Sums::kSums; ++i) arch::settle(sums.sums[m][i]);
  }
#pragma unroll
  for (int first = 0; first < Sums::kSums; first += kRuns) {
    const int64_t column = first_column + Link::place(0, first) + Link::place(lane, 0);
    typename Finish::Columns columns[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!Config::kRaggedN || column + i * kVec < p.last.n) columns[i] = finish.columns(column + i * kVec);
    }
#pragma unroll
    for (int m = 0; m < Sums::kTilesM; ++m) {
#pragma unroll
      for (int run = first; run < first + kRuns; run += Link::kRun) {
        const int64_t row = first_row + m * Link::kRows + Link::row(lane, Link::row_of(Link::sum_of(run)));
        if (row >= p.last.m) continue;
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
          if (Config::kRaggedN && column + i * kVec >= p.last.n) continue;
          alignas(16) Sum vector[kVec];
#pragma unroll
          for (int e = 0; e < kVec; ++e) vector[e] = sums.sums[m][Link::sum_of(run + i * kVec + e)];
          typename Finish::Elements elements;
          finish.fetch(elements, row, column + i * kVec);
          finish.store(vector, columns[i], elements, row, column + i * kVec);
        }
      }
    }
  }
}

}  // namespace wmma
