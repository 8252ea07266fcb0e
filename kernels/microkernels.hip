// Kernels of which each takes the time of one thing that the hardware does, for `python -m wmma_ops bringup`: a wave
// does MICRO_COUNT of it in each of `rounds` rounds, and writes how many cycles these took. Of two counts the
// difference is free of what the loop and the clock themselves take. wmma_ops/bringup/microkernels.py compiles and
// launches them, on a device and by the emulator's clock.
#include <wmma/clock.hpp>
#include <wmma/fragment.hpp>

using namespace wmma;

// A word is computed; a word is another; and one instruction that no compiler joins with others of its kind. (What PTX
// tells of a word alone its assembler forgets: there none may be a number that none is.)
#ifdef WMMA_NVIDIA
#define KEEP(word) asm volatile("{ .reg .pred p; setp.eq.u32 p, %0, 0xfedcba98; @p trap; }" ::"r"(word) : "memory")
#define RENEW(word) asm volatile("" : "+r"(word)::"memory")
#define FMA(x, one, zero) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x) : "f"(one), "f"(zero))
#define ADD_PAIRS(x, one) static_assert(false, "AMD's alone")
#else
#define KEEP(word) asm volatile("" ::"v"(word) : "memory")
#define RENEW(word) asm volatile("" : "+v"(word)::"memory")
#define FMA(x, one, zero)      \
  x = arch::fma(x, one, zero); \
  asm volatile("" : "+v"(x))
#define ADD_PAIRS(x, one) asm volatile("v_pk_add_f32 %0, %0, %1" : "+v"(x) : "v"(one))
#endif

// All waves begin together; each writes its time.
template <class Work>
WMMA_DEVICE void timed(uint32_t* cycles, int rounds, const Work& work) {
  arch::block_barrier();
  const uint32_t start = cycle_counter();
  arch::schedule_barrier();
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    work();
    arch::schedule_barrier();
  }
  arch::schedule_barrier();
  const uint32_t end = cycle_counter();
  if (lane_id() == 0)
    cycles[blockIdx.x * (blockDim.x / kWaveSize) + threadIdx.x / kWaveSize] = cycles_between(start, end);
}

#ifdef MICRO_A
// Products that each add to the one MICRO_CHAINS before. Behind each: MICRO_BESIDE instructions on floats
// (MICRO_PACKED: on pairs of them), which no product waits for; or, MICRO_LATER, by the waves of the block's second
// half alone.
using A = fragment<matrix_a, MICRO_M, MICRO_M, MICRO_K, MICRO_A, row_major>;
using B = fragment<matrix_b, MICRO_M, MICRO_M, MICRO_K, MICRO_A, col_major>;
using C = fragment<accumulator, MICRO_M, MICRO_M, MICRO_K, MICRO_D>;

constexpr int kSums = 8;
#ifdef MICRO_PACKED
using Beside = float __attribute__((ext_vector_type(2)));
WMMA_DEVICE void step(Beside& x, float one, float) {
  const Beside ones = {one, one};
  ADD_PAIRS(x, ones);
}
WMMA_DEVICE float sum_of(Beside x) { return x[0] + x[1]; }
#else
using Beside = float;
WMMA_DEVICE void step(Beside& x, float one, float zero) { FMA(x, one, zero); }
WMMA_DEVICE float sum_of(Beside x) { return x; }
#endif

