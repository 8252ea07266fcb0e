// AMD's HIP runtime, by the few functions that are needed. The declarations are those of hip_runtime_api.h.
#include "drivers/module_driver.hpp"

namespace wmma_ops {

namespace {

constexpr int kToDevice = 1, kFromDevice = 2;  // hipMemcpyKind
constexpr const char* kRoom = "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor";

class HipDriver : public ModuleDriver {
 public:
  explicit HipDriver(const std::vector<std::string>& libraries)
      : ModuleDriver(libraries,
                     {"hipModuleLoadData", "hipModuleUnload", "hipModuleGetFunction", "hipModuleLaunchKernel",
                      "hipModuleLaunchCooperativeKernel", kRoom, "hipModuleGetGlobal", "hipStreamSynchronize"},
                     reinterpret_cast<void*>(3), false) {}

 private:
  bool enter(const char* op, const Loaded& at, int& before) const override {
    run(op, get_device_, &before);
    if (before == at.device) return false;
    run(op, set_device_, at.device);
    return true;
  }
  void leave(int before) const override { set_device_.function(before); }

  void copy(void* to, const void* from, size_t size, bool to_device, Handle stream) const override {
    run("", copy_, to, from, size, to_device ? kToDevice : kFromDevice, stream);
  }

  void describe(Result result, const char*& name, const char*& text) const override {
    name = error_name_(result);
    text = error_string_(result);
  }

  using Text = const char* (*)(Result);
  Call<int*> get_device_{library_, "hipGetDevice"};
  Call<int> set_device_{library_, "hipSetDevice"};
  Call<void*, const void*, size_t, int, Handle> copy_{library_, "hipMemcpyAsync"};
  Text error_name_ = reinterpret_cast<Text>(library_.symbol("hipGetErrorName"));
  Text error_string_ = reinterpret_cast<Text>(library_.symbol("hipGetErrorString"));
};

}  // namespace

Driver* make_hip_driver(const std::vector<std::string>& libraries) { return new HipDriver(libraries); }

}  // namespace wmma_ops
