#include <algorithm>
#include <utility>

#include "calls/checks.hpp"

namespace wmma_ops {

namespace {

// The elements that a tensor's strides reach, relative to its data pointer.
std::pair<int64_t, int64_t> extent(const Tensor& x) {
  auto sizes = x.sizes(), strides = x.strides();
  int64_t low = 0, high = 0;
  for (size_t i = 0; i < sizes.size(); ++i) (strides[i] < 0 ? low : high) += (sizes[i] - 1) * strides[i];
  return {low, high};
}

// Two matrices of one row stride whose columns never meet, as two column slices of one buffer.
bool columns_apart(const Tensor& x, const Tensor& y, int64_t distance) {
  auto xs = x.sizes(), ys = y.sizes(), xt = x.strides(), yt = y.strides();
  if (xs.size() != 2 || ys.size() != 2 || x.element_size() != y.element_size()) return false;
  for (int row : {0, 1}) {
    int col = 1 - row;
    int64_t pitch = xt[row];
    if (pitch <= 0 || yt[row] != pitch || xt[col] != 1 || yt[col] != 1) continue;
    int64_t begin = ((distance % pitch) + pitch) % pitch;  // y's first column, where x's is 0
    if (xs[col] <= begin && begin + ys[col] <= pitch) return true;
  }
  return false;
}

}  // namespace

void check_inplace(const char* op, const char* name, const Tensor& target, const char* other_name,
                   const Tensor& other) {
  if (target.numel() == 0) return;
  auto sizes = target.sizes(), strides = target.strides();
  std::vector<std::pair<int64_t, int64_t>> dims;  // (stride, size), smallest stride first
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 1) dims.emplace_back(strides[i], sizes[i]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (auto [stride, size] : dims) {
    if (stride <= reach) {
      fail_value(op, name,
                 "has elements that share memory (an expanded tensor?); takes one that does not overlap itself");
    }
    reach += (size - 1) * stride;
  }
  if (other.numel() == 0) return;
  auto [low, high] = extent(target);
  auto [other_low, other_high] = extent(other);
  int64_t size = static_cast<int64_t>(target.element_size()), other_size = static_cast<int64_t>(other.element_size());
  auto* base = static_cast<const char*>(target.const_data_ptr());
  auto* other_base = static_cast<const char*>(other.const_data_ptr());
  bool apart = base + (high + 1) * size <= other_base + other_low * other_size ||
               other_base + (other_high + 1) * other_size <= base + low * size;
  bool aligned = (other_base - base) % size == 0;
  if (!apart && !(aligned && columns_apart(target, other, (other_base - base) / size))) {
    fail_value(op, name,
               std::string("shares memory with ") + other_name + "; takes memory of its own (clone one of the two)");
  }
}

}  // namespace wmma_ops
