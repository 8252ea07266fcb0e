// mma.sync tiles of sm_80 and later: m16n8k16 f16 and bf16, m16n8k32 8-bit integers, m16n8k32 and m16n8k64 4-bit ones,
// m8n8k4 f64, and from sm_89 on m16n8k32 fp8 (before that fp8 runs in f16). f32 runs through FMA: tf32 would drop
// bits. Layouts as in the PTX ISA.
#pragma once

#include <wmma/fma_tile.hpp>
#include <wmma/half_tile.hpp>
#include <wmma/int4.hpp>

namespace wmma::arch {

// A m16n8 product on 32-bit registers: four of A, two of B, four of D.
#define WMMA_MMA(shape, types, constraint, d, a, b)                                                                  \
  asm("mma.sync.aligned." shape ".row.col." types " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : constraint(d[0]), constraint(d[1]), constraint(d[2]), constraint(d[3])                                       \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

// A m16n8k32 product of 4-bit integers: two registers of A, one of B.
#define WMMA_MMA_SHALLOW(types, d, a, b)                                                                \
  asm("mma.sync.aligned.m16n8k32.row.col." types " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" \
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                                  \
      : "r"(a[0]), "r"(a[1]), "r"(b[0]))

template <class T, class Other = T>
struct MmaTile {
  static constexpr int kRun = 4 / sizeof(T);
  using A = MmaALayout<kRun, 4 * kRun>;
  using B = MmaBLayout<kRun, 2 * kRun>;
  using C = MmaAccumulatorLayout<2>;
  using Compute = typename ComputeType<T>::Type;

  static WMMA_DEVICE void mma(Compute* d, const T* a_elements, const Other* b_elements) {
    uint32_t a[4];
    uint32_t b[2];
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = word(a_elements, i * kRun);
#pragma unroll
    for (int i = 0; i < 2; ++i) b[i] = word(b_elements, i * kRun);
    mma_words(d, a, b);
  }

  // On whole registers: four of A, two of B.
  static WMMA_DEVICE void mma_words(Compute* d, const uint32_t* a, const uint32_t* b) {
    constexpr bool kSignedB = kSame<Other, int8_t>;
    constexpr bool kE4m3B = kSame<Other, fp8_e4m3_t>;
    if constexpr (kSame<T, half_t>) {
      WMMA_MMA("m16n8k16", "f32.f16.f16.f32", "+f", d, a, b);
    } else if constexpr (kSame<T, bf16_t>) {
      WMMA_MMA("m16n8k16", "f32.bf16.bf16.f32", "+f", d, a, b);
    } else if constexpr (kSame<T, int8_t> && kSignedB) {
      WMMA_MMA("m16n8k32", "s32.s8.s8.s32", "+r", d, a, b);
    } else if constexpr (kSame<T, int8_t>) {
      WMMA_MMA("m16n8k32", "s32.s8.u8.s32", "+r", d, a, b);
    } else if constexpr (kSame<T, uint8_t> && kSignedB) {
      WMMA_MMA("m16n8k32", "s32.u8.s8.s32", "+r", d, a, b);
    } else if constexpr (kSame<T, uint8_t>) {
      WMMA_MMA("m16n8k32", "s32.u8.u8.s32", "+r", d, a, b);
    } else if constexpr (kSame<T, fp8_e4m3_t> && kE4m3B) {
      WMMA_MMA("m16n8k32", "f32.e4m3.e4m3.f32", "+f", d, a, b);
    } else if constexpr (kSame<T, fp8_e4m3_t>) {
      WMMA_MMA("m16n8k32", "f32.e4m3.e5m2.f32", "+f", d, a, b);
    } else {
      static_assert(kSame<T, fp8_e5m2_t>, "wmma: this target has no product of this element type");
      if constexpr (kE4m3B) {
        WMMA_MMA("m16n8k32", "f32.e5m2.e4m3.f32", "+f", d, a, b);
      } else {
        WMMA_MMA("m16n8k32", "f32.e5m2.e5m2.f32", "+f", d, a, b);
      }
    }
  }
};

// m16n8k64 where K allows, otherwise m16n8k32, which has half of its registers.
template <class TypeA, class TypeB, int kK>
struct Int4Tile {
  static constexpr int kWords = kK % 64 == 0 ? 2 : 1;
  using A = MmaALayout<8, 16 * kWords>;
  using B = MmaBLayout<8, 8 * kWords>;
  using C = MmaAccumulatorLayout<2>;
  using Compute = int32_t;

  static WMMA_DEVICE void mma(int32_t* d, const InMemory<TypeA>* a_pairs, const InMemory<TypeB>* b_pairs) {
    constexpr bool kSignedA = kSame<TypeA, int4_t>;
    constexpr bool kSignedB = kSame<TypeB, int4_t>;
    uint32_t a[2 * kWords];
    uint32_t b[kWords];
#pragma unroll
    for (int i = 0; i < 2 * kWords; ++i) a[i] = word(a_pairs, 4 * i);
#pragma unroll
    for (int i = 0; i < kWords; ++i) b[i] = word(b_pairs, 4 * i);
    if constexpr (kWords == 2 && kSignedA && kSignedB) {
      WMMA_MMA("m16n8k64", "s32.s4.s4.s32", "+r", d, a, b);
    } else if constexpr (kWords == 2 && kSignedA) {
      WMMA_MMA("m16n8k64", "s32.s4.u4.s32", "+r", d, a, b);
    } else if constexpr (kWords == 2 && kSignedB) {
      WMMA_MMA("m16n8k64", "s32.u4.s4.s32", "+r", d, a, b);
    } else if constexpr (kWords == 2) {
      WMMA_MMA("m16n8k64", "s32.u4.u4.s32", "+r", d, a, b);
    } else if constexpr (kSignedA && kSignedB) {
      WMMA_MMA_SHALLOW("s32.s4.s4.s32", d, a, b);
    } else if constexpr (kSignedA) {
      WMMA_MMA_SHALLOW("s32.s4.u4.s32", d, a, b);
    } else if constexpr (kSignedB) {
      WMMA_MMA_SHALLOW("s32.u4.s4.s32", d, a, b);
    } else {
      WMMA_MMA_SHALLOW("s32.u4.u4.s32", d, a, b);
    }
  }
};

#undef WMMA_MMA_SHALLOW
#undef WMMA_MMA

// Whole 8x8 matrices of 16-bit elements from shared memory, the lanes' addresses being those of their rows: matrix m's
// row r comes from lane 8·m + r. Where memory runs along the other dimension, the matrices are transposed on the way.
template <bool kTransposed>
WMMA_DEVICE void ldmatrix_x4(uint32_t* words, uint32_t address) {
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  }
}

template <bool kTransposed>
WMMA_DEVICE void ldmatrix_x2(uint32_t* words, uint32_t address) {
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "r"(address)
                 : "memory");
  }
}

