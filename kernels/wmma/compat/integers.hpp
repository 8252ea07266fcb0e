// The integer types of <stdint.h> and <stddef.h> by their global names and those of std.
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
using uintptr_t = size_t;
using intptr_t = ptrdiff_t;

namespace std {

using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::intptr_t;
using ::ptrdiff_t;
using ::size_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;
using ::uintptr_t;
using nullptr_t = decltype(nullptr);

}  // namespace std
