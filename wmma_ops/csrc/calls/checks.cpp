#include "calls/checks.hpp"

#include <algorithm>

namespace wmma_ops {

static const int32_t kStrided = aoti_torch_layout_strided();
const int32_t Device::kCpu = aoti_torch_device_type_cpu();
const int32_t Device::kCuda = aoti_torch_device_type_cuda();

std::string shape(const Sizes& sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

std::string shape(const Tensor& x) { return shape(sizes_of(x)); }

bool is_strided(const Tensor& x) {
  int32_t layout;
  aten::ok(aoti_torch_get_layout(x.get(), &layout), "layout");
  return layout == kStrided;
}

void fail(const char* op, const char* name, const std::string& came_and_taken, const char* kind) {
  throw std::runtime_error(text("wmma.", op, ": ", name, " ", came_and_taken, " [", kind, "]"));
}

namespace {

bool contains(const std::vector<ScalarType>& types, ScalarType type) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

std::string describe(const Device& device) {
  if (device.is_cpu()) return "the cpu";
  if (device.type == Device::kCuda) return "cuda:" + std::to_string(device.index);
  if (device.type == aoti_torch_device_type_meta()) return "the meta device";
  return "a device of type " + std::to_string(device.type);
}

// Where a strided tensor is.
Device device_of(const char* op, const char* name, const Tensor& x) {
  if (!is_strided(x)) fail_type(op, name, "is a sparse tensor; takes strided tensors");
  Device device{0, 0};
  aten::ok(aoti_torch_get_device_type(x.get(), &device.type), "device_type");
  if (!device.is_cpu()) device.index = x.get_device_index();
  return device;
}

// True where `sizes` broadcasts to `target` without enlarging it.
bool broadcasts_to(const int64_t* sizes, size_t rank, const Sizes& target) {
  if (rank > target.size()) return false;
  for (size_t i = 0; i < rank; ++i) {
    int64_t size = sizes[i];
    if (size != 1 && size != target[target.size() - rank + i]) return false;
  }
  return true;
}

}  // namespace

void check_rank(const char* op, const char* name, const Tensor& x, int64_t rank) {
  if (x.dim() != rank) fail_shape(op, name, x, rank, " dimensions");
}

void check_output(const char* op, const char* name, ScalarType got, ScalarType operand) {
  if (!contains(outputs_of(operand), got)) {
    fail_dtype(op, name, got, list(outputs_of(operand)), " for ", operand, " operands");
  }
}

Device check_first(const char* op, const char* name, const Tensor& x) {
  Device device = device_of(op, name, x);
  if (!device.is_cpu() && device.type != Device::kCuda) {
    fail_type(op, name, "is on ", describe(device), "; takes tensors on the cpu or on one GPU, all of them");
  }
  return device;
}

void check_storage(const char* op, const char* name, const Tensor& x, const Device& first) {
  Device device = device_of(op, name, x);
  if (device.type == first.type && device.index == first.index) return;
  bool scalar = device.is_cpu() && x.dim() == 0;
  fail_type(op, name, scalar ? "is a scalar on " : "is on ", describe(device), "; takes tensors on ", describe(first),
            ", all of them", (scalar ? " (move it there with .to)" : ""));
}

void check_type(const char* op, const char* name, ScalarType came, Types taken, const char* like) {
  if (std::find(taken.begin(), taken.end(), came) != taken.end()) return;
  const std::string all = list(taken);
  like ? fail_dtype(op, name, came, all, ", as ", like, " has") : fail_dtype(op, name, came, all);
}

void check_floating(const char* op, const char* name, ScalarType came) {
  check_type(op, name, came, {ScalarType::Half, ScalarType::BFloat16, ScalarType::Float, ScalarType::Double});
}

void check_tensor(const char* op, const char* name, const Tensor& x, const Device& first, Types taken,
                  const char* like) {
  check_storage(op, name, x, first);
  check_type(op, name, type_of(x), taken, like);
}

void check_beside(const char* op, const char* name, const Tensor& x, ScalarType operand, const Device& device) {
  check_storage(op, name, x, device);
  check_type_beside(op, name, type_of(x), operand);
}

void check_type_beside(const char* op, const char* name, ScalarType type, ScalarType operand) {
  if (!contains(beside(operand), type)) {
    fail_dtype(op, name, type, list(beside(operand)), " beside ", operand, " operands");
  }
}

void check_matrix(const char* op, const char* name, const Tensor& x, const Sizes& target) {
  auto sizes = x.sizes();
  if (!broadcasts_to(sizes.data(), sizes.size(), target)) {
    fail_shape(op, name, x, "a shape that broadcasts to ", target);
  }
}

void check_vector(const char* op, const char* name, const Tensor& x, int64_t length, const Sizes& batch, bool or_one) {
  auto sizes = x.sizes();
  size_t rank = sizes.size();
  bool fits = rank == 0 ? or_one
                        : (sizes[rank - 1] == length || (or_one && sizes[rank - 1] == 1)) &&
                              broadcasts_to(sizes.data(), rank - 1, batch);
  if (!fits) {
    fail_shape(op, name, x, "[", length, "]", or_one ? " or one element" : "",
               ", after batch dimensions that broadcast to ", batch);
  }
}

void check_result(const char* op, const Sizes& sizes) {
  constexpr int64_t kWidest = 8;
  int64_t bytes = kWidest;
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return;
  for (int64_t size : sizes) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      fail_value(op, "the result", "has shape ", sizes, "; takes one of less than 2^63 bytes");
    }
  }
}

void broadcast(const char* op, const char* name, Sizes& batch, const Tensor& x, int64_t core, const char* other) {
  auto sizes = x.sizes();
  size_t rank = sizes.size() - core;
  if (rank > batch.size()) batch.insert(batch.begin(), rank - batch.size(), 1);
  for (size_t i = 0; i < rank; ++i) {
    int64_t size = sizes[i];
    int64_t& target = batch[batch.size() - rank + i];
    if (size == target || size == 1) continue;
    if (target != 1) fail_shape(op, name, x, "batch dimensions that broadcast with those of ", other, ", ", batch);
    target = size;
  }
}

}  // namespace wmma_ops
