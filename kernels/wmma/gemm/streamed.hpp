// The main loop of products with few rows on CDNA, where all the work is to read B: waves take lines of K in turn and
// bring them straight to their registers, some lines ahead of what they multiply. Each wave has sums of the whole tile,
// which are added up in shared memory, always in the same order.
#pragma once

#include <wmma/gemm/operands.hpp>
#include <wmma/tile/epilogue.hpp>

namespace wmma {

// 16 rows by kOwn columns of each lane, which are neighbours: each is another instruction's.
template <class T, int kOwn>
struct StreamedProduct {
  using One = MatrixProduct<T, 16>;
  using Compute = typename One::Compute;
  static constexpr int kRows = One::kRows;
  static constexpr int kCols = One::kCols * kOwn;
  static constexpr int kPerChunk = One::kPerChunk;

  struct C {
    static constexpr int kOfOne = One::C::kElements;
    static constexpr int kElements = kOfOne * kOwn;
    static WMMA_CONSTEXPR int row(uint32_t lane, int e) { return One::C::row(lane, e % kOfOne); }
    static WMMA_CONSTEXPR int col(uint32_t lane, int e) { return One::C::col(lane, e % kOfOne) * kOwn + e / kOfOne; }
  };
};

// A wave's step: a line of 128 bytes of K, of which each lane that shares a row or a column has every kLineParts-th
// chunk.
inline constexpr int kLineParts = arch::kWaveSize / 16;
inline constexpr int kLineChunks = 128 / 16 / kLineParts;  // of a lane

// One of A's rows or B's columns for each 16 lanes, kOwn neighbours for each: chunks along K, as they lie in memory.
// Those beyond the matrix are its last one again: what they give is not stored.
template <class T, int kSide, int kOwn, int kWavesK>
class LinesAlongK {
  static constexpr int kCount = kSide / 16;  // of a lane
  static constexpr int kPerChunk = elements_in<T>(16);

 public:
  struct Raw {
    Chunk chunks[kLineChunks][kCount];
  };

  template <class Stage>
  WMMA_DEVICE LinesAlongK(const T* data, int64_t outer_stride, int64_t, int64_t outer, uint32_t thread, Stage)
      : base_(reinterpret_cast<const char*>(data) + arch::uniform(thread / arch::kWaveSize) * 128) {
    const uint32_t lane = thread % arch::kWaveSize;
    const uint32_t last = static_cast<uint32_t>(outer < kSide ? outer : kSide) - 1;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const uint32_t at = lane % 16 * kOwn + i / kOwn * (16 * kOwn) + i % kOwn;
      offsets_[i] = (at < last ? at : last) * static_cast<uint32_t>(bytes_of<T>(outer_stride)) + lane / 16 * 16;
    }
  }

  // `limit` elements of the line are K's.
  template <bool kMasked>
  WMMA_DEVICE void load(Raw& raw, uint32_t limit = 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) arch::renew(offsets_[i]);
#pragma unroll
    for (int j = 0; j < kLineChunks; ++j) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if constexpr (kMasked) {
          raw.chunks[j][i] = Chunk{};
          if ((j * kLineParts + threadIdx.x % arch::kWaveSize / 16) * kPerChunk >= limit) continue;
        }
        arch::copy_bytes<16>(&raw.chunks[j][i], base_ + j * (kLineParts * 16) + offsets_[i]);
      }
    }
    base_ = arch::renewed(base_ + kWavesK * 128);
  }

  static WMMA_DEVICE Chunk chunk(const Raw& raw, int j, int i) { return raw.chunks[j][i]; }

 private:
  const char* base_;  // of the wave
  uint32_t offsets_[kCount];
};

// B's columns of a row-major matrix: of each k a lane's kSide / 16 neighbours, turned around in registers.
template <class T, int kSide, int kWavesK>
class LinesAcrossK {
  static constexpr int kOwn = kSide / 16;
  static constexpr int kPerChunk = elements_in<T>(16);
  static_assert(kBitsOf<T> == 16 && kOwn % 2 == 0, "words of two columns");