extern "C" __global__ void products(uint32_t* cycles, MICRO_D* results, float* sums, int rounds, float one,
                                    float zero) {
  A a;
  B b;
  C c[MICRO_CHAINS];
  fill_fragment(a, convert<MICRO_A>(one));
  fill_fragment(b, convert<MICRO_A>(one));
  for (int i = 0; i < MICRO_CHAINS; ++i) fill_fragment(c[i], MICRO_D(0));
  Beside x[kSums] = {};
  const auto multiply = [&] {
#pragma unroll
    for (int i = 0; i < MICRO_COUNT; ++i) {
      mma_sync(c[i % MICRO_CHAINS], a, b, c[i % MICRO_CHAINS]);
#ifdef MICRO_RESULT
      c[0].x[0] += MICRO_D(one);
#endif
#ifndef MICRO_LATER
#pragma unroll
      for (int j = 0; j < MICRO_BESIDE; ++j) step(x[(i * MICRO_BESIDE + j) % kSums], one, zero);
#endif
      arch::schedule_barrier();
    }
  };
#ifdef MICRO_LATER
  const auto sum_up = [&] {
#pragma unroll
    for (int i = 0; i < MICRO_COUNT * MICRO_BESIDE; ++i) step(x[i % kSums], one, zero);
  };
  if (uniform(threadIdx.x / kWaveSize) * 2 * kWaveSize >= blockDim.x) {
    timed(cycles, rounds, sum_up);
  } else {
    timed(cycles, rounds, multiply);
  }
#else
  timed(cycles, rounds, multiply);
#endif
  MICRO_D result = MICRO_D(0);
  for (int i = 0; i < MICRO_CHAINS; ++i) result += c[i].x[0];
  results[threadIdx.x] = result;
  float sum = 0;
  for (int i = 0; i < kSums; ++i) sum += sum_of(x[i]);
  sums[threadIdx.x] = sum;
}
#endif

#ifdef MICRO_FLOATS
// MICRO_CHAINS chains of fused multiplications and additions, or (MICRO_EXPONENTIALS) of powers of two.
extern "C" __global__ void floats(uint32_t* cycles, float* results, int rounds, float one, float zero) {
  float x[MICRO_CHAINS];
  for (int i = 0; i < MICRO_CHAINS; ++i) x[i] = zero * threadIdx.x;  // each lane's own
  timed(cycles, rounds, [&] {
#pragma unroll
    for (int i = 0; i < MICRO_COUNT; ++i) {
      float& at = x[i % MICRO_CHAINS];
#if defined(MICRO_EXPONENTIALS)
      at = arch::exp2(at);
#elif MICRO_CHAINS == 1
      at = arch::fma(at, one, zero);
#else
      FMA(at, one, zero);
#endif
    }
  });
  float sum = 0;
  for (int i = 0; i < MICRO_CHAINS; ++i) sum += x[i];
  results[threadIdx.x] = sum;
}
#endif

#ifdef MICRO_SHARED
struct __attribute__((aligned(16))) Words {
  uint32_t x[MICRO_WORDS];
};
constexpr int kShared = 49152;
constexpr int kWaveShared = kShared / 4;        // that a wave writes to
constexpr int kApart = 2048 + 4 * MICRO_WORDS;  // so far that no compiler reads two at once

template <class Act>
WMMA_DEVICE void on_shared(const uint32_t* offsets, const Act& act) {
  __shared__ __attribute__((aligned(16))) unsigned char shared[kShared];
  for (int i = threadIdx.x; i < kShared / 4; i += blockDim.x) reinterpret_cast<uint32_t*>(shared)[i] = 0;
  arch::block_barrier();
  act(shared, offsets[threadIdx.x % kWaveSize]);
}

// Each lane reads MICRO_WORDS words at its offset, MICRO_COUNT times before they are waited for.
extern "C" __global__ void shared_reads(uint32_t* cycles, const uint32_t* offsets, int rounds) {
  on_shared(offsets, [&](unsigned char* shared, uint32_t offset) {
    timed(cycles, rounds, [&] {
      Words read[MICRO_COUNT];
#pragma unroll
      for (int i = 0; i < MICRO_COUNT; ++i) read[i] = *reinterpret_cast<Words*>(shared + offset + i * kApart);
      arch::schedule_barrier();
#pragma unroll
      for (int i = 0; i < MICRO_COUNT; ++i) {
#pragma unroll
        for (int j = 0; j < MICRO_WORDS; ++j) KEEP(read[i].x[j]);
      }
      RENEW(offset);
    });
  });
}

