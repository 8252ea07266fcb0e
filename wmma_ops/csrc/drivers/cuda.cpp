// NVIDIA's driver API, by the few functions that are needed. The declarations are those of cuda.h.
#include <memory>
#include <mutex>
#include <unordered_map>

#include "drivers/driver.hpp"

namespace wmma_ops {

namespace {

using Result = int;
using Handle = void*;

constexpr int kMaxDynamicShared = 8;                      // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr unsigned kSharedWithoutAsking = 48 * 1024;      // what every function may use
void* const kBufferPointer = reinterpret_cast<void*>(1);  // CU_LAUNCH_PARAM_*
void* const kBufferSize = reinterpret_cast<void*>(2);
void* const kEnd = nullptr;
constexpr int kStartsEarly = 6;         // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
constexpr int kUint8 = 0, kUint16 = 1;  // CU_TENSOR_MAP_*
constexpr int kNotInterleaved = 0, kSwizzled128 = 3, kFetches128 = 2, kZeroBeyond = 0;

class CudaDriver : public Driver {
 public:
  explicit CudaDriver(const std::vector<std::string>& libraries) : library_(libraries) {
    library_.bind(init_, "cuInit");
    library_.bind(device_get_, "cuDeviceGet");
    library_.bind(retain_, "cuDevicePrimaryCtxRetain");
    library_.bind(get_current_, "cuCtxGetCurrent");
    library_.bind(push_, "cuCtxPushCurrent_v2");
    library_.bind(pop_, "cuCtxPopCurrent_v2");
    library_.bind(load_, "cuModuleLoadData");
    library_.bind(unload_, "cuModuleUnload");
    library_.bind(get_function_, "cuModuleGetFunction");
    library_.bind(set_attribute_, "cuFuncSetAttribute");
    library_.bind(launch_, "cuLaunchKernel");
    library_.bind(launch_together_, "cuLaunchCooperativeKernel");
    library_.bind(room_, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    library_.bind(get_global_, "cuModuleGetGlobal_v2");
    library_.bind(copy_to_, "cuMemcpyHtoDAsync_v2");
    library_.bind(copy_from_, "cuMemcpyDtoHAsync_v2");
    library_.bind(wait_, "cuStreamSynchronize");
    library_.bind(error_name_, "cuGetErrorName");
    library_.bind(error_string_, "cuGetErrorString");
    launch_ex_ = reinterpret_cast<LaunchEx>(library_.symbol_or_null("cuLaunchKernelEx"));
    encode_ = reinterpret_cast<Encode>(library_.symbol_or_null("cuTensorMapEncodeTiled"));
    parameter_ = reinterpret_cast<Parameter>(library_.symbol_or_null("cuFuncGetParamInfo"));
    check("", "cuInit", init_(0));
  }

  int64_t load(int device, const void* code, const char* name, unsigned shared, int64_t arguments) override {
    Within within(*this, "", context_of(device));
    Handle module, function;
    check("", "cuModuleLoadData", load_(&module, code));
    try {
      check("", "cuModuleGetFunction", get_function_(&function, module, name), name);
      auto loaded = std::make_unique<Loaded>();
      loaded->driver = this;
      loaded->module = module;
      loaded->function = function;
      loaded->context = within.context();
      loaded->device = device;
      loaded->arguments = parameter_ ? arguments_of(function) : arguments;
      loaded->shared = kSharedWithoutAsking;
      allow("", *loaded, shared);
      return reinterpret_cast<int64_t>(loaded.release());
    } catch (...) {
      unload_(module);
      throw;
    }
  }

  void launch(const char* op, const Launch& l) override {
    Loaded& loaded = *reinterpret_cast<Loaded*>(l.function);
    Within within(*this, op, loaded.context);
    allow(op, loaded, l.shared);
    if (l.parameters) {
      check(op, "cuLaunchCooperativeKernel",
            launch_together_(loaded.function, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2],
                             l.shared, current_stream(loaded.device), l.parameters));
      return;
    }
    size_t size = l.size;
    void* arguments = const_cast<void*>(l.arguments);
    void* extra[] = {kBufferPointer, arguments, kBufferSize, &size, kEnd};
    // A buffer's start is aligned for nothing wider than 16 bytes: the driver places a struct that asks for more.
    void* parameters[] = {arguments};
    if (l.is_early && l.is_struct && launch_ex_) {
      Attribute early{kStartsEarly, {}, {1}};
      const LaunchConfig config{{l.grid[0], l.grid[1], l.grid[2]},
                                {l.block[0], l.block[1], l.block[2]},
                                l.shared,
                                current_stream(loaded.device),
                                &early,
                                1};
      check(op, "cuLaunchKernelEx", launch_ex_(&config, loaded.function, parameters, nullptr));
      return;
    }
    check(op, "cuLaunchKernel",
          launch_(loaded.function, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2], l.shared,
                  current_stream(loaded.device), l.is_struct ? parameters : nullptr, l.is_struct ? nullptr : extra));
  }

