// Products of sm_90a's warpgroups: four waves multiply 64 rows of A by up to 256 columns of B, both read from shared
// memory by the matrix unit itself while the waves go on. Elsewhere there are none.
#pragma once

#include <wmma/types.hpp>

namespace wmma::arch {

// What the matrix unit reads shared memory through. Operands lie there in boxes of 128 bytes a line, eight lines being
// exchanged among each other (kernels/wmma/tile/warpgroup_tile.hpp); `box_bytes` is from one box to the next.
WMMA_DEVICE uint64_t wgmma_operand(uint32_t address, uint32_t box_bytes) {
  constexpr uint64_t kEightLines = 1024;
  constexpr uint64_t kExchanged128 = uint64_t{1} << 62;
  return (address >> 4 & 0x3fff) | static_cast<uint64_t>(box_bytes >> 4 & 0x3fff) << 16 | (kEightLines >> 4) << 32 |
         kExchanged128;
}
// Eight columns by 32 bytes of K that lie there as they come: of those that are all the same.
WMMA_DEVICE uint64_t wgmma_operand_of_columns(uint32_t address) {
  constexpr uint64_t kEightColumns = 128;  // by 16 bytes of K
  return (address >> 4 & 0x3fff) | (kEightColumns >> 4) << 16 | (kEightColumns >> 4) << 32;
}
// The same operand so many bytes further on. An address has 18 bits, and those that count stand apart from all else.
WMMA_DEVICE uint64_t wgmma_operand_after(uint64_t operand, uint32_t bytes) {
  return operand & ~uint64_t{0xffffffff} | static_cast<uint32_t>(operand) + (bytes >> 4);
}

// Before the first product on accumulators that were written otherwise.
WMMA_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
WMMA_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until no more than kGroups of the warpgroup's groups are under way.
template <int kGroups>
WMMA_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}
// What this thread wrote to shared memory, asynchronous copies too, becomes visible to the matrix unit.
WMMA_DEVICE void fence_matrix_unit() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// All four waves: from now on they have fewer registers each than the kernel was launched with, for others to take; or
// more, as soon as others have given them.
template <int kCount>
WMMA_DEVICE void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
WMMA_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// Keeps the compiler from moving what it does to the accumulators across.
WMMA_DEVICE void hold(float& x) { asm volatile("" : "+f"(x)::"memory"); }
WMMA_DEVICE void hold(uint32_t& x) { asm volatile("" : "+r"(x)::"memory"); }
WMMA_DEVICE void hold(int32_t& x) { asm volatile("" : "+r"(x)::"memory"); }

// Products of kN columns on kN / 2 accumulators. 16-bit operands' lines may run across K; those of 8 bits run along it.
template <class A, class B, int kN>
struct Wgmma;

#define WMMA_D4(c, d, i) c(d[i]), c(d[(i) + 1]), c(d[(i) + 2]), c(d[(i) + 3])
#define WMMA_D16(c, d, i) WMMA_D4(c, d, i), WMMA_D4(c, d, (i) + 4), WMMA_D4(c, d, (i) + 8), WMMA_D4(c, d, (i) + 12)
#define WMMA_D32(c, d, i) WMMA_D16(c, d, i), WMMA_D16(c, d, (i) + 16)
#define WMMA_D64(c, d, i) WMMA_D32(c, d, i), WMMA_D32(c, d, (i) + 32)
#define WMMA_D96(c, d, i) WMMA_D64(c, d, i), WMMA_D32(c, d, (i) + 64)
#define WMMA_D128(c, d, i) WMMA_D64(c, d, i), WMMA_D64(c, d, (i) + 64)

#define WMMA_NAMES4 "%0, %1, %2, %3"
#define WMMA_NAMES16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WMMA_NAMES32 \
  WMMA_NAMES16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WMMA_NAMES64                                                                   \
  WMMA_NAMES32                                                                         \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WMMA_NAMES96                                                                   \
  WMMA_NAMES64                                                                         \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define WMMA_NAMES128                                                                              \
  WMMA_NAMES96                                                                                     \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// `sums` accumulators. `rest` is what follows their names: the operands and their flags. Where `adds` is false, the
// product takes the place of what was in the accumulators.
#define WMMA_WGMMA(a, b, columns, kind, Sum, constraint, sums, rest, adds_name)                                        \
  template <>                                                                                                          \
  struct Wgmma<a, b, columns> {                                                                                        \
    template <bool kAAcross, bool kBAcross>                                                                            \
    static WMMA_DEVICE void mma(Sum* d, uint64_t a_operand, uint64_t b_operand, bool adds) {                           \
      static_assert(sizeof(a) == 2 || (!kAAcross && !kBAcross), "8-bit operands run along K");                         \
      asm volatile("{ .reg .pred p; setp.ne.b32 p, " adds_name                                                         \
                   ", 0;\n"                                                                                            \
                   "wgmma.mma_async.sync.aligned.m64n" #columns kind " {" WMMA_NAMES##sums "}, " rest "; }"            \
                   : WMMA_D##sums(constraint, d, 0)                                                                    \
                   : "l"(a_operand), "l"(b_operand), "r"(adds ? 1 : 0), "n"(kAAcross ? 1 : 0), "n"(kBAcross ? 1 : 0)); \
    }                                                                                                                  \
  };

