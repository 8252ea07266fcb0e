// Sine, cosine and tangent, in float and double within 2 ulp for every argument.
#pragma once

#include <wmma/math/number.hpp>

namespace wmma {

namespace math {

// The bits of 2/π, from 64 places before the binary point on.
constexpr __device__ uint32_t kTwoOverPi[] = {
    0x00000000u, 0x00000000u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu,
    0xdebbc561u, 0xb7246e3au, 0x424dd2e0u, 0x06492eeau, 0x09d1921cu, 0xfe1deb1cu, 0xb129a73eu, 0xe88235f5u, 0x2ebb4484u,
    0xe99c7026u, 0xb45f7e41u, 0x3991d639u, 0x835339f4u, 0x9c845f8bu, 0xbdf9283bu, 0x1ff897ffu, 0xde05980fu, 0xef2f118bu,
    0x5a0a6d1fu, 0x6d367ecfu, 0x27cb09b7u, 0x4f463f66u, 0x9e5fea2du, 0x7527bac7u, 0xebe5f17bu, 0x3d0739f7u, 0x8a5292eau,
    0x6bfb5fb1u, 0x1f8d5d08u, 0x56033046u, 0xfc7b6babu, 0xf0cfbc20u, 0x9af4361du};

// π/2 in three parts.
template <class T>
inline constexpr T kHalfPi = kIsDouble<T> ? T(1.5707963267948966) : T(1.57079637f);
template <class T>
inline constexpr T kHalfPi2 = kIsDouble<T> ? T(6.123233995736766e-17) : T(-4.37113883e-08f);
template <class T>
inline constexpr T kHalfPi3 = kIsDouble<T> ? T(-1.4973849048591698e-33) : T(-1.71512451e-15f);

// x = quadrant·π/2 + angle, the angle within ±π/4 and a bit; of the quadrant the last two bits count.
template <class T>
struct Reduced {
  Pair<T> angle;
  int quadrant;
};

// For |x| < 2^16, where the multiple of π/2 is exact in twice the digits.
template <class T>
WMMA_DEVICE Reduced<T> reduce_small(T x) {
  const T n = arch::round_even(x * T(0.63661977236758134));
  const Pair<T> second = product(n, kHalfPi2<T>);
  const Pair<T> angle = sum(arch::fma(-n, kHalfPi<T>, x), -second.high);
  return {{angle.high, arch::fma(-n, kHalfPi3<T>, angle.low - second.low)}, static_cast<int>(n)};
}

// Payne and Hanek: of x·2/π only those bits of 2/π are multiplied that reach into the last two of the quadrant or
// behind it. x is a whole number times a power of 2, so that what the bits before give is a multiple of 4.
template <class T>
WMMA_DEVICE Reduced<T> reduce_large(T x) {
  constexpr int kWords = kIsDouble<T> ? 6 : 3;    // what the worst cancellation leaves has all digits yet
  constexpr int kFactors = kIsDouble<T> ? 2 : 1;  // words of the mantissa
  constexpr int kDigits = Format<T>::kDigits;
  const Bits<T> bits = bits_of(x);
  const int exponent = static_cast<int>(bits >> (kDigits - 1)) & (2 * Format<T>::kLargest - 1);
  const Bits<T> mantissa = (bits & ((Bits<T>(1) << (kDigits - 1)) - 1)) | Bits<T>(1) << (kDigits - 1);
  // x = mantissa·2^power; the window's first bit has the weight of 2 quadrants then.
  const int power = exponent - (Format<T>::kLargest + kDigits - 2);
  const int first = power + 62;
  uint32_t window[kWords];  // the lowest bits first
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const uint32_t* const words = kTwoOverPi + (first >> 5) + i;
    const uint64_t two = static_cast<uint64_t>(words[0]) << 32 | words[1];
    window[kWords - 1 - i] = static_cast<uint32_t>(two << (first & 31) >> 32);
  }
  uint32_t out[kWords] = {};
#pragma unroll
  for (int j = 0; j < kFactors; ++j) {
    const uint32_t factor = static_cast<uint32_t>(static_cast<uint64_t>(mantissa) >> (32 * j));
    uint64_t carried = 0;
#pragma unroll
    for (int i = 0; i + j < kWords; ++i) {
      carried += static_cast<uint64_t>(factor) * window[i] + out[i + j];
      out[i + j] = static_cast<uint32_t>(carried);
      carried >>= 32;
    }
  }
  // Two bits of the quadrant, then the fraction, of which more than half counts as less than none of the next one.
  const uint64_t top = static_cast<uint64_t>(out[kWords - 1]) << 32 | out[kWords - 2];
  uint64_t below = static_cast<uint64_t>(out[kWords - 3]) << 32;
  if constexpr (kWords > 3) below |= out[kWords - 4];
  const int quadrant = static_cast<int>((top >> 61) + 1) >> 1;
  const uint64_t flip = static_cast<uint64_t>(static_cast<int64_t>(top << 2) >> 63);
  const uint64_t high = (top << 2 | below >> 62) ^ flip;
  const uint64_t low = below << 2 ^ flip;
  const int zeros = arch::leading_zeros(high | 1);
  const uint64_t leading = high << zeros | low >> 1 >> (63 - zeros);
  T digits, rest;
  if constexpr (kIsDouble<T>) {
    digits = static_cast<T>(leading >> 11);
    rest = static_cast<T>(static_cast<uint32_t>(leading << 21) | static_cast<uint32_t>(low << zeros >> 43));
  } else {
    digits = static_cast<T>(static_cast<uint32_t>(leading >> 40));
    rest = static_cast<T>(static_cast<uint32_t>(leading >> 8));
  }
  const bool below_zero = (flip != 0) != (x < T(0));
  digits = arch::scale(below_zero ? -digits : digits, -kDigits - zeros);
  rest = arch::scale(below_zero ? -rest : rest, -kDigits - 32 - zeros);
  if (!(arch::abs(x) < infinity<T>())) digits = x - x;
  const Pair<T> angle = product(digits, kHalfPi<T>);
  return {{angle.high, arch::fma(digits, kHalfPi2<T>, arch::fma(rest, kHalfPi<T>, angle.low))},
          x < T(0) ? -quadrant : quadrant};
}

template <class T>
WMMA_DEVICE Reduced<T> reduce(T x) {
  if (arch::abs(x) < T(65536)) return reduce_small(x);
  return reduce_large(x);
}

// The same of π·x.
template <class T>
WMMA_DEVICE Reduced<T> reduce_turns(T x) {
  x = arch::fma(arch::round_even(x * T(0.5)), T(-2), x);
  const T n = arch::round_even(x * T(2));
  const T fraction = arch::fma(n, T(-0.5), x);
  const Pair<T> angle = product(fraction, T(2) * kHalfPi<T>);
  return {{angle.high, arch::fma(fraction, T(2) * kHalfPi2<T>, angle.low)}, static_cast<int>(n)};
}

// (sin(a) / a − 1) / a² in a² for |a| ≤ π/4: 2^-28 and 2^-58 of sin(a).
WMMA_DEVICE float sine_slope(float square) {
  constexpr float kC[] = {-0.166666552f, 0.0083321901f, -0.000195184053f};
  return polynomial(kC, square);
}
WMMA_DEVICE double sine_slope(double square) {
  constexpr double kC[] = {-0.16666666666666632,   0.0083333333333227375,   -0.00019841269830093587,
                           2.7557313787085768e-06, -2.5050771857875509e-08, 1.589752020148355e-10};
  return polynomial(kC, square);
}
// (cos(a) − 1 + a² / 2) / a⁴ in a² for |a| ≤ π/4: 2^-33 and 2^-61.
WMMA_DEVICE float cosine_slope(float square) {
  constexpr float kC[] = {0.0416666456f, -0.00138873304f, 2.44359435e-05f};
  return polynomial(kC, square);
}
WMMA_DEVICE double cosine_slope(double square) {
  constexpr double kC[] = {0.041666666666666602,    -0.0013888888888873257, 2.4801587287653826e-05,
                           -2.7557313455050737e-07, 2.087555690005788e-09,  -1.1349083508567136e-11};
  return polynomial(kC, square);
}

// Both in two parts, of which the second is small.
template <class T>
WMMA_DEVICE Pair<T> sine_of(Pair<T> a) {
  const T square = a.high * a.high;
  return {a.high, arch::fma(a.high * square, sine_slope(square), a.low)};
}
template <class T>
WMMA_DEVICE Pair<T> cosine_of(Pair<T> a) {
  const T square = arch::multiply(a.high, a.high);
  const T half = T(0.5) * square;
  const T near = T(1) - half;
  const T rest = arch::fma(square * square, cosine_slope(square), -(a.high * a.low));
  return {near, ((T(1) - near) - half) + rest};
}

template <class T>
WMMA_DEVICE T sine_in(Reduced<T> r) {
  const Pair<T> s = sine_of(r.angle);
  const Pair<T> c = cosine_of(r.angle);
  const T y = (r.quadrant & 1) != 0 ? c.high + c.low : s.high + s.low;
  return (r.quadrant & 2) != 0 ? -y : y;
}
template <class T>
WMMA_DEVICE T cosine_in(Reduced<T> r) {
  ++r.quadrant;
  return sine_in(r);
}
template <class T>
WMMA_DEVICE T tangent_in(Reduced<T> r) {
  const Pair<T> s = sine_of(r.angle);
  const Pair<T> c = cosine_of(r.angle);
  const Pair<T> sine = ordered_sum(s.high, s.low);
  const Pair<T> cosine = ordered_sum(c.high, c.low);
  const bool odd = (r.quadrant & 1) != 0;
  const T y = quotient(odd ? cosine : sine, odd ? sine : cosine);
  return odd ? -y : y;
}

template <class T>
WMMA_DEVICE T sin(T x) {
  const T y = sine_in(reduce(x));
  return x == T(0) ? x : y;
}
template <class T>
WMMA_DEVICE T cos(T x) {
  return cosine_in(reduce(x));
}
template <class T>
WMMA_DEVICE T tan(T x) {
  const T y = tangent_in(reduce(x));
  return x == T(0) ? x : y;
}
template <class T>
WMMA_DEVICE T sinpi(T x) {
  const T y = sine_in(reduce_turns(x));
  return y == T(0) ? arch::copysign(y, x) : y;  // of whole numbers
}
template <class T>
WMMA_DEVICE T cospi(T x) {
  return cosine_in(reduce_turns(x)) + T(0);  // +0 where it is 0
}
template <class T>
WMMA_DEVICE void sincos(T x, T* sine, T* cosine) {
  const Reduced<T> r = reduce(x);
  *sine = x == T(0) ? x : sine_in(r);
  *cosine = cosine_in(r);
}

}  // namespace math

// The sine of x radians.
template <class X>
WMMA_DEVICE Real<X> sin(X x) {
  return Real<X>(math::sin(math::widened<math::Working<X>>(x)));
}
// The cosine of x radians.
template <class X>
WMMA_DEVICE Real<X> cos(X x) {
  return Real<X>(math::cos(math::widened<math::Working<X>>(x)));
}
// Both at once, for less than one after the other.
template <class X>
WMMA_DEVICE void sincos(X x, Real<X>* sine, Real<X>* cosine) {
  math::Working<X> s, c;
  math::sincos(math::widened<math::Working<X>>(x), &s, &c);
  *sine = Real<X>(s);
  *cosine = Real<X>(c);
}
// The tangent of x radians.
template <class X>
WMMA_DEVICE Real<X> tan(X x) {
  return Real<X>(math::tan(math::widened<math::Working<X>>(x)));
}
// sin(π·x).
template <class X>
WMMA_DEVICE Real<X> sinpi(X x) {
  return Real<X>(math::sinpi(math::widened<math::Working<X>>(x)));
}
// cos(π·x).
template <class X>
WMMA_DEVICE Real<X> cospi(X x) {
  return Real<X>(math::cospi(math::widened<math::Working<X>>(x)));
}

}  // namespace wmma
