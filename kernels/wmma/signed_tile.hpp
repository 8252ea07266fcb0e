// Products of uint8_t on a target that has those of int8_t alone. u is taken as u − 128; what is missing, 128 times the
// sums of the other operand, comes from products with −128, because −128·~x = 128·x + 128, and from a constant.
#pragma once

#include <wmma/types.hpp>

namespace wmma {

template <class TypeA, class TypeB, class Int8Tile>
struct SignedConvertedTile {
  using A = typename Int8Tile::A;
  using B = typename Int8Tile::B;
  using C = typename Int8Tile::C;
  using Compute = int32_t;

  static WMMA_DEVICE void mma(int32_t* d, const TypeA* a, const TypeB* b) {
    constexpr bool kUnsignedA = kSame<TypeA, uint8_t>;
    constexpr bool kUnsignedB = kSame<TypeB, uint8_t>;
    constexpr int kSums = (kUnsignedA && kUnsignedB ? 128 * 128 : 0) - (kUnsignedA ? 128 : 0) - (kUnsignedB ? 128 : 0);
    const Operand<A> signed_a(a, kUnsignedA ? kLowest : 0);
    const Operand<B> signed_b(b, kUnsignedB ? kLowest : 0);
    const Operand<A> lowest_a(kLowest);
    const Operand<B> lowest_b(kLowest);
#pragma unroll
    for (int e = 0; e < C::kElements; ++e) d[e] += A::kDepth * kSums;
    Int8Tile::mma(d, signed_a.x, signed_b.x);
    if constexpr (kUnsignedA) Int8Tile::mma(d, lowest_a.x, Operand<B>(signed_b.x, ~0u).x);
    if constexpr (kUnsignedB) Int8Tile::mma(d, Operand<A>(signed_a.x, ~0u).x, lowest_b.x);
  }

 private:
  static constexpr uint32_t kLowest = 0x80808080u;  // four times −128

  // A lane's part of an operand: elements with some bits turned, or one word over and over.
  template <class Layout>
  struct Operand {
    static constexpr int kBytes = Layout::kElements;
    int8_t x[kBytes];
    template <class T>
    WMMA_DEVICE Operand(const T* from, uint32_t turned) {
#pragma unroll
      for (int i = 0; i < kBytes; i += 4) {
        uint32_t word;
        arch::copy_bytes<4>(&word, from + i);
        word ^= turned;
        arch::copy_bytes<4>(x + i, &word);
      }
    }
    explicit WMMA_DEVICE Operand(uint32_t word) {
#pragma unroll
      for (int i = 0; i < kBytes; i += 4) arch::copy_bytes<4>(x + i, &word);
    }
  };
};

}  // namespace wmma
