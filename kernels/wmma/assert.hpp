// Assertions: WMMA_ASSERT(condition) or WMMA_ASSERT(condition, "format as print has it", values...).
#pragma once

#include <wmma/print_buffer.hpp>
#include <wmma/print_format.hpp>

namespace wmma {

// Ends the launch with an error.
WMMA_DEVICE void trap() { arch::trap(); }

namespace detail {

template <int kCondition, int kFile, int kSize, class... Values>
WMMA_DEVICE void assertion_failed(const char (&condition)[kCondition], const char (&file)[kFile], int line,
                                  const char (&format)[kSize], const Values&... values)
    WMMA_CHECKS_FORMAT(format, Values) {
  write_message(Message::kAsserted, condition, file, line, format, values...);
  arch::fence_system();  // the host reads it though nothing else ends well
  arch::trap();
}

}  // namespace detail
}  // namespace wmma

// Where the condition is false the launch fails with an error that names condition, message, line, block and thread.
// -DWMMA_NO_ASSERT leaves assertions out, their conditions too.
#ifdef WMMA_NO_ASSERT
#define WMMA_ASSERT(...) ((void)0)
#else
#define WMMA_ASSERT(condition, ...)                                                                   \
  do {                                                                                                \
    if (!(condition)) wmma::detail::assertion_failed(#condition, __FILE__, __LINE__, "" __VA_ARGS__); \
  } while (0)
#endif
