// What every NVIDIA target shares: lane moves, synchronisation, conversions and single instructions. The index names,
// barriers and votes are nvcc's and NVRTC's own.
#pragma once

#include <wmma/target.hpp>

namespace wmma::arch {

// Facts of the target, as amd.hpp has them.
constexpr bool kIsCdna = false;
constexpr bool kIsRdna = false;
constexpr int kWaveSize = 32;
constexpr int kBankBytes = 128;  // what shared memory's banks give in a cycle
constexpr int kBankSets = 1;
constexpr int kSharedAlignment = WMMA_TARGET >= 900 ? 1024 : 16;  // sm_90's matrix unit reads rows of banks by eights
constexpr bool kHoldsWords = false;                               // an array's elements are kept in registers
constexpr bool kTakesTurns = false;
constexpr bool kSpreadsLoads = false;
constexpr bool kVectorWaits = false;
constexpr bool kReadsRowsAhead = false;
constexpr int kMostChunks = 2;
constexpr int kMostAtOnce = 1;  // each is stored when it comes: registers are few in the gradients' kernels
constexpr bool kWavesPart = false;
constexpr bool kLooksAtEdges = false;  // without warpgroups registers would spill
constexpr bool kSharesReciprocals = true;
constexpr int kProductRate = 1;
constexpr bool kRoundsPairs = true;
constexpr int kMostScaledColumns = 0;
constexpr uint32_t kTickNanoseconds = 1;
constexpr int kCycleBits = 32;

// Two accumulators of mma.m16n8 already lie as A of the next product: no exchange of A and B is needed.
constexpr bool kSwapsOperands = false;

// Instructions have eight columns, and as many rows with A and B exchanged.
WMMA_CONSTEXPR bool takes_eight() { return true; }

template <class To, class From>
WMMA_DEVICE To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

// The 32-bit register of operand `x` that starts at element `at`.
template <class T>
WMMA_DEVICE uint32_t word(const T* x, int at) {
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < 4 / static_cast<int>(sizeof(T)); ++i) {
    uint32_t part;
    if constexpr (sizeof(T) == 4) {
      part = bit_cast<uint32_t>(x[at + i]);
    } else if constexpr (sizeof(T) == 2) {
      part = bit_cast<uint16_t>(x[at + i]);
    } else {
      part = bit_cast<uint8_t>(x[at + i]);
    }
    bits |= part << (i * 8 * sizeof(T));
  }
  return bits;
}

template <int kBytes>
struct WideType;
template <>
struct WideType<1> {
  using Type = uint8_t;
};
template <>
struct WideType<2> {
  using Type = uint16_t;
};
template <>
struct WideType<4> {
  using Type = uint32_t;
};
template <>
struct WideType<8> {
  using Type = uint2;
};
template <>
struct WideType<16> {
  using Type = uint4;
};

template <int kBytes>
WMMA_DEVICE void copy_bytes(void* to, const void* from) {
  memcpy(to, from, kBytes);
}

// One memory instruction for kCount elements; `from` and `to` (whichever is in memory) are aligned to all of them.
template <int kCount, class T>
WMMA_DEVICE void copy(T* to, const T* from) {
  using Wide = typename WideType<kCount * sizeof(T)>::Type;
  *reinterpret_cast<Wide*>(to) = *reinterpret_cast<const Wide*>(from);
}

template <int kCount, class T>
WMMA_DEVICE void copy_value(T* to, const T* from) {
  copy<kCount>(to, from);
}

template <int kCount>
struct Words {
  typename WideType<4 * kCount>::Type all;
  WMMA_DEVICE uint32_t operator[](int i) const { return reinterpret_cast<const uint32_t*>(&all)[i]; }
};

template <int kCount, class T>
WMMA_DEVICE Words<kCount> load_words(const T* from) {
  return {*reinterpret_cast<const typename WideType<4 * kCount>::Type*>(from)};
}

template <int kBytes, class T>
WMMA_DEVICE bool is_aligned(const T* data, uint32_t ld) {
  return ((reinterpret_cast<uint64_t>(data) | (ld * sizeof(T))) & (kBytes - 1)) == 0;
}

WMMA_DEVICE uint32_t lane_id() {
  uint32_t lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// A value that all lanes share; the compiler finds such values itself.
WMMA_DEVICE uint32_t uniform(uint32_t value) { return value; }

// 16 or 8 bytes of memory that is read once and does not change. Loads keep their order: they are asked for ahead.
template <int kBytes>
WMMA_DEVICE void load_once(uint32_t* words, const void* at) {
  static_assert(kBytes == 16 || kBytes == 8, "wide loads");
  if constexpr (kBytes == 16) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "l"(at));
  } else {
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "l"(at));
  }
}

