// Results as they lie in memory: rounded to the type, and several of them as words.
#pragma once

#include <wmma/bits.hpp>

namespace wmma {

// The result in D's type: to nearest even; integers saturate, and a NaN becomes 0.
template <class D, class E>
WMMA_DEVICE D finished(E x) {
  if constexpr (kIsInteger<D> && !kIsInteger<E>) {
    constexpr E kLow = kSame<D, int8_t> ? E(-128) : E(-2147483648.0);
    constexpr E kHigh = kSame<D, int8_t> ? E(127) : E(2147483647.0);
    x = x == x ? arch::round_even(x) : E(0);
    x = x > kLow ? x : kLow;
    x = x < kHigh ? x : kHigh;
    return static_cast<D>(static_cast<int32_t>(x));
  } else {
    return convert<D>(x);
  }
}

namespace detail {

// kCount of them as the words of T in memory.
template <class T, int kCount, class E>
WMMA_DEVICE void pack(uint32_t* words, const E* x) {
  if constexpr (kSame<T, half_t>) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) words[i / 2] = arch::half_pair(x[i], x[i + 1]);
  } else if constexpr (kSame<T, bf16_t>) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) words[i / 2] = arch::bf16_pair(x[i], x[i + 1]);
  } else {
    T values[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = finished<T>(x[i]);
    arch::copy_bytes<bytes_of<T>(kCount)>(words, values);
  }
}

}  // namespace detail

}  // namespace wmma
