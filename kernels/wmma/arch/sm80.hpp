// mma.sync tiles of sm_80 and later: m16n8k16 f16 and bf16, m16n8k32 8-bit integers, m8n8k4 f64, and from sm_89 on
// m16n8k32 fp8 (before that fp8 runs in f16). f32 runs through FMA: tf32 would drop bits. Layouts as in the PTX ISA.
#pragma once

#include <wmma/fma_tile.hpp>
#include <wmma/half_tile.hpp>

namespace wmma::arch {

// A m16n8 product on 32-bit registers: four of A, two of B, four of D.
#define WMMA_MMA(shape, types, constraint, d, a, b)                                                                  \
  asm("mma.sync.aligned." shape ".row.col." types " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : constraint(d[0]), constraint(d[1]), constraint(d[2]), constraint(d[3])                                       \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

template <class T>
struct MmaTile {
  static constexpr int kRun = 4 / sizeof(T);
  using A = MmaALayout<kRun, 4 * kRun>;
  using B = MmaBLayout<kRun, 2 * kRun>;
  using C = MmaAccumulatorLayout<2>;
  using Compute = typename ComputeType<T>::Type;

  static WMMA_DEVICE void mma(Compute* d, const T* a_elements, const T* b_elements) {
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
    if constexpr (kSame<T, half_t>) {
      WMMA_MMA("m16n8k16", "f32.f16.f16.f32", "+f", d, a, b);
    } else if constexpr (kSame<T, bf16_t>) {
      WMMA_MMA("m16n8k16", "f32.bf16.bf16.f32", "+f", d, a, b);
    } else if constexpr (kSame<T, int8_t>) {
      WMMA_MMA("m16n8k32", "s32.s8.s8.s32", "+r", d, a, b);
    } else if constexpr (kSame<T, uint8_t>) {
      WMMA_MMA("m16n8k32", "s32.u8.u8.s32", "+r", d, a, b);
    } else if constexpr (kSame<T, fp8_e4m3_t>) {
      WMMA_MMA("m16n8k32", "f32.e4m3.e4m3.f32", "+f", d, a, b);
    } else {
      static_assert(kSame<T, fp8_e5m2_t>, "wmma: this target has no product of this element type");
      WMMA_MMA("m16n8k32", "f32.e5m2.e5m2.f32", "+f", d, a, b);
    }
  }
};

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
    // A's matrices go down, then along K; B's along K. Rows and columns of this lane's address within a tile:
    const uint32_t outer = kIsA ? 8 * first : 0;
    const uint32_t depth = kIsA ? 8 * second : 8 * first;
    constexpr bool kDepthRuns = kIsA == kRowMajor;  // memory runs along K
    const uint32_t along_outer = outer + (kDepthRuns ? line : 0);
    const uint32_t along_depth = depth + (kDepthRuns ? 0 : line);
#pragma unroll
    for (int i = 0; i < Fragment::num_elements; i += Shape::kElements) {
      const int tile = i / Shape::kElements;
      const uint32_t row = tile / Fragment::kTilesAcross * Shape::kTileRows + (kIsA ? along_outer : along_depth);
      const uint32_t col = tile % Fragment::kTilesAcross * Shape::kTileCols + (kIsA ? along_depth : along_outer);
      const uint32_t element = kRowMajor ? row * ld + col : col * ld + row;
      const uint32_t address = start + element * uint32_t{sizeof(T)};
      uint32_t words[4];
      if constexpr (kIsA) {
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

// Sixteen bytes from global to shared memory, in flight until waited for; zeros where `there` is false.
WMMA_DEVICE void copy_async(uint32_t to, const void* from, bool there) {
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

template <class T, int kM, int kN, int kK>
struct Tile {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  static constexpr bool kConverts = kIsFp8<T>;
#else
  static constexpr bool kConverts = kSame<T, fp8_e4m3fnuz_t> || kSame<T, fp8_e5m2fnuz_t>;
#endif
  using Type = Choose<kConverts, HalfConvertedTile<T, MmaTile<half_t>>, MmaTile<T>>;
};
template <int kM, int kN, int kK>
struct Tile<float, kM, kN, kK> {
  using Type = FmaTile<float, float, MmaAccumulatorLayout<2>>;
};
template <int kM, int kN, int kK>
struct Tile<double, kM, kN, kK> {
  using Type = DoubleTile;
};

template <class T, int kM, int kN>
struct AccumulatorTile {
  using Type = MmaAccumulatorLayout<kSame<T, double> ? 1 : 2>;
};

}  // namespace wmma::arch
