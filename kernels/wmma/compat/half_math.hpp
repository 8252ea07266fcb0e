// Math of 16-bit floats by the names of cuda_fp16.h, cuda_bf16.h and HIP's: hexp and h2exp and their kin.
#pragma once

#include <wmma/compat/half.hpp>
#include <wmma/math.hpp>

#define WMMA_MATH_OF_16(name)                                           \
  template <class T, wmma::EnableIf<wmma::kIsNarrowFloat<T>> = 0>       \
  WMMA_DEVICE T h##name(T x) {                                          \
    return T(wmma::name(static_cast<float>(x)));                        \
  }                                                                     \
  template <class T>                                                    \
  WMMA_DEVICE wmma::compat::Pair<T> h2##name(wmma::compat::Pair<T> x) { \
    return {h##name(x.x), h##name(x.y)};                                \
  }

// Of a 16-bit float: float's, rounded to it. h2… of both in a pair.
WMMA_MATH_OF_16(ceil)
WMMA_MATH_OF_16(cos)
WMMA_MATH_OF_16(exp)
WMMA_MATH_OF_16(exp10)
WMMA_MATH_OF_16(exp2)
WMMA_MATH_OF_16(floor)
WMMA_MATH_OF_16(log)
WMMA_MATH_OF_16(log10)
WMMA_MATH_OF_16(log2)
WMMA_MATH_OF_16(rint)
WMMA_MATH_OF_16(rsqrt)
WMMA_MATH_OF_16(sin)
WMMA_MATH_OF_16(sqrt)
WMMA_MATH_OF_16(trunc)
#undef WMMA_MATH_OF_16
