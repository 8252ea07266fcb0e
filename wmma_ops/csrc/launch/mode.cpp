#include "launch/mode.hpp"

#include "torch_internals.hpp"

namespace wmma_ops {

std::atomic<int64_t> special_modes{0};

namespace {

std::atomic<bool> unordered_allowed{false};

void allow_unordered(bool allow) { unordered_allowed.store(allow); }

}  // namespace

bool may_be_unordered() {
  return unordered_allowed.load(std::memory_order_relaxed) && !torch_internals::is_deterministic();
}

Way way_of(const Device& device) {
  bool gpu = !device.is_cpu();
  int64_t mode = special_modes.load(std::memory_order_relaxed) == 0 ? 0 : aten::call<int64_t>("wmma::_mode", "", gpu);
  int64_t target = (mode & kTargetPlusOne) - 1;
  bool executes = !(mode & kOnlyWarms), remembered = !(mode & kRecords);
  if (target >= 0) return {false, executes, remembered, -1 - target};
  if (gpu) return {false, executes, true, device.index};
  return {!(mode & kStandIn), executes, true, 0};
}

STABLE_TORCH_LIBRARY_FRAGMENT(wmma, m) { m.def("_allow_unordered(bool allow) -> ()"); }

STABLE_TORCH_LIBRARY_IMPL(wmma, CompositeExplicitAutograd, m) {
  m.impl("_allow_unordered", TORCH_BOX(&allow_unordered));
}

}  // namespace wmma_ops
