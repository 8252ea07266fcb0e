#include "drivers/driver.hpp"

#include <dlfcn.h>
#include <link.h>

#include <mutex>

#include "torch_internals.hpp"

namespace wmma_ops {

void fail_driver(const char* op, const std::string& text) {
  throw std::runtime_error(std::string("wmma") + (*op ? "." : "") + op + ": " + text + " [DriverError]");
}

void fail_call(const char* op, const std::string& library, const char* call, const char* function, int result,
               const char* name, const char* text) {
  fail_driver(op, std::string(call) + " of " + library + " failed" + (*function ? " for " : "") + function + ": " +
                      (name ? name : "unknown error") + " (" + std::to_string(result) + ")" +
                      (text ? std::string(", ") + text : ""));
}

SharedLibrary::SharedLibrary(const std::vector<std::string>& names) {
  // A second copy of a GPU's runtime in the process would not share the first one's devices.
  for (const std::string& name : names) {
    if (!handle_) handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
  }
  std::string tried;
  for (const std::string& name : names) {
    if (handle_) break;
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) {
      const char* reason = dlerror();
      tried += (tried.empty() ? "" : "; ") + name + ": " + (reason ? reason : "unknown error");
    }
  }
  if (!handle_) {
    fail_driver("",
                "the GPU driver's library was not found, neither in this process nor by the system's loader: " + tried);
  }
  link_map* map = nullptr;
  path_ = dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && map && *map->l_name ? map->l_name : names[0];
}

void* SharedLibrary::symbol_or_null(const char* name) const { return dlsym(handle_, name); }

void* SharedLibrary::symbol(const char* name) const {
  void* found = symbol_or_null(name);
  if (!found) fail_driver("", path_ + " has no function " + name + ": its version is not one that this package knows");
  return found;
}

namespace {

Driver* torchs_driver() {
  if (!torch_internals::is_rocm()) return make_cuda_driver({"libcuda.so.1"});
  return make_hip_driver({"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6"});
}

// The driver that a test asked for in place of torch's.
std::atomic<Driver*> stand_in{nullptr};

}  // namespace

Driver& gpu_driver() {
  if (Driver* driver = stand_in.load(std::memory_order_acquire)) return *driver;
  static Driver* const driver = torchs_driver();
  return *driver;
}

void launch_loaded(const char* op, const Launch& launch) {
  reinterpret_cast<Loaded*>(launch.function)->driver->launch(op, launch);
}

void map_loaded(const char* op, int64_t function, const MappedMatrix& matrix, wmma::TileMap& map) {
  reinterpret_cast<Loaded*>(function)->driver->map(op, function, matrix, map);
}

void Driver::map(const char* op, int64_t, const MappedMatrix&, wmma::TileMap&) {
  fail_driver(op, "the plan is for NVIDIA's sm_90a, and this driver is another's");
}

bool Driver::write(int64_t, const char*, const void*, size_t) { return false; }
bool Driver::read(int64_t, const char*, void*, size_t) { return false; }
int Driver::room(int64_t, int, unsigned) { return 0; }

void* current_stream(int device) {
  return stand_in.load(std::memory_order_relaxed) ? nullptr : torch_internals::current_stream(device);
}

namespace {

const char* text_of(const Tensor& bytes) { return static_cast<const char*>(bytes.const_data_ptr()); }

// wmma_ops/runtime/driver.py calls these. Strings arrive as tensors of bytes, ending in a zero.

int64_t load(int64_t device, const Tensor& code, const Tensor& name, int64_t shared) {
  return gpu_driver().load(static_cast<int>(device), code.const_data_ptr(), text_of(name),
                           static_cast<unsigned>(shared));
}

// `offsets` are each argument's, where all blocks are to be there at once.
void launch(int64_t function, const Sizes& grid, const Sizes& block, int64_t shared, const Tensor& arguments,
            const Sizes& offsets, bool together) {
  Launch launch{};
  launch.function = function;
  for (int i = 0; i < 3; ++i) {
    launch.grid[i] = static_cast<unsigned>(grid.at(i));
    launch.block[i] = static_cast<unsigned>(block.at(i));
  }
  launch.shared = static_cast<unsigned>(shared);
  launch.arguments = arguments.const_data_ptr();
  launch.size = static_cast<size_t>(arguments.numel());
  std::vector<void*> parameters;
  if (together) {
    char* const first = static_cast<char*>(const_cast<void*>(launch.arguments));
    for (int64_t offset : offsets) parameters.push_back(first + offset);
    parameters.push_back(nullptr);  // so that there is an array where a kernel takes nothing
    launch.parameters = parameters.data();
  }
  launch_loaded("Kernel", launch);
}

bool write(int64_t function, const Tensor& name, const Tensor& data) {
  return reinterpret_cast<Loaded*>(function)->driver->write(function, text_of(name), data.const_data_ptr(),
                                                            static_cast<size_t>(data.numel()));
}

bool read(int64_t function, const Tensor& name, Tensor data) {
  return reinterpret_cast<Loaded*>(function)->driver->read(function, text_of(name), data.mutable_data_ptr(),
                                                           static_cast<size_t>(data.numel()));
}

int64_t room(int64_t function, int64_t threads, int64_t shared) {
  return reinterpret_cast<Loaded*>(function)->driver->room(function, static_cast<int>(threads),
                                                           static_cast<unsigned>(shared));
}

// kind 0: torch's own again; 1: cuda; 2: hip, from the library at `path`.
void use_driver(int64_t kind, const Tensor& path) {
  Driver* driver = kind == 1   ? make_cuda_driver({text_of(path)})
                   : kind == 2 ? make_hip_driver({text_of(path)})
                               : nullptr;
  stand_in.store(driver, std::memory_order_release);
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(wmma, m) {
  m.def("_load(int device, Tensor code, Tensor name, int shared) -> int");
  m.def(
      "_launch(int function, int[] grid, int[] block, int shared, Tensor arguments, int[] offsets, bool together) -> "
      "()");
  m.def("_room(int function, int threads, int shared) -> int");
  m.def("_write(int function, Tensor name, Tensor data) -> bool");
  m.def("_read(int function, Tensor name, Tensor(a!) data) -> bool");
  m.def("_use_driver(int kind, Tensor path) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(wmma, CompositeExplicitAutograd, m) {
  m.impl("_load", TORCH_BOX(&load));
  m.impl("_launch", TORCH_BOX(&launch));
  m.impl("_room", TORCH_BOX(&room));
  m.impl("_write", TORCH_BOX(&write));
  m.impl("_read", TORCH_BOX(&read));
  m.impl("_use_driver", TORCH_BOX(&use_driver));
}

}  // namespace wmma_ops
