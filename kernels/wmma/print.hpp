// Printing from a kernel with a format, as printf has it. wmma_ops.Kernel shows the text once the launch is done: in
// the order of blocks and, within one, of threads; a thread's own in the order in which it printed.
#pragma once

#include <wmma/print_buffer.hpp>
#include <wmma/print_format.hpp>

namespace wmma {

// Prints on the host: print("x = %f in lane %d\n", x, lane). The format is a literal with printf's flags, width and
// precision; %d and %i take integers, %u %o %x %X %c too, %f %F %e %E %g %G %a %A floats of any width, %s text, %p
// other pointers. What finds no room in Kernel's print_bytes is dropped, and the number of such calls reported.
template <int kSize, class... Values>
WMMA_DEVICE void print(const char (&format)[kSize], const Values&... values) WMMA_CHECKS_FORMAT(format, Values) {
  detail::write_message(detail::Message::kPrinted, format, values...);
}

}  // namespace wmma
