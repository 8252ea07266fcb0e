// What cuda_fp16.h and hip_fp16.h bring beside the names with underscores: the short ones.
#pragma once

#include <wmma/compat/half_math.hpp>

// A 16-bit float, and two of them in a word.
using half = __half;
using half2 = __half2;
