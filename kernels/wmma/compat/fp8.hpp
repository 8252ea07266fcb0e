// The 8-bit floats by the names of HIP's hip_fp8.h: one, two (x2) and four (x4) in a word. As HIP's do by default they
// saturate: a finite value beyond the range becomes the greatest, where this library's own fp8_e4m3_t makes it a NaN.
#pragma once

#include <wmma/compat/half.hpp>

namespace wmma::compat {

// What the greatest value of a form is.
template <class T>
inline constexpr float kGreatest = kSame<T, fp8_e4m3_t>       ? 448.0f
                                   : kSame<T, fp8_e4m3fnuz_t> ? 240.0f
                                                              : 57344.0f;

// An 8-bit float that saturates.
template <class T>
struct Saturated {
  uint8_t __x;
  Saturated() = default;
  WMMA_DEVICE explicit Saturated(float x) {
    const float size = x < 0 ? -x : x;
    const bool beyond = size > kGreatest<T> && size <= 0x1.fffffep127f;
    __x = T(beyond ? (x < 0 ? -kGreatest<T> : kGreatest<T>) : x).bits;
  }
  WMMA_DEVICE explicit operator float() const { return arch::bit_cast<T>(__x); }
};

// Two and four of them, the first in the lowest bits.
template <class T>
struct Saturated2 {
  uint16_t __x;
  Saturated2() = default;
  WMMA_DEVICE explicit Saturated2(float2 v) : __x(Saturated<T>(v.x).__x | Saturated<T>(v.y).__x << 8) {}
  WMMA_DEVICE explicit operator float2() const { return {at(0), at(1)}; }

 private:
  WMMA_DEVICE float at(int i) const { return arch::bit_cast<T>(static_cast<uint8_t>(__x >> 8 * i)); }
};
template <class T>
struct Saturated4 {
  uint32_t __x;
  Saturated4() = default;
  WMMA_DEVICE explicit Saturated4(float4 v)
      : __x(Saturated2<T>({v.x, v.y}).__x | static_cast<uint32_t>(Saturated2<T>({v.z, v.w}).__x) << 16) {}
  WMMA_DEVICE explicit operator float4() const { return {at(0), at(1), at(2), at(3)}; }

 private:
  WMMA_DEVICE float at(int i) const { return arch::bit_cast<T>(static_cast<uint8_t>(__x >> 8 * i)); }
};

}  // namespace wmma::compat

#if !defined(WMMA_HIP_NAMES)

#define WMMA_FP8(name, T)                                       \
  using __hip_fp8_##name = wmma::compat::Saturated<wmma::T>;    \
  using __hip_fp8x2_##name = wmma::compat::Saturated2<wmma::T>; \
  using __hip_fp8x4_##name = wmma::compat::Saturated4<wmma::T>;

// OCP's forms and the FNUZ forms of gfx942.
WMMA_FP8(e4m3, fp8_e4m3_t)
WMMA_FP8(e5m2, fp8_e5m2_t)
WMMA_FP8(e4m3_fnuz, fp8_e4m3fnuz_t)
WMMA_FP8(e5m2_fnuz, fp8_e5m2fnuz_t)
#undef WMMA_FP8

#endif
