// MFMA tiles of gfx908, gfx90a, gfx942 and gfx950, one struct a type. A and B: lane l holds row (column) l % kSide and
// a run of k; D: column l % kSide, rows in runs of 4 (f64: single rows). See AMD's CDNA ISA documents, "Matrix
// Arithmetic Instructions". A tile that is deeper than its instruction issues several, each on a slice of the run: A
// and B slice alike, so the sum is the same and the loads are wide.
#pragma once

#include <wmma/fma_tile.hpp>
#include <wmma/half_tile.hpp>
#include <wmma/int4.hpp>
#include <wmma/signed_tile.hpp>

namespace wmma::arch {

using Half4 = _Float16 __attribute__((ext_vector_type(4)));
using Half8 = _Float16 __attribute__((ext_vector_type(8)));
using Short2 = short __attribute__((ext_vector_type(2)));
using Short4 = short __attribute__((ext_vector_type(4)));
using Int4 = int __attribute__((ext_vector_type(4)));
using Int16 = int __attribute__((ext_vector_type(16)));
using Float4 = float __attribute__((ext_vector_type(4)));
using Float16 = float __attribute__((ext_vector_type(16)));
using Double4 = double __attribute__((ext_vector_type(4)));

#if WMMA_TARGET == 0x950
using Bf16x8 = __bf16 __attribute__((ext_vector_type(8)));
constexpr bool kDoubleDepth = true;
#else
constexpr bool kDoubleDepth = false;
#endif

template <int kSide>
struct MfmaShape {
  static constexpr int kGroups = kWaveSize / kSide;
  using C = ColumnLayout<kSide, 4>;
  using FloatC = Choose<kSide == 16, Float4, Float16>;
  using IntC = Choose<kSide == 16, Int4, Int16>;
};

// 16x16x16 and 32x32x8; gfx950 also 16x16x32 and 32x32x16.
template <int kSide, int kK>
struct HalfTile : MfmaShape<kSide> {
  static constexpr int kRun = kDoubleDepth && kK % (8 * MfmaShape<kSide>::kGroups) == 0 ? 8 : 4;
  using A = RunLayout<kSide, kRun, kRun>;
  using B = A;
  using Compute = float;

  static WMMA_DEVICE void mma(float* d, const half_t* a, const half_t* b) {
    auto sum = pack<typename HalfTile::FloatC>(d);
#if WMMA_TARGET == 0x950
    if constexpr (kRun == 8 && kSide == 16) {
      sum = __builtin_amdgcn_mfma_f32_16x16x32_f16(pack<Half8>(a), pack<Half8>(b), sum, 0, 0, 0);
    } else if constexpr (kRun == 8) {
      sum = __builtin_amdgcn_mfma_f32_32x32x16_f16(pack<Half8>(a), pack<Half8>(b), sum, 0, 0, 0);
    } else
#endif
        if constexpr (kSide == 16) {
      sum = __builtin_amdgcn_mfma_f32_16x16x16f16(pack<Half4>(a), pack<Half4>(b), sum, 0, 0, 0);
    } else {
      sum = __builtin_amdgcn_mfma_f32_32x32x8f16(pack<Half4>(a), pack<Half4>(b), sum, 0, 0, 0);
    }
    unpack(d, sum);
  }
};

// As f16. gfx908 has half the depth, 16x16x8 and 32x32x4, and issues two.
template <int kSide, int kK>
struct Bf16Tile : MfmaShape<kSide> {
  static constexpr int kGroups = MfmaShape<kSide>::kGroups;
#if WMMA_TARGET == 0x908
  static constexpr int kRun = kK % (4 * kGroups) == 0 ? 4 : 2;
#else
  static constexpr int kRun = kDoubleDepth && kK % (8 * kGroups) == 0 ? 8 : 4;
#endif
  using A = RunLayout<kSide, kRun, kRun>;
  using B = A;
  using Compute = float;

