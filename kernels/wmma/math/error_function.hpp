// The error function, what it lacks of 1 and its inverse, in float and double within 2 ulp.
#pragma once

#include <wmma/math/logarithm.hpp>

namespace wmma {

namespace math {

// erf(x) / x − 1 in x² for |x| ≤ 1: 2^-28 and 2^-55 of erf(x).
WMMA_DEVICE float erf_slope(float square) {
  constexpr float kC[] = {0.128379166f,   -0.37612626f,     0.112835854f,   -0.0268538129f,
                          0.00518832775f, -0.000801019429f, 7.85386146e-05f};
  return polynomial(kC, square);
}
WMMA_DEVICE double erf_slope(double square) {
  constexpr double kC[] = {0.12837916709551256,     -0.37612638903183343,   0.1128379167093695,
                           -0.026866170641958929,   0.0052239775967331328,  -0.00085483254848160934,
                           0.00012055280489570169,  -1.492446547548309e-05, 1.644414817522672e-06,
                           -1.6183969994698587e-07, 1.3616595431498507e-08, -7.6075958782104569e-10};
  return polynomial(kC, square);
}

// erfc(a)·exp(a²)·(a + k) in t = (a − k) / (a + k) is first + t·(second + t·tail_curve(t)): in float with k = 2 for
// a ≤ 10.1 to 2^-25, in double with k = 3.5 for a ≤ 27.3 to 2^-55.
template <class T>
inline constexpr T kTailCentre = kIsDouble<T> ? T(3.5) : T(2);
template <class T>
WMMA_DEVICE Pair<T> tail_first() {
  return {kIsDouble<T> ? T(1.08705558926226) : T(1.02158272f),
          kIsDouble<T> ? T(9.5753556517480587e-17) : T(-8.70950334e-09f)};
}
template <class T>
WMMA_DEVICE Pair<T> tail_second() {
  return {kIsDouble<T> ? T(-0.93779972456711191) : T(-0.687160909f),
          kIsDouble<T> ? T(-2.8466903116670757e-17) : T(-1.56587543e-08f)};
}
WMMA_DEVICE float tail_curve(float t) {
  constexpr float kC[] = {0.279471517f,   -0.0364359021f,   -0.0215028133f,   0.00643521408f,
                          0.00304291607f, -0.000726360246f, -0.000529150013f, -4.68013386e-05f};
  return polynomial(kC, t);
}
WMMA_DEVICE double tail_curve(double t) {
  constexpr double kC[] = {0.69411364663464514,     -0.43525602671689578,    0.22573862164737268,
                           -0.092318706638300024,   0.026518619882475534,    -0.0031770503448653158,
                           -0.0013053547005950599,  0.00071453169932264419,  -4.206210997536511e-05,
                           -7.4777133521882779e-05, 1.8646982635274863e-05,  7.2442096572952823e-06,
                           -3.391545651047351e-06,  -7.9625843776428408e-07, 5.4988189675186784e-07,
                           1.1570134435151829e-07,  -8.3086614653972457e-08, -2.1254933861942566e-08,
                           9.0028017465163488e-09,  3.0908045176012283e-09,  -6.4188828502909006e-11};
  return polynomial(kC, t);
}

// c + t·x.
template <class T>
WMMA_DEVICE Pair<T> next_term(Pair<T> c, Pair<T> t, Pair<T> x) {
  const Pair<T> term = product(t, x);
  const Pair<T> all = ordered_sum(c.high, term.high);
  return {all.high, all.low + (c.low + term.low)};
}

// erfc(a)·exp(a²) from r = 1 / (a + k).
WMMA_DEVICE Pair<float> scaled_tail(Pair<float> r) {
  const float t = arch::fma(-2.0f * kTailCentre<float>, r.high, 1.0f);
  const Pair<float> second = {arch::fma(t, tail_curve(t), tail_second<float>().high), tail_second<float>().low};
  const float lost = arch::fma(-2.0f * kTailCentre<float>, r.high, 1.0f - t);
  const float rest = arch::fma(-2.0f * kTailCentre<float>, r.low, lost);
  const Pair<float> tail = next_term(tail_first<float>(), {t, rest}, second);
  return product(r, tail);
}
WMMA_DEVICE Pair<double> scaled_tail(Pair<double> r) {
  const Pair<double> shrunk = product(-2.0 * kTailCentre<double>, r.high);
  Pair<double> t = ordered_sum(1.0, shrunk.high);
  t.low += arch::fma(-2.0 * kTailCentre<double>, r.low, shrunk.low);
  const Pair<double> second = next_term(tail_second<double>(), t, {tail_curve(t.high), 0.0});
  return product(r, next_term(tail_first<double>(), t, second));
}

// erfc(a) for a ≥ 0.8, and anything for NaN.
template <class T>
WMMA_DEVICE T upper_tail(T a) {
  a = arch::min(a, kIsDouble<T> ? T(27.3) : T(10.1));
  const Pair<T> d = sum(a, kTailCentre<T>);
  const Pair<T> scaled = scaled_tail(quotient_pair(T(1), d.high, d.low));
  const Pair<T> square = product(a, a);
  const Power<T> power = exp_power(-square.high, -square.low);
  const T low = arch::fma(scaled.low, power.fraction, scaled.low);
  return arch::scale(scaled.high + arch::fma(scaled.high, power.fraction, low), power.exponent);
}

// The same with some digits less, as many as 1 − erfc(a) leaves of them.
template <class T>
WMMA_DEVICE T near_upper_tail(T a) {
  a = arch::min(a, kIsDouble<T> ? T(6) : T(4));
  constexpr T kCentre = kTailCentre<T>;
  const T r = reciprocal(a + kCentre);
  const T t = arch::fma(T(-2) * kCentre, r, T(1));
  const T tail = arch::fma(t, arch::fma(t, tail_curve(t), tail_second<T>().high), tail_first<T>().high);
  return r * tail * exp_power(-arch::multiply(a, a)).value();
}

template <class T>
WMMA_DEVICE T erf(T x) {
  const T a = arch::abs(x);
  const T small = arch::fma(x, erf_slope(x * x), x);
  return a >= T(1) ? arch::copysign(T(1) - near_upper_tail(a), x) : small;
}

template <class T>
WMMA_DEVICE T erfc(T x) {
  const T a = arch::abs(x);
  // From ½ where erf(x) is near that, so that what is subtracted is small.
  const T near = x > T(0.25) ? T(0.5) : T(0);
  const T small = (T(1) - near) - arch::fma(x, erf_slope(x * x), x - near);
  const T tail = upper_tail(a);
  const T large = x < T(0) ? T(2) - tail : tail;
  return a >= T(0.8125) ? large : small;  // of NaN
}

// The inverse of erf at 0 ≤ a < 1 to 2^-19, by w = −log(1 − a²): a times a polynomial in w up to 5, in √w from there
// on.
WMMA_DEVICE float rough_erfinv_slope(float w) {
  constexpr float kNear[] = {1.50140917f,     0.246641397f,     -0.00417608302f,  -0.00125455076f,
                             0.000217236957f, -4.13900534e-06f, -3.17290005e-06f, 3.21409232e-07f};
  constexpr float kFar[] = {3.839782f,        1.00951004f,     0.00128776848f,   -0.000940334576f, 0.000264651608f,
                            -2.83424051e-05f, 8.63725436e-05f, -7.88830948e-05f, 1.84465589e-05f};
  const float near = polynomial(kNear, w - 2.5f);
  const float far = polynomial(kFar, arch::sqrt(w) - 4.0f);
  return w > 5.0f ? far : near;
}

// From there by the series of the inverse, in u = (a − erf(y)) / erf'(y).
template <class T>
WMMA_DEVICE T erfinv(T x) {
  const T a = arch::abs(x);
  const T left = T(1) - a;
  const float w = -math::log(static_cast<float>(left * (T(1) + a)));
  const T y = arch::multiply(a, static_cast<T>(rough_erfinv_slope(w)));
  const T square = y * y;
  const T small = arch::fma(y, erf_slope(square), y - a);
  const T tail = kIsDouble<T> ? upper_tail(y) : near_upper_tail(y);
  const T missing = y >= T(1) ? tail - left : -small;
  const T u = missing * (T(0.88622692545275801) * exp_power(exp_range(square)).value());
  const T third = arch::fma(T(1.3333333333333333), square, T(0.33333333333333333));
  const T found = arch::fma(arch::fma(u, arch::fma(u, third, y), T(1)), u, y);
  return arch::copysign(with_domain(T(0), left, infinity<T>(), found), x);
}

}  // namespace math

// The error function.
template <class X>
WMMA_DEVICE Real<X> erf(X x) {
  return Real<X>(math::erf(math::widened<math::Working<X>>(x)));
}
// 1 − erf(x), with all digits where that is small.
template <class X>
WMMA_DEVICE Real<X> erfc(X x) {
  return Real<X>(math::erfc(math::widened<math::Working<X>>(x)));
}
// The inverse of the error function.
template <class X>
WMMA_DEVICE Real<X> erfinv(X x) {
  return Real<X>(math::erfinv(math::widened<math::Working<X>>(x)));
}

}  // namespace wmma
