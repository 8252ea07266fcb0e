#include "launch/mode.hpp"

#include "torch_internals.hpp"

namespace wmma_ops {

std::atomic<int64_t> special_modes{0};

namespace {

std::atomic<bool> unordered_allowed{false};

void allow_unordered(bool allow) { unordered_allowed.store(allow); }

std::atomic<int64_t> asking{0};  // who wants rows to be alone

void ask_batch_invariant(bool asks) {
  int64_t before = asking.load();
  while ((asks || before > 0) && !asking.compare_exchange_weak(before, before + (asks ? 1 : -1))) {
  }
}

}  // namespace

bool may_be_unordered() {
  return unordered_allowed.load(std::memory_order_relaxed) && !torch_internals::is_deterministic();
}

bool is_batch_invariant() { return asking.load(std::memory_order_relaxed) > 0; }

Way way_of(const Device& device) {
  bool gpu = !device.is_cpu();
  int64_t mode = special_modes.load(std::memory_order_relaxed) == 0 ? 0 : aten::call<int64_t>("wmma::_mode", "", gpu);
  int64_t target = (mode & kTargetPlusOne) - 1;
  bool executes = !(mode & kOnlyWarms), remembered = !(mode & kRecords);
  if (target >= 0) return {false, executes, remembered, -1 - target};
  if (gpu) return {false, executes, true, device.index};
  return {!(mode & kStandIn), executes, true, 0};
}

STABLE_TORCH_LIBRARY_FRAGMENT(wmma, m) {
  m.def("_allow_unordered(bool allow) -> ()");
  m.def("_ask_batch_invariant(bool asks) -> ()");
  m.def("_is_batch_invariant() -> bool");
}

STABLE_TORCH_LIBRARY_IMPL(wmma, CompositeExplicitAutograd, m) {
  m.impl("_allow_unordered", TORCH_BOX(&allow_unordered));
  m.impl("_ask_batch_invariant", TORCH_BOX(&ask_batch_invariant));
  m.impl("_is_batch_invariant", TORCH_BOX(&is_batch_invariant));
}

}  // namespace wmma_ops
