// The clocks that a kernel can read. Differences alone mean something.
#pragma once

#include <wmma/types.hpp>

namespace wmma {

// 64 bits of the shader clock (AMD) or multiprocessor clock (NVIDIA), in cycles. gfx11 has no such counter and gives
// wall_clock(), whose ticks are some 25 cycles; for short stretches take cycle_counter() there.
WMMA_DEVICE uint64_t clock_cycles() { return arch::clock(); }

// A clock of constant rate: nanoseconds on NVIDIA, on AMD ticks at hipDeviceAttributeWallClockRate (100 MHz mostly).
WMMA_DEVICE uint64_t wall_clock() { return arch::wall_clock(); }

// How many bits of cycles every target counts: 20 on gfx11, 32 elsewhere.
constexpr int kCycleBits = arch::kCycleBits;

// The low kCycleBits of the cycles, quick to read: it wraps.
WMMA_DEVICE uint32_t cycle_counter() { return arch::cycle_counter(); }

// Cycles from one cycle_counter() to a later one, right where they are fewer than 2^kCycleBits.
WMMA_DEVICE uint32_t cycles_between(uint32_t start, uint32_t end) {
  return (end - start) & static_cast<uint32_t>((uint64_t{1} << kCycleBits) - 1);
}

}  // namespace wmma
