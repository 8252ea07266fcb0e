// The main loop of products with few rows, where all the work is to read B: waves take steps of K in turn and bring B
// straight to their registers, where it already lies as the matrix unit takes it. Nothing of it meets in shared memory.
#pragma once

#include <wmma/gemm/operands.hpp>
#include <wmma/tile/epilogue.hpp>

namespace wmma {

// 8 or 16 rows. A lane's columns are neighbours: each is another instruction's. K is interleaved among lanes by chunks:
// a lane's part of it, of two instructions, lies side by side in memory.
template <class T, int kHeight, int kWidth>
struct DirectProduct {
  using Tile = arch::MmaTile<T>;
  using Compute = typename Tile::Compute;
  static constexpr int kRows = kHeight;
  static constexpr int kCols = kWidth;
  static constexpr int kPerChunk = elements_in<T>(16);
  static constexpr int kDepth = 4 * kPerChunk;
  static constexpr int kTiles = kCols / 8;  // instructions side by side, each with a column of a lane's
  static_assert(kRows == 8 || kRows == 16, "the instruction's rows, or their upper half");

  struct C {
    static constexpr int kElements = kTiles * 4;
  };

  // Of A, a chunk of every eighth row; of B, along K: a chunk of each column; across K: all columns of each k.
  template <bool kAlong>
  static WMMA_DEVICE void multiply(Compute* sums, const Chunk* a, const Chunk* b) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int w = half * 2;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        uint32_t columns[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if constexpr (kAlong) {
            columns[i] = b[tile].words[w + i];
          } else {
            const int k = (w + i) * 2;
            columns[i] = tile % 2 == 0 ? arch::pair_halves<false>(b[k].words[tile / 2], b[k + 1].words[tile / 2])
                                       : arch::pair_halves<true>(b[k].words[tile / 2], b[k + 1].words[tile / 2]);
          }
        }
        uint32_t rows[4] = {a[0].words[w], 0, a[0].words[w + 1], 0};
        if constexpr (kRows > 8) {
          rows[1] = a[1].words[w];
          rows[3] = a[1].words[w + 1];
        }
        Tile::mma_words(sums + tile * 4, rows, columns);
      }
    }
  }
};

template <class T, int kHeight, int kWidth>
struct SlabWriter<DirectProduct<T, kHeight, kWidth>> {
  using Product = DirectProduct<T, kHeight, kWidth>;
  using Sum = typename Product::Compute;

  static WMMA_DEVICE void write(const Sum* sums, uint32_t lane, Sum* to, int pitch, int64_t rows) {
    constexpr int kTiles = Product::kTiles;
#pragma unroll
    for (int eighth = 0; eighth < kHeight / 8; ++eighth) {
      const uint32_t row = lane / 4 + eighth * 8;
      if (row >= rows) break;
#pragma unroll
      for (int next = 0; next < 2; ++next) {
#pragma unroll
        for (int tile = 0; tile < kTiles; tile += 4) {
          alignas(16) Sum four[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) four[i] = sums[(tile + i) * 4 + eighth * 2 + next];
          arch::copy<4>(to + row * pitch + (lane % 4 * 2 + next) * kTiles + tile, four);
        }
      }
    }
  }
};

// Of K in a wave's step: a chunk of each of the four lanes that share a row or a column.
inline constexpr int kDirectStepBytes = 64;

// A's chunks of every eighth row, step after step. Rows beyond the matrix are its last one again: what they give is not
// stored.
template <class T, int kRows, int kWavesK>
class DirectRows {
 public:
  static constexpr int kChunks = kRows / 8;

  template <class Stage>
  WMMA_DEVICE DirectRows(const T* data, int64_t outer_stride, int64_t, int64_t rows, uint32_t thread, Stage)
      : from_(reinterpret_cast<const char*>(data) + thread % 4 * 16 + thread / arch::kWaveSize * kDirectStepBytes) {
    const uint32_t last = static_cast<uint32_t>(rows < kRows ? rows : kRows) - 1;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const uint32_t row = thread % arch::kWaveSize / 4 + i * 8;
      offsets_[i] = (row < last ? row : last) * static_cast<uint32_t>(bytes_of<T>(outer_stride));
    }
  }

  template <bool kMasked>
  WMMA_DEVICE void load(Chunk* to, bool there = true) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if constexpr (kMasked) to[i] = Chunk{};
      if (!kMasked || there) arch::load_once<16>(to[i].words, from_ + offsets_[i]);
    }
    from_ += kWavesK * kDirectStepBytes;
  }

 private:
  const char* from_;
  uint32_t offsets_[kChunks];
};

// B's chunks, those of columns beyond the matrix being its last ones again.
template <class T, Order kOrder, int kCols, int kWavesK>
class DirectColumns {
  static constexpr bool kAlong = kOrder == Order::kAlongK;
  static constexpr int kPerChunk = elements_in<T>(16);
  static constexpr int kOwn = kCols / 8;  // columns of a lane

 public:
  static constexpr int kChunks = kAlong ? kOwn : kPerChunk;

