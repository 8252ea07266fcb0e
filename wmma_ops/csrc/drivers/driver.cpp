#include "drivers/driver.hpp"

#include <dlfcn.h>
#include <link.h>

#include <limits>
#include <mutex>
#include <shared_mutex>
#include <tuple>
#include <unordered_set>

#include "calls/checks.hpp"
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
  const Loaded& loaded = *reinterpret_cast<Loaded*>(launch.function);
  // Kernels of one plan are given the same, of which some take the first part.
  if (loaded.arguments > static_cast<int64_t>(launch.size)) {
    fail_driver(op, "the kernel takes " + std::to_string(loaded.arguments) +
                        " bytes of arguments, and the library has " + std::to_string(launch.size) +
                        ": they were not built of the same headers");
  }
  loaded.driver->launch(op, launch);
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

// wmma_ops/runtime/driver.py calls these.

void* bytes_of(const char* op, const char* name, const Tensor& x) {
  require(op, name, x);
  check_storage(op, name, x, {Device::kCpu, 0});
  if (type_of(x) != ScalarType::Byte) fail_dtype(op, name, type_of(x), "bytes, of uint8");
  if (x.dim() != 1 || (x.numel() > 1 && x.strides()[0] != 1)) fail_shape(op, name, x, "bytes one after the other");
  return x.numel() == 0 ? nullptr : const_cast<void*>(x.const_data_ptr());
}

// Strings arrive as bytes that end in a zero.
const char* text_of(const char* op, const char* name, const Tensor& x) {
  const char* text = static_cast<const char*>(bytes_of(op, name, x));
  if (text == nullptr || text[x.numel() - 1] != 0)
    fail_value(op, name, "does not end in a zero; takes a text that does");
  return text;
}

unsigned count_of(const char* op, const char* name, int64_t value, int64_t least) {
  if (value < least || value > std::numeric_limits<int32_t>::max()) {
    fail_number(op, name, value, least, " to 2147483647");
  }
  return static_cast<unsigned>(value);
}

std::shared_mutex loaded_mutex;
std::unordered_set<int64_t>& all_loaded() {
  static auto* const functions = new std::unordered_set<int64_t>;  // never destroyed: threads may outlive us
  return *functions;
}

Driver& driver_of(const char* op, int64_t function) {
  std::shared_lock lock(loaded_mutex);
  if (all_loaded().count(function) == 0) fail_number(op, "function", function, "what _load returned");
  return *reinterpret_cast<Loaded*>(function)->driver;
}

int64_t load(int64_t device, const Tensor& code, const Tensor& name, int64_t shared, int64_t arguments) {
  const char* const op = "_load";
  const int index = static_cast<int>(count_of(op, "device", device, 0));
  const void* bytes = bytes_of(op, "code", code);
  const char* text = text_of(op, "name", name);
  const unsigned most = count_of(op, "shared", shared, 0);
  Driver& driver = gpu_driver();
  if (bytes == nullptr) fail_value(op, "code", "has no bytes; takes machine code");
  const int64_t function = driver.load(index, bytes, text, most, arguments);
  std::unique_lock lock(loaded_mutex);
  all_loaded().insert(function);
  return function;
}

// `offsets` are each argument's, where all blocks are to be there at once.
void launch(int64_t function, const Sizes& grid, const Sizes& block, int64_t shared, const Tensor& arguments,
            const Sizes& offsets, bool cooperative) {
  const char* const op = "_launch";
  Driver& driver = driver_of(op, function);
  Launch launch{};
  launch.function = function;
  for (auto [name, sizes, to] : {std::tuple{"grid", &grid, launch.grid}, {"block", &block, launch.block}}) {
    if (sizes->size() != 3) fail_value(op, name, "is ", *sizes, "; takes three sizes");
    for (int i = 0; i < 3; ++i) to[i] = count_of(op, name, (*sizes)[i], 1);
  }
  launch.shared = count_of(op, "shared", shared, 0);
  launch.arguments = bytes_of(op, "arguments", arguments);
  launch.size = static_cast<size_t>(arguments.numel());
  std::vector<void*> parameters;
  if (cooperative) {
    char* const first = static_cast<char*>(const_cast<void*>(launch.arguments));
    for (int64_t offset : offsets) {
      if (offset < 0 || offset >= arguments.numel()) {
        fail_value(op, "offsets", "is ", offsets, "; takes places within the arguments");
      }
      parameters.push_back(first + offset);
    }
    parameters.push_back(nullptr);  // so that there is an array where a kernel takes nothing
    launch.parameters = parameters.data();
  }
  driver.launch("Kernel", launch);
}

bool write(int64_t function, const Tensor& name, const Tensor& data) {
  const char* const op = "_write";
  Driver& driver = driver_of(op, function);
  const char* text = text_of(op, "name", name);
  return driver.write(function, text, bytes_of(op, "data", data), static_cast<size_t>(data.numel()));
}

bool read(int64_t function, const Tensor& name, Tensor data) {
  const char* const op = "_read";
  Driver& driver = driver_of(op, function);
  const char* text = text_of(op, "name", name);
  return driver.read(function, text, bytes_of(op, "data", data), static_cast<size_t>(data.numel()));
}

int64_t room(int64_t function, int64_t threads, int64_t shared) {
  const char* const op = "_room";
  Driver& driver = driver_of(op, function);
  const int count = static_cast<int>(count_of(op, "threads", threads, 1));
  return driver.room(function, count, count_of(op, "shared", shared, 0));
}

// kind 0: torch's own again; 1: cuda; 2: hip, from the library at `path`.
void use_driver(int64_t kind, const Tensor& path) {
  const char* const op = "_use_driver";
  if (kind < 0 || kind > 2) fail_number(op, "kind", kind, "0, 1 or 2");
  const char* text = text_of(op, "path", path);
  Driver* driver = kind == 1 ? make_cuda_driver({text}) : kind == 2 ? make_hip_driver({text}) : nullptr;
  stand_in.store(driver, std::memory_order_release);
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(wmma, m) {
  m.def("_load(int device, Tensor code, Tensor name, int shared, int arguments) -> int");
  m.def(
      "_launch(int function, int[] grid, int[] block, int shared, Tensor arguments, int[] offsets, "
      "bool cooperative) -> ()");
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
