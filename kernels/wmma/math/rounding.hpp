// Whole numbers, remainders, parts of numbers and what kind they are: exact, in float and double.
#pragma once

#include <wmma/math/number.hpp>

namespace wmma {

namespace math {

template <class T>
WMMA_DEVICE T round(T x) {
  const T whole = arch::trunc(x);
  const T up = arch::abs(x - whole) >= T(0.5) ? T(1) : T(0);
  return whole + arch::copysign(up, x);
}

// The remainder of a / b after as many whole b as there are, for 0 ≤ a < ∞ and b > 0.
template <class T>
WMMA_DEVICE T positive_remainder(T a, T b) {
  if (a < b) return a;
  constexpr int kStep = kIsDouble<T> ? 48 : 20;  // digits of the quotient that one step takes away, all of them right
  const int exponent = arch::exponent(b);
  int left = arch::exponent(a) - exponent;
  T rest = arch::mantissa(a);
  b = arch::mantissa(b);
  const T inverse = reciprocal(b);
  if (rest >= b) rest -= b;
  while (left > 0) {
    const int step = left < kStep ? left : kStep;
    rest = arch::scale(rest, step);
    rest = arch::fma(-arch::round_even(rest * inverse), b, rest);  // exact
    if (rest < T(0)) rest += b;
    left -= step;
  }
  return arch::scale_any(rest, exponent);
}

// Whether x / y has a remainder.
template <class T>
WMMA_DEVICE bool divides(T x, T y) {
  return arch::abs(x) < infinity<T>() && arch::abs(y) > T(0);
}

template <class T>
WMMA_DEVICE T fmod(T x, T y) {
  if (!divides(x, y)) return not_a_number<T>();
  return arch::copysign(positive_remainder(arch::abs(x), arch::abs(y)), x);
}

template <class T>
WMMA_DEVICE T remainder(T x, T y) {
  if (!divides(x, y)) return not_a_number<T>();
  const T b = arch::abs(y);
  T rest = arch::abs(x);
  if (b + b < infinity<T>()) rest = positive_remainder(rest, b + b);
  // Less than 2·b is left: of two equally near quotients the even one.
  if (rest + rest > b) {
    rest -= b;
    if (rest + rest >= b) rest -= b;
  }
  return is_negative(x) ? -rest : rest;
}

template <class T>
WMMA_DEVICE T nextafter(T x, T y) {
  if (x != x || y != y) return x + y;
  if (x == y) return y;
  if (x == T(0)) return arch::copysign(arch::bit_cast<T>(Bits<T>(1)), y);
  return arch::bit_cast<T>(bits_of(x) + ((x < y) == (x > T(0)) ? Bits<T>(1) : ~Bits<T>(0)));
}

template <class T>
WMMA_DEVICE T logb(T x) {
  const T a = arch::abs(x);
  const T exponent = static_cast<T>(arch::exponent(x)) - T(1);
  const T plain = a < infinity<T>() ? exponent : a;
  return a == T(0) ? -infinity<T>() : plain;
}

template <class T>
WMMA_DEVICE int ilogb(T x) {
  const T a = arch::abs(x);
  const int plain = a > T(0) ? arch::exponent(x) - 1 : -2147483647 - 1;
  return a == infinity<T>() ? 2147483647 : plain;
}

template <class T>
WMMA_DEVICE T modf(T x, T* whole) {
  *whole = arch::trunc(x);
  const T rest = arch::abs(x) < infinity<T>() ? x - *whole : x != x ? x : T(0);
  return arch::copysign(rest, x);
}

template <class T>
WMMA_DEVICE T fdim(T x, T y) {
  return x <= y ? T(0) : x - y;
}

}  // namespace math

// The largest whole number up to x.
template <class X>
WMMA_DEVICE Real<X> floor(X x) {
  return Real<X>(arch::floor(math::widened<math::Working<X>>(x)));
}
// The smallest whole number from x on.
template <class X>
WMMA_DEVICE Real<X> ceil(X x) {
  return Real<X>(arch::ceil(math::widened<math::Working<X>>(x)));
}
// The whole number next to x on the side of 0.
template <class X>
WMMA_DEVICE Real<X> trunc(X x) {
  return Real<X>(arch::trunc(math::widened<math::Working<X>>(x)));
}
// The nearest whole number, the even one of two.
template <class X>
WMMA_DEVICE Real<X> rint(X x) {
  return Real<X>(arch::round_even(math::widened<math::Working<X>>(x)));
}
// The nearest whole number, the even one of two.
template <class X>
WMMA_DEVICE Real<X> nearbyint(X x) {
  return Real<X>(arch::round_even(math::widened<math::Working<X>>(x)));
}
// The nearest whole number, of two the one farther from 0.
template <class X>
WMMA_DEVICE Real<X> round(X x) {
  return Real<X>(math::round(math::widened<math::Working<X>>(x)));
}
// x − n·y with the whole n next to x / y on the side of 0; exact, and of the sign of x.
template <class X, class Y>
WMMA_DEVICE Real<X, Y> fmod(X x, Y y) {
  using T = math::Working<X, Y>;
  return Real<X, Y>(math::fmod(math::widened<T>(x), math::widened<T>(y)));
}
// x − n·y with the whole n nearest to x / y, the even one of two; exact.
template <class X, class Y>
WMMA_DEVICE Real<X, Y> remainder(X x, Y y) {
  using T = math::Working<X, Y>;
  return Real<X, Y>(math::remainder(math::widened<T>(x), math::widened<T>(y)));
}
// x·y + z, rounded once.
template <class X, class Y, class Z>
WMMA_DEVICE Real<X, Y, Z> fma(X x, Y y, Z z) {
  using T = math::Working<X, Y, Z>;
  return Real<X, Y, Z>(arch::fma(math::widened<T>(x), math::widened<T>(y), math::widened<T>(z)));
}
// The smaller one; the number where one is NaN.
template <class X, class Y>
WMMA_DEVICE Real<X, Y> fmin(X x, Y y) {
  using T = math::Working<X, Y>;
  return Real<X, Y>(arch::min(math::widened<T>(x), math::widened<T>(y)));
}
// The larger one; the number where one is NaN.
template <class X, class Y>
WMMA_DEVICE Real<X, Y> fmax(X x, Y y) {
  using T = math::Working<X, Y>;
  return Real<X, Y>(arch::max(math::widened<T>(x), math::widened<T>(y)));
}
// x − y where that is more than 0, and 0 elsewhere.
template <class X, class Y>
WMMA_DEVICE Real<X, Y> fdim(X x, Y y) {
  using T = math::Working<X, Y>;
  return Real<X, Y>(math::fdim(math::widened<T>(x), math::widened<T>(y)));
}
// |x| with the sign of y.
template <class X, class Y>
WMMA_DEVICE Real<X, Y> copysign(X x, Y y) {
  using T = math::Working<X, Y>;
  return Real<X, Y>(arch::copysign(math::widened<T>(x), math::widened<T>(y)));
}
// |x|.
template <class X>
WMMA_DEVICE Real<X> fabs(X x) {
  return Real<X>(arch::abs(math::widened<math::Working<X>>(x)));
}
// |x|; of integers an integer.
template <class X>
WMMA_DEVICE auto abs(X x) {
  if constexpr (math::kRank<X> == math::kWhole) {
    return x < 0 ? -x : +x;
  } else {
    return fabs(x);
  }
}
// Whether x is NaN.
template <class X>
WMMA_DEVICE bool isnan(X x) {
  const auto y = math::widened<math::Working<X>>(x);
  return y != y;
}
// Whether x is infinite.
template <class X>
WMMA_DEVICE bool isinf(X x) {
  using T = math::Working<X>;
  return arch::abs(math::widened<T>(x)) == math::infinity<T>();
}
// Whether x is neither infinite nor NaN.
template <class X>
WMMA_DEVICE bool isfinite(X x) {
  using T = math::Working<X>;
  return arch::abs(math::widened<T>(x)) < math::infinity<T>();
}
// Whether the sign is −, also that of 0 and NaN.
template <class X>
WMMA_DEVICE bool signbit(X x) {
  return math::is_negative(math::widened<math::Working<X>>(x));
}
// The next number after x on the way to y.
template <class X>
WMMA_DEVICE X nextafter(X x, X y) {
  static_assert(kSame<X, float> || kSame<X, double>, "wmma: nextafter takes two floats or two doubles");
  return math::nextafter(x, y);
}
// x·2^exponent.
template <class X>
WMMA_DEVICE Real<X> ldexp(X x, int exponent) {
  return Real<X>(arch::scale_any(math::widened<math::Working<X>>(x), exponent));
}
// The mantissa, from ½ to 1, of x = mantissa·2^exponent; infinities, NaN and 0 themselves, with an exponent of 0.
template <class X>
WMMA_DEVICE Real<X> frexp(X x, int* exponent) {
  const auto y = math::widened<math::Working<X>>(x);
  *exponent = arch::exponent(y);
  return Real<X>(arch::mantissa(y));
}
// The exponent of |x| between 2^exponent and 2^(exponent + 1), as a number; −∞ for 0.
template <class X>
WMMA_DEVICE Real<X> logb(X x) {
  return Real<X>(math::logb(math::widened<math::Working<X>>(x)));
}
// The same as an int: the least one for 0 and NaN, the largest for infinities.
template <class X>
WMMA_DEVICE int ilogb(X x) {
  return math::ilogb(math::widened<math::Working<X>>(x));
}
// What x has behind the point; the whole number before it goes to `whole`. Both have the sign of x.
template <class X>
WMMA_DEVICE Real<X> modf(X x, Real<X>* whole) {
  math::Working<X> before;
  const auto behind = math::modf(math::widened<math::Working<X>>(x), &before);
  *whole = Real<X>(before);
  return Real<X>(behind);
}

}  // namespace wmma