// Asks the L2 cache for the line that holds the address.
WMMA_DEVICE void prefetch(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }
// And the unit's own.
WMMA_DEVICE void prefetch_near(const void* at) { asm volatile("prefetch.global.L1 [%0];" ::"l"(at)); }

// The address within shared memory of a generic pointer into it.
WMMA_DEVICE uint32_t shared_address(const void* at) {
  uint64_t start;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(start) : "l"(at));
  return static_cast<uint32_t>(start);
}

WMMA_DEVICE void block_barrier() { __syncthreads(); }
WMMA_DEVICE void shared_barrier() { block_barrier(); }
WMMA_DEVICE void tile_barrier() { block_barrier(); }

template <int>
WMMA_DEVICE void priority() {}

// A barrier of kThreads of the block's threads, by its number (the block's own is 0): waits for the others; or tells
// them and goes on.
template <int kThreads>
WMMA_DEVICE void barrier_meet(int number) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}
template <int kThreads>
WMMA_DEVICE void barrier_pass(int number) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}
WMMA_DEVICE void wave_barrier() { __syncwarp(); }
WMMA_DEVICE void fence_block() { __threadfence_block(); }
WMMA_DEVICE void fence_device() { __threadfence(); }
WMMA_DEVICE void fence_system() { __threadfence_system(); }

WMMA_DEVICE void schedule_barrier() {}

template <class T>
WMMA_DEVICE T unshared(T value) {
  return value;
}

template <class T>
WMMA_DEVICE void settle(const T&) {}
template <class T>
WMMA_DEVICE void follows(T&, T&) {}

// Two 16-bit halves, the low ones (kHigh: the high ones) of two words, as one word.
template <bool kHigh>
WMMA_DEVICE uint32_t pair_halves(uint32_t first, uint32_t second) {
  return __byte_perm(first, second, kHigh ? 0x7632 : 0x5410);
}

WMMA_DEVICE uint32_t bf16_pair_cut(float first, float second) {
  return pair_halves<true>(bit_cast<uint32_t>(first), bit_cast<uint32_t>(second));
}

