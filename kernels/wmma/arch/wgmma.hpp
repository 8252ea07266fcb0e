// Products of sm_90a's warpgroups: four waves multiply 64 rows of A by up to 256 columns of B, both read from shared
// memory by the matrix unit itself while the waves go on. Elsewhere there are none.
#pragma once

#include <wmma/types.hpp>

namespace wmma::arch {

// What the matrix unit reads shared memory through. Operands lie there in panels of 128 bytes a line, eight lines being
// exchanged among each other (kernels/wmma/tile/panel_tile.hpp); `panel_bytes` is from one panel to the next.
WMMA_DEVICE uint64_t wgmma_operand(uint32_t address, uint32_t panel_bytes) {
  constexpr uint64_t kEightLines = 1024;
  constexpr uint64_t kExchanged128 = uint64_t{1} << 62;
  return (address >> 4 & 0x3fff) | static_cast<uint64_t>(panel_bytes >> 4 & 0x3fff) << 16 | (kEightLines >> 4) << 32 |
         kExchanged128;
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
WMMA_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
WMMA_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// Keeps the compiler from moving what it does to the accumulators across.
WMMA_DEVICE void hold(float& x) { asm volatile("" : "+f"(x)::"memory"); }
WMMA_DEVICE void hold(int32_t& x) { asm volatile("" : "+r"(x)::"memory"); }

// Products of kN columns on kN / 2 accumulators. 16-bit operands' lines may run across K; those of 8 bits run along it.
template <class A, class B, int kN>
struct Wgmma;

#define WMMA_D4(c, d, i) c(d[i]), c(d[(i) + 1]), c(d[(i) + 2]), c(d[(i) + 3])
#define WMMA_D8(c, d, i) WMMA_D4(c, d, i), WMMA_D4(c, d, (i) + 4)
#define WMMA_D12(c, d, i) WMMA_D8(c, d, i), WMMA_D4(c, d, (i) + 8)
#define WMMA_D16(c, d, i) WMMA_D12(c, d, i), WMMA_D4(c, d, (i) + 12)
#define WMMA_D20(c, d, i) WMMA_D16(c, d, i), WMMA_D4(c, d, (i) + 16)
#define WMMA_D24(c, d, i) WMMA_D20(c, d, i), WMMA_D4(c, d, (i) + 20)
#define WMMA_D28(c, d, i) WMMA_D24(c, d, i), WMMA_D4(c, d, (i) + 24)
#define WMMA_D32(c, d, i) WMMA_D28(c, d, i), WMMA_D4(c, d, (i) + 28)
#define WMMA_D36(c, d, i) WMMA_D32(c, d, i), WMMA_D4(c, d, (i) + 32)
#define WMMA_D40(c, d, i) WMMA_D36(c, d, i), WMMA_D4(c, d, (i) + 36)
#define WMMA_D44(c, d, i) WMMA_D40(c, d, i), WMMA_D4(c, d, (i) + 40)
#define WMMA_D48(c, d, i) WMMA_D44(c, d, i), WMMA_D4(c, d, (i) + 44)
#define WMMA_D52(c, d, i) WMMA_D48(c, d, i), WMMA_D4(c, d, (i) + 48)
#define WMMA_D56(c, d, i) WMMA_D52(c, d, i), WMMA_D4(c, d, (i) + 52)
#define WMMA_D60(c, d, i) WMMA_D56(c, d, i), WMMA_D4(c, d, (i) + 56)
#define WMMA_D64(c, d, i) WMMA_D60(c, d, i), WMMA_D4(c, d, (i) + 60)
#define WMMA_D68(c, d, i) WMMA_D64(c, d, i), WMMA_D4(c, d, (i) + 64)
#define WMMA_D72(c, d, i) WMMA_D68(c, d, i), WMMA_D4(c, d, (i) + 68)
#define WMMA_D76(c, d, i) WMMA_D72(c, d, i), WMMA_D4(c, d, (i) + 72)
#define WMMA_D80(c, d, i) WMMA_D76(c, d, i), WMMA_D4(c, d, (i) + 76)
#define WMMA_D84(c, d, i) WMMA_D80(c, d, i), WMMA_D4(c, d, (i) + 80)
#define WMMA_D88(c, d, i) WMMA_D84(c, d, i), WMMA_D4(c, d, (i) + 84)
#define WMMA_D92(c, d, i) WMMA_D88(c, d, i), WMMA_D4(c, d, (i) + 88)
#define WMMA_D96(c, d, i) WMMA_D92(c, d, i), WMMA_D4(c, d, (i) + 92)
#define WMMA_D100(c, d, i) WMMA_D96(c, d, i), WMMA_D4(c, d, (i) + 96)
#define WMMA_D104(c, d, i) WMMA_D100(c, d, i), WMMA_D4(c, d, (i) + 100)
#define WMMA_D108(c, d, i) WMMA_D104(c, d, i), WMMA_D4(c, d, (i) + 104)
#define WMMA_D112(c, d, i) WMMA_D108(c, d, i), WMMA_D4(c, d, (i) + 108)
#define WMMA_D116(c, d, i) WMMA_D112(c, d, i), WMMA_D4(c, d, (i) + 112)
#define WMMA_D120(c, d, i) WMMA_D116(c, d, i), WMMA_D4(c, d, (i) + 116)
#define WMMA_D124(c, d, i) WMMA_D120(c, d, i), WMMA_D4(c, d, (i) + 120)
#define WMMA_D128(c, d, i) WMMA_D124(c, d, i), WMMA_D4(c, d, (i) + 124)

#define WMMA_NAMES4 "%0, %1, %2, %3"
#define WMMA_NAMES8 WMMA_NAMES4 ", %4, %5, %6, %7"
#define WMMA_NAMES12 WMMA_NAMES8 ", %8, %9, %10, %11"
#define WMMA_NAMES16 WMMA_NAMES12 ", %12, %13, %14, %15"
#define WMMA_NAMES20 WMMA_NAMES16 ", %16, %17, %18, %19"
#define WMMA_NAMES24 WMMA_NAMES20 ", %20, %21, %22, %23"
#define WMMA_NAMES28 WMMA_NAMES24 ", %24, %25, %26, %27"
#define WMMA_NAMES32 WMMA_NAMES28 ", %28, %29, %30, %31"
#define WMMA_NAMES36 WMMA_NAMES32 ", %32, %33, %34, %35"
#define WMMA_NAMES40 WMMA_NAMES36 ", %36, %37, %38, %39"
#define WMMA_NAMES44 WMMA_NAMES40 ", %40, %41, %42, %43"
#define WMMA_NAMES48 WMMA_NAMES44 ", %44, %45, %46, %47"
#define WMMA_NAMES52 WMMA_NAMES48 ", %48, %49, %50, %51"
#define WMMA_NAMES56 WMMA_NAMES52 ", %52, %53, %54, %55"
#define WMMA_NAMES60 WMMA_NAMES56 ", %56, %57, %58, %59"
#define WMMA_NAMES64 WMMA_NAMES60 ", %60, %61, %62, %63"
#define WMMA_NAMES68 WMMA_NAMES64 ", %64, %65, %66, %67"
#define WMMA_NAMES72 WMMA_NAMES68 ", %68, %69, %70, %71"
#define WMMA_NAMES76 WMMA_NAMES72 ", %72, %73, %74, %75"
#define WMMA_NAMES80 WMMA_NAMES76 ", %76, %77, %78, %79"
#define WMMA_NAMES84 WMMA_NAMES80 ", %80, %81, %82, %83"
#define WMMA_NAMES88 WMMA_NAMES84 ", %84, %85, %86, %87"
#define WMMA_NAMES92 WMMA_NAMES88 ", %88, %89, %90, %91"
#define WMMA_NAMES96 WMMA_NAMES92 ", %92, %93, %94, %95"
#define WMMA_NAMES100 WMMA_NAMES96 ", %96, %97, %98, %99"
#define WMMA_NAMES104 WMMA_NAMES100 ", %100, %101, %102, %103"
#define WMMA_NAMES108 WMMA_NAMES104 ", %104, %105, %106, %107"
#define WMMA_NAMES112 WMMA_NAMES108 ", %108, %109, %110, %111"
#define WMMA_NAMES116 WMMA_NAMES112 ", %112, %113, %114, %115"
#define WMMA_NAMES120 WMMA_NAMES116 ", %116, %117, %118, %119"
#define WMMA_NAMES124 WMMA_NAMES120 ", %120, %121, %122, %123"
#define WMMA_NAMES128 WMMA_NAMES124 ", %124, %125, %126, %127"

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

// The same for A in registers: four words of each lane, as mma.sync's m16n8k16 takes them.
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
#define WMMA_WGMMAS(columns, n0, n1, n2, n3, n4, n5, n6)                          \
  WMMA_WGMMA_16(half_t, columns, "k16.f32.f16.f16", n0, n1, n2, n3, n4, n5, n6)   \
  WMMA_WGMMA_16(bf16_t, columns, "k16.f32.bf16.bf16", n0, n1, n2, n3, n4, n5, n6) \
  WMMA_WGMMA_8(fp8_e4m3_t, fp8_e4m3_t, columns, "k32.f32.e4m3.e4m3", n0, n1, n2)  \
  WMMA_WGMMA_8(fp8_e4m3_t, fp8_e5m2_t, columns, "k32.f32.e4m3.e5m2", n0, n1, n2)  \
  WMMA_WGMMA_8(fp8_e5m2_t, fp8_e4m3_t, columns, "k32.f32.e5m2.e4m3", n0, n1, n2)  \
  WMMA_WGMMA_8(fp8_e5m2_t, fp8_e5m2_t, columns, "k32.f32.e5m2.e5m2", n0, n1, n2)  \
  WMMA_WGMMA(int8_t, int8_t, columns, "k32.s32.s8.s8", int32_t, "+r", n0, "%" #n0 ", %" #n1 ", p", "%" #n2)

WMMA_WGMMAS(32, 16, 17, 18, 19, 20, 21, 22)
WMMA_WGMMAS(64, 32, 33, 34, 35, 36, 37, 38)
WMMA_WGMMAS(128, 64, 65, 66, 67, 68, 69, 70)
WMMA_WGMMAS(192, 96, 97, 98, 99, 100, 101, 102)
WMMA_WGMMAS(256, 128, 129, 130, 131, 132, 133, 134)
#ifdef WMMA_OTHER_WGMMAS  // of a kernel whose tiles have another width, a multiple of eight
WMMA_OTHER_WGMMAS
#endif

#undef WMMA_WGMMAS
#undef WMMA_WGMMA_8
#undef WMMA_WGMMA_16
#undef WMMA_WGMMA_OF_ROWS
#undef WMMA_WGMMA
#undef WMMA_NAMES128
#undef WMMA_NAMES124
#undef WMMA_NAMES120
#undef WMMA_NAMES116
#undef WMMA_NAMES112
#undef WMMA_NAMES108
#undef WMMA_NAMES104
#undef WMMA_NAMES100
#undef WMMA_NAMES96
#undef WMMA_NAMES92
#undef WMMA_NAMES88
#undef WMMA_NAMES84
#undef WMMA_NAMES80
#undef WMMA_NAMES76
#undef WMMA_NAMES72
#undef WMMA_NAMES68
#undef WMMA_NAMES64
#undef WMMA_NAMES60
#undef WMMA_NAMES56
#undef WMMA_NAMES52
#undef WMMA_NAMES48
#undef WMMA_NAMES44
#undef WMMA_NAMES40
#undef WMMA_NAMES36
#undef WMMA_NAMES32
#undef WMMA_NAMES28
#undef WMMA_NAMES24
#undef WMMA_NAMES20
#undef WMMA_NAMES16
#undef WMMA_NAMES12
#undef WMMA_NAMES8
#undef WMMA_NAMES4
#undef WMMA_D128
#undef WMMA_D124
#undef WMMA_D120
#undef WMMA_D116
#undef WMMA_D112
#undef WMMA_D108
#undef WMMA_D104
#undef WMMA_D100
#undef WMMA_D96
#undef WMMA_D92
#undef WMMA_D88
#undef WMMA_D84
#undef WMMA_D80
#undef WMMA_D76
#undef WMMA_D72
#undef WMMA_D68
#undef WMMA_D64
#undef WMMA_D60
#undef WMMA_D56
#undef WMMA_D52
#undef WMMA_D48
#undef WMMA_D44
#undef WMMA_D40
#undef WMMA_D36
#undef WMMA_D32
#undef WMMA_D28
#undef WMMA_D24
#undef WMMA_D20
#undef WMMA_D16
#undef WMMA_D12
#undef WMMA_D8
#undef WMMA_D4

}  // namespace wmma::arch
