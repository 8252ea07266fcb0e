// printf and assert. On AMD they are print and WMMA_ASSERT of the library, whose texts wmma_ops.Kernel shows; on NVIDIA
// CUDA's own, which write to the process's standard output.
#pragma once

#include <wmma/assert.hpp>
#include <wmma/print.hpp>

#if !defined(WMMA_NVIDIA) && !defined(WMMA_HIP_NAMES)

// Prints on the host, as wmma::print does; the number of values.
template <int kSize, class... Values>
WMMA_DEVICE int printf(const char (&format)[kSize], const Values&... values) WMMA_CHECKS_FORMAT(format, Values) {
  wmma::detail::write_message(wmma::detail::Message::kPrinted, format, values...);
  return sizeof...(Values);
}

#endif

#ifndef WMMA_NVIDIA
// Ends the launch with an error where the condition is false. -DNDEBUG leaves it out.
#ifdef NDEBUG
#define assert(condition) ((void)0)
#elif !defined(assert)
#define assert(condition) WMMA_ASSERT(condition)
#endif
#endif
