// Counting and moving bits, reading one type's as another's, rounding to integers: CUDA and HIP's names.
#pragma once

#include <wmma/types.hpp>

#if !defined(WMMA_NVIDIA) && !defined(WMMA_HIP_NAMES)

// How many bits are set, how many zeros lead, where the lowest set bit stands (from 1; 0 for none), the bits reversed.
WMMA_DEVICE int __popc(unsigned x) { return __builtin_popcount(x); }
WMMA_DEVICE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
WMMA_DEVICE int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
WMMA_DEVICE int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
WMMA_DEVICE int __ffs(int x) { return __builtin_ffs(x); }
WMMA_DEVICE int __ffsll(long long x) { return __builtin_ffsll(x); }
WMMA_DEVICE unsigned __brev(unsigned x) { return __builtin_bitreverse32(x); }
WMMA_DEVICE unsigned long long __brevll(unsigned long long x) { return __builtin_bitreverse64(x); }

// Four bytes of two words: each digit of the selector names one, 0 to 3 of x and 4 to 7 of y.
WMMA_DEVICE unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const wmma::uint64_t both = x | static_cast<wmma::uint64_t>(y) << 32;
  unsigned result = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) result |= static_cast<unsigned>(both >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return result;
}

// The upper (left) or lower (right) word of high:low, shifted by `shift` modulo 32.
WMMA_DEVICE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<wmma::uint64_t>(high) << 32 | low) << (shift & 31) >> 32);
}
WMMA_DEVICE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<wmma::uint64_t>(high) << 32 | low) >> (shift & 31));
}

// The upper half of a product; products of 24 bits.
WMMA_DEVICE unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(static_cast<wmma::uint64_t>(x) * y >> 32);
}
WMMA_DEVICE int __mulhi(int x, int y) { return static_cast<int>(static_cast<wmma::int64_t>(x) * y >> 32); }
WMMA_DEVICE unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
WMMA_DEVICE int __mul24(int x, int y) { return static_cast<int>(static_cast<unsigned>(x << 8 >> 8) * (y << 8 >> 8)); }
WMMA_DEVICE unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffff) * (y & 0xffffff); }

// Averages without overflow, absolute differences added to z.
WMMA_DEVICE unsigned __sad(int x, int y, unsigned z) {
  return z + (x > y ? static_cast<unsigned>(x) - y : static_cast<unsigned>(y) - x);
}
WMMA_DEVICE unsigned __usad(unsigned x, unsigned y, unsigned z) { return z + (x > y ? x - y : y - x); }
WMMA_DEVICE int __hadd(int x, int y) { return static_cast<int>((static_cast<wmma::int64_t>(x) + y) >> 1); }
WMMA_DEVICE int __rhadd(int x, int y) { return static_cast<int>((static_cast<wmma::int64_t>(x) + y + 1) >> 1); }

// The bits of one type as another.
WMMA_DEVICE int __float_as_int(float x) { return wmma::arch::bit_cast<int>(x); }
WMMA_DEVICE unsigned __float_as_uint(float x) { return wmma::arch::bit_cast<unsigned>(x); }
WMMA_DEVICE float __int_as_float(int x) { return wmma::arch::bit_cast<float>(x); }
WMMA_DEVICE float __uint_as_float(unsigned x) { return wmma::arch::bit_cast<float>(x); }
WMMA_DEVICE long long __double_as_longlong(double x) { return wmma::arch::bit_cast<long long>(x); }
WMMA_DEVICE double __longlong_as_double(long long x) { return wmma::arch::bit_cast<double>(x); }
WMMA_DEVICE int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
WMMA_DEVICE int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x)); }
WMMA_DEVICE double __hiloint2double(int high, int low) {
  return __longlong_as_double(
      static_cast<long long>(static_cast<unsigned long long>(high) << 32 | static_cast<unsigned>(low)));
}

// To integers and back: _rn to nearest even, _rz towards zero.
WMMA_DEVICE int __float2int_rn(float x) { return static_cast<int>(wmma::arch::round_even(x)); }
WMMA_DEVICE int __float2int_rz(float x) { return static_cast<int>(x); }
WMMA_DEVICE unsigned __float2uint_rn(float x) { return static_cast<unsigned>(wmma::arch::round_even(x)); }
WMMA_DEVICE unsigned __float2uint_rz(float x) { return static_cast<unsigned>(x); }
WMMA_DEVICE int __double2int_rn(double x) { return static_cast<int>(wmma::arch::round_even(x)); }
WMMA_DEVICE int __double2int_rz(double x) { return static_cast<int>(x); }
WMMA_DEVICE float __int2float_rn(int x) { return static_cast<float>(x); }
WMMA_DEVICE float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
WMMA_DEVICE double __int2double_rn(int x) { return x; }
WMMA_DEVICE float __double2float_rn(double x) { return static_cast<float>(x); }

#endif