  static WMMA_DEVICE void mma(float* d, const bf16_t* a, const bf16_t* b) {
    auto sum = pack<typename Bf16Tile::FloatC>(d);
#if WMMA_TARGET == 0x908
#pragma unroll
    for (int e = 0; e < kRun; e += 2) {
      if constexpr (kSide == 16) {
        sum = __builtin_amdgcn_mfma_f32_16x16x8bf16(pack<Short2>(a + e), pack<Short2>(b + e), sum, 0, 0, 0);
      } else {
        sum = __builtin_amdgcn_mfma_f32_32x32x4bf16(pack<Short2>(a + e), pack<Short2>(b + e), sum, 0, 0, 0);
      }
    }
#else
#if WMMA_TARGET == 0x950
    if constexpr (kRun == 8 && kSide == 16) {
      sum = __builtin_amdgcn_mfma_f32_16x16x32_bf16(pack<Bf16x8>(a), pack<Bf16x8>(b), sum, 0, 0, 0);
    } else if constexpr (kRun == 8) {
      sum = __builtin_amdgcn_mfma_f32_32x32x16_bf16(pack<Bf16x8>(a), pack<Bf16x8>(b), sum, 0, 0, 0);
    } else
#endif
        if constexpr (kSide == 16) {
      sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(pack<Short4>(a), pack<Short4>(b), sum, 0, 0, 0);
    } else {
      sum = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(pack<Short4>(a), pack<Short4>(b), sum, 0, 0, 0);
    }
#endif
    unpack(d, sum);
  }
};

// gfx908, gfx90a: 16x16x16 and 32x32x8. gfx942: 16x16x32 and 32x32x16. gfx950 also 16x16x64 and 32x32x32.
template <int kSide, int kK>
struct Int8Tile : MfmaShape<kSide> {
#if WMMA_TARGET >= 0x942
  static constexpr int kRun = kDoubleDepth && kK % (16 * MfmaShape<kSide>::kGroups) == 0 ? 16 : 8;
#else
  static constexpr int kRun = 4;
#endif
  using A = RunLayout<kSide, kRun, kRun>;
  using B = A;
  using Compute = int32_t;

  static WMMA_DEVICE void mma(int32_t* d, const int8_t* a, const int8_t* b) {
    auto sum = pack<typename Int8Tile::IntC>(d);
#if WMMA_TARGET == 0x950
    if constexpr (kRun == 16 && kSide == 16) {
      sum = __builtin_amdgcn_mfma_i32_16x16x64_i8(pack<Int4>(a), pack<Int4>(b), sum, 0, 0, 0);
    } else if constexpr (kRun == 16) {
      sum = __builtin_amdgcn_mfma_i32_32x32x32_i8(pack<Int4>(a), pack<Int4>(b), sum, 0, 0, 0);
    } else
#endif
#if WMMA_TARGET >= 0x942
        if constexpr (kSide == 16) {
      sum = __builtin_amdgcn_mfma_i32_16x16x32_i8(pack<long>(a), pack<long>(b), sum, 0, 0, 0);
    } else {
      sum = __builtin_amdgcn_mfma_i32_32x32x16_i8(pack<long>(a), pack<long>(b), sum, 0, 0, 0);
    }
#else
    if constexpr (kSide == 16) {
      sum = __builtin_amdgcn_mfma_i32_16x16x16i8(pack<int>(a), pack<int>(b), sum, 0, 0, 0);
    } else {
      sum = __builtin_amdgcn_mfma_i32_32x32x8i8(pack<int>(a), pack<int>(b), sum, 0, 0, 0);
    }
#endif
    unpack(d, sum);
  }
};

// There is no unsigned product.
template <class TypeA, class TypeB, int kSide, int kK>
using UnsignedTile = SignedConvertedTile<TypeA, TypeB, Int8Tile<kSide, kK>>;

// 4-bit integers run in int8.
template <class TypeA, class TypeB, int kSide, int kK>
using Int4Tile = Int8ConvertedTile<TypeA, TypeB, Int8Tile<kSide, kK>>;

#if WMMA_TARGET >= 0x942
#define WMMA_FP8(kind)                                                                           \
  if constexpr (kSide == 16) {                                                                   \
    sum = __builtin_amdgcn_mfma_f32_16x16x32_##kind(pack<long>(a), pack<long>(b), sum, 0, 0, 0); \
  } else {                                                                                       \
    sum = __builtin_amdgcn_mfma_f32_32x32x16_##kind(pack<long>(a), pack<long>(b), sum, 0, 0, 0); \
  }

// 16x16x32 and 32x32x16. The same instructions read FNUZ on gfx942 and OCP on gfx950.
template <class TypeA, class TypeB, int kSide>
struct Fp8Tile : MfmaShape<kSide> {
  static constexpr bool kE4m3A = kSame<TypeA, fp8_e4m3_t> || kSame<TypeA, fp8_e4m3fnuz_t>;
  static constexpr bool kE4m3B = kSame<TypeB, fp8_e4m3_t> || kSame<TypeB, fp8_e4m3fnuz_t>;
  using A = RunLayout<kSide, 8, 8>;
  using B = A;
  using Compute = float;

