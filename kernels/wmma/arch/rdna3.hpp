// WMMA tiles of gfx11 (RDNA 3 and 3.5), 16x16x16. A and B: lane l holds row (column) l % 16 whole, both halves of the
// wave the same; D: column l % 16, rows 2e + l / 16. f32 and f64 have no instruction and run through FMA in D's layout.
#pragma once

#include <wmma/fma_tile.hpp>
#include <wmma/half_tile.hpp>
#include <wmma/int4.hpp>

namespace wmma::arch {

using Half16 = _Float16 __attribute__((ext_vector_type(16)));
using Short16 = short __attribute__((ext_vector_type(16)));
using Int2 = int __attribute__((ext_vector_type(2)));
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

template <class TypeA, class TypeB>
struct Int8Tile : WmmaShape {
  using Compute = int32_t;
  static WMMA_DEVICE void mma(int32_t* d, const TypeA* a, const TypeB* b) {
    unpack(d, __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(kSame<TypeA, int8_t>, pack<Int4>(a), kSame<TypeB, int8_t>,
                                                         pack<Int4>(b), pack<Int8>(d), false));
  }
};

template <class TypeA, class TypeB, int>
struct Int4Tile : WmmaShape {
  using Compute = int32_t;
  static WMMA_DEVICE void mma(int32_t* d, const InMemory<TypeA>* a, const InMemory<TypeB>* b) {
    unpack(d, __builtin_amdgcn_wmma_i32_16x16x16_iu4_w32(kSame<TypeA, int4_t>, pack<Int2>(a), kSame<TypeB, int4_t>,
                                                         pack<Int2>(b), pack<Int8>(d), false));
  }
};

template <class TypeA, class TypeB>
using Fp8Tile = HalfConvertedTile<TypeA, HalfTile, TypeB>;

}  // namespace wmma::arch
