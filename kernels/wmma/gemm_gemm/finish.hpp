// What the kernels of two products do with sums: D0's become the second product's operand, D1's go to memory.
#pragma once

#include <wmma/gemm_gemm/arguments.hpp>
#include <wmma/tile/chained_product.hpp>
#include <wmma/tile/epilogue.hpp>

namespace wmma {

// kLines of D0's columns by kRows rows of a wave, as the second product's operand.
template <class Config, int kLines, int kRows>
struct Between {
  using T = typename Config::Element;
  using First = ChainProduct<T>;
  using Sums = WaveTile<First, kLines, kRows>;
  using E = typename Config::Number;
  static constexpr int kSteps = Sums::kTilesM;
  static constexpr int kTiles = Sums::kTilesN;
  static constexpr int kBytes = 0;  // of shared memory

  WMMA_DEVICE Between() = default;
  WMMA_DEVICE Between(unsigned char*, uint32_t) {}
  WMMA_DEVICE void take(const Between& all, uint32_t) { *this = all; }
  WMMA_DEVICE void read(Chunk* x, int tile, int step) const {
#pragma unroll
    for (int i = 0; i < First::kChunksB; ++i) x[i] = chunks[step][tile][i];
  }

  Chunk chunks[kSteps][kTiles][First::kChunksB];

  // D0 = act(alpha0·S + bias0) [· gate], rounded; zero from column H on, whatever the lines beyond it gave. `from` is
  // the first of its columns.
  template <class Gate>
  WMMA_DEVICE void finish(const GemmGemmArguments& p, const Sums& sums, const Gate& gate, uint32_t batch, int64_t from,
                          uint32_t lane) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        uint32_t words[First::C::kElements / kPerWord];
#pragma unroll
        for (int e = 0; e < First::C::kElements; e += kPerWord) {
          E y[kPerWord];
#pragma unroll
          for (int i = 0; i < kPerWord; ++i) {
            const int64_t column = from + step * First::kRows + First::C::row(lane, e + i);
            const bool there = !Config::kRaggedH || column < p.last.k;
            y[i] = static_cast<E>(p.alpha0) * convert<E>(sums.sums[step][tile][e + i]);
            if constexpr (!kIsNone<typename Config::Bias0>) y[i] += bias(p, batch, there ? column : 0);
            y[i] = activate<Config::kActivation, E>(y[i]);
            if constexpr (Config::kGate) y[i] *= static_cast<E>(static_cast<float>(gate.sums[step][tile][e + i]));
            y[i] = there ? y[i] : E(0);
          }
          words[e / kPerWord] = packed(y);
        }
        First::chunks(chunks[step][tile], words, lane);
      }
      arch::schedule_barrier();  // a step's sums are given up before the next one's are rounded
    }
  }

 private:
  static constexpr int kPerWord = 4 / sizeof(T);

  // Rounded as they will lie in memory.
  static WMMA_DEVICE uint32_t packed(const E* y) {
    if constexpr (kSame<T, half_t>) {
      return arch::half_pair(y[0], y[1]);
    } else if constexpr (kSame<T, bf16_t>) {
      return arch::bf16_pair(y[0], y[1]);
    } else {
      const T bytes[4] = {finished<T>(y[0]), finished<T>(y[1]), finished<T>(y[2]), finished<T>(y[3])};
      return arch::bit_cast<uint32_t>(bytes);
    }
  }

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
  static constexpr int kChunks = Part::First::kChunksB;
  static constexpr int kStepBytes = Part::kTiles * kChunks * arch::kWaveSize * 16;

 public:
  static constexpr int kBytes = kParts * Part::kSteps * kStepBytes;

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

// kLines of D1's columns by kRows rows of a wave, straight from registers.
template <class Config, int kLines, int kRows>
WMMA_DEVICE void store_last(const GemmGemmArguments& p,
                            const WaveTile<LastProduct<typename Config::Element>, kLines, kRows>& sums, uint32_t batch,
                            int64_t first_row, int64_t first_column, uint32_t lane) {
  using Last = LastProduct<typename Config::Element>;
  using Sum = typename Last::Compute;
  using Finish = Epilogue<typename Config::Last, Sum>;
  constexpr int kVec = Config::Last::kDVec;
  constexpr int kVectors = Last::kRun / kVec;
  static_assert(kVectors * kVec == Last::kRun, "whole vectors");
  const Finish finish(p.last, batch);
  // Matrix instructions want all lanes: none of them may move behind the edges below.
#pragma unroll
  for (int group = 0; group < kLines / Last::kRows; ++group) {
#pragma unroll
    for (int tile = 0; tile < kRows / Last::kCols; ++tile) {
#pragma unroll
      for (int e = 0; e < Last::C::kElements; ++e) arch::settle(sums.sums[group][tile][e]);
    }
  }
#pragma unroll
  for (int group = 0; group < kLines / Last::kRows; ++group) {
    const int64_t column = first_column + group * Last::kRows + Last::run_line(lane);
    typename Finish::Columns columns[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!Config::kRaggedN || column + i * kVec < p.last.n) columns[i] = finish.columns(column + i * kVec);
    }
#pragma unroll
    for (int tile = 0; tile < kRows / Last::kCols; ++tile) {
      alignas(16) Sum runs[Last::kRuns * Last::kRun];
      Last::runs(runs, sums.sums[group][tile], lane);
#pragma unroll
      for (int run = 0; run < Last::kRuns; ++run) {
        const int64_t row = first_row + tile * Last::kCols + Last::run_row(lane, run);
        if (row >= p.last.m) continue;
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
          if (Config::kRaggedN && column + i * kVec >= p.last.n) continue;
          typename Finish::Elements elements;
          finish.fetch(elements, row, column + i * kVec);
          finish.store(runs + run * Last::kRun + i * kVec, columns[i], elements, row, column + i * kVec);
        }
      }
    }
  }
}

}  // namespace wmma
