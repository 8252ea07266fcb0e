// The integer types of <stdint.h> and <stddef.h> by their global names.
#pragma once

#include <wmma/target.hpp>

// Whole numbers of 8, 16, 32 and 64 bits.
using wmma::int16_t;
using wmma::int32_t;
using wmma::int64_t;
using wmma::int8_t;
using wmma::uint16_t;
using wmma::uint32_t;
using wmma::uint64_t;
using wmma::uint8_t;

// Sizes in memory, and distances.
using wmma::ptrdiff_t;
using wmma::size_t;