  static WMMA_DEVICE void mma(float* d, const TypeA* a, const TypeB* b) {
    auto sum = pack<typename Fp8Tile::FloatC>(d);
    if constexpr (kE4m3A && kE4m3B) {
      WMMA_FP8(fp8_fp8)
    } else if constexpr (kE4m3A) {
      WMMA_FP8(fp8_bf8)
    } else if constexpr (kE4m3B) {
      WMMA_FP8(bf8_fp8)
    } else {
      WMMA_FP8(bf8_bf8)
    }
    unpack(d, sum);
  }
};

#undef WMMA_FP8
#endif

// 16x16x4 and 32x32x2, four to a tile where K allows.
template <int kSide, int kK>
struct FloatTile : MfmaShape<kSide> {
  static constexpr int kRun = kK % (4 * MfmaShape<kSide>::kGroups) == 0 ? 4 : 1;
  using A = RunLayout<kSide, kRun, kRun>;
  using B = A;
  using Compute = float;

  static WMMA_DEVICE void mma(float* d, const float* a, const float* b) {
    auto sum = pack<typename FloatTile::FloatC>(d);
#pragma unroll
    for (int e = 0; e < kRun; ++e) {
      if constexpr (kSide == 16) {
        sum = __builtin_amdgcn_mfma_f32_16x16x4f32(a[e], b[e], sum, 0, 0, 0);
      } else {
        sum = __builtin_amdgcn_mfma_f32_32x32x2f32(a[e], b[e], sum, 0, 0, 0);
      }
    }
    unpack(d, sum);
  }
};

#if WMMA_TARGET == 0x908
using DoubleTile = FmaTile<double, double, ColumnLayout<16, 1>>;
#else
// 16x16x4.
struct DoubleTile {
  using A = RunLayout<16, 1, 1>;
  using B = A;
  using C = ColumnLayout<16, 1>;
  using Compute = double;

