// WMMA tiles of gfx11 (RDNA 3 and 3.5), 16x16x16. A and B: lane l holds row (column) l % 16 whole, both halves of the
// wave the same; D: column l % 16, rows 2e + l / 16. f32 and f64 have no instruction and run through FMA in D's layout.
#pragma once

#include <wmma/fma_tile.hpp>
#include <wmma/half_tile.hpp>

namespace wmma::arch {

using Half16 = _Float16 __attribute__((ext_vector_type(16)));
using Short16 = short __attribute__((ext_vector_type(16)));
using Int4 = int __attribute__((ext_vector_type(4)));
using Int8 = int __attribute__((ext_vector_type(8)));
using Float8 = float __attribute__((ext_vector_type(8)));

struct WmmaShape {
  using A = ReplicatedLayout<16>;
  using B = A;
  using C = ColumnLayout<16, 1>;
};

struct HalfTile : WmmaShape {
  using Compute = float;
  static WMMA_DEVICE void mma(float* d, const half_t* a, const half_t* b) {
    unpack(d, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(pack<Half16>(a), pack<Half16>(b), pack<Float8>(d)));
  }
};

struct Bf16Tile : WmmaShape {
  using Compute = float;
  static WMMA_DEVICE void mma(float* d, const bf16_t* a, const bf16_t* b) {
    unpack(d, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(pack<Short16>(a), pack<Short16>(b), pack<Float8>(d)));
  }
};

template <class T>
struct Int8Tile : WmmaShape {
  static constexpr bool kSigned = kSame<T, int8_t>;
  using Compute = int32_t;
  static WMMA_DEVICE void mma(int32_t* d, const T* a, const T* b) {
    unpack(d, __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(kSigned, pack<Int4>(a), kSigned, pack<Int4>(b), pack<Int8>(d),
                                                         false));
  }
};

template <class T, int kM, int kN, int kK>
struct Tile {
  static_assert(kIsFp8<T>, "wmma: this target has no product of this element type");
  using Type = HalfConvertedTile<T, HalfTile>;
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
struct Tile<float, kM, kN, kK> {
  using Type = FmaTile<float, float, ColumnLayout<16, 1>>;
};
template <int kM, int kN, int kK>
struct Tile<double, kM, kN, kK> {
  using Type = FmaTile<double, double, ColumnLayout<16, 1>>;
};

template <class T, int kM, int kN>
struct AccumulatorTile {
  using Type = ColumnLayout<16, 1>;
};

}  // namespace wmma::arch