// Loads a fragment of A or B by ldmatrix where it can be: 16-bit elements in shared memory, rows at multiples of 16
// bytes. False where not.
template <class Kind, class Fragment, bool kRowMajor, class T>
WMMA_DEVICE bool load_shared_tiles(T* x, const T* data, uint32_t ld) {
  using Shape = typename Fragment::Shape;
  constexpr bool kIsA = kSame<Kind, matrix_a>;
  constexpr bool kSixteen = (kIsA ? Shape::kTileRows : Shape::kTileCols) == 16;  // rows of A or columns of B a tile
  constexpr bool kWhole = Shape::kRows % Shape::kTileRows == 0 && Shape::kCols % Shape::kTileCols == 0;
  if constexpr (sizeof(T) == 2 && (kIsA || kSame<Kind, matrix_b>) && kWhole) {
    uint32_t inside;
    asm("{ .reg .pred p; isspacep.shared p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(inside) : "l"(data));
    if (!inside || (reinterpret_cast<uint64_t>(data) | ld * sizeof(T)) % 16 != 0) return false;
    const uint32_t start = shared_address(data);
    const uint32_t lane = lane_id();
    const uint32_t line = lane % 8;
    const uint32_t first = lane / 8 % 2;  // the matrix's place in pairs, and the pair's
    const uint32_t second = lane / 16;
    // The matrices of sixteen go down, then along K; those of eight along K. Of this lane's address within a tile:
    const uint32_t outer = kSixteen ? 8 * first : 0;
    const uint32_t depth = kSixteen ? 8 * second : 8 * first;
    constexpr bool kDepthRuns = kIsA == kRowMajor;  // memory runs along K
    const uint32_t along_outer = outer + (kDepthRuns ? line : 0);
    const uint32_t along_depth = depth + (kDepthRuns ? 0 : line);
#pragma unroll
    for (int i = 0; i < Fragment::num_elements; i += Shape::kElements) {
      const int tile = i / Shape::kElements;
      const uint32_t row = tile / Shape::kTilesAcross * Shape::kTileRows + (kIsA ? along_outer : along_depth);
      const uint32_t col = tile % Shape::kTilesAcross * Shape::kTileCols + (kIsA ? along_depth : along_outer);
      const uint32_t element = kRowMajor ? row * ld + col : col * ld + row;
      const uint32_t address = start + element * uint32_t{sizeof(T)};
      uint32_t words[4];
      if constexpr (kSixteen) {
        ldmatrix_x4<!kDepthRuns>(words, address);
      } else {
        ldmatrix_x2<!kDepthRuns>(words, address);
      }
#pragma unroll
      for (int j = 0; j < Shape::kElements; j += 2) copy<2>(x + i + j, reinterpret_cast<const T*>(words + j / 2));
    }
    return true;
  } else {
    return false;
  }
}

// Sixteen bytes, or four, from global to shared memory, in flight until waited for; zeros where `there` is false.
template <int kBytes = 16>
WMMA_DEVICE void copy_async(uint32_t to, const void* from, bool there) {
  static_assert(kBytes == 16 || kBytes == 4);
  if constexpr (kBytes == 4) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
    return;
  }
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0)
               : "memory");
}
WMMA_DEVICE void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until no more than kGroups of the thread's groups are in flight.
template <int kGroups>
WMMA_DEVICE void wait_async() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

