// AMD's HIP runtime, by the few functions that are needed. The declarations are those of hip_runtime_api.h.
#include <memory>

#include "drivers/driver.hpp"

namespace wmma_ops {

namespace {

using Result = int;
using Handle = void*;

void* const kBufferPointer = reinterpret_cast<void*>(1);  // HIP_LAUNCH_PARAM_*
void* const kBufferSize = reinterpret_cast<void*>(2);
void* const kEnd = reinterpret_cast<void*>(3);
constexpr int kToDevice = 1, kFromDevice = 2;  // hipMemcpyKind

class HipDriver : public Driver {
 public:
  explicit HipDriver(const std::vector<std::string>& libraries) : library_(libraries) {
    library_.bind(get_device_, "hipGetDevice");
    library_.bind(set_device_, "hipSetDevice");
    library_.bind(load_, "hipModuleLoadData");
    library_.bind(unload_, "hipModuleUnload");
    library_.bind(get_function_, "hipModuleGetFunction");
    library_.bind(launch_, "hipModuleLaunchKernel");
    library_.bind(launch_together_, "hipModuleLaunchCooperativeKernel");
    library_.bind(room_, "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor");
    library_.bind(get_global_, "hipModuleGetGlobal");
    library_.bind(copy_, "hipMemcpyAsync");
    library_.bind(wait_, "hipStreamSynchronize");
    library_.bind(error_name_, "hipGetErrorName");
    library_.bind(error_string_, "hipGetErrorString");
  }

  int64_t load(int device, const void* code, const char* name, unsigned, int64_t arguments) override {
    Within within(*this, "", device);
    Handle module, function;
    check("", "hipModuleLoadData", load_(&module, code));
    if (Result result = get_function_(&function, module, name)) {
      unload_(module);
      check("", "hipModuleGetFunction", result, name);
    }
    auto loaded = std::make_unique<Loaded>();
    loaded->driver = this;
    loaded->module = module;
    loaded->function = function;
    loaded->device = device;
    loaded->arguments = arguments;
    return reinterpret_cast<int64_t>(loaded.release());
  }

  void launch(const char* op, const Launch& l) override {
    const Loaded& loaded = *reinterpret_cast<const Loaded*>(l.function);
    Within within(*this, op, loaded.device);
    if (l.parameters) {
      check(op, "hipModuleLaunchCooperativeKernel",
            launch_together_(loaded.function, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2],
                             l.shared, current_stream(loaded.device), l.parameters));
      return;
    }
    size_t size = l.size;
    void* extra[] = {kBufferPointer, const_cast<void*>(l.arguments), kBufferSize, &size, kEnd};
    check(op, "hipModuleLaunchKernel",
          launch_(loaded.function, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2], l.shared,
                  current_stream(loaded.device), nullptr, extra));
  }

  int room(int64_t function, int threads, unsigned shared) override {
    const Loaded& loaded = *reinterpret_cast<const Loaded*>(function);
    Within within(*this, "", loaded.device);
    int blocks = 0;
    check("", "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", room_(&blocks, loaded.function, threads, shared));
    return blocks;
  }

  bool write(int64_t function, const char* name, const void* data, size_t size) override {
    const Loaded& loaded = *reinterpret_cast<const Loaded*>(function);
    Within within(*this, "", loaded.device);
    void* at = variable(loaded, name, size);
    if (!at) return false;
    // In the stream's order, and done when this returns: a launch on another stream may follow.
    check("", "hipMemcpyAsync", copy_(at, data, size, kToDevice, current_stream(loaded.device)));
    check("", "hipStreamSynchronize", wait_(current_stream(loaded.device)));
    return true;
  }

  bool read(int64_t function, const char* name, void* data, size_t size) override {
    const Loaded& loaded = *reinterpret_cast<const Loaded*>(function);
    Within within(*this, "", loaded.device);
    void* at = variable(loaded, name, size);
    if (!at) return false;
    check("", "hipMemcpyAsync", copy_(data, at, size, kFromDevice, current_stream(loaded.device)));
    check("", "hipStreamSynchronize", wait_(current_stream(loaded.device)));
    return true;
  }

 private:
  void* variable(const Loaded& loaded, const char* name, size_t size) const {
    void* at = nullptr;
    size_t bytes = 0;
    const Result result = get_global_(&at, &bytes, loaded.module, name);
    if (result == kNotFound) return nullptr;
    check("", "hipModuleGetGlobal", result, name);
    return bytes == size ? at : nullptr;
  }

  // Makes a device current where another one is.
  class Within {
   public:
    Within(const HipDriver& driver, const char* op, int device) : driver_(driver), before_(device) {
      driver.check(op, "hipGetDevice", driver.get_device_(&before_));
      if (before_ == device) return;
      driver.check(op, "hipSetDevice", driver.set_device_(device));
      changed_ = true;
    }
    ~Within() {
      if (changed_) driver_.set_device_(before_);
    }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

   private:
    const HipDriver& driver_;
    int before_;
    bool changed_ = false;
  };

  void check(const char* op, const char* call, Result result, const char* function = "") const {
    if (result == 0) return;
    const char *name = error_name_(result), *text = error_string_(result);
    fail_call(op, library_.path(), call, function, result, name, text);
  }

  SharedLibrary library_;
  Result (*get_device_)(int*);
  Result (*set_device_)(int);
  Result (*load_)(Handle*, const void*);
  Result (*unload_)(Handle);
  Result (*get_function_)(Handle*, Handle, const char*);
  Result (*launch_)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**,
                    void**);
  Result (*launch_together_)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle,
                             void**);
  Result (*room_)(int*, Handle, int, size_t);
  Result (*get_global_)(void**, size_t*, Handle, const char*);
  Result (*copy_)(void*, const void*, size_t, int, Handle);
  Result (*wait_)(Handle);
  const char* (*error_name_)(Result);
  const char* (*error_string_)(Result);
};

}  // namespace

Driver* make_hip_driver(const std::vector<std::string>& libraries) { return new HipDriver(libraries); }

}  // namespace wmma_ops
