// WMMA tiles of gfx12. gfx1200, gfx1201: 16x16x16. A and B: lane l holds row (column) l % 16 and eight consecutive k
// from 8·(l / 16); D: column l % 16, rows 8·(l / 16) + e. AMD's calculator deals k as 4 + 4 instead: a product is the
// same either way as long as A and B agree, and eight in a row load as 16 bytes. gfx1250: 16x16x32 f16 and bf16,
// 16x16x64 8-bit, k in runs of eight dealt to the halves in turn; D as above. f32 and f64 run through FMA.
#pragma once

#include <wmma/fma_tile.hpp>
#include <wmma/half_tile.hpp>

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

#if defined(__gfx1250__)
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
#if defined(__gfx1250__)
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
#if defined(__gfx1250__)
    unpack(d, __builtin_amdgcn_wmma_f32_16x16x32_bf16(false, pack<Bf16x16>(a), false, pack<Bf16x16>(b), 0,
                                                      pack<Float8>(d), false, false));
#else
    unpack(d, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(pack<Short8>(a), pack<Short8>(b), pack<Float8>(d)));
#endif
  }
};

template <class T>
struct Int8Tile : WmmaShape<kCount8> {
  static constexpr bool kSigned = kSame<T, int8_t>;
  using Compute = int32_t;
  static WMMA_DEVICE void mma(int32_t* d, const T* a, const T* b) {
#if defined(__gfx1250__)
    unpack(d, __builtin_amdgcn_wmma_i32_16x16x64_iu8(kSigned, pack<Int8>(a), kSigned, pack<Int8>(b), pack<Int8>(d),
                                                     false, false));
#else
    unpack(d, __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(kSigned, pack<Int2>(a), kSigned, pack<Int2>(b),
                                                               pack<Int8>(d), false));
#endif
  }
};

template <class T>
struct Fp8Tile : WmmaShape<kCount8> {
  using Compute = float;
  static WMMA_DEVICE void mma(float* d, const T* a, const T* b) {
#if defined(__gfx1250__)
    if constexpr (kSame<T, fp8_e4m3_t>) {
      unpack(d, __builtin_amdgcn_wmma_f32_16x16x64_fp8_fp8(pack<Int8>(a), pack<Int8>(b), 0, pack<Float8>(d), false,
                                                           false));
    } else {
      unpack(d, __builtin_amdgcn_wmma_f32_16x16x64_bf8_bf8(pack<Int8>(a), pack<Int8>(b), 0, pack<Float8>(d), false,
                                                           false));
    }
#else
    if constexpr (kSame<T, fp8_e4m3_t>) {
      unpack(d, __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(pack<Int2>(a), pack<Int2>(b), pack<Float8>(d)));
    } else {
      unpack(d, __builtin_amdgcn_wmma_f32_16x16x16_bf8_bf8_w32_gfx12(pack<Int2>(a), pack<Int2>(b), pack<Float8>(d)));
    }
#endif
  }
};

template <class T, int kM, int kN, int kK>
struct Tile {
  static_assert(kIsFp8<T>, "wmma: this target has no product of this element type");
  using Type = HalfConvertedTile<T, HalfTile>;  // the FNUZ forms
};
template <int kM, int kN, int kK>
struct Tile<half_t, kM, kN, kK> {
  using Type = HalfTile;
};
template <int kM, int kN, int kK>
struct Tile<bf16_t, kM, kN, kK> {
  using Type = Bf16Tile;
};
template <int kM, int kN, int kK>
struct Tile<int8_t, kM, kN, kK> {
  using Type = Int8Tile<int8_t>;
};
template <int kM, int kN, int kK>
struct Tile<uint8_t, kM, kN, kK> {
  using Type = Int8Tile<uint8_t>;
};
template <int kM, int kN, int kK>
struct Tile<fp8_e4m3_t, kM, kN, kK> {
  using Type = Fp8Tile<fp8_e4m3_t>;
};
template <int kM, int kN, int kK>
struct Tile<fp8_e5m2_t, kM, kN, kK> {
  using Type = Fp8Tile<fp8_e5m2_t>;
};
template <int kM, int kN, int kK>
struct Tile<float, kM, kN, kK> {
  using Type = FmaTile<float, float, ColumnLayout<16, 8>>;
};
template <int kM, int kN, int kK>
struct Tile<double, kM, kN, kK> {
  using Type = FmaTile<double, double, ColumnLayout<16, 8>>;
};

template <class T, int kM, int kN>
struct AccumulatorTile {
  using Type = ColumnLayout<16, 8>;
};

}  // namespace wmma::arch