extern "C" __global__ void shared_writes(uint32_t* cycles, const uint32_t* offsets, int rounds) {
  on_shared(offsets, [&](unsigned char* shared, uint32_t offset) {
    Words words;
    for (int j = 0; j < MICRO_WORDS; ++j) words.x[j] = offset + j;
    offset += threadIdx.x / kWaveSize * kWaveShared;
    timed(cycles, rounds, [&] {
#pragma unroll
      for (int i = 0; i < MICRO_COUNT; ++i) *reinterpret_cast<Words*>(shared + offset + i * (kApart - 1024)) = words;
      arch::shared_barrier();
      RENEW(offset);
    });
    KEEP(*reinterpret_cast<uint32_t*>(shared + offset));
  });
}

// Each read's address is what the one before it read.
extern "C" __global__ void shared_chase(uint32_t* cycles, const uint32_t* offsets, int rounds) {
  on_shared(offsets, [&](unsigned char* shared, uint32_t) {
    uint32_t at = 0;
    RENEW(at);
    timed(cycles, rounds, [&] {
#pragma unroll
      for (int i = 0; i < MICRO_COUNT; ++i) {
        const Words read = *reinterpret_cast<Words*>(shared + at);
        at = read.x[MICRO_WORDS - 1];
        for (int j = 0; j < MICRO_WORDS; ++j) KEEP(read.x[j]);
      }
    });
  });
}
#endif

#ifdef MICRO_MEMORY
// Each load's address is what the one before it loaded; `next` leads round.
extern "C" __global__ void memory_chase(uint32_t* cycles, uint32_t* next, int rounds, uint32_t start) {
  uint32_t at = start;
  RENEW(at);
  for (int i = 0; i < MICRO_WARM; ++i) at = next[at];
  timed(cycles, rounds, [&] {
#pragma unroll
    for (int i = 0; i < MICRO_COUNT; ++i) at = next[at];
  });
  KEEP(at);
}

// Loads of 16 bytes a lane, MICRO_COUNT of them on their way before they are waited for. Each wave of each block reads
// `bytes`, a power of two and its own, over and over: what its first cache does not hold comes from L2.
struct __attribute__((aligned(16))) Chunk16 {
  uint32_t x[4];
};
extern "C" __global__ void memory_loads(uint32_t* cycles, const unsigned char* data, int rounds, uint32_t bytes) {
  const uint32_t wave = blockIdx.x * (blockDim.x / kWaveSize) + threadIdx.x / kWaveSize;
  const unsigned char* own = data + static_cast<int64_t>(wave) * bytes;
  uint32_t at = 0;
  timed(cycles, rounds, [&] {
    Chunk16 loaded[MICRO_COUNT];
#pragma unroll
    for (int i = 0; i < MICRO_COUNT; ++i) {
      loaded[i] = *reinterpret_cast<const Chunk16*>(own + at + lane_id() * 16);
      at = (at + kWaveSize * 16) & (bytes - 1);
      RENEW(at);
    }
#pragma unroll
    for (int i = 0; i < MICRO_COUNT; ++i) {
      for (int j = 0; j < 4; ++j) KEEP(loaded[i].x[j]);
    }
  });
}
#endif

#ifdef MICRO_OTHERS
extern "C" __global__ void barriers(uint32_t* cycles, int rounds) {
  timed(cycles, rounds, [&] {
#pragma unroll
    for (int i = 0; i < MICRO_COUNT; ++i) arch::shared_barrier();
  });
}

// Cycles, and ticks of the clock of constant rate, of the same stretch.
extern "C" __global__ void clocks(uint32_t* cycles, uint64_t* ticks, int rounds, float one) {
  const uint64_t before = wall_clock();
  float x = one;
  timed(cycles, rounds, [&] {
#pragma unroll
    for (int i = 0; i < MICRO_COUNT; ++i) x = arch::fma(x, one, one);
  });
  KEEP(arch::bit_cast<uint32_t>(x));
  if (threadIdx.x == 0) ticks[blockIdx.x] = wall_clock() - before;
}
#endif