WMMA_DEVICE uint32_t multiply_halves(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// Two neighbours of the four numbers of e4m3 in a word, the first ones or (kHigh) the last.
#if WMMA_TARGET >= 890
constexpr bool kConvertsE4m3 = true;
template <bool kHigh>
WMMA_DEVICE uint32_t half_pair_of_e4m3(uint32_t word) {
  const uint16_t bytes = static_cast<uint16_t>(kHigh ? word >> 16 : word);
  uint32_t pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(bytes));
  return pair;
}
template <bool kHigh>
WMMA_DEVICE uint32_t bf16_pair_of_e4m3(uint32_t word) {
  float first, second;
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
      : "=f"(first), "=f"(second)
      : "r"(half_pair_of_e4m3<kHigh>(word)));
  return bf16_pair_cut(first, second);
}
// Four numbers as those of e4m3, the first in the lowest byte; beyond its largest is that.
WMMA_DEVICE uint32_t e4m3_of(float a, float b, float c, float d) {
  uint32_t word;
  asm("{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high}; }"
      : "=r"(word)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return word;
}
#else
constexpr bool kConvertsE4m3 = false;
uint32_t e4m3_of(float, float, float, float);
template <bool kHigh>
uint32_t half_pair_of_e4m3(uint32_t);
template <bool kHigh>
uint32_t bf16_pair_of_e4m3(uint32_t);
#endif

// Four bytes of two words: the selectors 0 to 3 name those of the first, 4 to 7 those of the second.
WMMA_DEVICE uint32_t pick_bytes(uint32_t first, uint32_t second, uint32_t selectors) {
  return __byte_perm(first, second,
                     (selectors & 7) | (selectors >> 4 & 0x70) | (selectors >> 8 & 0x700) | (selectors >> 12 & 0x7000));
}

WMMA_DEVICE void renew(uint32_t& value) { asm volatile("" : "+r"(value)); }
WMMA_DEVICE void renew(int64_t&) {}

WMMA_DEVICE uint32_t shuffle_word(uint32_t word, uint32_t source_lane) {
  return __shfl_sync(~0u, word, static_cast<int>(source_lane));
}

WMMA_DEVICE uint64_t ballot(bool vote) { return __ballot_sync(~0u, vote); }
WMMA_DEVICE int count_bits(uint64_t bits) { return __popcll(bits); }

// The multiprocessor's clock in cycles.
WMMA_DEVICE uint64_t clock() { return static_cast<uint64_t>(clock64()); }
WMMA_DEVICE uint32_t cycle_counter() { return static_cast<uint32_t>(::clock()); }
WMMA_DEVICE uint64_t wall_clock() {
  uint64_t nanoseconds;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  return nanoseconds;
}

// Sleeps for some of the time that is left, a millisecond at most.
WMMA_DEVICE void doze(uint64_t nanoseconds) {
  const uint32_t some = nanoseconds < 1000000 ? static_cast<uint32_t>(nanoseconds) : 1000000;
  asm volatile("nanosleep.u32 %0;" ::"r"(some));
}

WMMA_DEVICE void trap() { asm volatile("trap;" ::: "memory"); }

WMMA_DEVICE float exp2(float x) {
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
WMMA_DEVICE float log2(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
WMMA_DEVICE float rcp(float x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
WMMA_DEVICE float rsqrt(float x) {
  float y;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
WMMA_DEVICE float sqrt(float x) {
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Within half a turn, where alone sin.approx and cos.approx are good to 2^-21.
WMMA_DEVICE float within_turn(float x) {
  const float turns = ::rintf(x * 0.15915494309189535f);
  return ::fmaf(turns, 1.74845560e-7f, ::fmaf(turns, -6.28318548f, x));
}
WMMA_DEVICE float sin(float x) {
  float y;
  asm("sin.approx.f32 %0, %1;" : "=f"(y) : "f"(within_turn(x)));
  return y;
}
WMMA_DEVICE float cos(float x) {
  float y;
  asm("cos.approx.f32 %0, %1;" : "=f"(y) : "f"(within_turn(x)));
  return y;
}
WMMA_DEVICE float round_even(float x) {
  float y;
  asm("cvt.rni.f32.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
WMMA_DEVICE double round_even(double x) {
  double y;
  asm("cvt.rni.f64.f64 %0, %1;" : "=d"(y) : "d"(x));
  return y;
}
// The same value, of which the compiler does not know how it was computed: what is computed from it is so in the same
// way wherever it stands.
WMMA_DEVICE float apart(float value) {
  asm volatile("" : "+f"(value));
  return value;
}
WMMA_DEVICE double apart(double value) {
  asm volatile("" : "+d"(value));
  return value;
}
// A product that is rounded as such: no sum takes it in.
WMMA_DEVICE float rounded_product(float a, float b) { return __fmul_rn(a, b); }
WMMA_DEVICE double rounded_product(double a, double b) { return __dmul_rn(a, b); }
WMMA_DEVICE float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
WMMA_DEVICE double fma(double a, double b, double c) { return ::fma(a, b, c); }
WMMA_DEVICE float min(float a, float b) { return ::fminf(a, b); }
WMMA_DEVICE float max(float a, float b) { return ::fmaxf(a, b); }
WMMA_DEVICE double min(double a, double b) { return ::fmin(a, b); }
WMMA_DEVICE double max(double a, double b) { return ::fmax(a, b); }
WMMA_DEVICE float abs(float x) { return ::fabsf(x); }
// x within ±most; a NaN is one of the two.
WMMA_DEVICE float within(float x, float most) { return ::fmaxf(::fminf(x, most), -most); }

WMMA_DEVICE uint16_t half_from_float(float x) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
WMMA_DEVICE float float_from_half(uint16_t bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
WMMA_DEVICE uint16_t bf16_from_float(float x) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

// Two floats as the halves of a word, the first one low.
#define WMMA_PAIR(name, kind)                                                   \
  WMMA_DEVICE uint32_t name(float first, float second) {                        \
    uint32_t word;                                                              \
    asm("cvt." kind ".f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first)); \
    return word;                                                                \
  }
WMMA_PAIR(half_pair, "rn.f16x2")
WMMA_PAIR(bf16_pair, "rn.bf16x2")
// The same of what is below 0 made 0; a NaN stays one.
WMMA_PAIR(half_pair_relu, "rn.relu.f16x2")
WMMA_PAIR(bf16_pair_relu, "rn.relu.bf16x2")
#undef WMMA_PAIR

WMMA_DEVICE uint32_t bf16_pair_quick(float first, float second) { return bf16_pair(first, second); }

}  // namespace wmma::arch