// The same for A in registers: four words of each lane, as mma.sync's m16n8k16 takes them, or of 8 bits its m16n8k32.
template <class T, int kN>
struct WgmmaOfRows;

#define WMMA_WGMMA_OF_ROWS(type, columns, kind, sums, rest, adds_name)                                      \
  template <>                                                                                               \
  struct WgmmaOfRows<type, columns> {                                                                       \
    template <bool kBAcross>                                                                                \
    static WMMA_DEVICE void mma(float* d, const uint32_t* a, uint64_t b_operand, bool adds) {               \
      asm volatile("{ .reg .pred p; setp.ne.b32 p, " adds_name                                              \
                   ", 0;\n"                                                                                 \
                   "wgmma.mma_async.sync.aligned.m64n" #columns kind " {" WMMA_NAMES##sums "}, " rest "; }" \
                   : WMMA_D##sums("+f", d, 0)                                                               \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_operand), "r"(adds ? 1 : 0),         \
                     "n"(kBAcross ? 1 : 0));                                                                \
    }                                                                                                       \
  };

// All of a width. Inline assembly names operands by their numbers: n0, the first one's, is how many accumulators there
// are, and the others follow.
#define WMMA_WGMMA_16(type, columns, kind, n0, n1, n2, n3, n4, n5, n6)                                              \
  WMMA_WGMMA(type, type, columns, kind, float, "+f", n0, "%" #n0 ", %" #n1 ", p, 1, 1, %" #n3 ", %" #n4, "%" #n2)   \
  WMMA_WGMMA_OF_ROWS(type, columns, kind, n0, "{%" #n0 ", %" #n1 ", %" #n2 ", %" #n3 "}, %" #n4 ", p, 1, 1, %" #n6, \
                     "%" #n5)
#define WMMA_WGMMA_8(a, b, columns, kind, n0, n1, n2) \
  WMMA_WGMMA(a, b, columns, kind, float, "+f", n0, "%" #n0 ", %" #n1 ", p, 1, 1", "%" #n2)
#define WMMA_WGMMA_OF_ROWS_8(type, columns, kind, n0, n1, n2, n3, n4, n5) \
  WMMA_WGMMA_OF_ROWS(type, columns, kind, n0, "{%" #n0 ", %" #n1 ", %" #n2 ", %" #n3 "}, %" #n4 ", p, 1, 1", "%" #n5)
#define WMMA_WGMMAS(columns, n0, n1, n2, n3, n4, n5, n6)                                 \
  WMMA_WGMMA_16(half_t, columns, "k16.f32.f16.f16", n0, n1, n2, n3, n4, n5, n6)          \
  WMMA_WGMMA_16(bf16_t, columns, "k16.f32.bf16.bf16", n0, n1, n2, n3, n4, n5, n6)        \
  WMMA_WGMMA_8(fp8_e4m3_t, fp8_e4m3_t, columns, "k32.f32.e4m3.e4m3", n0, n1, n2)         \
  WMMA_WGMMA_OF_ROWS_8(fp8_e4m3_t, columns, "k32.f32.e4m3.e4m3", n0, n1, n2, n3, n4, n5) \
  WMMA_WGMMA_8(fp8_e4m3_t, fp8_e5m2_t, columns, "k32.f32.e4m3.e5m2", n0, n1, n2)         \
  WMMA_WGMMA_8(fp8_e5m2_t, fp8_e4m3_t, columns, "k32.f32.e5m2.e4m3", n0, n1, n2)         \
  WMMA_WGMMA_8(fp8_e5m2_t, fp8_e5m2_t, columns, "k32.f32.e5m2.e5m2", n0, n1, n2)         \
  WMMA_WGMMA(int8_t, int8_t, columns, "k32.s32.s8.s8", int32_t, "+r", n0, "%" #n0 ", %" #n1 ", p", "%" #n2)

WMMA_WGMMA_16(half_t, 8, "k16.f32.f16.f16", 4, 5, 6, 7, 8, 9, 10)
WMMA_WGMMA_16(bf16_t, 8, "k16.f32.bf16.bf16", 4, 5, 6, 7, 8, 9, 10)
WMMA_WGMMAS(32, 16, 17, 18, 19, 20, 21, 22)
WMMA_WGMMAS(64, 32, 33, 34, 35, 36, 37, 38)
WMMA_WGMMAS(128, 64, 65, 66, 67, 68, 69, 70)
WMMA_WGMMAS(192, 96, 97, 98, 99, 100, 101, 102)
WMMA_WGMMAS(256, 128, 129, 130, 131, 132, 133, 134)
#ifdef WMMA_OTHER_WGMMAS  // of a kernel whose tiles have another width, which brings its lists, too
WMMA_OTHER_WGMMAS
#endif

#undef WMMA_WGMMAS
#undef WMMA_WGMMA_OF_ROWS_8
#undef WMMA_WGMMA_8
#undef WMMA_WGMMA_16
#undef WMMA_WGMMA_OF_ROWS
#undef WMMA_WGMMA
#undef WMMA_NAMES128
#undef WMMA_NAMES96
#undef WMMA_NAMES64
#undef WMMA_NAMES32
#undef WMMA_NAMES16
#undef WMMA_NAMES4
#undef WMMA_D128
#undef WMMA_D96
#undef WMMA_D64
#undef WMMA_D32
#undef WMMA_D16
#undef WMMA_D4

}  // namespace wmma::arch
