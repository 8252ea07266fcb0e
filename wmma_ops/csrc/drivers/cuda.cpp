// NVIDIA's driver API, by the few functions that are needed. The declarations are those of cuda.h.
#include <mutex>
#include <unordered_map>

#include "drivers/module_driver.hpp"

namespace wmma_ops {

namespace {

constexpr int kMaxDynamicShared = 8;                  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr unsigned kSharedWithoutAsking = 48 * 1024;  // what every function may use
constexpr int kStartsEarly = 6;                       // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
constexpr int kUint8 = 0, kUint16 = 1;                // CU_TENSOR_MAP_*
constexpr int kNotInterleaved = 0, kSwizzled128 = 3, kFetches128 = 2, kZeroBeyond = 0;

class CudaDriver : public ModuleDriver {
 public:
  explicit CudaDriver(const std::vector<std::string>& libraries)
      : ModuleDriver(
            libraries,
            {"cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction", "cuLaunchKernel", "cuLaunchCooperativeKernel",
             "cuOccupancyMaxActiveBlocksPerMultiprocessor", "cuModuleGetGlobal_v2", "cuStreamSynchronize"},
            nullptr, true) {
    run("", init_, 0u);
  }

  void map(const char* op, int64_t function, const MappedMatrix& x, wmma::TileMap& map) override {
    if (!encode_) fail_driver(op, library_.path() + " has no cuTensorMapEncodeTiled: sm_90a takes a driver of CUDA 12");
    Within within(*this, op, *reinterpret_cast<Loaded*>(function));
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

  bool enter(const char* op, const Loaded& at, int&) const override {
    Handle current = nullptr;
    run(op, get_current_, &current);
    if (current == at.context) return false;
    run(op, push_, at.context);
    return true;
  }
  void leave(int) const override {
    Handle popped;
    pop_.function(&popped);
  }

  void copy(void* to, const void* from, size_t size, bool to_device, Handle stream) const override {
    to_device ? run("", copy_to_, to, from, size, stream) : run("", copy_from_, to, from, size, stream);
  }

  // The context that torch uses as well. Held for as long as the process lives.
  Handle context_of(int index) override {
    std::lock_guard lock(mutex_);
    Handle& context = contexts_[index];
    if (!context) {
      int device;
      run("", device_get_, &device, index);
      run("", retain_, &context, device);
    }
    return context;
  }

  void finish(Loaded& loaded, unsigned shared) override {
    // What the parameters take, from where the first lies: a struct of maps is at 48, aligned to its 64 bytes.
    size_t first = 0, offset = 0, size = 0;
    for (size_t i = 0; parameter_ && parameter_(loaded.function, i, &offset, &size) == 0; ++i) {
      if (i == 0) first = offset;
      loaded.arguments = static_cast<int64_t>(offset + size - first);
    }
    loaded.shared = kSharedWithoutAsking;
    allow("", loaded, shared);
  }

  void allow(const char* op, Loaded& loaded, unsigned shared) const override {
    if (shared <= loaded.shared.load(std::memory_order_relaxed)) return;
    run(op, set_attribute_, loaded.function, kMaxDynamicShared, static_cast<int>(shared));
    loaded.shared.store(shared, std::memory_order_relaxed);
  }

  bool launch_early(const char* op, Loaded& loaded, const Launch& l, void** parameters) override {
    if (!launch_ex_) return false;
    Attribute early{kStartsEarly, {}, {1}};
    const LaunchConfig config{{l.grid[0], l.grid[1], l.grid[2]},
                              {l.block[0], l.block[1], l.block[2]},
                              l.shared,
                              current_stream(loaded.device),
                              &early,
                              1};
    check(op, "cuLaunchKernelEx", launch_ex_(&config, loaded.function, parameters, nullptr));
    return true;
  }

  void describe(Result result, const char*& name, const char*& text) const override {
    error_name_.function(result, &name);
    error_string_.function(result, &text);
  }

  std::mutex mutex_;
  std::unordered_map<int, Handle> contexts_;
  Call<unsigned> init_{library_, "cuInit"};
  Call<int*, int> device_get_{library_, "cuDeviceGet"};
  Call<Handle*, int> retain_{library_, "cuDevicePrimaryCtxRetain"};
  Call<Handle*> get_current_{library_, "cuCtxGetCurrent"};
  Call<Handle> push_{library_, "cuCtxPushCurrent_v2"};
  Call<Handle*> pop_{library_, "cuCtxPopCurrent_v2"};
  Call<Handle, int, int> set_attribute_{library_, "cuFuncSetAttribute"};
  Call<void*, const void*, size_t, Handle> copy_to_{library_, "cuMemcpyHtoDAsync_v2"};
  Call<void*, const void*, size_t, Handle> copy_from_{library_, "cuMemcpyDtoHAsync_v2"};
  Call<Result, const char**> error_name_{library_, "cuGetErrorName"};
  Call<Result, const char**> error_string_{library_, "cuGetErrorString"};
  using LaunchEx = Result (*)(const LaunchConfig*, Handle, void**, void**);
  LaunchEx launch_ex_ = optional<LaunchEx>("cuLaunchKernelEx");  // null in older drivers
  using Encode = Result (*)(void* map, int type, uint32_t dims, const void* data, const uint64_t* sizes,
                            const uint64_t* strides, const uint32_t* box, const uint32_t* neighbours, int interleave,
                            int swizzle, int promotion, int fill);
  Encode encode_ = optional<Encode>("cuTensorMapEncodeTiled");  // null before CUDA 12
  using Parameter = Result (*)(Handle, size_t, size_t*, size_t*);
  Parameter parameter_ = optional<Parameter>("cuFuncGetParamInfo");  // null before CUDA 12.4

  template <class Function>
  Function optional(const char* name) const {
    return reinterpret_cast<Function>(library_.symbol_or_null(name));
  }
};

}  // namespace

Driver* make_cuda_driver(const std::vector<std::string>& libraries) { return new CudaDriver(libraries); }

}  // namespace wmma_ops
