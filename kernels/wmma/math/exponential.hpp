// Exponentials and hyperbolic functions, in float and double within 2 ulp.
#pragma once

#include <wmma/math/number.hpp>

namespace wmma {

namespace math {

// (exp(r) − 1 − r) / r² for |r| ≤ 0.347: 2^-27 and 2^-57 of exp(r) − 1.
WMMA_DEVICE float exp_slope(float r) {
  constexpr float kC[] = {0.5f, 0.166665167f, 0.0416662022f, 0.00836907234f, 0.00139508233f};
  return polynomial(kC, r);
}
WMMA_DEVICE double exp_slope(double r) {
  constexpr double kC[] = {0.50000000000000133,    0.16666666666666699,    0.041666666666512274,
                           0.0083333333333066757,  0.0013888888947920475,  0.00019841269918541055,
                           2.4801488934679136e-05, 2.7557215255787151e-06, 2.7631662166413323e-07,
                           2.5118195440438792e-08};
  return polynomial(kC, r);
}

// ln 2 and log10(2) in two parts, of which whole multiples of the first are exact.
template <class T>
inline constexpr T kLn2High = kIsDouble<T> ? T(0.6931471805601177) : T(0.693145752f);
template <class T>
inline constexpr T kLn2Low = kIsDouble<T> ? T(-1.7239444525614835e-13) : T(1.42860677e-06f);
template <class T>
inline constexpr T kLog10Of2High = kIsDouble<T> ? T(0.30102999566406652) : T(0.301025391f);
template <class T>
inline constexpr T kLog10Of2Low = kIsDouble<T> ? T(-8.5323443170571066e-14) : T(4.60503907e-06f);

// What exp(x) has to be computed for: beyond, it is infinite or 0.
template <class T>
WMMA_DEVICE T exp_range(T x) {
  return at_least(kIsDouble<T> ? T(-746) : T(-104), at_most(kIsDouble<T> ? T(710) : T(89), x));
}

// 2^exponent·(1 + fraction).
template <class T>
struct Power {
  T fraction;
  int exponent;

