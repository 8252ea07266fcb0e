// The copy engine of sm_90 and its barriers: one thread asks for a box of a matrix, the engine writes it to shared
// memory, zeros for what lies outside the matrix, and a barrier there counts the bytes that have come. A matrix is
// described by a map that the driver wrote, among the kernel's arguments.
#pragma once

#include <wmma/types.hpp>

namespace wmma::arch {

constexpr int kBarrierBytes = 8;

// A barrier's phase is over after so many arrivals, and when all the bytes that were announced have come.
WMMA_DEVICE void barrier_make(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// What this thread made becomes visible to the copy engine.
WMMA_DEVICE void fence_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

WMMA_DEVICE void barrier_arrive(uint32_t barrier, bool does) {
  asm volatile(
      "{ .reg .pred p; .reg .b64 state; setp.ne.b32 p, %1, 0;\n"
      "@p mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(barrier),
      "r"(does ? 1 : 0)
      : "memory");
}
WMMA_DEVICE void barrier_arrive_for_bytes(uint32_t barrier, uint32_t bytes) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(barrier),
               "r"(bytes)
               : "memory");
}
// What stands at the same place in another block of the cluster; and at such a barrier.
WMMA_DEVICE uint32_t address_in(uint32_t block, uint32_t address) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}
WMMA_DEVICE void barrier_arrive_there(uint32_t barrier, bool does) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %1, 0;\n"
      "@p mbarrier.arrive.shared::cluster.b64 _, [%0]; }" ::"r"(barrier),
      "r"(does ? 1 : 0)
      : "memory");
}
// Until the phase of this parity is over: phases count from 0.
WMMA_DEVICE void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred p;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra again; }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

WMMA_DEVICE void prefetch_map(const void* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

// The box whose first element is at `x`, the coordinate along memory first, to the same place in each of the cluster's
// blocks that `blocks` has a bit for; each block's own barrier counts what comes there. No cluster: to this block.
// kOnce: it leaves the L2 cache before anything else does. (A policy that says "as usual" is slower than none.)
template <int kRank, bool kCluster, bool kOnce>
WMMA_DEVICE void copy_box(uint32_t to, const void* map, uint32_t barrier, const int32_t* x, uint16_t blocks) {
  static_assert(kRank >= 2 && kRank <= 5, "what the engine takes");
  uint64_t policy = 0;
  if constexpr (kOnce) asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#define WMMA_COPY(rank, kind, names, last, ...)                                                              \
  asm volatile("cp.async.bulk.tensor." rank ".shared::cluster.global.tile.mbarrier::complete_tx::bytes" kind \
               " [%0], [%1, {" names "}], [%2]" last ";" ::"r"(to),                                          \
               "l"(map), "r"(barrier), "h"(blocks), "l"(policy), __VA_ARGS__                                 \
               : "memory")
#define WMMA_COPY_BOX(rank, names, ...)                                                    \
  if constexpr (kCluster && kOnce) {                                                       \
    WMMA_COPY(rank, ".multicast::cluster.L2::cache_hint", names, ", %3, %4", __VA_ARGS__); \
  } else if constexpr (kCluster) {                                                         \
    WMMA_COPY(rank, ".multicast::cluster", names, ", %3", __VA_ARGS__);                    \
  } else if constexpr (kOnce) {                                                            \
    WMMA_COPY(rank, ".L2::cache_hint", names, ", %4", __VA_ARGS__);                        \
  } else {                                                                                 \
    WMMA_COPY(rank, "", names, "", __VA_ARGS__);                                           \
  }
  if constexpr (kRank == 2) {
    WMMA_COPY_BOX("2d", "%5, %6", "r"(x[0]), "r"(x[1]))
  } else if constexpr (kRank == 3) {
    WMMA_COPY_BOX("3d", "%5, %6, %7", "r"(x[0]), "r"(x[1]), "r"(x[2]))
  } else if constexpr (kRank == 4) {
    WMMA_COPY_BOX("4d", "%5, %6, %7, %8", "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]))
  } else {
    WMMA_COPY_BOX("5d", "%5, %6, %7, %8, %9", "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]))
  }
#undef WMMA_COPY_BOX
#undef WMMA_COPY
}

// The other way: a box of shared memory to the matrix, what lies inside it. Those of a thread are counted in groups.
template <int kRank>
WMMA_DEVICE void store_box(uint32_t from, const void* map, const int32_t* x) {
  static_assert(kRank >= 2 && kRank <= 5, "what the engine takes");
#define WMMA_STORE_BOX(rank, names, ...)                                                                               \
  asm volatile("cp.async.bulk.tensor." rank ".global.shared::cta.tile.bulk_group [%0, {" names "}], [%1];" ::"l"(map), \
               "r"(from), __VA_ARGS__                                                                                  \
               : "memory")
  if constexpr (kRank == 2) {
    WMMA_STORE_BOX("2d", "%2, %3", "r"(x[0]), "r"(x[1]));
  } else if constexpr (kRank == 3) {
    WMMA_STORE_BOX("3d", "%2, %3, %4", "r"(x[0]), "r"(x[1]), "r"(x[2]));
  } else if constexpr (kRank == 4) {
    WMMA_STORE_BOX("4d", "%2, %3, %4, %5", "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]));
  } else {
    WMMA_STORE_BOX("5d", "%2, %3, %4, %5, %6", "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]));
  }
#undef WMMA_STORE_BOX
}
// So many bytes of shared memory as they are, a multiple of 16; or float32 added to those of memory.
WMMA_DEVICE void store_bytes(void* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}
WMMA_DEVICE void add_floats(float* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}
WMMA_DEVICE void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until all but the last kGroups of this thread's groups have been read from shared memory.
template <int kGroups>
WMMA_DEVICE void await_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}

// Until they are written.
template <int kGroups>
WMMA_DEVICE void await_stores() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kGroups) : "memory");
}

WMMA_DEVICE void load_shared(uint32_t* words, uint32_t address) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}
WMMA_DEVICE void store_shared(uint32_t address, const uint32_t* words) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words[0]), "r"(words[1]), "r"(words[2]),
               "r"(words[3])
               : "memory");
}

// Four matrices of eight by eight elements of 16 bits, each lane with two neighbours of a row of each: lane i gives the
// address of line i % 8 of matrix i / 8.
WMMA_DEVICE void store_matrices(uint32_t address, const uint32_t* words) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words[0]),
               "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

}  // namespace wmma::arch
