#include "launch/mode.hpp"

namespace wmma_ops {

std::atomic<int64_t> special_modes{0};

Way way_of(const Device& device) {
  bool gpu = !device.is_cpu();
  int64_t mode = special_modes.load(std::memory_order_relaxed) == 0 ? 0 : aten::call<int64_t>("wmma::_mode", "", gpu);
  int64_t target = (mode & kTargetPlusOne) - 1;
  bool executes = !(mode & kOnlyWarms), remembered = !(mode & kRecords);
  if (target >= 0) return {false, executes, remembered, -1 - target};
  if (gpu) return {false, executes, true, device.index};
  return {!(mode & kStandIn), executes, true, 0};
}

}  // namespace wmma_ops
