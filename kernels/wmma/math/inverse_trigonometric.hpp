// Inverse sine, cosine and tangent, in float and double within 2 ulp.
#pragma once

#include <wmma/math/trigonometric.hpp>

namespace wmma {

namespace math {

// (atan(t) / t − 1) / t² in t² for |t| ≤ 1: 2^-25.8 and 2^-54 of atan(t).
WMMA_DEVICE float atan_slope(float square) {
  constexpr float kC[] = {-0.333331525f,  0.199937671f,  -0.14211002f,   0.106657676f,
                          -0.0755165443f, 0.0432046317f, -0.0163631104f, 0.00291939732f};
  return polynomial(kC, square);
}
WMMA_DEVICE double atan_slope(double square) {
  constexpr double kC[] = {
      -0.3333333333333186,    0.19999999999755189,    -0.14285714271339173,   0.11111110678764063,
      -0.090909012343120446,  0.076922129076465021,   -0.066658601238089837,  0.058773061702081825,
      -0.052392255160984648,  0.04673924067277116,    -0.040925731149240419,  0.034066556686538754,
      -0.025824966410169528,  0.016976024712225334,   -0.0091829223461828841, 0.0038550181050090418,
      -0.0011636920143153931, 0.00022293077637240306, -2.024841039426899e-05};
  return polynomial(kC, square);
}

// atan(t) for |t| ≤ 1.
template <class T>
WMMA_DEVICE T flat_atan(T t) {
  const T square = t * t;
  return arch::fma(t * square, atan_slope(square), t);
}

template <class T>
WMMA_DEVICE T atan(T x) {
  const T a = arch::abs(x);
  const bool steep = a > T(1);
  const T flat = flat_atan(steep ? reciprocal(at_most(T(1e30), a)) : a);
  return arch::copysign(steep ? kHalfPi<T> - (flat - kHalfPi2<T>) : flat, x);
}

template <class T>
WMMA_DEVICE T atan2(T y, T x) {
  const T a = arch::abs(x);
  const T b = arch::abs(y);
  const bool steep = b > a;
  const T larger = steep ? b : a;
  const T smaller = steep ? a : b;
  // Infinities and zeros: on the diagonal where both are infinite, on the axis otherwise.
  const bool plain = larger > T(0) && larger < infinity<T>();
  const T d = plain ? arch::mantissa(larger) : T(1);
  const T n = plain ? arch::scale_any(smaller, -arch::exponent(larger)) : (smaller == infinity<T>() ? T(1) : T(0));
  const T flat = flat_atan(quotient(n, d));
  // Mirrored at the diagonal where steep, then at the vertical where x is negative.
  const bool back = is_negative(x);
  const T high = steep ? kHalfPi<T> : back ? T(2) * kHalfPi<T> : T(0);
  const T low = steep ? kHalfPi2<T> : back ? T(2) * kHalfPi2<T> : T(0);
  const T angle = high + ((steep != back ? -flat : flat) + low);
  return x == x && y == y ? arch::copysign(angle, y) : x + y;
}

// (asin(t) / t − 1) / t² in t² for |t| ≤ ½: 2^-27 and 2^-56 of asin(t).
WMMA_DEVICE float asin_slope(float square) {
  constexpr float kC[] = {0.166667521f, 0.0749530941f, 0.0454691537f, 0.0241847485f, 0.0421583727f};
  return polynomial(kC, square);
}
WMMA_DEVICE double asin_slope(double square) {
  constexpr double kC[] = {0.16666666666665408,   0.07500000000337137,  0.044642856828223956,  0.030381959141161836,
                           0.022371757955266598,  0.017359706102937106, 0.013885223183910335,  0.012169286402050944,
                           0.0065276750702117428, 0.019529030196535502, -0.016225374513085346, 0.031912990886102409};
  return polynomial(kC, square);
}

// asin(|x|) where |x| ≤ ½, and half of acos(|x|) beyond: t + rest.
template <class T>
WMMA_DEVICE Pair<T> half_angle(T a) {
  const bool small = a <= T(0.5);
  const T beyond = T(0.5) - T(0.5) * a;
  const Pair<T> near = sqrt_pair(beyond);
  const Pair<T> root = ordered_sum(near.high, near.low);
  const T square = small ? a * a : beyond;
  const T t = small ? a : root.high;
  return {t, arch::fma(t * square, asin_slope(square), small ? T(0) : root.low)};
}

template <class T>
WMMA_DEVICE T asin(T x) {
  const T a = arch::abs(x);
  const Pair<T> half = half_angle(a);
  const T large = kHalfPi<T> - (T(2) * half.high - (kHalfPi2<T> - T(2) * half.low));
  return arch::copysign(a <= T(0.5) ? half.high + half.low : large, x);
}

template <class T>
WMMA_DEVICE T acos(T x) {
  const T a = arch::abs(x);
  const Pair<T> half = half_angle(a);
  const T small = kHalfPi<T> - (arch::copysign(half.high, x) - (kHalfPi2<T> - arch::copysign(half.low, x)));
  const T doubled = T(2) * (half.high + half.low);
  const T large = x < T(0) ? T(2) * kHalfPi<T> - (doubled - T(2) * kHalfPi2<T>) : doubled;
  return a <= T(0.5) ? small : large;
}

}  // namespace math

// The inverse sine, from −π/2 to π/2.
template <class X>
WMMA_DEVICE Real<X> asin(X x) {
  return Real<X>(math::asin(math::widened<math::Working<X>>(x)));
}
// The inverse cosine, from 0 to π.
template <class X>
WMMA_DEVICE Real<X> acos(X x) {
  return Real<X>(math::acos(math::widened<math::Working<X>>(x)));
}
// The inverse tangent, from −π/2 to π/2.
template <class X>
WMMA_DEVICE Real<X> atan(X x) {
  return Real<X>(math::atan(math::widened<math::Working<X>>(x)));
}
// The angle of the point (x, y), from −π to π.
template <class Y, class X>
WMMA_DEVICE Real<Y, X> atan2(Y y, X x) {
  using T = math::Working<Y, X>;
  return Real<Y, X>(math::atan2(math::widened<T>(y), math::widened<T>(x)));
}

}  // namespace wmma
