// Math by C's names, a line each; on AMD and NVIDIA alike, without device libraries. One thread; z[i] is what line i
// gives for x and y.
#include <wmma/math.hpp>

extern "C" __global__ void math(float* z, float x, float y) {
  int line = 0;
  z[line++] = wmma::sin(x);
  z[line++] = wmma::cos(x);
  z[line++] = wmma::tan(x);
  z[line++] = wmma::sinpi(x);
  z[line++] = wmma::cospi(x);
  z[line++] = wmma::asin(x);
  z[line++] = wmma::acos(x);
  z[line++] = wmma::atan(x);
  z[line++] = wmma::atan2(x, -y);
  z[line++] = wmma::exp(x);
  z[line++] = wmma::exp2(x);
  z[line++] = wmma::exp10(x);
  z[line++] = wmma::expm1(x);
  z[line++] = wmma::sinh(x);
  z[line++] = wmma::cosh(x);
  z[line++] = wmma::tanh(x);
  z[line++] = wmma::log(x);
  z[line++] = wmma::log2(x);
  z[line++] = wmma::log10(x);
  z[line++] = wmma::log1p(x);
  z[line++] = wmma::asinh(x);
  z[line++] = wmma::acosh(y);
  z[line++] = wmma::atanh(x);
  z[line++] = wmma::pow(x, y);
  z[line++] = wmma::cbrt(x);
  z[line++] = wmma::hypot(x, y);
  z[line++] = wmma::sqrt(x);
  z[line++] = wmma::rsqrt(x);
  z[line++] = wmma::erf(x);
  z[line++] = wmma::erfc(x);
  z[line++] = wmma::erfinv(x);
  z[line++] = wmma::floor(y);
  z[line++] = wmma::ceil(y);
  z[line++] = wmma::trunc(-y);
  z[line++] = wmma::rint(y);
  z[line++] = wmma::nearbyint(y);
  z[line++] = wmma::round(y);
  z[line++] = wmma::fmod(y, x);
  z[line++] = wmma::remainder(y, x);
  z[line++] = wmma::fma(x, y, 1.0f);
  z[line++] = wmma::fmin(x, y);
  z[line++] = wmma::fmax(x, y);
  z[line++] = wmma::fdim(y, x);
  z[line++] = wmma::copysign(x, -y);
  z[line++] = wmma::fabs(-x);
  z[line++] = wmma::abs(-x);
  z[line++] = wmma::isnan(x);
  z[line++] = wmma::isinf(x);
  z[line++] = wmma::isfinite(x);
  z[line++] = wmma::signbit(-x);
  z[line++] = wmma::nextafter(x, y);
  z[line++] = wmma::ldexp(x, 3);
  z[line++] = wmma::logb(y);
  z[line++] = wmma::ilogb(y);
  float sine, cosine, whole;
  int exponent;
  wmma::sincos(x, &sine, &cosine);
  z[line++] = sine - cosine;
  z[line++] = wmma::frexp(y, &exponent);
  z[line++] = wmma::modf(y, &whole);
  z[line++] = exponent + whole;
}