  static WMMA_DEVICE void mma(double* d, const double* a, const double* b) {
    unpack(d, __builtin_amdgcn_mfma_f64_16x16x4f64(a[0], b[0], pack<Double4>(d), 0, 0, 0));
  }
};
#endif

// Other: the type of B where it is not A's.
template <class T, int kSide, int kK, class Other = T>
struct TileOf {
  static_assert(sizeof(T) == 0, "wmma: this target has no product of this element type");
};
template <int kSide, int kK>
struct TileOf<half_t, kSide, kK> {
  using Type = HalfTile<kSide, kK>;
};
template <int kSide, int kK>
struct TileOf<bf16_t, kSide, kK> {
  using Type = Bf16Tile<kSide, kK>;
};
template <int kSide, int kK, class Other>
struct TileOf<int8_t, kSide, kK, Other> {
  using Type = Choose<kSame<Other, int8_t>, Int8Tile<kSide, kK>, UnsignedTile<int8_t, Other, kSide, kK>>;
};
template <int kSide, int kK, class Other>
struct TileOf<uint8_t, kSide, kK, Other> {
  using Type = UnsignedTile<uint8_t, Other, kSide, kK>;
};
template <int kSide, int kK, class Other>
struct TileOf<int4_t, kSide, kK, Other> {
  using Type = Int4Tile<int4_t, Other, kSide, kK>;
};
template <int kSide, int kK, class Other>
struct TileOf<uint4_t, kSide, kK, Other> {
  using Type = Int4Tile<uint4_t, Other, kSide, kK>;
};
template <int kSide, int kK>
struct TileOf<float, kSide, kK> {
  using Type = FloatTile<kSide, kK>;
};
template <int kSide, int kK>
struct TileOf<double, kSide, kK> {
  using Type = DoubleTile;
};

template <class T, int kSide, int kK, class Other>
struct Fp8TileOf {
#if WMMA_TARGET == 0x942
  static constexpr bool kNative = kSame<T, fp8_e4m3fnuz_t> || kSame<T, fp8_e5m2fnuz_t>;
#elif WMMA_TARGET == 0x950
  static constexpr bool kNative = kSame<T, fp8_e4m3_t> || kSame<T, fp8_e5m2_t>;
#endif
#if WMMA_TARGET >= 0x942
  using Type = Choose<kNative, Fp8Tile<T, Other, kSide>, HalfConvertedTile<T, HalfTile<kSide, kK>, Other>>;
#else
  using Type = HalfConvertedTile<T, HalfTile<kSide, kK>, Other>;
#endif
};
template <int kSide, int kK, class Other>
struct TileOf<fp8_e4m3_t, kSide, kK, Other> : Fp8TileOf<fp8_e4m3_t, kSide, kK, Other> {};
template <int kSide, int kK, class Other>
struct TileOf<fp8_e5m2_t, kSide, kK, Other> : Fp8TileOf<fp8_e5m2_t, kSide, kK, Other> {};
template <int kSide, int kK, class Other>
struct TileOf<fp8_e4m3fnuz_t, kSide, kK, Other> : Fp8TileOf<fp8_e4m3fnuz_t, kSide, kK, Other> {};
template <int kSide, int kK, class Other>
struct TileOf<fp8_e5m2fnuz_t, kSide, kK, Other> : Fp8TileOf<fp8_e5m2fnuz_t, kSide, kK, Other> {};

// Blocks of 32x32 use the 32x32 instructions; f64 has 16x16 alone.
template <class T, int kM, int kN>
constexpr int kTileSide = kM % 32 == 0 && kN % 32 == 0 && !kSame<T, double> ? 32 : 16;

template <class T, int kM, int kN, int kK, class Other = T>
struct Tile : TileOf<T, kTileSide<T, kM, kN>, kK, Other> {};

template <class T, int kM, int kN>
struct AccumulatorTile {
  using Type = ColumnLayout<kTileSide<T, kM, kN>, kSame<T, double> ? 1 : 4>;
};

#if WMMA_TARGET != 0x908
// Adds to a number of the device's memory, of which nobody asks what it was.
WMMA_DEVICE void add_in_memory(float* at, float x) {
  using Global = __attribute__((address_space(1))) float*;
  __builtin_amdgcn_global_atomic_fadd_f32((Global)at, x);
}
WMMA_DEVICE void add_in_memory(int32_t* at, int32_t x) {
  using Global = __attribute__((address_space(1))) int32_t*;
  __hip_atomic_fetch_add((Global)at, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
#endif

}  // namespace wmma::arch
