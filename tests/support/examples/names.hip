// A line for each name that no other example has: math by the hardware's approximations, element types, what is known
// as a kernel is compiled. One thread; y[i] is what line i gives for x.
#include <wmma/compat/hip.hpp>
#include <wmma/fragment.hpp>
#include <wmma/math.hpp>

using namespace wmma;

static_assert(kMinimumK<half_t, 16, 16> == 16 && kMinimumK<bf16_t, 32, 32> == 4);
static_assert(kCycleBits == 20 || kCycleBits == 32);
static_assert(kSame<Choose<kIsFp8<fp8_e4m3_t>, int8_t, float>, int8_t>);
static_assert(kIsInteger<int32_t> && !kIsInteger<float>);
static_assert(kIsNarrowFloat<half_t> && !kIsNarrowFloat<float>);
static_assert(kIsInt4<int4_t> && kIsInt4<uint4_t> && sizeof(uint4x2_t) == 1);
static_assert(kIsFragment<fragment<matrix_a, 16, 16, 16, half_t>> && !kIsFragment<half_t>);
static_assert(kSame<Plain<half_t>, half_t>);
static_assert(kSame<ComputeType<bf16_t>::Type, float>);

extern "C" __global__ void names(float* y, float x) {
  int line = 0;
  y[line++] = fast_exp2(x);
  y[line++] = fast_exp2(x * kLog2E);
  y[line++] = fast_log2(x);
  y[line++] = fast_log2(x) * kLn2;
  y[line++] = fast_exp(x);
  y[line++] = fast_log(x);
  y[line++] = fast_rcp(x);
  y[line++] = fast_rsqrt(x);
  y[line++] = fast_sqrt(x);
  y[line++] = fast_sin(x);
  y[line++] = fast_cos(x);
  y[line++] = fast_sigmoid(x);
  y[line++] = fast_tanh(x);
  y[line++] = fast_fma(x, x, 1.0f);
  y[line++] = fast_min(x, 1.0f);
  y[line++] = fast_max(x, 1.0f);
  y[line++] = fast_abs(-x);
  y[line++] = round_even(x);
  y[line++] = half_t(x);
  y[line++] = bf16_t(x);
  y[line++] = fp8_e4m3_t(x);
  y[line++] = fp8_e5m2_t(x);
  y[line++] = fp8_e4m3fnuz_t(x);
  y[line++] = fp8_e5m2fnuz_t(x);
  y[line++] = convert<int8_t>(100.0f * x);
  half_t h = x;
  h -= x;
  h += 2.0f;
  h *= 3.0f;
  h /= 2.0f;
  ++h;
  --h;
  y[line++] = h;
  if (x < 0.0f) trap();
}

// One wave: 16x16 of x, element by element.
extern "C" __global__ void fragment_names(const float* x, float* y) {
  fragment<accumulator, 16, 16, 16, float> f, g;
  load_matrix_sync(f, x, 16, mem_row_major);
  const fragment_mask positive = f > 0.0f;
  g = select(!positive ^ (f < -1.0f), -1.0f, abs(f));
  g -= f;
  g *= 2.0f;
  g = mul_add(f, 2.0f, g);
  g = min(max(g, -100.0f), 100.0f);
  store_matrix_sync(y, g, 16, mem_row_major);
}
