// The matrix unit as the main loops see it: one step multiplies kRows rows of A by kCols columns of B over kDepth of K.
// Each lane brings whole chunks of its operands' lines from shared memory; `a_line`, `a_chunk` and their twins say
// which. K may be spread over lanes and instructions in any order, as long as A and B agree.
#pragma once

#include <wmma/arch/tile.hpp>
#include <wmma/bits.hpp>
#include <wmma/tile/shared_tile.hpp>
#include <wmma/types.hpp>

namespace wmma {

#ifdef WMMA_AMD

// Rows (columns) by lane; every lane of a row's group takes the next chunks.
template <class T, int kSide>
struct MatrixProduct {
  using Tile = typename arch::Tile<T, kSide, kSide, 64>::Type;
  using Compute = typename Tile::Compute;
  using C = typename Tile::C;
  static constexpr int kRows = C::kRows;
  static constexpr int kCols = C::kCols;
  static constexpr int kPerChunk = elements_in<T>(16);
  static constexpr int kPerMma = Tile::A::kElements;
  static constexpr int kChunksA = kPerMma > kPerChunk ? kPerMma / kPerChunk : 1;
  static constexpr int kChunksB = kChunksA;
  static constexpr int kGroups = arch::kWaveSize / Tile::A::kOuterSize / Tile::A::kReplicas;
  static constexpr int kDepth = kGroups * kChunksA * kPerChunk;

  static WMMA_CONSTEXPR uint32_t a_line(uint32_t lane, int) { return lane % kRows; }
  static WMMA_CONSTEXPR uint32_t a_chunk(uint32_t lane, int i) { return lane / kRows % kGroups * kChunksA + i; }
  static WMMA_CONSTEXPR uint32_t b_line(uint32_t lane, int) { return lane % kCols; }
  static WMMA_CONSTEXPR uint32_t b_chunk(uint32_t lane, int i) { return lane / kCols % kGroups * kChunksB + i; }

  static WMMA_DEVICE Chunk load(const unsigned char* at) { return *reinterpret_cast<const Chunk*>(at); }

  static WMMA_DEVICE void mma(Compute* d, const Chunk* a, const Chunk* b) {
#pragma unroll
    for (int e = 0; e < kChunksA * kPerChunk; e += kPerMma) {
      Tile::mma(d, reinterpret_cast<const T*>(a) + e, reinterpret_cast<const T*>(b) + e);
    }
  }
};

// Both halves of the wave hold all of an operand: of its words each has kWords, the lower half the first ones.
template <int kWords>
WMMA_DEVICE void join_halves(uint32_t* to, const uint32_t* words, uint32_t lane) {
  const bool upper = arch::is_upper_half(lane);
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const uint32_t other = arch::other_half(words[i]);
    to[i] = upper ? other : words[i];
    to[kWords + i] = upper ? words[i] : other;
  }
}

#else

// mma.sync on 16 columns at once, fed by ldmatrix: each lane names a line and receives parts of eight lines.
template <class T, int>
struct MatrixProduct {
  using Tile = arch::MmaTile<T>;
  using Compute = typename Tile::Compute;
  struct C {
    static constexpr int kElements = 8;
    static WMMA_CONSTEXPR int row(uint32_t lane, int e) { return Tile::C::row(lane, e % 4); }
    static WMMA_CONSTEXPR int col(uint32_t lane, int e) { return Tile::C::col(lane, e % 4) + e / 4 * 8; }
  };
  static constexpr int kRows = 16;
  static constexpr int kCols = 16;
  static constexpr int kPerChunk = elements_in<T>(16);
  static constexpr int kChunksA = 1;
  static constexpr int kChunksB = 1;
  static constexpr int kDepth = 2 * kPerChunk;

  static WMMA_CONSTEXPR uint32_t a_line(uint32_t lane, int) { return lane % 16; }
  static WMMA_CONSTEXPR uint32_t a_chunk(uint32_t lane, int) { return lane / 16; }
  static WMMA_CONSTEXPR uint32_t b_line(uint32_t lane, int) { return lane % 8 + lane / 16 * 8; }
  static WMMA_CONSTEXPR uint32_t b_chunk(uint32_t lane, int) { return lane / 8 % 2; }

  static WMMA_DEVICE Chunk load(const unsigned char* at) {
    Chunk chunk;
    arch::ldmatrix_x4<false>(chunk.words, arch::shared_address(at));
    return chunk;
  }

  static WMMA_DEVICE Chunk load(uint32_t address) {
    Chunk chunk;
    arch::ldmatrix_x4<false>(chunk.words, address);
    return chunk;
  }