 public:
  struct Raw {
    uint32_t words[kLineChunks][kPerChunk][kOwn / 2];
  };

  template <class Stage>
  WMMA_DEVICE LinesAcrossK(const T* data, int64_t, int64_t k_stride, int64_t outer, uint32_t thread, Stage)
      : line_(static_cast<uint32_t>(bytes_of<T>(k_stride))) {
    const uint32_t lane = thread % arch::kWaveSize;
    const uint32_t last = static_cast<uint32_t>(outer < kSide ? outer : kSide) - 1;
    const uint32_t column = lane % 16 * kOwn;
    base_ = reinterpret_cast<const char*>(data) +
            static_cast<uint64_t>(arch::uniform(thread / arch::kWaveSize) * kDepth) * line_;
    offset_ = lane / 16 * kPerChunk * line_ + bytes_of<T>(column < last ? column : last / kOwn * kOwn);
  }

  template <bool kMasked>
  WMMA_DEVICE void load(Raw& raw, uint32_t limit = 0) {
    arch::renew(offset_);
#pragma unroll
    for (int j = 0; j < kLineChunks; ++j) {
#pragma unroll
      for (int k = 0; k < kPerChunk; ++k) {
        if constexpr (kMasked) {
#pragma unroll
          for (int i = 0; i < kOwn / 2; ++i) raw.words[j][k][i] = 0;
          if ((j * kLineParts + threadIdx.x % arch::kWaveSize / 16) * kPerChunk >= limit) continue;
        }
        const uint32_t offset = offset_ + (j * kLineParts * kPerChunk + k) * line_;
        arch::copy_bytes<kOwn * 2>(raw.words[j][k], base_ + offset);
      }
    }
    base_ = arch::renewed(base_ + static_cast<uint64_t>(kWavesK * kDepth) * line_);
  }

  static WMMA_DEVICE Chunk chunk(const Raw& raw, int j, int column) {
    Chunk found;
#pragma unroll
    for (int k = 0; k < kPerChunk; k += 2) {
      const uint32_t first = raw.words[j][k][column / 2], second = raw.words[j][k + 1][column / 2];
      found.words[k / 2] =
          column % 2 == 0 ? arch::pair_halves<false>(first, second) : arch::pair_halves<true>(first, second);
    }
    return found;
  }

 private:
  static constexpr int kDepth = elements_in<T>(128);  // of a step
  const char* base_;                                  // of the wave
  uint32_t line_;
  uint32_t offset_;
};

template <class Product, class LoaderA, class LoaderB, int kM, int kN, int kDepth, int kWavesK, int kStages>
struct StreamedLoop {
  using Wave = WaveTile<Product, kM, kN>;
  static constexpr int kBytes = 0;  // of shared memory
  static_assert(Wave::kTilesN == 1, "a lane's columns are neighbours");

  struct Reader {
    uint32_t wave;

    WMMA_DEVICE Reader(uint32_t, uint32_t, uint32_t, uint32_t wave_k, uint32_t) : wave(wave_k) {}
  };

