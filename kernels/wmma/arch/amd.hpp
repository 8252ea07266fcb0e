// What every AMD target shares: the index names, lane moves, synchronisation, conversions and single instructions.
#pragma once

#include <wmma/target.hpp>

// hiprtc and hip_runtime.h bring threadIdx and its neighbours. Elsewhere block and grid sizes come from the implicit
// kernel arguments of code object version 5: u32 hidden_block_count_{x,y,z} at byte 0, 4, 8 and
// u16 hidden_group_size_{x,y,z} at byte 12, 14, 16.
#ifndef WMMA_HIP_NAMES
#define WMMA_INDEX(name, expression)                    \
  __declspec(property(get = get_##name)) unsigned name; \
  static __device__ __forceinline__ unsigned get_##name() { return expression; }

namespace wmma::arch {

using ImplicitArguments = const __attribute__((address_space(4))) unsigned short*;

struct ThreadIndex {
  WMMA_INDEX(x, __builtin_amdgcn_workitem_id_x())
  WMMA_INDEX(y, __builtin_amdgcn_workitem_id_y())
  WMMA_INDEX(z, __builtin_amdgcn_workitem_id_z())
};

struct BlockIndex {
  WMMA_INDEX(x, __builtin_amdgcn_workgroup_id_x())
  WMMA_INDEX(y, __builtin_amdgcn_workgroup_id_y())
  WMMA_INDEX(z, __builtin_amdgcn_workgroup_id_z())
};

struct BlockSize {
  WMMA_INDEX(x, (((ImplicitArguments)__builtin_amdgcn_implicitarg_ptr())[6]))
  WMMA_INDEX(y, (((ImplicitArguments)__builtin_amdgcn_implicitarg_ptr())[7]))
  WMMA_INDEX(z, (((ImplicitArguments)__builtin_amdgcn_implicitarg_ptr())[8]))
};

struct GridSize {
  using Words = const __attribute__((address_space(4))) unsigned*;
  WMMA_INDEX(x, (((Words)__builtin_amdgcn_implicitarg_ptr())[0]))
  WMMA_INDEX(y, (((Words)__builtin_amdgcn_implicitarg_ptr())[1]))
  WMMA_INDEX(z, (((Words)__builtin_amdgcn_implicitarg_ptr())[2]))
};

}  // namespace wmma::arch

#undef WMMA_INDEX

extern const __device__ __attribute__((weak)) wmma::arch::ThreadIndex threadIdx;
extern const __device__ __attribute__((weak)) wmma::arch::BlockIndex blockIdx;
extern const __device__ __attribute__((weak)) wmma::arch::BlockSize blockDim;
extern const __device__ __attribute__((weak)) wmma::arch::GridSize gridDim;
#endif

namespace wmma::arch {

// Facts of the target: what loops and tiles ask by name. Of gfx908 to gfx950, of gfx11 and gfx12, of gfx12 alone:
constexpr bool kIsCdna = WMMA_TARGET < 0x1100;
constexpr bool kIsRdna = !kIsCdna;
constexpr bool kIsRdna4 = WMMA_TARGET >= 0x1200;

constexpr int kWaveSize = kIsCdna ? 64 : 32;
constexpr int kSharedAlignment = 16;                          // of dynamic shared memory
constexpr int kUnitSharedBytes = 163840;                      // shared memory of gfx950's compute unit
constexpr int kBankBytes = WMMA_TARGET == 0x950 ? 256 : 128;  // what shared memory's banks give in a cycle
// So many sets of them serve as many groups of lanes at once, where what these ask for lies in different ones.
constexpr int kBankSets = kIsRdna && WMMA_TARGET != 0x1250 ? 2 : 1;

// Words that are one value to the compiler. Those of an array are several: what a loop carries on in them ROCm's takes
// apart into halves, a register each, and spills, or leaves in private memory. They take neighbouring registers,
// though, of which RDNA's kernels, where no other holds sums, have too few.
constexpr bool kHoldsWords = kIsCdna;

// Whether the waves of a block of eight share SIMDs by twos, and products run beside what the other wave does; gfx908
// waits at every barrier for all that is on its way.
constexpr bool kTakesTurns = kIsCdna && WMMA_TARGET != 0x908;

// Whether a wave that finds the memory's queue full keeps the matrix unit waiting: its loads are spread among products.
constexpr bool kSpreadsLoads = kIsRdna;

// Whether vector instructions wait for the matrix unit.
constexpr bool kVectorWaits = kIsRdna;

// Whether registers hold the rows of two steps: gfx11 has each operand twice.
constexpr bool kReadsRowsAhead = kIsRdna4;

// Whether both halves of a wave hold all of an operand.
constexpr bool kHoldsOperandsTwice = kIsRdna && !kIsRdna4;

// Columns of operands that a lane reads at once.
constexpr int kMostChunks = 4;

// Chunks of operands that are loaded once, of a thread, in flight together.
constexpr int kMostAtOnce = 8;

// Whether waves of a block may be at different steps of one tile; whether edges of what a row sees are looked at one by
// one; and whether four numbers are multiplied up more quickly than three are inverted.
constexpr bool kWavesPart = true;
constexpr bool kLooksAtEdges = true;
constexpr bool kSharesReciprocals = false;

// How little time products of 16 bits take, by their number in a cycle.
constexpr int kProductRate = WMMA_TARGET == 0x950 ? 4 : WMMA_TARGET == 0x942 ? 2 : 1;

// Whether two floats are rounded to 16 bits, of either type, by one instruction.
constexpr bool kRoundsPairs = WMMA_TARGET == 0x950;

// How many columns of results a branch may scale. By clang 19 they get lost: on gfx908 on the way back to the loop's
// head, on gfx1201 where they fill the registers; on gfx908 they are moved for it in any case. Of wide ones on RDNA4
// ROCm 7.2's code generator loses some too.
constexpr int kMostScaledColumns = WMMA_TARGET == 0x908 || __clang_major__ < 20 ? 0 : kIsRdna4 ? 128 : 1 << 30;

// Nanoseconds between two ticks of wall_clock(); and the bits of cycle_counter(): gfx11 has 20 of its cycles and
// nothing above them.
constexpr uint32_t kTickNanoseconds = WMMA_TARGET <= 0x90a ? 40 : 10;
constexpr int kCycleBits = kHoldsOperandsTwice ? 20 : 32;

// The accumulator of a product with A and B exchanged is D transposed.
constexpr bool kSwapsOperands = true;

// No instruction has eight rows or columns.
WMMA_CONSTEXPR bool takes_eight() { return false; }

template <class To, class From>
WMMA_DEVICE To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

// The sizeof(To) bytes at `x`, as one register vector.
template <class To, class T>
WMMA_DEVICE To pack(const T* x) {
  To to;
  __builtin_memcpy(&to, x, sizeof(To));
  return to;
}

template <class T, class From>
WMMA_DEVICE void unpack(T* x, const From& from) {
  __builtin_memcpy(x, &from, sizeof(From));
}

template <int kBytes>
WMMA_DEVICE void copy_bytes(void* to, const void* from) {
  __builtin_memcpy(to, from, kBytes);
}

// One memory instruction for kCount elements. AMD's global memory needs no alignment beyond the element's.
template <int kCount, class T>
WMMA_DEVICE void copy(T* to, const T* from) {
  __builtin_memcpy(to, from, kCount * sizeof(T));
}

// The same by way of registers for sure: what is only copied on, compilers may keep in private memory.
template <int kCount, class T>
WMMA_DEVICE void copy_value(T* to, const T* from) {
  if constexpr (kCount * sizeof(T) == 16) {
    using Wide = uint32_t __attribute__((ext_vector_type(4), aligned(sizeof(T)), may_alias));
    *reinterpret_cast<Wide*>(to) = *reinterpret_cast<const Wide*>(from);
  } else {
    copy<kCount>(to, from);
  }
}

template <int kCount>
using Words = uint32_t __attribute__((ext_vector_type(kCount)));

template <int kCount, class T>
WMMA_DEVICE Words<kCount> load_words(const T* from) {
  using Unaligned = uint32_t __attribute__((ext_vector_type(kCount), aligned(sizeof(T)), may_alias));
  return *reinterpret_cast<const Unaligned*>(from);
}

template <int kBytes, class T>
WMMA_DEVICE bool is_aligned(const T*, uint32_t) {
  return true;
}

WMMA_DEVICE uint32_t lane_id() {
  const uint32_t below = __builtin_amdgcn_mbcnt_lo(~0u, 0u);
  return kIsCdna ? __builtin_amdgcn_mbcnt_hi(~0u, below) : below;
}

// A value that all lanes share, moved to a scalar register.
WMMA_DEVICE uint32_t uniform(uint32_t value) { return __builtin_amdgcn_readfirstlane(value); }

WMMA_DEVICE void prefetch(const void*) {}
WMMA_DEVICE void prefetch_near(const void*) {}

WMMA_DEVICE void block_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// The same for shared memory alone: what is on its way from or to other memory stays there.
WMMA_DEVICE void shared_barrier() {
  if constexpr (kIsRdna4) {
    asm volatile("s_wait_dscnt 0x0" ::: "memory");
  } else {
    asm volatile("s_waitcnt lgkmcnt(0)" ::: "memory");
  }
  __builtin_amdgcn_s_barrier();
  asm volatile("" ::: "memory");
}

// Between writing tiles of shared memory and reading them: where the block's fences would wait for loads that are on
// their way, and empty the caches, shared memory's alone.
WMMA_DEVICE void tile_barrier() { kIsCdna ? block_barrier() : shared_barrier(); }

// gfx950 copies from memory to shared memory past the registers, and reads transposed from there.
WMMA_DEVICE uint32_t shared_address(const unsigned char* at) {
  using Shared = __attribute__((address_space(3))) const unsigned char*;
  return reinterpret_cast<uint32_t>((Shared)at);
}
// Each lane's 16 bytes at `offset` go to its place in the 1 KB of shared memory at `to`, which all lanes of the wave
// have in common, as `from`. The compiler does not know of the copy in flight: it would wait for it before every read.
WMMA_DEVICE void load_to_shared(const char* from, uint32_t offset, uint32_t to) {
  const uint32_t place = uniform(to);
  asm volatile("s_mov_b32 m0, %2\n\ts_nop 0\n\tglobal_load_lds_dwordx4 %0, %1" ::"v"(offset), "s"(from), "s"(place)
               : "memory");
}
// Of 16 lanes, each with 8 bytes of a matrix of four lines of 16 elements, each gets a column.
WMMA_DEVICE void read_transposed([[maybe_unused]] uint32_t* words, [[maybe_unused]] const unsigned char* at) {
#if WMMA_TARGET == 0x950
  using Short4 = short __attribute__((ext_vector_type(4)));
  using Shared = __attribute__((address_space(3))) Short4*;
  const Short4 x = __builtin_amdgcn_ds_read_tr16_b64_v4i16((Shared)(at));
  __builtin_memcpy(words, &x, 8);
#endif
}
// All but the last kLeft are there.
template <int kLeft>
WMMA_DEVICE void wait_copies() {
  asm volatile("s_waitcnt vmcnt(%0)" ::"n"(kLeft) : "memory");
}
// What all waves have put in flight is there, and none reads what lay there before.
WMMA_DEVICE void copies_barrier() {
  wait_copies<0>();
  shared_barrier();
}

// How soon a wave's instructions go before those of the SIMD's others.
template <int kPriority>
WMMA_DEVICE void priority() {
  __builtin_amdgcn_s_setprio(kPriority);
}

WMMA_DEVICE void wave_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

WMMA_DEVICE void fence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
WMMA_DEVICE void fence_device() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
WMMA_DEVICE void fence_system() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }

// Keeps the compiler's scheduler from moving instructions across: bounds the registers of long unrolled sequences.
WMMA_DEVICE void schedule_barrier() { __builtin_amdgcn_sched_barrier(0); }

// The same value, but nothing computed from it is shared with what was computed from it elsewhere: recomputing keeps
// fewer registers alive than sharing does.
template <class T>
WMMA_DEVICE T unshared(T value) {
  asm volatile("" : "+v"(value));
  return value;
}

// The value is computed before what follows: where a branch does, its computation would otherwise move behind it, and
// all that it reads would stay in registers meanwhile.
template <class T>
WMMA_DEVICE void settle(const T& value) {
  asm volatile("" ::"v"(value));
}

// The same value, which all lanes share: it is computed before what follows, and what is computed from it behind this.
WMMA_DEVICE int renewed(int value) {
  value = static_cast<int>(uniform(static_cast<uint32_t>(value)));
  asm volatile("" : "+s"(value));
  return value;
}
// The same of where something lies in the device's memory.
WMMA_DEVICE const char* renewed(const char* value) {
  const uint64_t bits = reinterpret_cast<uint64_t>(value);
  const uint32_t low = renewed(static_cast<int>(bits));
  const uint32_t high = renewed(static_cast<int>(bits >> 32));
  return (const char*)reinterpret_cast<__attribute__((address_space(1))) const char*>(
      static_cast<uint64_t>(high) << 32 | low);
}

// The same value in kCount neighbouring registers, which are no constants to the compiler: matrix instructions that
// start from them need no copies.
template <int kCount>
WMMA_DEVICE void spread(float* x, float value) {
  using Floats = float __attribute__((ext_vector_type(kCount)));
  Floats all = value;
  asm volatile("" : "+v"(all));
  unpack(x, all);
}

// Four words, from here on in accumulation registers, which matrix instructions read as they read others: where a
// kernel takes more than 256 registers, ROCm's compiler else keeps them there and moves them back for each product.
WMMA_DEVICE void set_aside(uint32_t* words) {
  Words<4> all = pack<Words<4> >(words);
  asm volatile("" : "+a"(all));
  unpack(words, all);
}

// The same values as ones that the compiler knows nothing of, in kCount neighbouring registers: where two ways meet
// they stay there. ROCm's else takes each for a value of its own there and copies all of them, on both ways.
template <int kCount>
WMMA_DEVICE void together(float* x) {
  using Floats = float __attribute__((ext_vector_type(kCount)));
  Floats all = pack<Floats>(x);
  asm volatile("" : "+v"(all));
  unpack(x, all);
}

// `value` is known only after `other`: the compiler puts none of what is computed from the one and what leads to the
// other into one packed instruction, which would wait for the other waves' matrix instructions.
template <class T>
WMMA_DEVICE void follows(T& value, T& other) {
  asm volatile("" : "+v"(value), "+v"(other));
}

// Two 16-bit halves, the low ones (kHigh: the high ones) of two words, as one word.
template <bool kHigh>
WMMA_DEVICE uint32_t pair_halves(uint32_t first, uint32_t second) {
  return __builtin_amdgcn_perm(second, first, kHigh ? 0x07060302u : 0x05040100u);
}

// Four bytes of two words: the selectors 0 to 3 name those of the first, 4 to 7 those of the second.
WMMA_DEVICE uint32_t pick_bytes(uint32_t first, uint32_t second, uint32_t selectors) {
  return __builtin_amdgcn_perm(second, first, selectors);
}

// Marks an offset as new in each round of a loop. Its widening to 64 bits then stays beside the load, where instruction
// selection can fold it into a scalar base plus a 32-bit offset.
WMMA_DEVICE void renew(uint32_t& offset) { asm volatile("" : "+v"(offset)); }
WMMA_DEVICE void renew(int64_t&) {}

WMMA_DEVICE uint32_t shuffle_word(uint32_t word, uint32_t source_lane) {
  return __builtin_amdgcn_ds_bpermute(static_cast<int>(source_lane << 2), static_cast<int>(word));
}

// The word of the lane in the same place of the other half of the wave.
WMMA_DEVICE uint32_t other_half(uint32_t word) {
  return __builtin_amdgcn_permlanex16(word, word, 0x76543210u, 0xfedcba98u, false, true);  // overwrites nothing
}
// Whether the lane is of the upper half, in the register from which selects pair.
WMMA_DEVICE bool is_upper_half(uint32_t lane) {
#if __has_builtin(__builtin_amdgcn_inverse_ballot_w32)
  uint32_t lanes = 0xffff0000u;
  asm("" : "+s"(lanes));
  return __builtin_amdgcn_inverse_ballot_w32(lanes);
#else
  return lane >= 16;
#endif
}

WMMA_DEVICE uint64_t ballot(bool vote) {
#ifndef WMMA_CDNA
  return __builtin_amdgcn_ballot_w32(vote);
#elif __has_builtin(__builtin_amdgcn_ballot_w64)
  return __builtin_amdgcn_ballot_w64(vote);
#else
  return __builtin_amdgcn_uicmp(vote, 0u, 33);  // clang 15: lanes where vote differs from 0
#endif
}

WMMA_DEVICE int count_bits(uint64_t bits) { return __builtin_popcountll(bits); }

// Ticks of the clock of constant rate, in 64 bits.
WMMA_DEVICE uint64_t wall_clock() {
#ifdef WMMA_CDNA
  return __builtin_amdgcn_s_memrealtime();
#else
  return __builtin_amdgcn_s_sendmsg_rtnl(0x83);  // GET_REALTIME
#endif
}

// Sleeps for some of the time that is left: 64 or 127 · 64 cycles.
WMMA_DEVICE void doze(uint64_t nanoseconds) {
  if (uniform(nanoseconds > 10000) != 0) {  // a sleep is the whole wave's, its lanes on or off
    __builtin_amdgcn_s_sleep(127);
  } else {
    __builtin_amdgcn_s_sleep(1);
  }
}

// Of gfx11 what is read as 64 bits is the other clock.
WMMA_DEVICE uint64_t clock() { return kCycleBits < 32 ? wall_clock() : __builtin_readcyclecounter(); }
WMMA_DEVICE uint32_t cycle_counter() {
  if constexpr (kIsCdna) return static_cast<uint32_t>(__builtin_readcyclecounter());
  return __builtin_amdgcn_s_getreg(29 | 31 << 11);  // SHADER_CYCLES, or the low half of it
}

// Ends the wave with trap 2, the abort of the runtime's trap handler.
WMMA_DEVICE void trap() { asm volatile("s_trap 2"); }

#if __has_builtin(__builtin_amdgcn_exp2f)
WMMA_DEVICE float exp2(float x) { return __builtin_amdgcn_exp2f(x); }
WMMA_DEVICE float log2(float x) { return __builtin_amdgcn_logf(x); }
#else
WMMA_DEVICE float exp2(float x) { return __builtin_exp2f(x); }
WMMA_DEVICE float log2(float x) { return __builtin_log2f(x); }
#endif
WMMA_DEVICE float rcp(float x) { return __builtin_amdgcn_rcpf(x); }
WMMA_DEVICE float rsqrt(float x) { return __builtin_amdgcn_rsqf(x); }
WMMA_DEVICE float sqrt(float x) { return __builtin_amdgcn_sqrtf(x); }
// v_sin and v_cos take revolutions.
WMMA_DEVICE float sin(float x) { return __builtin_amdgcn_sinf(x * 0.15915494309189535f); }
WMMA_DEVICE float cos(float x) { return __builtin_amdgcn_cosf(x * 0.15915494309189535f); }
WMMA_DEVICE float round_even(float x) { return __builtin_rintf(x); }
WMMA_DEVICE double round_even(double x) { return __builtin_rint(x); }
// The same value, of which the compiler does not know how it was computed: what is computed from it is so in the same
// way wherever it stands.
template <class T>
WMMA_DEVICE T apart(T value) {
  return unshared(value);
}
// A product that is rounded as such: no sum takes it in.
template <class T>
WMMA_DEVICE T rounded_product(T a, T b) {
  return apart(a * b);
}
WMMA_DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
WMMA_DEVICE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
WMMA_DEVICE float min(float a, float b) { return __builtin_fminf(a, b); }
WMMA_DEVICE float max(float a, float b) { return __builtin_fmaxf(a, b); }
WMMA_DEVICE double min(double a, double b) { return __builtin_fmin(a, b); }
WMMA_DEVICE double max(double a, double b) { return __builtin_fmax(a, b); }
WMMA_DEVICE float abs(float x) { return __builtin_fabsf(x); }
// x within ±most; a NaN is one of the two.
WMMA_DEVICE float within(float x, float most) { return __builtin_amdgcn_fmed3f(x, -most, most); }

WMMA_DEVICE uint16_t half_from_float(float x) { return bit_cast<uint16_t>(static_cast<_Float16>(x)); }
WMMA_DEVICE float float_from_half(uint16_t bits) { return static_cast<float>(bit_cast<_Float16>(bits)); }

// A bf16 in the upper half of a word; what stands in the lower one means nothing.
WMMA_DEVICE uint32_t bf16_above(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x);
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return x != x ? bits | 0x400000u : rounded;
}

WMMA_DEVICE uint16_t bf16_from_float(float x) {
#if WMMA_TARGET == 0x950 || WMMA_TARGET == 0x1250
  return bit_cast<uint16_t>(static_cast<__bf16>(x));  // one instruction there
#else
  return static_cast<uint16_t>(bf16_above(x) >> 16);
#endif
}

// Two floats as the halves of a word, the first one low.
WMMA_DEVICE uint32_t half_pair(float first, float second) {
#if WMMA_TARGET == 0x950
  using Floats = float __attribute__((ext_vector_type(2)));
  using Halves = _Float16 __attribute__((ext_vector_type(2)));
  return bit_cast<uint32_t>(__builtin_convertvector((Floats{first, second}), Halves));  // one instruction there
#else
  return pair_halves<false>(half_from_float(first), half_from_float(second));
#endif
}
WMMA_DEVICE uint32_t bf16_pair(float first, float second) {
#if WMMA_TARGET == 0x950 || WMMA_TARGET == 0x1250
  using Floats = float __attribute__((ext_vector_type(2)));
  using Halves = __bf16 __attribute__((ext_vector_type(2)));
  return bit_cast<uint32_t>(__builtin_convertvector((Floats{first, second}), Halves));
#else
  return pair_halves<true>(bf16_above(first), bf16_above(second));
#endif
}

// As bf16_pair, but halves of a unit are rounded away from zero, and a NaN with all its bits set is lost.
WMMA_DEVICE uint32_t bf16_pair_quick(float first, float second) {
#if WMMA_TARGET == 0x950 || WMMA_TARGET == 0x1250
  return bf16_pair(first, second);
#else
  return pair_halves<true>(bit_cast<uint32_t>(first) + 0x8000u, bit_cast<uint32_t>(second) + 0x8000u);
#endif
}

// The same with what does not fit cut off; one instruction.
WMMA_DEVICE uint32_t half_pair_cut(float first, float second) {
  return bit_cast<uint32_t>(__builtin_amdgcn_cvt_pkrtz(first, second));
}
WMMA_DEVICE uint32_t bf16_pair_cut(float first, float second) {
  return pair_halves<true>(bit_cast<uint32_t>(first), bit_cast<uint32_t>(second));
}

WMMA_DEVICE uint32_t multiply_halves(uint32_t a, uint32_t b) {
  using Halves = _Float16 __attribute__((ext_vector_type(2)));
  return bit_cast<uint32_t>(bit_cast<Halves>(a) * bit_cast<Halves>(b));
}

// Two neighbours of the four numbers of OCP's e4m3 in a word, the first ones or (kHigh) the last.
#if WMMA_TARGET == 0x950 || defined(WMMA_RDNA4)
constexpr bool kConvertsE4m3 = true;
template <bool kHigh>
WMMA_DEVICE uint32_t half_pair_of_e4m3(uint32_t word) {
  const auto pair = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(word), kHigh);
  return half_pair_cut(pair[0], pair[1]);  // which cuts nothing
}
template <bool kHigh>
WMMA_DEVICE uint32_t bf16_pair_of_e4m3(uint32_t word) {
  const auto pair = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(word), kHigh);
  return bf16_pair_cut(pair[0], pair[1]);
}
#else
constexpr bool kConvertsE4m3 = false;
template <bool kHigh>
uint32_t half_pair_of_e4m3(uint32_t);
template <bool kHigh>
uint32_t bf16_pair_of_e4m3(uint32_t);
#endif

// Fragments have no loads of their own from shared memory here: lanes read their runs.
template <class Kind, class Fragment, bool kRowMajor, class T, class Data>
WMMA_DEVICE bool load_shared_tiles(T*, const Data*, uint32_t) {
  return false;
}

}  // namespace wmma::arch
