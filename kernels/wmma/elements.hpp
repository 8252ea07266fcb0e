// The element types that cross the border between host and device, a row each: the code by which the host names it to
// the planner, which is the row's place and never changes; torch's name in C++ and in Python; bits in memory.
// wmma_ops/ops/types.py has the same rows, and what products of each give. Included by the host library as well, so it
// uses nothing but the language.
#pragma once

// clang-format off
#define WMMA_ELEMENTS(X)                                  \
  X(kFloat16, Half, float16, 16)                           \
  X(kBfloat16, BFloat16, bfloat16, 16)                     \
  X(kFloat32, Float, float32, 32)                          \
  X(kFloat64, Double, float64, 64)                         \
  X(kInt8, Char, int8, 8)                                 \
  X(kInt32, Int, int32, 32)                                \
  X(kFloat8E4m3, Float8_e4m3fn, float8_e4m3fn, 8)         \
  X(kFloat8E5m2, Float8_e5m2, float8_e5m2, 8)             \
  X(kFloat8E4m3Fnuz, Float8_e4m3fnuz, float8_e4m3fnuz, 8) \
  X(kFloat8E5m2Fnuz, Float8_e5m2fnuz, float8_e5m2fnuz, 8) \
  X(kBool, Bool, bool, 8)                                 \
  X(kInt64, Long, int64, 64)
// clang-format on

namespace wmma {

enum ElementCode : int {
  kNoElement = -1,
#define WMMA_CODE(code, torch, name, bits) code,
  WMMA_ELEMENTS(WMMA_CODE)
#undef WMMA_CODE
      kElements
};

}  // namespace wmma
