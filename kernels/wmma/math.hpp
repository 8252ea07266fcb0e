// Math on the device, by the names that C, CUDA and HIP give it: overloads for float, double and the 16-bit types
// (through float), within 2 ulp over the whole range, with the special values of C99's Annex F, and with denormals. No
// device library is needed. The hardware's approximations have names that begin with fast_.
#pragma once

#include <wmma/math/error_function.hpp>
#include <wmma/math/exponential.hpp>
#include <wmma/math/fast.hpp>
#include <wmma/math/inverse_trigonometric.hpp>
#include <wmma/math/logarithm.hpp>
#include <wmma/math/power.hpp>
#include <wmma/math/rounding.hpp>
#include <wmma/math/trigonometric.hpp>