  // Times 2^more.
  WMMA_DEVICE T value(int more = 0) const { return arch::scale(T(1) + fraction, exponent + more); }
  // Half of what it has beyond 1.
  WMMA_DEVICE T half_excess() const {
    const T half = arch::scale(T(0.5), exponent);
    return arch::fma(half, fraction, half - T(0.5));
  }
};

// exp(r)·2^n for |r| ≤ 0.347.
template <class T>
WMMA_DEVICE Power<T> power_of_reduced(Pair<T> r, T n) {
  const T curve = arch::fma(arch::multiply(r.high, r.high), exp_slope(r.high), r.low);
  return {r.high + curve, static_cast<int>(n)};
}

// exp(x + rest) for x within exp_range.
template <class T>
WMMA_DEVICE Power<T> exp_power(T x, T rest = T(0)) {
  const T n = arch::round_even(x * T(1.4426950408889634));
  const T reduced = arch::fma(n, -kLn2High<T>, x);  // exact
  return power_of_reduced(ordered_sum(reduced, arch::fma(n, -kLn2Low<T>, rest)), n);
}

template <class T>
WMMA_DEVICE T exp(T x) {
  return exp_power(exp_range(x)).value();
}

template <class T>
WMMA_DEVICE T exp2(T x) {
  constexpr T kHigh = Format<T>::kLargest + 1;
  x = at_least(-(kHigh + Format<T>::kDigits), at_most(kHigh, x));
  const T n = arch::round_even(x);
  return power_of_reduced(Pair<T>{(x - n) * T(0.6931471805599453), T(0)}, n).value();
}

#ifdef WMMA_AMD
// AMD's own power of 2 is within 1 ulp, but for denormal results, which it makes 0.
WMMA_DEVICE float exp2(float x) {
  const bool small = x < -126.0f;
  return arch::scale(arch::approximate_exp2(small ? x + 64.0f : x), small ? -64 : 0);
}
#endif

template <class T>
WMMA_DEVICE T exp10(T x) {
  x = at_least(kIsDouble<T> ? T(-324) : T(-46), at_most(kIsDouble<T> ? T(309) : T(39), x));
  const T n = arch::round_even(x * T(3.3219280948873622));
  const T r = arch::fma(n, -kLog10Of2Low<T>, arch::fma(n, -kLog10Of2High<T>, x));
  return power_of_reduced(Pair<T>{r * T(2.3025850929940459), T(0)}, n).value();
}

template <class T>
WMMA_DEVICE T expm1(T x) {
  return arch::copysign(T(2) * exp_power(exp_range(x)).half_excess(), x);
}

// (sinh(x) / x − 1) / x² in x² for |x| ≤ 1: 2^-25 and 2^-61 of sinh(x).
WMMA_DEVICE float sinh_slope(float square) {
  constexpr float kC[] = {0.166667163f, 0.00833027065f, 0.000203733405f};
  return polynomial(kC, square);
}
WMMA_DEVICE double sinh_slope(double square) {
  constexpr double kC[] = {0.16666666666666669,    0.0083333333333329117,  0.00019841269841593408,
                           2.7557319106758167e-06, 2.5052130998409302e-08, 1.6056659195671435e-10,
                           7.7765992940534856e-13};
  return polynomial(kC, square);
}

// exp(a) / 2 for a ≥ 0, and exp(−a) / 2 where it counts beside.
template <class T>
WMMA_DEVICE Pair<T> half_powers(T a) {
  const T half = exp_power(at_most(kIsDouble<T> ? T(711) : T(90), a)).value(-1);
  return {half, T(0.25) * reciprocal(at_most(T(1e18), half))};
}

template <class T>
WMMA_DEVICE T sinh(T x) {
  const T a = arch::abs(x);
  const T square = a * a;
  const T small = arch::fma(a * square, sinh_slope(square), a);
  const Pair<T> half = half_powers(a);
  return arch::copysign(a < T(1) ? small : half.high - half.low, x);
}

template <class T>
WMMA_DEVICE T cosh(T x) {
  const Pair<T> half = half_powers(arch::abs(x));
  return half.high + half.low;
}

template <class T>
WMMA_DEVICE T tanh(T x) {
  const T excess = exp_power(at_most(kIsDouble<T> ? T(40) : T(20), T(2) * arch::abs(x))).half_excess();
  const Pair<T> one = ordered_sum(T(1), excess);
  return arch::copysign(quotient(excess, one.high, one.low), x);
}

}  // namespace math

// e^x.
template <class X>
WMMA_DEVICE Real<X> exp(X x) {
  return Real<X>(math::exp(math::widened<math::Working<X>>(x)));
}
// 2^x.
template <class X>
WMMA_DEVICE Real<X> exp2(X x) {
  return Real<X>(math::exp2(math::widened<math::Working<X>>(x)));
}
// 10^x.
template <class X>
WMMA_DEVICE Real<X> exp10(X x) {
  return Real<X>(math::exp10(math::widened<math::Working<X>>(x)));
}
// e^x − 1, exact near 0 too.
template <class X>
WMMA_DEVICE Real<X> expm1(X x) {
  return Real<X>(math::expm1(math::widened<math::Working<X>>(x)));
}
// The hyperbolic sine.
template <class X>
WMMA_DEVICE Real<X> sinh(X x) {
  return Real<X>(math::sinh(math::widened<math::Working<X>>(x)));
}
// The hyperbolic cosine.
template <class X>
WMMA_DEVICE Real<X> cosh(X x) {
  return Real<X>(math::cosh(math::widened<math::Working<X>>(x)));
}
// The hyperbolic tangent.
template <class X>
WMMA_DEVICE Real<X> tanh(X x) {
  return Real<X>(math::tanh(math::widened<math::Working<X>>(x)));
}

}  // namespace wmma
