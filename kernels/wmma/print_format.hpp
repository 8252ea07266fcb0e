// What is wrong with a format and its values, found as the kernel is compiled where clang does it. NVIDIA's compiler
// cannot look into a literal there: runtime/printing.py refuses the same as it formats.
#pragma once

#include <wmma/print_buffer.hpp>

namespace wmma::detail {

enum class FormatFault { kNone, kLetter, kTooFew, kTooMany, kType, kWidth };

WMMA_CONSTEXPR bool is_one_of(char letter, const char* letters) {
  for (; *letters != 0; ++letters) {
    if (*letters == letter) return true;
  }
  return false;
}

// Whether a value of a kind fits a letter; false of every letter that there is not.
WMMA_CONSTEXPR bool fits_letter(char kind, char letter) {
  if (kind == 'i' || kind == 'u') return is_one_of(letter, "diuoxXc");
  if (kind == 'f') return is_one_of(letter, "fFeEgGaA");
  return kind == letter;
}

template <class... Values>
WMMA_CONSTEXPR FormatFault format_fault(const char* format) {
  const char kinds[] = {KindOf<Values>::letter..., 0};
  constexpr int kCount = sizeof...(Values);
  int next = 0;
  for (const char* at = format; *at != 0; ++at) {
    if (*at != '%') continue;
    if (*++at == '%') continue;
    while (is_one_of(*at, "-+ #0") && *at != 0) ++at;
    for (int precision = 0; precision < 2; ++precision) {
      if (precision != 0 && *at++ != '.') {
        --at;
        break;
      }
      if (*at == '*') {
        if (next == kCount) return FormatFault::kTooFew;
        if (kinds[next] != 'i' && kinds[next] != 'u') return FormatFault::kWidth;
        ++next, ++at;
      } else {
        for (int digits = 0; *at >= '0' && *at <= '9'; ++at) {
          if (++digits > 3) return FormatFault::kLetter;
        }
      }
    }
    while (is_one_of(*at, "hlzjt")) ++at;
    if (*at == 0 || !is_one_of(*at, "diuoxXcfFeEgGaAsp")) return FormatFault::kLetter;
    if (next == kCount) return FormatFault::kTooFew;
    if (!fits_letter(kinds[next++], *at)) return FormatFault::kType;
  }
  return next < kCount ? FormatFault::kTooMany : FormatFault::kNone;
}

}  // namespace wmma::detail

#ifdef __clang__
#define WMMA_REFUSES(format, values, fault, text) \
  __attribute__((                                 \
      diagnose_if(wmma::detail::format_fault<values...>(format) == wmma::detail::FormatFault::fault, text, "error")))
#define WMMA_CHECKS_FORMAT(format, values)                                                                     \
  WMMA_REFUSES(                                                                                                \
      format, values, kLetter,                                                                                 \
      "wmma: the format has a letter that is none; after % come flags of -+ #0, width and precision of up to " \
      "three digits or *, and a letter of d i u o x X c f F e E g G a A s p, or %")                            \
  WMMA_REFUSES(format, values, kTooFew, "wmma: the format takes more values than there are")                   \
  WMMA_REFUSES(format, values, kTooMany, "wmma: the format takes fewer values than there are")                 \
  WMMA_REFUSES(format, values, kWidth, "wmma: a * in the format takes an integer")                             \
  WMMA_REFUSES(                                                                                                \
      format, values, kType,                                                                                   \
      "wmma: a value does not fit its letter; d i u o x X c take integers, f F e E g G a A floats, s text, p " \
      "pointers to what is no text")
#else
#define WMMA_CHECKS_FORMAT(format, values)
#endif
