// Products of sm_90a's warpgroups: four waves multiply 64 rows of A by up to 256 columns of B, both read from shared
// memory by the matrix unit itself while the waves go on. Elsewhere there are none.
#pragma once

#include <wmma/types.hpp>

namespace wmma::arch {

// What the matrix unit reads shared memory through. Operands lie there in panels of 128 bytes a line, eight lines being
// exchanged among each other (kernels/wmma/tile/wgmma_loop.hpp); `panel_bytes` is from one panel to the next.
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

// One element type's products of kN columns on kN / 2 accumulators; a flag says whether an operand's lines run across
// K.
template <class T, int kN>
struct Wgmma;

#define WMMA_D4(d, i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define WMMA_D16(d, i) WMMA_D4(d, i), WMMA_D4(d, (i) + 4), WMMA_D4(d, (i) + 8), WMMA_D4(d, (i) + 12)
#define WMMA_D32(d, i) WMMA_D16(d, i), WMMA_D16(d, (i) + 16)
#define WMMA_D64(d, i) WMMA_D32(d, i), WMMA_D32(d, (i) + 32)
#define WMMA_D128(d, i) WMMA_D64(d, i), WMMA_D64(d, (i) + 64)
#define WMMA_D96(d, i) WMMA_D64(d, i), WMMA_D32(d, (i) + 64)

// `registers` names the accumulators; what follows them, the operands and their flags.
#define WMMA_WGMMA(type, suffix, columns, d_list, registers, a, b, a_across, b_across)                              \
  template <>                                                                                                       \
  struct Wgmma<type, columns> {                                                                                     \
    template <bool kAAcross, bool kBAcross>                                                                         \
    static WMMA_DEVICE void mma(float* d, uint64_t a_operand, uint64_t b_operand) {                                 \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." suffix "." suffix " {" registers "}, " a \
                   ", " b ", 1, 1, 1, " a_across ", " b_across ";"                                                  \
                   : d_list(d, 0)                                                                                   \
                   : "l"(a_operand), "l"(b_operand), "n"(kAAcross ? 1 : 0), "n"(kBAcross ? 1 : 0));                 \
    }                                                                                                               \
  };

#define WMMA_REGISTERS "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
WMMA_WGMMA(half_t, "f16", 32, WMMA_D16, WMMA_REGISTERS, "%16", "%17", "%18", "%19")
WMMA_WGMMA(bf16_t, "bf16", 32, WMMA_D16, WMMA_REGISTERS, "%16", "%17", "%18", "%19")
#undef WMMA_REGISTERS

#define WMMA_REGISTERS                                                     \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
WMMA_WGMMA(half_t, "f16", 64, WMMA_D32, WMMA_REGISTERS, "%32", "%33", "%34", "%35")
WMMA_WGMMA(bf16_t, "bf16", 64, WMMA_D32, WMMA_REGISTERS, "%32", "%33", "%34", "%35")
#undef WMMA_REGISTERS

#define WMMA_REGISTERS                                                               \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
WMMA_WGMMA(half_t, "f16", 128, WMMA_D64, WMMA_REGISTERS, "%64", "%65", "%66", "%67")
WMMA_WGMMA(bf16_t, "bf16", 128, WMMA_D64, WMMA_REGISTERS, "%64", "%65", "%66", "%67")
#undef WMMA_REGISTERS

#define WMMA_REGISTERS                                                               \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
WMMA_WGMMA(half_t, "f16", 192, WMMA_D96, WMMA_REGISTERS, "%96", "%97", "%98", "%99")
WMMA_WGMMA(bf16_t, "bf16", 192, WMMA_D96, WMMA_REGISTERS, "%96", "%97", "%98", "%99")
#undef WMMA_REGISTERS

#define WMMA_REGISTERS                                                                           \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
WMMA_WGMMA(half_t, "f16", 256, WMMA_D128, WMMA_REGISTERS, "%128", "%129", "%130", "%131")
WMMA_WGMMA(bf16_t, "bf16", 256, WMMA_D128, WMMA_REGISTERS, "%128", "%129", "%130", "%131")
#undef WMMA_REGISTERS

#undef WMMA_WGMMA
#undef WMMA_D96
#undef WMMA_D128
#undef WMMA_D64
#undef WMMA_D32
#undef WMMA_D16
#undef WMMA_D4

}  // namespace wmma::arch