struct DoubleTile {
  using A = MmaBLayout<1, 1>;
  using B = A;
  using C = MmaAccumulatorLayout<1>;
  using Compute = double;

  static WMMA_DEVICE void mma(double* d, const double* a, const double* b) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(d[0]), "+d"(d[1])
        : "d"(a[0]), "d"(b[0]));
  }
};

template <class T, int kK, class Other = T>
struct TileOf {
  static constexpr bool kIsOcp = kSame<T, fp8_e4m3_t> || kSame<T, fp8_e5m2_t>;
  static constexpr bool kConverts = kIsFp8<T> && (!kIsOcp || WMMA_TARGET < 890);
  using Type = Choose<kConverts, HalfConvertedTile<T, MmaTile<half_t>, Other>, MmaTile<T, Other>>;
};
template <int kK>
struct TileOf<float, kK> {
  using Type = FmaTile<float, float, MmaAccumulatorLayout<2>>;
};
template <int kK>
struct TileOf<double, kK> {
  using Type = DoubleTile;
};
template <int kK, class Other>
struct TileOf<int4_t, kK, Other> {
  using Type = Int4Tile<int4_t, Other, kK>;
};
template <int kK, class Other>
struct TileOf<uint4_t, kK, Other> {
  using Type = Int4Tile<uint4_t, Other, kK>;
};

// Dᵀ = Bᵀ·Aᵀ, for eight rows.
template <class Tile>
struct ExchangedTile {
  using A = typename Tile::B;
  using B = typename Tile::A;
  using C = TransposedLayout<typename Tile::C>;
  using Compute = typename Tile::Compute;
  template <class ElementA, class ElementB>
  static WMMA_DEVICE void mma(Compute* d, const ElementA* a, const ElementB* b) {
    Tile::mma(d, b, a);
  }
};

// Other: the type of B where it is not A's.
template <class T, int kM, int kN, int kK, class Other = T>
struct Tile {
  using Type = typename TileOf<T, kK, Other>::Type;
};
template <class T, int kN, int kK, class Other>
struct Tile<T, 8, kN, kK, Other> {
  using Type = ExchangedTile<typename TileOf<Other, kK, T>::Type>;
};

template <class T, int kM, int kN>
struct AccumulatorTile {
  using Type = MmaAccumulatorLayout<kSame<T, double> ? 1 : 2>;
};
template <class T, int kN>
struct AccumulatorTile<T, 8, kN> {
  using Type = TransposedLayout<MmaAccumulatorLayout<kSame<T, double> ? 1 : 2>>;
};

}  // namespace wmma::arch
