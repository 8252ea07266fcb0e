// Functions accurate to a few units in the last place, over the whole range, in float and double. AMD has no device
// library here, and NVIDIA gets the same code. Coefficients: Remez exchange in 50 digits (mpmath) on the function that
// each comment names, for the least relative error of the result.
#pragma once

#include <wmma/math/fast.hpp>
#include <wmma/math/number.hpp>

namespace wmma {

namespace exact {

using math::at_most;
using math::polynomial;
using math::reciprocal;

// n / d for d in [2^-500, 2^500] and finite n.
WMMA_DEVICE double divide(double n, double d) {
  const double y = reciprocal(d);
  const double q = n * y;
  return arch::fma(arch::fma(-d, q, n), y, q);
}

// exp(x). Denormal results flush to 0.
WMMA_DEVICE float exp(float x) {
  const float y = x * kLog2E;
  // What rounding y lost. The maximum turns the NaN of an infinite x back into a factor.
  float rest = arch::fma(y, -0.693147182464599609375f, x);
  rest = arch::fma(y, 1.904654299957767e-9f, rest);
  return arch::approximate_exp2(y) * arch::max(1.0f + rest, 0.5f);
}

// exp(x + rest) = 2^exponent·(1 + fraction).
struct ExpParts {
  double fraction;
  int exponent;
};

WMMA_DEVICE ExpParts exp_parts(double x, double rest = 0.0) {
  constexpr double kRound = 6755399441055744.0;  // 1.5·2^52: the sum's low word is the rounded integer
  const double shifted = arch::fma(x, 1.4426950408889634074, kRound);
  const double n = shifted - kRound;
  double r = arch::fma(n, -0.69314718055994528623, x);
  r = arch::fma(n, -2.3190468138462995584e-17, r) + rest;
  // (exp(r) − 1 − r) / r² for |r| ≤ 0.35: 2^-55 of exp(r) − 1.
  constexpr double kC[] = {0.50000000000000060988,   0.16666666666666689287,   0.041666666666566058529,
                           0.0083333333333122526713, 0.0013888888935031139024, 0.00019841269908413948835,
                           2.4801501099817651591e-5, 2.7557222935463149629e-6, 2.7627708042519898179e-7,
                           2.5116114181535038397e-8};
  return {arch::fma(r * r, polynomial(kC, r), r),
          static_cast<int>(static_cast<uint32_t>(arch::bit_cast<uint64_t>(shifted)))};
}

// exp(−(a + rest)) for 0 ≤ a ≤ 800, where it is 0.
WMMA_DEVICE double decay(double a, double rest = 0.0) {
  const ExpParts e = exp_parts(-a, -rest);
  return arch::scale(1.0 + e.fraction, e.exponent);
}

// The normal distribution's upper tail Φ(−a) for a ≥ 0, from Φ(−a)·exp(a²/2)·(a + k) as a polynomial in
// t = (a − k) / (a + k), on a ≤ 14 in float (k = 3, 2^-24) and a ≤ 40 in double (k = 5, 2^-55). The float tail's
// relative error grows with a²/2: a·Φ(−a) falls faster.
WMMA_DEVICE float upper_tail(float a, float& power) {  // exp(−a²/2), too
  constexpr float kC[] = {0.72908366918774f,   -0.50933228502227f,    0.2300193493936f,
                          -0.047256101409085f, -0.010479935713027f,   0.0069239242253938f,
                          0.0010760382020277f, -0.00090325470460316f, -0.0002667681239838f};
  const float r = arch::approximate_rcp(a + 3.0f);
  power = arch::approximate_exp2(a * a * (-0.5f * kLog2E));
  return power * r * polynomial(kC, arch::fma(-6.0f, r, 1.0f));
}
WMMA_DEVICE float upper_tail(float a) {
  float power;
  return upper_tail(a, power);
}

WMMA_DEVICE double upper_tail(double a) {
  constexpr double kC[] = {
      0.769193049750062955,     -0.665382502890056576,   0.495305615969977244,      -0.313533156671318257,
      0.165020366170349232,     -0.0691186387058770501,  0.0207950668004901582,     -0.00299337677668129769,
      -0.000797869404095050916, 0.000544899112705037848, -0.0000593756949897921272, -0.0000497630371135441972,
      0.0000166810817504796722, 3.98155097803576577e-6,  -2.76890186173015982e-6,   -3.37809344849914286e-7,
      4.32459188075497765e-7,   4.36244198103479358e-8,  -6.51324971891760365e-8,   -1.0168487730019358e-8,
      7.1162025207480912e-9,    1.98535328740889148e-9};
  a = at_most(40.0, a);
  const double r = reciprocal(a + 5.0);
  const double half = 0.5 * a;
  const double square = half * a;
  return decay(square, arch::fma(half, a, -square)) * r * polynomial(kC, (a - 5.0) * r);
}

WMMA_DEVICE float sigmoid(float x) { return arch::approximate_rcp(1.0f + exp(-x)); }

WMMA_DEVICE double sigmoid(double x) {
  const double e = decay(at_most(800.0, arch::abs(x)));
  return divide(x < 0.0 ? e : 1.0, 1.0 + e);
}

WMMA_DEVICE float tanh(float x) {
  // (tanh(x) / x − 1) / x² in x², for |x| < 0.6: 2^-28 of tanh(x).
  constexpr float kC[] = {-0.33333299352f, 0.133319600068f, -0.0537867954286f, 0.0208056482461f, -0.00590606665525f};
  const float square = x * x;
  const float small = arch::fma(square * polynomial(kC, square), x, x);
  const float a = arch::abs(x);
  const float large = arch::fma(-2.0f, arch::approximate_rcp(1.0f + arch::approximate_exp2(a * (2.0f * kLog2E))), 1.0f);
  return arch::copysign(a < 0.6f ? small : large, x);  // small alone would make −0 +0
}

WMMA_DEVICE double tanh(double x) {
  const ExpParts e = exp_parts(-2.0 * at_most(25.0, arch::abs(x)));
  const double power = arch::scale(1.0, e.exponent);
  const double shrink = arch::fma(power, e.fraction, power - 1.0);  // exp(−2a) − 1
  return arch::copysign(divide(-shrink, 2.0 + shrink), x);
}

}  // namespace exact

}  // namespace wmma