  // From a tile whose lines run along M or N, one for each k: the line, and the chunk of eight rows or columns.
  static WMMA_CONSTEXPR uint32_t a_depth_line(uint32_t lane) { return lane % 8 + lane / 16 * 8; }
  static WMMA_CONSTEXPR uint32_t a_outer_chunk(uint32_t lane) { return lane / 8 % 2; }
  static WMMA_CONSTEXPR uint32_t b_depth_line(uint32_t lane) { return lane % 16; }
  static WMMA_CONSTEXPR uint32_t b_outer_chunk(uint32_t lane) { return lane / 16; }

  static WMMA_DEVICE void mma(Compute* d, const Chunk* a, const Chunk* b) {
    Tile::mma_words(d, a->words, b->words);
    Tile::mma_words(d + 4, a->words, b->words + 2);
  }
};

template <int kSide>
struct MatrixProduct<double, kSide> {
  using Tile = arch::DoubleTile;
  using Compute = double;
  using C = Tile::C;
  static constexpr int kRows = 8;
  static constexpr int kCols = 8;
  static constexpr int kPerChunk = 2;
  static constexpr int kChunksA = 1;
  static constexpr int kChunksB = 1;
  static constexpr int kDepth = 8;

  static WMMA_CONSTEXPR uint32_t a_line(uint32_t lane, int) { return lane / 4; }
  static WMMA_CONSTEXPR uint32_t a_chunk(uint32_t lane, int) { return lane % 4; }
  static WMMA_CONSTEXPR uint32_t b_line(uint32_t lane, int) { return lane / 4; }
  static WMMA_CONSTEXPR uint32_t b_chunk(uint32_t lane, int) { return lane % 4; }

  static WMMA_DEVICE Chunk load(const unsigned char* at) { return *reinterpret_cast<const Chunk*>(at); }

  static WMMA_DEVICE void mma(double* d, const Chunk* a, const Chunk* b) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const double x = arch::bit_cast<Doubles>(*a).values[e];
      const double y = arch::bit_cast<Doubles>(*b).values[e];
      Tile::mma(d, &x, &y);
    }
  }

 private:
  struct Doubles {
    double values[2];
  };
};

#endif

// Plain FMA, for types without a matrix instruction: the wave is a grid of lanes, each with 4×4 products, lines dealt
// in turn so that neighbouring lanes read neighbouring lines.
template <class T>
struct LaneProduct {
  using Compute = T;
  static constexpr int kSide = 4;
  static constexpr int kLaneRows = 8;
  static constexpr int kLaneCols = arch::kWaveSize / kLaneRows;
  static constexpr int kRows = kSide * kLaneRows;
  static constexpr int kCols = kSide * kLaneCols;
  static constexpr int kPerChunk = elements_in<T>(16);
  static constexpr int kDepth = kPerChunk;
  static constexpr int kChunksA = kSide;
  static constexpr int kChunksB = kSide;

  struct C {
    static constexpr int kElements = kSide * kSide;
    static WMMA_CONSTEXPR int row(uint32_t lane, int e) { return lane % kLaneRows + e / kSide * kLaneRows; }
    static WMMA_CONSTEXPR int col(uint32_t lane, int e) { return lane / kLaneRows + e % kSide * kLaneCols; }
  };

  static WMMA_CONSTEXPR uint32_t a_line(uint32_t lane, int i) { return C::row(lane, i * kSide); }
  static WMMA_CONSTEXPR uint32_t a_chunk(uint32_t, int) { return 0; }
  static WMMA_CONSTEXPR uint32_t b_line(uint32_t lane, int i) { return C::col(lane, i); }
  static WMMA_CONSTEXPR uint32_t b_chunk(uint32_t, int) { return 0; }

  static WMMA_DEVICE Chunk load(const unsigned char* at) { return *reinterpret_cast<const Chunk*>(at); }

  static WMMA_DEVICE void mma(T* d, const Chunk* a, const Chunk* b) {
    Values rows[kSide];
    Values cols[kSide];
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      rows[i] = arch::bit_cast<Values>(a[i]);
      cols[i] = arch::bit_cast<Values>(b[i]);
    }
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
#pragma unroll
      for (int e = 0; e < C::kElements; ++e) {
        d[e] = arch::fma(rows[e / kSide].values[k], cols[e % kSide].values[k], d[e]);
      }
    }
  }

 private:
  struct Values {
    T values[kDepth];
  };
};

template <bool kLanes, class Element, int kSide>
struct ProductOf {
  using Type = MatrixProduct<Element, kSide>;
};
template <class Element, int kSide>
struct ProductOf<true, Element, kSide> {
  using Type = LaneProduct<Element>;
};

}  // namespace wmma
