// Waiting by the clock.
#pragma once

#include <wmma/clock.hpp>

namespace wmma {

// Waits for at least so many nanoseconds and leaves the unit to other waves meanwhile; mostly little more, on NVIDIA up
// to twice as much.
WMMA_DEVICE void nanosleep(uint64_t nanoseconds) {
  constexpr uint64_t kTick = arch::kTickNanoseconds;
  const uint64_t start = wall_clock(), ticks = (nanoseconds + kTick - 1) / kTick;
  for (uint64_t gone = 0; gone < ticks; gone = wall_clock() - start) arch::doze((ticks - gone) * kTick);
}

}  // namespace wmma
