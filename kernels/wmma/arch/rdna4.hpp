// WMMA tiles of gfx12. gfx1200, gfx1201: 16x16x16. A and B: lane l holds row (column) l % 16 and eight consecutive k
// from 8·(l / 16); D: column l % 16, rows 8·(l / 16) + e. AMD's calculator splits k as 4 + 4 instead: a product is the
// same either way as long as A and B agree, and eight in a row load as 16 bytes. gfx1250: 16x16x32 f16 and bf16,
// 16x16x64 8-bit, k in runs of eight, alternating between the halves; D as above. f32 and f64 run through FMA.
#pragma once

#include <wmma/fma_tile.hpp>
#include <wmma/half_tile.hpp>
#include <wmma/int4.hpp>

namespace wmma::arch {

using Half8 = _Float16 __attribute__((ext_vector_type(8)));
using Half16 = _Float16 __attribute__((ext_vector_type(16)));
using Short8 = short __attribute__((ext_vector_type(8)));
using Int2 = int __attribute__((ext_vector_type(2)));
using Int8 = int __attribute__((ext_vector_type(8)));
using Float8 = float __attribute__((ext_vector_type(8)));

template <int kCount>
struct WmmaShape {
  using A = RunLayout<16, 8, kCount>;
  using B = A;
  using C = ColumnLayout<16, 8>;
};

#if WMMA_TARGET == 0x1250
using Bf16x16 = __bf16 __attribute__((ext_vector_type(16)));
constexpr int kCount16 = 16;
constexpr int kCount8 = 32;
#else
constexpr int kCount16 = 8;
constexpr int kCount8 = 8;
#endif

struct HalfTile : WmmaShape<kCount16> {
  using Compute = float;
  static WMMA_DEVICE void mma(float* d, const half_t* a, const half_t* b) {
#if WMMA_TARGET == 0x1250
    unpack(d, __builtin_amdgcn_wmma_f32_16x16x32_f16(false, pack<Half16>(a), false, pack<Half16>(b), 0, pack<Float8>(d),
                                                     false, false));
#else
    unpack(d, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(pack<Half8>(a), pack<Half8>(b), pack<Float8>(d)));
#endif
  }
};

struct Bf16Tile : WmmaShape<kCount16> {
  using Compute = float;
  static WMMA_DEVICE void mma(float* d, const bf16_t* a, const bf16_t* b) {
#if WMMA_TARGET == 0x1250
    unpack(d, __builtin_amdgcn_wmma_f32_16x16x32_bf16(false, pack<Bf16x16>(a), false, pack<Bf16x16>(b), 0,
                                                      pack<Float8>(d), false, false));
#else
    unpack(d, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(pack<Short8>(a), pack<Short8>(b), pack<Float8>(d)));
#endif
  }
};

template <class TypeA, class TypeB>
struct Int8Tile : WmmaShape<kCount8> {
  static constexpr bool kSignedA = kSame<TypeA, int8_t>;
  static constexpr bool kSignedB = kSame<TypeB, int8_t>;
  using Compute = int32_t;
  static WMMA_DEVICE void mma(int32_t* d, const TypeA* a, const TypeB* b) {
#if WMMA_TARGET == 0x1250
    unpack(d, __builtin_amdgcn_wmma_i32_16x16x64_iu8(kSignedA, pack<Int8>(a), kSignedB, pack<Int8>(b), pack<Int8>(d),
                                                     false, false));
#else
    unpack(d, __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(kSignedA, pack<Int2>(a), kSignedB, pack<Int2>(b),
                                                               pack<Int8>(d), false));
#endif
  }
};

#if WMMA_TARGET == 0x1250
template <class TypeA, class TypeB, int kK>
using Int4Tile = Int8ConvertedTile<TypeA, TypeB, Int8Tile<int8_t, int8_t>>;
#else
// 16x16x16, and 16x16x32 where K allows: a lane's run of K is then 16.
template <class TypeA, class TypeB, int kK>
struct Int4Tile {
  static constexpr int kRun = kK % 32 == 0 ? 16 : 8;
  using A = RunLayout<16, kRun, kRun>;
  using B = A;
  using C = ColumnLayout<16, 8>;
  static constexpr bool kSignedA = kSame<TypeA, int4_t>;
  static constexpr bool kSignedB = kSame<TypeB, int4_t>;
  using Compute = int32_t;
  static WMMA_DEVICE void mma(int32_t* d, const InMemory<TypeA>* a, const InMemory<TypeB>* b) {
    if constexpr (kRun == 16) {
      unpack(d, __builtin_amdgcn_wmma_i32_16x16x32_iu4_w32_gfx12(kSignedA, pack<Int2>(a), kSignedB, pack<Int2>(b),
                                                                 pack<Int8>(d), false));
    } else {
      unpack(d, __builtin_amdgcn_wmma_i32_16x16x16_iu4_w32_gfx12(kSignedA, pack<int>(a), kSignedB, pack<int>(b),
                                                                 pack<Int8>(d), false));
    }
  }
};
#endif

#if WMMA_TARGET == 0x1250
#define WMMA_FP8(a_type, b_type, a, b, d) \
  __builtin_amdgcn_wmma_f32_16x16x64_##a_type##_##b_type(pack<Int8>(a), pack<Int8>(b), 0, pack<Float8>(d), false, false)
#else
#define WMMA_FP8(a_type, b_type, a, b, d) \
  __builtin_amdgcn_wmma_f32_16x16x16_##a_type##_##b_type##_w32_gfx12(pack<Int2>(a), pack<Int2>(b), pack<Float8>(d))
#endif

template <class TypeA, class TypeB>
struct Fp8Tile : WmmaShape<kCount8> {
  using Compute = float;
  static constexpr bool kE4m3A = kSame<TypeA, fp8_e4m3_t>;
  static constexpr bool kE4m3B = kSame<TypeB, fp8_e4m3_t>;
  static WMMA_DEVICE void mma(float* d, const TypeA* a, const TypeB* b) {
    if constexpr (kE4m3A && kE4m3B) {
      unpack(d, WMMA_FP8(fp8, fp8, a, b, d));
    } else if constexpr (kE4m3A) {
      unpack(d, WMMA_FP8(fp8, bf8, a, b, d));
    } else if constexpr (kE4m3B) {
      unpack(d, WMMA_FP8(bf8, fp8, a, b, d));
    } else {
      unpack(d, WMMA_FP8(bf8, bf8, a, b, d));
    }
  }
};

#undef WMMA_FP8

}  // namespace wmma::arch
