// How a call runs: on the CPU, on a GPU, or on the CPU as if on a GPU.
#pragma once

#include <atomic>

#include "calls/problem.hpp"

namespace wmma_ops {

// Emulations, recordings, warm-ups and stand-in drivers that are active in some thread. While there are none, a call
// asks Python nothing.
extern std::atomic<int64_t> special_modes;

// What wmma::_mode answers, in bits; wmma_ops/runtime/launching.py has the same.
enum Mode : int64_t {
  kTargetPlusOne = 255,  // the emulated target's place in arch.TARGETS; 0 where nothing is emulated
  kRecords = 256,        // plan and report every launch to Python, execute none, remember no plan
  kOnlyWarms = 512,      // plan and load, launch nothing
  kStandIn = 1024,       // CPU memory counts as that of device 0
};

// Whether sums may be in any order where that is faster, unless torch is to be deterministic: what users have set
// (wmma_ops/ops/order.py).
bool may_be_unordered();

// Whether a row's results must not depend on the rows beside it (wmma_ops/ops/invariance.py).
bool is_batch_invariant();

struct Way {
  bool on_cpu;      // by aten calls
  bool executes;    // otherwise: planned and loaded, not launched
  bool remembered;  // whether the table of plans is used
  int64_t device;   // a GPU's index; −1 − i for the i-th target under emulation
};

inline bool is_plain_cpu(const Device& device) {
  return device.is_cpu() && special_modes.load(std::memory_order_relaxed) == 0;
}

Way way_of(const Device& device);

}  // namespace wmma_ops