  static WMMA_DEVICE void run(Wave& wave, LoaderA& a, LoaderB& b, unsigned char*, int64_t k, const Reader& reader) {
    if (k <= 0) return;
    const uint32_t lines = static_cast<uint32_t>(k / kDepth);
    const uint32_t rest = static_cast<uint32_t>(k % kDepth);
    uint32_t left = (lines + kWavesK - 1 - reader.wave) / kWavesK;  // this wave's
    Operands operands[kStages];
    if (left >= kStages) {
      // 1. The first kStages lines, on their way to registers.
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) operands[stage].load(a, b);
      // 2. Line by line: what was asked for kStages lines ago is multiplied, and its registers ask for the next.
#pragma unroll 1
      for (; left >= 2 * kStages; left -= kStages) {
#pragma unroll
        for (int stage = 0; stage < kStages; ++stage) operands[stage].multiply_and_load(wave, a, b);
      }
      // 3. The last ones, of which some are still to be asked for: each number of them has code of its own, which knows
      //    what is on its way.
      finish<0>(wave, a, b, operands, left - kStages);
    } else {
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) {
        if (stage < left) operands[stage].load(a, b);
      }
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) {
        if (stage < left) operands[stage].multiply(wave);
      }
    }
    // 4. What of K fills no line, by the wave whose turn it is.
    if (rest != 0 && lines % kWavesK == reader.wave) {
      a.template load<true>(operands[0].a, rest);
      b.template load<true>(operands[0].b, rest);
      operands[0].multiply(wave);
    }
  }

 private:
  struct Operands {
    typename LoaderA::Raw a;
    typename LoaderB::Raw b;

    WMMA_DEVICE void load(LoaderA& from_a, LoaderB& from_b) {
      from_a.template load<false>(a);
      from_b.template load<false>(b);
      arch::schedule_barrier();
    }
    WMMA_DEVICE void multiply(Wave& wave) const {
#pragma unroll
      for (int j = 0; j < kLineChunks; ++j) {
#pragma unroll
        for (int n = 0; n < kN / 16; ++n) {
          const Chunk column = LoaderB::chunk(b, j, n);
#pragma unroll
          for (int m = 0; m < Wave::kTilesM; ++m) {
            const Chunk row = LoaderA::chunk(a, j, m);
            Product::One::mma(wave.sums[m][0] + n * Product::C::kOfOne, &row, &column);
          }
        }
      }
    }
    WMMA_DEVICE void multiply_and_load(Wave& wave, LoaderA& from_a, LoaderB& from_b) {
      multiply(wave);
      arch::schedule_barrier();  // or each line would have registers beside those of the one before
      load(from_a, from_b);
    }
  };

  // kStages lines are on their way, and `more` come after them.
  template <int kMore>
  static WMMA_DEVICE void finish(Wave& wave, LoaderA& a, LoaderB& b, Operands (&operands)[kStages], uint32_t more) {
    if constexpr (kMore + 1 < kStages) {
      if (more != kMore) return finish<kMore + 1>(wave, a, b, operands, more);
    }
#pragma unroll
    for (int stage = 0; stage < kMore; ++stage) operands[stage].multiply_and_load(wave, a, b);
#pragma unroll
    for (int i = 0; i < kStages; ++i) operands[(kMore + i) % kStages].multiply(wave);
  }
};

// A product by this loop.
struct Streamed {};
template <class Config, class Stage, int kThreads, int kM, int kN>
struct LoopsOf<Streamed, Config, Stage, kThreads, kM, kN> {
  static_assert(Config::kWavesM * Config::kWavesN == 1, "all waves share the tile's K");
  static_assert(Config::kAOrder == Order::kAlongK, "rows of A are read along K");
  static constexpr int kWavesK = Config::kWavesK;
  template <class T, Order kOrder>
  struct LinesOfB {
    using Type = LinesAlongK<T, kN, kN / 16, kWavesK>;
  };
  template <class T>
  struct LinesOfB<T, Order::kAcrossK> {
    using Type = LinesAcrossK<T, kN, kWavesK>;
  };
  using Product = StreamedProduct<typename Config::Element, kN / 16>;
  using LoaderA = LinesAlongK<typename Config::A, kM, 1, kWavesK>;
  using LoaderB = typename LinesOfB<typename Config::B, Config::kBOrder>::Type;
  using Loaders = WalkingLoaders<Config, Stage, LoaderA, LoaderB>;
  using Type = StreamedLoop<Product, LoaderA, LoaderB, kM, kN, Config::kBlockK / kWavesK, kWavesK, Config::kStages>;
  static constexpr int kSlabSums = kM * kN;
  // Of 16 rows each, as have room in the shared memory that every target has.
  static constexpr int kMostSlabs = detail::upper(65536 / (kWavesK * Product::kRows * (kN + 4) * 4), 1);
};

}  // namespace wmma
