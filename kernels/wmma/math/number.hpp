// What the functions of <wmma/math.hpp> are made of: which type they compute in, sums of two numbers that hold twice
// the digits, and division. Written once for float and double; only the coefficients differ. All of them were computed
// for this library: Remez exchange in 70 digits (mpmath) on the function that the comment names, for the least relative
// error of the result.
#pragma once

#include <wmma/types.hpp>

#if defined(WMMA_AMD)
#include <wmma/arch/amd_math.hpp>
#elif defined(WMMA_NVIDIA)
#include <wmma/arch/nvidia_math.hpp>
#endif

namespace wmma {

namespace math {

// Which type a function of several arguments computes in and gives, by the largest of these: integers take the type of
// the other arguments, and double where there is no other.
enum Rank { kWhole, kHalf, kBf16, kHalfWord, kBf16Word, kFloat, kDouble, kRefused };

template <class X>
inline constexpr Rank kRank =
    kIsInteger<X> || kSame<X, bool> || kSame<X, int16_t> || kSame<X, uint16_t> || kSame<X, long> ||
            kSame<X, unsigned long> || kSame<X, long long> || kSame<X, unsigned long long> || kSame<X, char>
        ? kWhole
        : kRefused;
template <>
inline constexpr Rank kRank<half_t> = kHalf;
template <>
inline constexpr Rank kRank<bf16_t> = kBf16;
template <>
inline constexpr Rank kRank<float> = kFloat;
template <>
inline constexpr Rank kRank<double> = kDouble;
#ifdef WMMA_AMD
template <>
inline constexpr Rank kRank<_Float16> = kHalfWord;
#endif

WMMA_CONSTEXPR Rank larger(Rank a, Rank b) {
  if (a == b || b == kWhole) return a;
  if (a == kWhole) return b;
  const Rank top = a > b ? a : b;
  return top < kFloat ? kFloat : top;  // two 16-bit types together
}

template <Rank kOf>
struct TypeOf {
  static_assert(kOf != kRefused, "wmma: math takes float, double, half_t, bf16_t and integers");
  using Type = double;
};
template <>
struct TypeOf<kHalf> {
  using Type = half_t;
};
template <>
struct TypeOf<kBf16> {
  using Type = bf16_t;
};
template <>
struct TypeOf<kFloat> {
  using Type = float;
};
#ifdef WMMA_AMD
template <>
struct TypeOf<kHalfWord> {
  using Type = _Float16;
};
#endif

}  // namespace math

// What a math function of these arguments gives: the largest of their floating types, integers counting as none (pow(x,
// 2) has the type of x), float for two different 16-bit types, double for integers alone.
template <class X, class Y = int, class Z = int>
using Real = typename math::TypeOf<math::larger(math::larger(math::kRank<X>, math::kRank<Y>), math::kRank<Z>)>::Type;

namespace math {

// What it computes in: 16-bit types in float.
template <class X, class Y = int, class Z = int>
using Working = Choose<kSame<Real<X, Y, Z>, double>, double, float>;

// An argument in that type.
template <class T, class X>
WMMA_DEVICE T widened(X x) {
  if constexpr (kSame<X, half_t> || kSame<X, bf16_t>) {
    return static_cast<float>(x);
  } else {
    return static_cast<T>(x);
  }
}

// Digits of the mantissa, with the one that is not stored, and the exponent of the largest numbers as frexp counts.
template <class T>
struct Format;
template <>
struct Format<float> {
  using Bits = uint32_t;
  enum { kDigits = 24, kLargest = 128 };
};
template <>
struct Format<double> {
  using Bits = uint64_t;
  enum { kDigits = 53, kLargest = 1024 };
};

template <class T>
using Bits = typename Format<T>::Bits;
template <class T>
inline constexpr bool kIsDouble = kSame<T, double>;

template <class T>
WMMA_DEVICE Bits<T> bits_of(T x) {
  return arch::bit_cast<Bits<T>>(x);
}
template <class T>
WMMA_DEVICE T infinity() {
  return arch::bit_cast<T>(kIsDouble<T> ? Bits<T>(0x7ff0000000000000ull) : Bits<T>(0x7f800000u));
}
template <class T>
WMMA_DEVICE T not_a_number() {
  return arch::bit_cast<T>(kIsDouble<T> ? Bits<T>(0x7ff8000000000000ull) : Bits<T>(0x7fc00000u));
}
template <class T>
WMMA_DEVICE bool is_negative(T x) {
  return (bits_of(x) >> (8 * sizeof(T) - 1)) != 0;
}

// The smaller or larger of both, and NaN for a NaN x.
template <class T>
WMMA_DEVICE T at_most(T limit, T x) {
  return x > limit ? limit : x;
}
template <class T>
WMMA_DEVICE T at_least(T limit, T x) {
  return x < limit ? limit : x;
}

template <class T, int kCount>
WMMA_DEVICE T polynomial(const T (&c)[kCount], T x) {
  T y = c[kCount - 1];
#ifdef WMMA_HOST
#pragma GCC unroll 32
#else
#pragma unroll
#endif
  for (int i = kCount - 2; i >= 0; --i) y = arch::fma(y, x, c[i]);
  return y;
}

// high + low, where low is what high lacks.
template <class T>
struct Pair {
  T high;
  T low;
};

template <class T>
WMMA_DEVICE Pair<T> sum(T a, T b) {
  const T high = a + b;
  const T part = high - a;
  return {high, (a - (high - part)) + (b - part)};
}

// The same where |a| ≥ |b|, or a is 0.
template <class T>
WMMA_DEVICE Pair<T> ordered_sum(T a, T b) {
  const T high = a + b;
  return {high, b - (high - a)};
}

template <class T>
WMMA_DEVICE Pair<T> product(T a, T b) {
  const T high = arch::multiply(a, b);
  return {high, arch::fma(a, b, -high)};
}

template <class T>
WMMA_DEVICE Pair<T> product(Pair<T> a, Pair<T> b) {
  const Pair<T> p = product(a.high, b.high);
  return {p.high, arch::fma(a.high, b.low, arch::fma(a.low, b.high, p.low))};
}

// 1 / x within 2^-39 in double and 2^-22 in float, and within a unit in the last place, for normal x and 1 / x.
template <class T>
WMMA_DEVICE T near_reciprocal(T x) {
  const T y = arch::approximate_rcp(x);
  if constexpr (kIsDouble<T>) return arch::fma(arch::fma(-x, y, 1.0), y, y);
  return y;
}
template <class T>
WMMA_DEVICE T reciprocal(T x) {
  const T y = near_reciprocal(x);
  return arch::fma(arch::fma(-x, y, T(1)), y, y);
}

// n / d within a unit in the last place, for normal d, 1 / d and n / d. The second: n / (d + rest).
template <class T>
WMMA_DEVICE T quotient(T n, T d) {
  const T y = near_reciprocal(d);
  const T q = arch::multiply(n, y);
  return arch::fma(arch::fma(-d, q, n), y, q);
}
template <class T>
WMMA_DEVICE T quotient(T n, T d, T rest) {
  const T y = near_reciprocal(d);
  const T q = arch::multiply(n, y);
  return arch::fma(arch::fma(-rest, q, arch::fma(-d, q, n)), y, q);
}
template <class T>
WMMA_DEVICE T quotient(Pair<T> n, Pair<T> d) {
  const T y = near_reciprocal(d.high);
  const T q = arch::multiply(n.high, y);
  return arch::fma(arch::fma(-d.low, q, arch::fma(-d.high, q, n.high) + n.low), y, q);
}

// n / (d + rest) with twice the digits.
template <class T>
WMMA_DEVICE Pair<T> quotient_pair(T n, T d, T rest) {
  const T y = near_reciprocal(d);
  T q = arch::multiply(n, y);
  if constexpr (kIsDouble<T>) q = arch::fma(arch::fma(-d, q, n), y, q);
  return {q, arch::fma(-q, rest, arch::fma(-d, q, n)) * y};
}

// √(x + rest) with twice the digits, for normal x and for 0.
template <class T>
WMMA_DEVICE Pair<T> sqrt_pair(T x, T rest = T(0)) {
  T y = at_most(T(1.8446744e19), arch::approximate_rsqrt(x));  // of 0 infinity
  if constexpr (kIsDouble<T>) y = arch::fma(0.5 * y, arch::fma(-x * y, y, 1.0), y);
  const T s = arch::multiply(x, y);
  return {s, (arch::fma(-s, s, x) + rest) * (T(0.5) * y)};
}

}  // namespace math

}  // namespace wmma