  int room(int64_t function, int threads, unsigned shared) override {
    Loaded& loaded = *reinterpret_cast<Loaded*>(function);
    Within within(*this, "", loaded.context);
    allow("", loaded, shared);
    int blocks = 0;
    check("", "cuOccupancyMaxActiveBlocksPerMultiprocessor", room_(&blocks, loaded.function, threads, shared));
    return blocks;
  }

  bool write(int64_t function, const char* name, const void* data, size_t size) override {
    const Loaded& loaded = *reinterpret_cast<const Loaded*>(function);
    Within within(*this, "", loaded.context);
    const uint64_t at = variable(loaded, name, size);
    if (!at) return false;
    // In the stream's order, and done when this returns: a launch on another stream may follow.
    check("", "cuMemcpyHtoDAsync", copy_to_(at, data, size, current_stream(loaded.device)));
    check("", "cuStreamSynchronize", wait_(current_stream(loaded.device)));
    return true;
  }

  bool read(int64_t function, const char* name, void* data, size_t size) override {
    const Loaded& loaded = *reinterpret_cast<const Loaded*>(function);
    Within within(*this, "", loaded.context);
    const uint64_t at = variable(loaded, name, size);
    if (!at) return false;
    check("", "cuMemcpyDtoHAsync", copy_from_(data, at, size, current_stream(loaded.device)));
    check("", "cuStreamSynchronize", wait_(current_stream(loaded.device)));
    return true;
  }

  void map(const char* op, int64_t function, const MappedMatrix& x, wmma::TileMap& map) override {
    if (!encode_) fail_driver(op, library_.path() + " has no cuTensorMapEncodeTiled: sm_90a takes a driver of CUDA 12");
    Within within(*this, op, reinterpret_cast<Loaded*>(function)->context);
    const uint32_t box[MappedMatrix::kMostDims] = {static_cast<uint32_t>(128 / x.element_size), x.lines, x.planes, 1,
                                                   1};
    const uint32_t neighbours[MappedMatrix::kMostDims] = {1, 1, 1, 1, 1};
    // The L2 cache fetches single lines of a tile: by two, units would ask for a fourth more than they need.
    check(op, "cuTensorMapEncodeTiled",
          encode_(&map, x.element_size == 2 ? kUint16 : kUint8, static_cast<uint32_t>(x.dims), x.data, x.sizes,
                  x.strides + 1, box, neighbours, kNotInterleaved, kSwizzled128, kFetches128, kZeroBeyond));
  }

 private:
  struct Attribute {
    int id;
    char padding[4];
    int value[16];
  };
  struct LaunchConfig {
    unsigned grid[3], block[3], shared;
    Handle stream;
    Attribute* attributes;
    unsigned attribute_count;
  };

