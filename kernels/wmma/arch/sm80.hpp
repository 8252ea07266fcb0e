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
  template <bool, class U>
  struct Choose {
    using Type = MmaTile<U>;
  };
  template <class U>
  struct Choose<true, U> {
    using Type = HalfConvertedTile<U, MmaTile<half_t>>;
  };
  using Type = typename Choose<kConverts, T>::Type;
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
