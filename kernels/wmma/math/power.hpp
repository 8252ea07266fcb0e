// Powers and roots, in float and double within 2 ulp.
#pragma once

#include <wmma/math/logarithm.hpp>

namespace wmma {

namespace math {

// (2·(atanh(s) / s − 1) / s² − 2/3) / s² in s² for |s| ≤ 0.172: 2^-35 and 2^-75 of 2·atanh(s).
WMMA_DEVICE float atanh_curve(float square) {
  constexpr float kC[] = {0.400001526f, 0.285475641f, 0.23402983f};
  return polynomial(kC, square);
}
WMMA_DEVICE double atanh_curve(double square) {
  constexpr double kC[] = {0.40000000000000002, 0.28571428571426893, 0.22222222222713273,
                           0.18181818106744457, 0.15384622102492734, 0.1333296526789568,
                           0.11777070777564831, 0.10282804158254134, 0.11997956927044108};
  return polynomial(kC, square);
}

// log(x) for 0 < x < ∞ with ten digits more.
template <class T>
WMMA_DEVICE Pair<T> log_pair(T x) {
  constexpr T kHigh = kIsDouble<T> ? T(0.66666666666666663) : T(0.666666687f);
  constexpr T kLow = kIsDouble<T> ? T(3.7007434154171883e-17) : T(-1.98682155e-08f);
  const Middle<T> m(x);
  const T d = m.mantissa + T(1);
  const Pair<T> s = quotient_pair(m.mantissa - T(1), d, m.mantissa - (d - T(1)));
  const Pair<T> square = product(s, s);
  Pair<T> factor = ordered_sum(kHigh, arch::multiply(square.high, atanh_curve(square.high)));
  factor.low += kLow;
  const Pair<T> cubic = product(product(s, square), factor);
  const Pair<T> log = ordered_sum(T(2) * s.high, cubic.high);
  const T n = static_cast<T>(m.exponent);
  const Pair<T> all = ordered_sum(arch::multiply(n, kLn2High<T>), log.high);
  const T rest = arch::fma(T(2), s.low, log.low + cubic.low);
  return ordered_sum(all.high, all.low + arch::fma(n, kLn2Low<T>, rest));
}

// x^y for x > 0, and any x whose result is not special.
template <class T>
WMMA_DEVICE T positive_power(T x, T y) {
  constexpr T kMost = kIsDouble<T> ? T(1e24) : T(1e12);  // overflows or vanishes for every x but 1
  constexpr T kOver = kIsDouble<T> ? T(710) : T(89);
  constexpr T kUnder = kIsDouble<T> ? T(-746) : T(-104);
  y = at_least(-kMost, at_most(kMost, y));
  const Pair<T> log = log_pair(x);
  Pair<T> power = product(y, log.high);
  power.low = arch::fma(y, log.low, power.low);
  const T value = exp_power(power.high, power.low).value();
  return power.high > kOver ? infinity<T>() : power.high < kUnder ? T(0) : value;
}

template <class T>
WMMA_DEVICE T pow(T x, T y) {
  const T a = arch::abs(x);
  T z = positive_power(a, y);
  if (a == T(0) || a == infinity<T>()) z = (a == T(0)) == (y < T(0)) ? infinity<T>() : T(0);
  const T half = T(0.5) * y;
  const bool whole = arch::trunc(y) == y;
  const bool odd = whole && arch::trunc(half) != half;
  z = odd ? arch::copysign(z, x) : z;
  if (x < T(0) && a < infinity<T>() && !whole) z = not_a_number<T>();
  if (x != x || y != y) z = x + y;
  return x == T(1) || y == T(0) ? T(1) : z;
}

// The cube root of x between 2^-126 and 2^127, and of 0, to 2^-20.
WMMA_DEVICE float rough_cbrt(float x) { return arch::approximate_exp2(arch::log2(x) * 0.333333343f); }

WMMA_DEVICE float cbrt(float x) {
  const float a = arch::abs(x);
  const bool small = a < 1e-20f;
  const float scaled = small ? a * 0x1p72f : a;
  const float y = rough_cbrt(scaled);
  const float square = y * y;
  const float root = arch::fma(arch::fma(-square, y, scaled) * 0.333333343f, arch::approximate_rcp(square), y);
  const float result = small ? root * 0x1p-24f : root;
  return a > 0.0f && a < infinity<float>() ? arch::copysign(result, x) : x;
}

WMMA_DEVICE double cbrt(double x) {
  const double a = arch::abs(x);
  // a = m·2^(3·third) with ⅛ < m < 2.
  const int third = static_cast<int>(arch::round_even(static_cast<float>(arch::exponent(a)) * 0.333333343f));
  const double m = arch::scale(a, -3 * third);
  const double y = static_cast<double>(rough_cbrt(static_cast<float>(m)));
  const double square = y * y;  // exact
  // m = y³·(1 + e), of whose root the terms to e² count.
  const double e = arch::fma(-square, y, m) * near_reciprocal(square * y);
  const double root = arch::fma(y * e, arch::fma(e, -0.1111111111111111, 0.3333333333333333), y);
  return a > 0.0 && a < infinity<double>() ? arch::copysign(arch::scale(root, third), x) : x;
}

template <class T>
WMMA_DEVICE T hypot(T x, T y) {
  const T a = arch::abs(x);
  const T b = arch::abs(y);
  const int exponent = arch::exponent(a > b ? a : b);
  const T u = arch::scale_any(a, -exponent);
  const T v = arch::scale_any(b, -exponent);
  const T square = arch::fma(u, u, v * v);
  const T length = arch::scale_any(arch::exact_sqrt(square), exponent);
  return a == infinity<T>() || b == infinity<T>() ? infinity<T>() : length;
}

template <class T>
WMMA_DEVICE T sqrt(T x) {
  return arch::exact_sqrt(x);
}

WMMA_DEVICE float rsqrt(float x) {
  const bool small = x < 0x1p-126f;
  const float y = arch::approximate_rsqrt(small ? x * 0x1p24f : x);
  return small ? y * 0x1p12f : y;
}
WMMA_DEVICE double rsqrt(double x) {
  const bool small = !arch::kApproximatesSubnormalDoubles && x < 0x1p-1022;
  x = small ? x * 0x1p54 : x;
  const double y = arch::approximate_rsqrt(x);
  const double e = arch::fma(-x * y, y, 1.0);
  const double root = arch::fma(y * e, arch::fma(e, 0.375, 0.5), y);
  const double found = e == e ? root : y;  // of 0 and infinity
  return small ? found * 0x1p27 : found;
}

}  // namespace math

// x^y, with C's special values: pow(−2, 3) is −8, pow(x, 0) is 1 for every x.
template <class X, class Y>
WMMA_DEVICE Real<X, Y> pow(X x, Y y) {
  using T = math::Working<X, Y>;
  return Real<X, Y>(math::pow(math::widened<T>(x), math::widened<T>(y)));
}
// The cube root.
template <class X>
WMMA_DEVICE Real<X> cbrt(X x) {
  return Real<X>(math::cbrt(math::widened<math::Working<X>>(x)));
}
// √(x² + y²) without overflow between.
template <class X, class Y>
WMMA_DEVICE Real<X, Y> hypot(X x, Y y) {
  using T = math::Working<X, Y>;
  return Real<X, Y>(math::hypot(math::widened<T>(x), math::widened<T>(y)));
}
// √x, rounded correctly.
template <class X>
WMMA_DEVICE Real<X> sqrt(X x) {
  return Real<X>(math::sqrt(math::widened<math::Working<X>>(x)));
}
// 1 / √x.
template <class X>
WMMA_DEVICE Real<X> rsqrt(X x) {
  return Real<X>(math::rsqrt(math::widened<math::Working<X>>(x)));
}

}  // namespace wmma
