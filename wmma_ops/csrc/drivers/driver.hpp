// What loads machine code and launches it: libcuda, libamdhip64 or the emulator, behind one interface. The GPU
// libraries are found in the process when first asked for, so that one binary serves machines with either or none.
#pragma once

#include <atomic>
#include <string>
#include <vector>
#include <wmma/tile/arguments.hpp>

#include "aten.hpp"

namespace wmma_ops {

// One launch, as every driver takes it.
struct Launch {
  int64_t function;  // what `load` returned; for the emulator, what the planner did
  unsigned grid[3], block[3];
  unsigned shared;        // dynamic shared memory, in bytes
  const void* arguments;  // the kernel's arguments as they lie in memory
  size_t size;
  bool is_struct;     // they are one argument
  void** parameters;  // where all blocks are there at once: the address of each argument; else null
  bool is_early;      // where the hardware can, before the stream's kernel before it is done
  // For the emulator, which lets a kernel touch nothing else.
  const Tensor* const* tensors;
  const char* const* names;
  int tensor_count;
};

// A matrix as sm_90's copy engine has it described: sizes and strides from the dimension along memory outwards.
struct MappedMatrix {
  static constexpr int kMostDims = 5;
  const void* data;
  int element_size, dims;
  uint64_t sizes[kMostDims];    // in elements
  uint64_t strides[kMostDims];  // in bytes, multiples of 16; the first is an element's
  uint32_t lines;               // of a tile: each is 128 bytes
  uint32_t planes = 1;          // of so many lines
};

class Driver {
 public:
  virtual ~Driver() = default;
  // Drivers and what they loaded live as long as the process: graphs may hold their functions.
  // `arguments`: how many bytes of them the kernel takes, as far as its code says so; −1: it does not.
  virtual int64_t load(int device, const void* code, const char* name, unsigned shared, int64_t arguments) = 0;
  virtual void launch(const char* op, const Launch& launch) = 0;
  // Writes a variable of the function's module, or waits for the current stream and reads it; false where there is
  // none.
  virtual bool write(int64_t function, const char* name, const void* data, size_t size);
  virtual bool read(int64_t function, const char* name, void* data, size_t size);
  // How many blocks of so many threads a compute unit (SM) has at once.
  virtual int room(int64_t function, int threads, unsigned shared);
  // For NVIDIA alone: of a matrix that the function will read.
  virtual void map(const char* op, int64_t function, const MappedMatrix& matrix, wmma::TileMap& map);
};

Driver& gpu_driver();  // that of this process's torch; throws where its library is not found
Driver& emulated_driver();

// These ask the driver that loaded the function.
void launch_loaded(const char* op, const Launch& launch);
void map_loaded(const char* op, int64_t function, const MappedMatrix& matrix, wmma::TileMap& map);

// The rest of this header is for the drivers themselves.

struct Loaded {
  Driver* driver;
  void* module;
  void* function;
  void* context;  // CUDA's
  int device;
  int64_t arguments;             // bytes that it takes; −1: nobody knows
  std::atomic<unsigned> shared;  // the dynamic shared memory that it may use without asking for more
};

Driver* make_cuda_driver(const std::vector<std::string>& libraries);
Driver* make_hip_driver(const std::vector<std::string>& libraries);

constexpr int kNotFound = 500;  // what both libraries answer for a name that a module has not

// "wmma.<op>: <text>", or "wmma: <text>" where `op` is empty.
[[noreturn]] void fail_driver(const char* op, const std::string& text);

// What a driver's call answered, in words; its name and text may be null.
[[noreturn]] void fail_call(const char* op, const std::string& library, const char* call, const char* function,
                            int result, const char* name, const char* text);

// A library opened at run time.
class SharedLibrary {
 public:
  // The first of `names` that the process holds already, else the first that can be loaded.
  explicit SharedLibrary(const std::vector<std::string>& names);
  void* symbol(const char* name) const;
  void* symbol_or_null(const char* name) const;
  const std::string& path() const { return path_; }

 private:
  void* handle_ = nullptr;
  std::string path_;
};

// The stream that torch issues work on: the default stream where torch has none (a stand-in's memory is the CPU's).
void* current_stream(int device);

}  // namespace wmma_ops
