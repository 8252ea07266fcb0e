// What reductions and scans combine values with. Any function of two values that is associative will do as well.
#pragma once

#include <wmma/types.hpp>

namespace wmma {

namespace detail {

// The ends of a type's range; of floats the infinities.
template <class T>
WMMA_DEVICE T highest() {
  if constexpr (kSame<T, float>) {
    return arch::bit_cast<T>(0x7f800000u);
  } else if constexpr (kSame<T, double>) {
    return arch::bit_cast<T>(uint64_t{0x7ff} << 52);
  } else if constexpr (kSame<T, half_t> || kSame<T, bf16_t>) {
    return arch::bit_cast<T>(static_cast<uint16_t>(kSame<T, half_t> ? 0x7c00 : 0x7f80));
  } else {
    constexpr uint64_t kAll = ~uint64_t{0} >> (64 - 8 * sizeof(T));
    return static_cast<T>(static_cast<T>(-1) > static_cast<T>(0) ? kAll : kAll >> 1);
  }
}
template <class T>
WMMA_DEVICE T lowest() {
  if constexpr (kSame<T, float> || kSame<T, double> || kSame<T, half_t> || kSame<T, bf16_t>) {
    return static_cast<T>(-highest<T>());
  } else {
    return static_cast<T>(~highest<T>());
  }
}

// Both from what the hardware compares; a number rather than a NaN.
template <class T>
WMMA_DEVICE T lesser(T a, T b) {
  if constexpr (kSame<T, half_t> || kSame<T, bf16_t>) {
    return static_cast<T>(arch::min(static_cast<float>(a), static_cast<float>(b)));
  } else if constexpr (kSame<T, float> || kSame<T, double>) {
    return arch::min(a, b);
  } else {
    return b < a ? b : a;
  }
}
template <class T>
WMMA_DEVICE T greater(T a, T b) {
  if constexpr (kSame<T, half_t> || kSame<T, bf16_t>) {
    return static_cast<T>(arch::max(static_cast<float>(a), static_cast<float>(b)));
  } else if constexpr (kSame<T, float> || kSame<T, double>) {
    return arch::max(a, b);
  } else {
    return a < b ? b : a;
  }
}

}  // namespace detail

// The sum. Each of these has `first`, which changes nothing that it is combined with.
struct Sum {
  template <class T>
  WMMA_DEVICE T operator()(T a, T b) const {
    return static_cast<T>(a + b);
  }
  template <class T>
  static WMMA_DEVICE T first() {
    return static_cast<T>(0);
  }
};

// The least value; of floats a number rather than a NaN.
struct Min {
  template <class T>
  WMMA_DEVICE T operator()(T a, T b) const {
    return detail::lesser(a, b);
  }
  template <class T>
  static WMMA_DEVICE T first() {
    return detail::highest<T>();
  }
};
// The greatest value; of floats a number rather than a NaN.
struct Max {
  template <class T>
  WMMA_DEVICE T operator()(T a, T b) const {
    return detail::greater(a, b);
  }
  template <class T>
  static WMMA_DEVICE T first() {
    return detail::lowest<T>();
  }
};

// The bits that both have.
struct BitAnd {
  template <class T>
  WMMA_DEVICE T operator()(T a, T b) const {
    static_assert(static_cast<T>(1) / 2 == 0, "wmma: and, or and xor take integers");
    return static_cast<T>(a & b);
  }
  template <class T>
  static WMMA_DEVICE T first() {
    return static_cast<T>(-1);
  }
};
// The bits that one of both has.
struct BitOr {
  template <class T>
  WMMA_DEVICE T operator()(T a, T b) const {
    static_assert(static_cast<T>(1) / 2 == 0, "wmma: and, or and xor take integers");
    return static_cast<T>(a | b);
  }
  template <class T>
  static WMMA_DEVICE T first() {
    return static_cast<T>(0);
  }
};
// The bits that one of both has and the other has not.
struct BitXor {
  template <class T>
  WMMA_DEVICE T operator()(T a, T b) const {
    static_assert(static_cast<T>(1) / 2 == 0, "wmma: and, or and xor take integers");
    return static_cast<T>(a ^ b);
  }
  template <class T>
  static WMMA_DEVICE T first() {
    return static_cast<T>(0);
  }
};

namespace detail {

// Whether f(a, b) has the bits of f(b, a).
template <class F>
inline constexpr bool kCommutes =
    kSame<F, Sum> || kSame<F, Min> || kSame<F, Max> || kSame<F, BitAnd> || kSame<F, BitOr> || kSame<F, BitXor>;

// What sums, least and greatest values of T are computed in: 16-bit floats in float and rounded once, small integers in
// words.
template <class T>
struct Carrier {
  static constexpr bool kHalf = kSame<T, half_t> || kSame<T, bf16_t>;
  using Type = Choose<kHalf, float, Choose<sizeof(T) <= 2, int32_t, T>>;
};
template <class T>
WMMA_DEVICE typename Carrier<T>::Type carried(T value) {
  return static_cast<typename Carrier<T>::Type>(value);
}

}  // namespace detail

}  // namespace wmma
