// 4-bit integers, two to a byte, the first one in the low bits: in memory, where a pair is the smallest thing that a
// pointer can name, and in registers. Products of them on targets without an instruction run in int8.
#pragma once

#include <wmma/bits.hpp>

namespace wmma {
namespace detail {

template <class T>
struct Int4Pair {
  uint8_t bits;
  Int4Pair() = default;
  WMMA_DEVICE Int4Pair(T first, T second) : bits(static_cast<uint8_t>((first & 15) | (second & 15) << 4)) {}
  WMMA_DEVICE T operator[](int i) const { return T(bits >> (4 * i)); }
};

// kCount elements by number, kept as pairs.
template <class T, int kCount>
struct Int4Array {
  using Pair = Int4Pair<T>;
  Pair pairs[bytes_of<T>(kCount)];

  struct Reference {
    Pair& pair;
    int place;
    WMMA_DEVICE operator int32_t() const { return pair[place]; }
    WMMA_DEVICE Reference& operator=(T value) {
      pair.bits = static_cast<uint8_t>((pair.bits & (0xf0 >> (4 * place))) | (value & 15) << (4 * place));
      return *this;
    }
    WMMA_DEVICE Reference& operator=(const Reference& other) { return *this = T(other); }
  };

  WMMA_DEVICE Reference operator[](int i) { return {pairs[i / 2], i % 2}; }
  WMMA_DEVICE T operator[](int i) const { return pairs[i / 2][i % 2]; }
};

}  // namespace detail

// Two 4-bit integers in a byte of memory; pair[0] lies in the low bits.
using int4x2_t = detail::Int4Pair<int4_t>;
using uint4x2_t = detail::Int4Pair<uint4_t>;

// What lies in memory for an element of T: T, or pairs of 4-bit integers.
template <class T>
using InMemory = Choose<kIsPacked<T>, detail::Int4Pair<T>, T>;

// Products of 4-bit integers by the tile of int8_t, whose layout they share. Each word's low halves go before its high
// halves, in A as in B: a product may take K in any order that both share.
template <class TypeA, class TypeB, class Int8Tile>
struct Int8ConvertedTile {
  using A = typename Int8Tile::A;
  using B = typename Int8Tile::B;
  using C = typename Int8Tile::C;
  using Compute = int32_t;

  static WMMA_DEVICE void mma(int32_t* d, const detail::Int4Pair<TypeA>* a, const detail::Int4Pair<TypeB>* b) {
    int8_t wide_a[A::kElements];
    int8_t wide_b[B::kElements];
    widen<TypeA, A::kElements>(wide_a, a);
    widen<TypeB, B::kElements>(wide_b, b);
    Int8Tile::mma(d, wide_a, wide_b);
  }

 private:
  static WMMA_DEVICE uint32_t sign_extended(uint32_t nibbles) {
    return (((nibbles ^ 0x08080808u) | 0x80808080u) - 0x08080808u) ^ 0x80808080u;
  }

  template <class T, int kCount>
  static WMMA_DEVICE void widen(int8_t* wide, const detail::Int4Pair<T>* pairs) {
    constexpr int kBytes = kCount % 8 == 0 ? 4 : bytes_of<T>(kCount);  // of pairs at a time
#pragma unroll
    for (int i = 0; i < bytes_of<T>(kCount); i += kBytes) {
      uint32_t word = 0;
      arch::copy_bytes<kBytes>(&word, pairs + i);
      uint32_t low = word & 0x0f0f0f0fu;
      uint32_t high = (word >> 4) & 0x0f0f0f0fu;
      if constexpr (kSame<T, int4_t>) {
        low = sign_extended(low);
        high = sign_extended(high);
      }
      arch::copy_bytes<kBytes>(wide + 2 * i, &low);
      arch::copy_bytes<kBytes>(wide + 2 * i + kBytes, &high);
    }
  }
};

}  // namespace wmma