  // Makes a device's context current where it is not: another device's may be, or none in a thread of the user's own.
  class Within {
   public:
    Within(const CudaDriver& driver, const char* op, Handle context) : driver_(driver), context_(context) {
      Handle current = nullptr;
      driver.check(op, "cuCtxGetCurrent", driver.get_current_(&current));
      if (current == context) return;
      driver.check(op, "cuCtxPushCurrent", driver.push_(context));
      pushed_ = true;
    }
    ~Within() {
      Handle popped;
      if (pushed_) driver_.pop_(&popped);
    }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;
    Handle context() const { return context_; }

   private:
    const CudaDriver& driver_;
    Handle context_;
    bool pushed_ = false;
  };

  uint64_t variable(const Loaded& loaded, const char* name, size_t size) const {
    uint64_t at = 0;
    size_t bytes = 0;
    const Result result = get_global_(&at, &bytes, loaded.module, name);
    if (result == kNotFound) return 0;
    check("", "cuModuleGetGlobal", result, name);
    return bytes == size ? at : 0;
  }

  // The context that torch uses as well. Held for as long as the process lives.
  Handle context_of(int index) {
    std::lock_guard lock(mutex_);
    Handle& context = contexts_[index];
    if (!context) {
      int device;
      check("", "cuDeviceGet", device_get_(&device, index));
      check("", "cuDevicePrimaryCtxRetain", retain_(&context, device));
    }
    return context;
  }

  // How many bytes a kernel's parameters take.
  int64_t arguments_of(Handle function) const {
    size_t end = 0, offset = 0, size = 0;
    for (size_t i = 0; parameter_(function, i, &offset, &size) == 0; ++i) end = offset + size;
    return static_cast<int64_t>(end);
  }

  void allow(const char* op, Loaded& loaded, unsigned shared) {
    if (shared <= loaded.shared.load(std::memory_order_relaxed)) return;
    check(op, "cuFuncSetAttribute", set_attribute_(loaded.function, kMaxDynamicShared, static_cast<int>(shared)));
    loaded.shared.store(shared, std::memory_order_relaxed);
  }

  void check(const char* op, const char* call, Result result, const char* function = "") const {
    if (result == 0) return;
    const char *name = nullptr, *text = nullptr;
    error_name_(result, &name);
    error_string_(result, &text);
    fail_call(op, library_.path(), call, function, result, name, text);
  }

  SharedLibrary library_;
  std::mutex mutex_;
  std::unordered_map<int, Handle> contexts_;
  Result (*init_)(unsigned);
  Result (*device_get_)(int*, int);
  Result (*retain_)(Handle*, int);
  Result (*get_current_)(Handle*);
  Result (*push_)(Handle);
  Result (*pop_)(Handle*);
  Result (*load_)(Handle*, const void*);
  Result (*unload_)(Handle);
  Result (*get_function_)(Handle*, Handle, const char*);
  Result (*set_attribute_)(Handle, int, int);
  Result (*launch_)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**,
                    void**);
  Result (*launch_together_)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle,
                             void**);
  Result (*room_)(int*, Handle, int, size_t);
  Result (*get_global_)(uint64_t*, size_t*, Handle, const char*);
  Result (*copy_to_)(uint64_t, const void*, size_t, Handle);
  Result (*copy_from_)(void*, uint64_t, size_t, Handle);
  Result (*wait_)(Handle);
  Result (*error_name_)(Result, const char**);
  Result (*error_string_)(Result, const char**);
  using LaunchEx = Result (*)(const LaunchConfig*, Handle, void**, void**);
  LaunchEx launch_ex_;  // null in older drivers, as the next in those before CUDA 12
  using Parameter = Result (*)(Handle, size_t, size_t*, size_t*);
  Parameter parameter_;  // null before CUDA 12.4
  using Encode = Result (*)(void* map, int type, uint32_t dims, const void* data, const uint64_t* sizes,
                            const uint64_t* strides, const uint32_t* box, const uint32_t* neighbours, int interleave,
                            int swizzle, int promotion, int fill);
  Encode encode_;
};

}  // namespace

Driver* make_cuda_driver(const std::vector<std::string>& libraries) { return new CudaDriver(libraries); }

}  // namespace wmma_ops
