// What the formulas of activations take from hardware, on the host: in forms that its compiler makes vector
// instructions of, without branches and calls. What only other math takes is C's own. It includes nothing: kernels
// count as made of whatever a header of theirs names.
#pragma once

namespace wmma::arch {

template <class To, class From>
WMMA_DEVICE To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

WMMA_DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
WMMA_DEVICE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
WMMA_DEVICE float abs(float x) { return __builtin_fabsf(x); }
WMMA_DEVICE double abs(double x) { return __builtin_fabs(x); }
WMMA_DEVICE float copysign(float x, float sign) { return __builtin_copysignf(x, sign); }
WMMA_DEVICE double copysign(double x, double sign) { return __builtin_copysign(x, sign); }
// The number where x is NaN: one instruction, where C's own takes either for NaN.
WMMA_DEVICE float max(float x, float y) { return x > y ? x : y; }
WMMA_DEVICE double max(double x, double y) { return x > y ? x : y; }
WMMA_DEVICE float min(float x, float y) { return x < y ? x : y; }
WMMA_DEVICE double min(double x, double y) { return x < y ? x : y; }
WMMA_DEVICE float multiply(float a, float b) { return a * b; }
WMMA_DEVICE double multiply(double a, double b) { return a * b; }

// x·2^exponent for a result that is normal, or 0 below.
WMMA_DEVICE double scale(double x, int exponent) {
  const int half = exponent >> 1;
  const double first = bit_cast<double>(static_cast<uint64_t>(1023 + half) << 52);
  const double second = bit_cast<double>(static_cast<uint64_t>(1023 + (exponent - half)) << 52);
  return x * first * second;
}

WMMA_DEVICE float approximate_rcp(float x) { return 1.0f / x; }
WMMA_DEVICE double approximate_rcp(double x) { return 1.0 / x; }
WMMA_DEVICE float approximate_rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
WMMA_DEVICE double approximate_rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }

// 2^x within 2^-23; denormal results are 0, as the GPUs' instructions have them.
WMMA_DEVICE float approximate_exp2(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5·2^23: the sum's low bits are the rounded integer
  // (ln 2)^k / k!: what is left out of the series is below 2^-27 for fractions of at most a half.
  constexpr float kC[] = {1.0f,           0.69314718056f,    0.240226506959f, 0.0555041086648f,
                          0.00961812911f, 0.00133335581464f, 0.000154035304f, 0.0000152527338f};
  const float near = x < 128.0f ? x : 128.0f;  // NaN too: the last line gives it back
  const float within = near > -127.0f ? near : -127.0f;
  const float shifted = within + kRound;
  const float fraction = within - (shifted - kRound);
  float y = kC[7];
#pragma GCC unroll 8
  for (int i = 6; i >= 0; --i) y = fma(y, fraction, kC[i]);
  const uint32_t exponent = bit_cast<uint32_t>(shifted) - bit_cast<uint32_t>(kRound) + 127u;
  y *= bit_cast<float>(exponent << 23);
  y = x < -126.0f ? 0.0f : y;
  return x == x ? y : x;
}

WMMA_DEVICE float exp2(float x) { return __builtin_exp2f(x); }
WMMA_DEVICE float log2(float x) { return __builtin_log2f(x); }
WMMA_DEVICE float rcp(float x) { return 1.0f / x; }
WMMA_DEVICE float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
WMMA_DEVICE float sqrt(float x) { return __builtin_sqrtf(x); }
WMMA_DEVICE float sin(float x) { return __builtin_sinf(x); }
WMMA_DEVICE float cos(float x) { return __builtin_cosf(x); }
WMMA_DEVICE float round_even(float x) { return __builtin_nearbyintf(x); }

// To nearest even; a NaN stays one.
WMMA_DEVICE float float_from_half(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  // The same fields read as a float are 2^-112 too small, and infinities and NaN are numbers.
  const float scaled = bit_cast<float>(rest << 13) * bit_cast<float>(0x77800000u);
  return bit_cast<float>(sign | (rest >= 0x7c00u ? 0x7f800000u | rest << 13 : bit_cast<uint32_t>(scaled)));
}
WMMA_DEVICE uint16_t half_from_float(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  // Below the least normal number: adding 2^23 quanta leaves the rounded number of quanta in the low bits.
  const uint32_t small = bit_cast<uint32_t>(bit_cast<float>(magnitude) + 0.5f) - bit_cast<uint32_t>(0.5f);
  const uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
  const uint32_t number = magnitude < 113u << 23 ? small : normal < 0x7c00u ? normal : 0x7c00u;
  return static_cast<uint16_t>(sign | (x == x ? number : 0x7e00u));
}
WMMA_DEVICE uint16_t bf16_from_float(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x);
  return static_cast<uint16_t>(x == x ? (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16 : bits >> 16 | 0x40u);
}

}  // namespace wmma::arch
