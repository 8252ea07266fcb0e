// Logarithms and the inverse hyperbolic functions, in float and double within 2 ulp.
#pragma once

#include <wmma/math/exponential.hpp>

namespace wmma {

namespace math {

// 2·(atanh(s) / s − 1) / s² in s² for |s| ≤ 0.172: 2^-29 and 2^-58 of 2·atanh(s), which is log((1 + s) / (1 − s)).
WMMA_DEVICE float atanh_slope(float square) {
  constexpr float kC[] = {0.666667759f, 0.399775237f, 0.298734576f};
  return polynomial(kC, square);
}
WMMA_DEVICE double atanh_slope(double square) {
  constexpr double kC[] = {0.66666666666667362, 0.39999999999410318, 0.28571428743096794, 0.22222198485626882,
                           0.18183570319662942, 0.15313855177377544, 0.14798332918574153};
  return polynomial(kC, square);
}

// x = mantissa·2^exponent with √½ ≤ mantissa < √2, for x > 0.
template <class T>
struct Middle {
  T mantissa;
  int exponent;

  WMMA_DEVICE explicit Middle(T x) {
    mantissa = arch::mantissa(x);
    exponent = arch::exponent(x);
    const bool low = mantissa < T(0.70710678118654752);
    mantissa = low ? mantissa + mantissa : mantissa;
    exponent = low ? exponent - 1 : exponent;
  }
};

// log(x) = exponent·ln 2 + excess + rest, where the excess is exact or nearly so.
template <class T>
struct LogParts {
  T exponent;
  T excess;
  T rest;
};

// log(2^exponent·(1 + f)) for 1 + f between √½ and √2.
template <class T>
WMMA_DEVICE LogParts<T> log_parts_of(T f, int exponent) {
  const T s = quotient(f, T(2) + f);
  const T square = s * s;
  return {static_cast<T>(exponent), f, -s * arch::fma(-square, atanh_slope(square), f)};
}

template <class T>
WMMA_DEVICE LogParts<T> log_parts(T x) {
  const Middle<T> m(x);
  return log_parts_of(m.mantissa - T(1), m.exponent);
}

template <class T>
WMMA_DEVICE T log_of(LogParts<T> p) {
  return arch::fma(p.exponent, kLn2High<T>, p.excess + arch::fma(p.exponent, kLn2Low<T>, p.rest));
}

// log(2^shift·(x + rest)) for x > 0, with twice the digits in the argument.
template <class T>
WMMA_DEVICE T log_of_pair(T x, T rest, int shift) {
  const Middle<T> m(x);
  const Pair<T> f = ordered_sum(m.mantissa - T(1), arch::scale(rest, -m.exponent));
  LogParts<T> parts = log_parts_of(f.high, m.exponent + shift);
  parts.rest = arch::fma(f.low, arch::approximate_rcp(m.mantissa), parts.rest);
  return log_of(parts);
}

// A function of 0 < x < ∞, with what it is at the border of its domain, which `edge` is 0 at, and outside.
template <class T>
WMMA_DEVICE T with_domain(T x, T edge, T at_edge, T inside) {
  const T outside = edge == T(0) ? at_edge : not_a_number<T>();
  return edge > T(0) ? (x < infinity<T>() ? inside : x) : outside;
}

template <class T>
WMMA_DEVICE T log(T x) {
  return with_domain(x, x, -infinity<T>(), log_of(log_parts(x)));
}

template <class T>
WMMA_DEVICE T log2(T x) {
  constexpr T kHigh = kIsDouble<T> ? T(1.4426950408889634) : T(1.44269502f);
  constexpr T kLow = kIsDouble<T> ? T(2.0355273740931033e-17) : T(1.92596303e-08f);
  const LogParts<T> p = log_parts(x);
  const Pair<T> log = ordered_sum(p.excess, p.rest);
  const T low = arch::fma(log.high, kLow, log.low * kHigh);
  return with_domain(x, x, -infinity<T>(), p.exponent + arch::fma(log.high, kHigh, low));
}

template <class T>
WMMA_DEVICE T log10(T x) {
  constexpr T kHigh = kIsDouble<T> ? T(0.43429448190325182) : T(0.434294492f);
  constexpr T kLow = kIsDouble<T> ? T(1.0983196502167651e-17) : T(-1.010305e-08f);
  const LogParts<T> p = log_parts(x);
  const Pair<T> log = ordered_sum(p.excess, p.rest);
  const T low = arch::fma(p.exponent, kLog10Of2Low<T>, arch::fma(log.high, kLow, log.low * kHigh));
  return with_domain(x, x, -infinity<T>(), arch::fma(p.exponent, kLog10Of2High<T>, arch::fma(log.high, kHigh, low)));
}

#ifdef WMMA_AMD
// AMD's own logarithm to base 2 is within 1 ulp for every normal number, and right for 0, below it and infinity.
WMMA_DEVICE float log2(float x) {
  const bool small = x < 0x1p-126f;
  return arch::log2(small ? x * 0x1p32f : x) - (small ? 32.0f : 0.0f);
}
WMMA_DEVICE float log(float x) { return log2(x) * 0.693147182f; }
WMMA_DEVICE float log10(float x) {
  const float y = log2(x);
  const float high = y * 0.30103001f;
  return arch::abs(y) < infinity<float>() ? high + y * -1.43209888e-08f : y;
}
#endif

template <class T>
WMMA_DEVICE T log1p(T x) {
  const Pair<T> one = sum(T(1), x);
  return arch::copysign(with_domain(x, one.high, -infinity<T>(), log_of_pair(one.high, one.low, 0)), x);
}

// From here on 1 / (4·x²) is less than half a unit in the last place.
template <class T>
inline constexpr T kLargeArgument = kIsDouble<T> ? T(268435456) : T(16384);

// log(x + √(x² + 1)) = log(1 + x + x² / (1 + √(x² + 1))).
template <class T>
WMMA_DEVICE T asinh(T x) {
  const T a = arch::abs(x);
  const bool large = a > kLargeArgument<T>;
  const T moderate = large ? T(1) : a;
  const T square = moderate * moderate;
  const Pair<T> root = sqrt_pair(T(1) + square);
  const T grown = quotient(square, T(1) + (root.high + root.low));
  const Pair<T> one = sum(T(1), moderate);
  const Pair<T> all = sum(one.high, grown);
  const T log = log_of_pair(large ? a : all.high, large ? T(0) : all.low + one.low, large ? 1 : 0);
  return arch::copysign(a < infinity<T>() ? log : a, x);
}

// log(x + √(x² − 1)) = log(1 + t + √(2·t + t²)) with t = x − 1.
template <class T>
WMMA_DEVICE T acosh(T x) {
  const bool large = x > kLargeArgument<T>;
  const T t = large ? T(1) : x - T(1);
  const Pair<T> square = product(t, t);
  const Pair<T> under = sum(T(2) * t, square.high);
  const Pair<T> root = sqrt_pair(under.high, under.low + square.low);
  const Pair<T> more = sum(t, root.high);
  const Pair<T> one = sum(T(1), more.high);
  const T rest = one.low + (more.low + root.low);
  const T log = log_of_pair(large ? x : one.high, large ? T(0) : rest, large ? 1 : 0);
  return with_domain(x, x - T(1), T(0), log);
}

// ½·log(1 + 2·x / (1 − x)).
template <class T>
WMMA_DEVICE T atanh(T x) {
  const T a = arch::abs(x);
  const Pair<T> rest = ordered_sum(T(1), -a);
  const Pair<T> ratio = quotient_pair(T(2) * a, rest.high, rest.low);
  const Pair<T> one = sum(T(1), ratio.high);
  const T log = T(0.5) * log_of_pair(one.high, one.low + ratio.low, 0);
  return arch::copysign(with_domain(T(0), rest.high, infinity<T>(), log), x);
}

}  // namespace math

// The natural logarithm.
template <class X>
WMMA_DEVICE Real<X> log(X x) {
  return Real<X>(math::log(math::widened<math::Working<X>>(x)));
}
// The logarithm to base 2.
template <class X>
WMMA_DEVICE Real<X> log2(X x) {
  return Real<X>(math::log2(math::widened<math::Working<X>>(x)));
}
// The logarithm to base 10.
template <class X>
WMMA_DEVICE Real<X> log10(X x) {
  return Real<X>(math::log10(math::widened<math::Working<X>>(x)));
}
// log(1 + x), exact near 0 too.
template <class X>
WMMA_DEVICE Real<X> log1p(X x) {
  return Real<X>(math::log1p(math::widened<math::Working<X>>(x)));
}
// The inverse hyperbolic sine.
template <class X>
WMMA_DEVICE Real<X> asinh(X x) {
  return Real<X>(math::asinh(math::widened<math::Working<X>>(x)));
}
// The inverse hyperbolic cosine.
template <class X>
WMMA_DEVICE Real<X> acosh(X x) {
  return Real<X>(math::acosh(math::widened<math::Working<X>>(x)));
}
// The inverse hyperbolic tangent.
template <class X>
WMMA_DEVICE Real<X> atanh(X x) {
  return Real<X>(math::atanh(math::widened<math::Working<X>>(x)));
}

}  // namespace wmma