  template <class Stage>
  WMMA_DEVICE DirectColumns(const T* data, int64_t outer_stride, int64_t k_stride, int64_t columns, uint32_t thread,
                            Stage) {
    const uint32_t wave = thread / arch::kWaveSize;
    const uint32_t part = thread % 4;  // of a step's K
    const uint32_t first = thread % arch::kWaveSize / 4 * kOwn;
    const uint32_t last = static_cast<uint32_t>(columns < kCols ? columns : kCols) - 1;
    from_ = reinterpret_cast<const char*>(data);
    if constexpr (kAlong) {
      line_ = static_cast<uint32_t>(bytes_of<T>(outer_stride));
      from_ += wave * kDirectStepBytes + part * 16;
      advance_ = kWavesK * kDirectStepBytes;
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        const uint32_t column = first + i;
        offsets_[i] = (column < last ? column : last) * line_;
      }
    } else {
      line_ = static_cast<uint32_t>(bytes_of<T>(k_stride));
      const uint32_t column = first < last ? first : last / kOwn * kOwn;
      from_ += static_cast<uint64_t>(wave * 4 + part) * kPerChunk * line_ + bytes_of<T>(column);
      advance_ = static_cast<uint64_t>(kWavesK * 4 * kPerChunk) * line_;
    }
  }

  template <bool kMasked>
  WMMA_DEVICE void load(Chunk* to, bool there = true) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if constexpr (kMasked) to[i] = Chunk{};
      if (!kMasked || there) {
        arch::load_once<kAlong ? 16 : bytes_of<T>(kOwn)>(to[i].words,
                                                         from_ + (kAlong ? offsets_[i] : uint64_t{line_} * i));
      }
    }
    from_ += advance_;
  }

 private:
  const char* from_;
  uint64_t advance_;
  uint32_t line_;
  uint32_t offsets_[kAlong ? kChunks : 1];
};

template <class Product, class LoaderA, class LoaderB, bool kAlongB, int kWavesK, int kStages>
struct DirectLoop {
  using Wave = WaveTile<Product, Product::kRows, Product::kCols>;
  static constexpr int kBytes = 0;

  struct Reader {
    uint32_t wave;

    WMMA_DEVICE Reader(uint32_t, uint32_t, uint32_t, uint32_t wave_k, uint32_t) : wave(wave_k) {}
  };

  struct Operands {
    Chunk a[LoaderA::kChunks];
    Chunk b[LoaderB::kChunks];

    template <bool kMasked>
    WMMA_DEVICE void load(LoaderA& from_a, LoaderB& from_b, bool there = true) {
      from_a.template load<kMasked>(a, there);
      from_b.template load<kMasked>(b, there);
    }
    WMMA_DEVICE void multiply(Wave& wave) const { Product::template multiply<kAlongB>(wave.sums[0][0], a, b); }
  };

  static WMMA_DEVICE void run(Wave& wave, LoaderA& a, LoaderB& b, unsigned char*, int64_t k, const Reader& reader) {
    if (k <= 0) return;
    const uint32_t whole = static_cast<uint32_t>(k / Product::kDepth);
    const uint32_t rest = static_cast<uint32_t>(k % Product::kDepth);
    const uint32_t steps = (whole + kWavesK - 1 - reader.wave) / kWavesK;  // this wave's
    // 1. The first kStages steps' operands, on their way to registers.
    Operands operands[kStages];
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      if (static_cast<uint32_t>(stage) < steps) operands[stage].template load<false>(a, b);
    }
    // 2. Step by step: what was asked for kStages steps ago is multiplied, and its registers ask for the next.
#pragma unroll 1
    for (uint32_t step = 0; step < steps; step += kStages) {
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) {
        if (step + stage >= steps) break;
        operands[stage].multiply(wave);
        if (step + stage + kStages < steps) operands[stage].template load<false>(a, b);
      }
    }
    // 3. What of K fills no step, by the wave whose turn it is.
    if (rest != 0 && whole % kWavesK == reader.wave) {
      operands[0].template load<true>(a, b, threadIdx.x % 4 * Product::kPerChunk < rest);
      operands[0].multiply(wave);
    }
  }
};

// A product by this loop.
struct Straight {};
template <class Config, class Stage, int kThreads, int kM, int kN>
struct LoopsOf<Straight, Config, Stage, kThreads, kM, kN> {
  static_assert(Config::kWavesM * Config::kWavesN == 1, "all waves share the tile's K");
  static_assert(Config::kAOrder == Order::kAlongK, "rows of A are read along K");
  using Product = DirectProduct<typename Config::Element, kM, kN>;
  using LoaderA = DirectRows<typename Config::A, kM, Config::kWavesK>;
  using LoaderB = DirectColumns<typename Config::B, Config::kBOrder, kN, Config::kWavesK>;
  using Loaders = WalkingLoaders<Config, Stage, LoaderA, LoaderB>;
  using Type =
      DirectLoop<Product, LoaderA, LoaderB, Config::kBOrder == Order::kAlongK, Config::kWavesK, Config::kStages>;
  static constexpr int kSlabSums = kM * kN;
  static constexpr int kMostSlabs = kAllSlabs;
};

}  // namespace wmma
