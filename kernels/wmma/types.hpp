// The element types: storage of the exact width, with conversions. Arithmetic on the 16- and 8-bit floats goes through
// float. Rounding is to nearest even and a NaN stays a NaN; like torch, values beyond the range of an fp8 type become
// NaN (e4m3, and both fnuz forms) or infinity (e5m2).
#pragma once

#include <wmma/target.hpp>

namespace wmma {

namespace detail {

template <bool kCondition>
struct EnabledIf {};
template <>
struct EnabledIf<true> {
  using Type = int;
};

}  // namespace detail

// A template parameter of this type exists where the condition holds.
template <bool kCondition>
using EnableIf = typename detail::EnabledIf<kCondition>::Type;

// Whether two types are one.
template <class T, class U>
inline constexpr bool kSame = false;
template <class T>
inline constexpr bool kSame<T, T> = true;

struct half_t;
struct bf16_t;
struct fp8_e4m3_t;
struct fp8_e5m2_t;
struct fp8_e4m3fnuz_t;
struct fp8_e5m2fnuz_t;

// Whether T is one of the 8-bit floats.
template <class T>
inline constexpr bool kIsFp8 =
    kSame<T, fp8_e4m3_t> || kSame<T, fp8_e5m2_t> || kSame<T, fp8_e4m3fnuz_t> || kSame<T, fp8_e5m2fnuz_t>;

// Whether T is one of the 16- and 8-bit floats here.
template <class T>
inline constexpr bool kIsNarrowFloat = kSame<T, half_t> || kSame<T, bf16_t> || kIsFp8<T>;

// IEEE's 16-bit float.
struct half_t {
  uint16_t bits;
  half_t() = default;
  WMMA_DEVICE half_t(float x) : bits(arch::half_from_float(x)) {}
  template <class From, EnableIf<kIsNarrowFloat<From>> = 0>
  WMMA_DEVICE half_t(const From& x) : half_t(static_cast<float>(x)) {}
  WMMA_DEVICE operator float() const { return arch::float_from_half(bits); }
};

// The upper half of a float.
struct bf16_t {
  uint16_t bits;
  bf16_t() = default;
  WMMA_DEVICE bf16_t(float x) : bits(arch::bf16_from_float(x)) {}
  template <class From, EnableIf<kIsNarrowFloat<From>> = 0>
  WMMA_DEVICE bf16_t(const From& x) : bf16_t(static_cast<float>(x)) {}
  WMMA_DEVICE operator float() const { return arch::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

namespace detail {

// An 8-bit float with kMantissa mantissa bits. The OCP forms (fn) keep −0; the FNUZ forms have one NaN, 0x80.
template <int kMantissa, int kBias, bool kFnuz>
struct Fp8Format {
  static constexpr uint32_t kNan = kFnuz ? 0x80u : 0x7fu;
  // Codes from here on are not finite: e4m3 has only 0x7f, e5m2 has infinity at 0x7c, FNUZ uses all of them.
  static constexpr uint32_t kFirstNonFinite = kFnuz ? 0x80u : (kMantissa == 3 ? 0x7fu : 0x7cu);
  static constexpr uint32_t kOverflow = kFnuz ? 0x80u : (kMantissa == 3 ? 0x7fu : 0x7cu);

  static WMMA_DEVICE uint8_t encode(float x) {
    const uint32_t bits = arch::bit_cast<uint32_t>(x);
    const uint32_t sign = (bits >> 24) & 0x80u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint8_t>(kFnuz ? kNan : sign | kNan);
    uint32_t code;
    if (magnitude < static_cast<uint32_t>(128 - kBias) << 23) {
      // Below the smallest normal number: adding 2^23 quanta leaves the rounded number of quanta in the low bits.
      constexpr uint32_t kMagic = static_cast<uint32_t>(127 + 24 - kBias - kMantissa) << 23;
      code = arch::bit_cast<uint32_t>(arch::bit_cast<float>(magnitude) + arch::bit_cast<float>(kMagic)) - kMagic;
    } else {
      constexpr int kDropped = 23 - kMantissa;
      magnitude += (1u << (kDropped - 1)) - 1u + ((magnitude >> kDropped) & 1u);
      code = (magnitude - (static_cast<uint32_t>(127 - kBias) << 23)) >> kDropped;
      if (code >= kFirstNonFinite) code = kOverflow;
    }
    if (kFnuz && (code == 0 || code == 0x80u)) return static_cast<uint8_t>(code);
    return static_cast<uint8_t>(sign | code);
  }

  static WMMA_DEVICE float decode(uint8_t code) {
    const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
    const uint32_t magnitude = code & 0x7fu;
    const bool nan = kFnuz ? code == 0x80u : (kMantissa == 3 ? magnitude == 0x7fu : magnitude > 0x7cu);
    if (nan) return arch::bit_cast<float>(0x7fc00000u | sign);
    if (!kFnuz && kMantissa == 2 && magnitude == 0x7cu) return arch::bit_cast<float>(0x7f800000u | sign);
    // The same fields read as a float are 2^(127 − bias) too small.
    const float scale = arch::bit_cast<float>(static_cast<uint32_t>(127 + 127 - kBias) << 23);
    return arch::bit_cast<float>(sign | (magnitude << (23 - kMantissa))) * scale;
  }
};

template <int kMantissa, int kBias, bool kFnuz>
struct Fp8 {
  using Format = Fp8Format<kMantissa, kBias, kFnuz>;
  uint8_t bits;
  Fp8() = default;
  WMMA_DEVICE Fp8(float x) : bits(Format::encode(x)) {}
  template <class From, EnableIf<kIsNarrowFloat<From>> = 0>
  WMMA_DEVICE Fp8(const From& x) : Fp8(static_cast<float>(x)) {}
  WMMA_DEVICE operator float() const { return Format::decode(bits); }
};

}  // namespace detail

// The OCP forms (torch.float8_e4m3fn, torch.float8_e5m2) and the FNUZ forms of gfx942. A product of a form that the
// target has no instruction for runs in f16, which holds every value of all four exactly.
struct fp8_e4m3_t : detail::Fp8<3, 7, false> {
  using Fp8::Fp8;
};
struct fp8_e5m2_t : detail::Fp8<2, 15, false> {
  using Fp8::Fp8;
};
struct fp8_e4m3fnuz_t : detail::Fp8<3, 8, true> {
  using Fp8::Fp8;
};
struct fp8_e5m2fnuz_t : detail::Fp8<2, 16, true> {
  using Fp8::Fp8;
};

// 4-bit integers as values; in memory and registers they lie in pairs (wmma/int4.hpp). What is beyond keeps its low
// bits.
struct int4_t {
  int8_t value;
  int4_t() = default;
  WMMA_DEVICE int4_t(int32_t x)
      : value(static_cast<int8_t>(static_cast<int32_t>(static_cast<uint32_t>(x) << 28) >> 28)) {}
  WMMA_DEVICE operator int32_t() const { return value; }
};
struct uint4_t {
  uint8_t value;
  uint4_t() = default;
  WMMA_DEVICE uint4_t(int32_t x) : value(static_cast<uint8_t>(x & 15)) {}
  WMMA_DEVICE operator int32_t() const { return value; }
};

namespace detail {

template <class T>
struct PlainOf {
  using Type = T;
};
#ifdef WMMA_AMD
template <>
struct PlainOf<_Float16> {
  using Type = half_t;
};
#endif
#ifdef WMMA_BF16_OF_CLANG
template <>
struct PlainOf<__bf16> {
  using Type = bf16_t;
};
#endif

}  // namespace detail

// The element type here that a type of the compiler's is: half_t for _Float16, bf16_t for __bf16, where it has them.
// They may stand for each other as a fragment's element type and in what pointers point to.
template <class T>
using Plain = typename detail::PlainOf<T>::Type;

// Operand kinds. accumulator_swapped is the C or D of a product computed with A and B exchanged: mma_sync, loads and
// stores treat it as an M×N matrix like any other, but its registers are those of A of a next product.
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct accumulator_swapped {};

// How a fragment lies in memory: row after row or column after column, as a part of its type or as a call's argument.
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

// T, where it is to be deduced from the other arguments.
template <class T>
struct Identity {
  using Type = T;
};

namespace detail {

template <bool kCondition, class Then, class Else>
struct Choice {
  using Type = Then;
};
template <class Then, class Else>
struct Choice<false, Then, Else> {
  using Type = Else;
};

}  // namespace detail

// Then where the condition holds, Else otherwise.
template <bool kCondition, class Then, class Else>
using Choose = typename detail::Choice<kCondition, Then, Else>::Type;

// Whether T is a packed 4-bit integer.
template <class T>
inline constexpr bool kIsInt4 = kSame<T, int4_t> || kSame<T, uint4_t>;

// Whether T is an integer that fragments have.
template <class T>
inline constexpr bool kIsInteger =
    kSame<T, int8_t> || kSame<T, uint8_t> || kSame<T, int32_t> || kSame<T, uint32_t> || kIsInt4<T>;

namespace detail {

// Whether T is an integer of the language's or one of 4 bits.
template <class T>
inline constexpr bool kIsWhole =
    kIsInteger<T> || kSame<T, bool> || kSame<T, char> || kSame<T, short> || kSame<T, unsigned short> ||
    kSame<T, long> || kSame<T, unsigned long> || kSame<T, long long> || kSame<T, unsigned long long>;

}  // namespace detail

// Assigning and counting on narrow floats; +, -, *, / and comparisons are float's, to which they convert.
template <class T, class U, EnableIf<kIsNarrowFloat<T>> = 0>
WMMA_DEVICE T& operator+=(T& x, const U& y) {
  return x = static_cast<T>(static_cast<float>(x) + y);
}
template <class T, class U, EnableIf<kIsNarrowFloat<T>> = 0>
WMMA_DEVICE T& operator-=(T& x, const U& y) {
  return x = static_cast<T>(static_cast<float>(x) - y);
}
template <class T, class U, EnableIf<kIsNarrowFloat<T>> = 0>
WMMA_DEVICE T& operator*=(T& x, const U& y) {
  return x = static_cast<T>(static_cast<float>(x) * y);
}
template <class T, class U, EnableIf<kIsNarrowFloat<T>> = 0>
WMMA_DEVICE T& operator/=(T& x, const U& y) {
  return x = static_cast<T>(static_cast<float>(x) / y);
}
template <class T, EnableIf<kIsNarrowFloat<T>> = 0>
WMMA_DEVICE T& operator++(T& x) {
  return x += 1.0f;
}
template <class T, EnableIf<kIsNarrowFloat<T>> = 0>
WMMA_DEVICE T& operator--(T& x) {
  return x -= 1.0f;
}
template <class T, EnableIf<kIsNarrowFloat<T>> = 0>
WMMA_DEVICE T operator++(T& x, int) {
  const T before = x;
  ++x;
  return before;
}
template <class T, EnableIf<kIsNarrowFloat<T>> = 0>
WMMA_DEVICE T operator--(T& x, int) {
  const T before = x;
  --x;
  return before;
}

// The type that the matrix unit accumulates T in.
template <class T>
struct ComputeType {
  using Type = float;
};
template <>
struct ComputeType<double> {
  using Type = double;
};
template <>
struct ComputeType<int8_t> {
  using Type = int32_t;
};
template <>
struct ComputeType<uint8_t> {
  using Type = int32_t;
};
template <>
struct ComputeType<int32_t> {
  using Type = int32_t;
};
template <>
struct ComputeType<uint32_t> {
  using Type = uint32_t;
};
template <>
struct ComputeType<int4_t> {
  using Type = int32_t;
};
template <>
struct ComputeType<uint4_t> {
  using Type = int32_t;
};

namespace detail {

// The range of the integers that convert() saturates to.
template <class T>
struct NarrowInteger {
  static constexpr bool kSaturates = kSame<T, int8_t> || kSame<T, uint8_t> || kIsInt4<T>;
  static constexpr int kBits = kIsInt4<T> ? 4 : 8;
  static constexpr int kLow = kSame<T, int8_t> || kSame<T, int4_t> ? -(1 << (kBits - 1)) : 0;
  static constexpr int kHigh = kLow + (1 << kBits) - 1;
};

}  // namespace detail

// To 8- and 4-bit integers: to nearest even, saturating. Otherwise the language's conversion; from double to narrow
// floats by way of float.
template <class To, class From>
WMMA_DEVICE To convert(From x) {
  if constexpr (kSame<To, From>) {
    return x;
  } else if constexpr (detail::NarrowInteger<To>::kSaturates) {
    constexpr int kLow = detail::NarrowInteger<To>::kLow;
    constexpr int kHigh = detail::NarrowInteger<To>::kHigh;
    if constexpr (kSame<From, uint32_t>) {
      return static_cast<To>(static_cast<int32_t>(x > uint32_t{kHigh} ? uint32_t{kHigh} : x));
    } else if constexpr (kIsInteger<From>) {
      const int32_t y = static_cast<int32_t>(x);
      return static_cast<To>(y < kLow ? kLow : (y > kHigh ? kHigh : y));
    } else {
      const float y = arch::max(static_cast<float>(kLow), arch::min(static_cast<float>(kHigh), static_cast<float>(x)));
      return static_cast<To>(static_cast<int32_t>(arch::round_even(y)));
    }
  } else if constexpr (kSame<To, double> || kSame<To, float> || kIsInteger<To>) {
    if constexpr (kSame<From, double> || kIsInteger<From>) {
      return static_cast<To>(x);
    } else {
      return static_cast<To>(static_cast<float>(x));
    }
  } else {
    return To(static_cast<float>(x));
  }
}

}  // namespace wmma
