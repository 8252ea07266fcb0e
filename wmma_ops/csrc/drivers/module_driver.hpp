// What CUDA's driver and HIP's runtime share: modules, their functions and variables, launches.
#pragma once

#include <memory>

#include "drivers/driver.hpp"

namespace wmma_ops {

using Result = int;
using Handle = void*;

// A function of a library that is opened at run time, with its name for messages.
template <class... Arguments>
struct Call {
  Call(const SharedLibrary& library, const char* name)
      : name(name), function(reinterpret_cast<Result (*)(Arguments...)>(library.symbol(name))) {}
  const char* name;
  Result (*function)(Arguments...);
};

class ModuleDriver : public Driver {
 public:
  int64_t load(int device, const void* code, const char* name, unsigned shared, int64_t arguments) override {
    auto loaded = std::make_unique<Loaded>();
    loaded->driver = this;
    loaded->device = device;
    loaded->context = context_of(device);
    loaded->arguments = arguments;
    Within within(*this, "", *loaded);
    run("", load_, &loaded->module, code);
    try {
      check("", get_function_.name, get_function_.function(&loaded->function, loaded->module, name), name);
      finish(*loaded, shared);
    } catch (...) {
      unload_.function(loaded->module);
      throw;
    }
    return reinterpret_cast<int64_t>(loaded.release());
  }

  void launch(const char* op, const Launch& l) override {
    Loaded& loaded = *reinterpret_cast<Loaded*>(l.function);
    Within within(*this, op, loaded);
    allow(op, loaded, l.shared);
    const auto start = [&](const auto& call, auto... arguments) {
      run(op, call, loaded.function, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2], l.shared,
          current_stream(loaded.device), arguments...);
    };
    if (l.parameters) return start(cooperative_, l.parameters);
    size_t size = l.size;
    void* arguments = const_cast<void*>(l.arguments);
    void* extra[] = {kBufferPointer, arguments, kBufferSize, &size, end_};
    // A buffer's start is aligned for nothing wider than 16 bytes: CUDA places a struct that asks for more.
    void* parameters[] = {arguments};
    const bool is_struct = l.is_struct && takes_structs_;
    if (l.is_early && is_struct && launch_early(op, loaded, l, parameters)) return;
    is_struct ? start(launch_, parameters, nullptr) : start(launch_, nullptr, extra);
  }

  int room(int64_t function, int threads, unsigned shared) override {
    Loaded& loaded = *reinterpret_cast<Loaded*>(function);
    Within within(*this, "", loaded);
    allow("", loaded, shared);
    int blocks = 0;
    run("", room_, &blocks, loaded.function, threads, size_t{shared});
    return blocks;
  }

  bool write(int64_t function, const char* name, const void* data, size_t size) override {
    return copy_variable(function, name, const_cast<void*>(data), size, true);
  }
  bool read(int64_t function, const char* name, void* data, size_t size) override {
    return copy_variable(function, name, data, size, false);
  }

 protected:
  // The names of functions that both libraries have.
  struct Names {
    const char *load, *unload, *get_function, *launch, *cooperative, *room, *get_global, *wait;
  };
  // `end` closes a list of a launch's extras.
  ModuleDriver(const std::vector<std::string>& libraries, const Names& names, void* end, bool takes_structs)
      : library_(libraries),
        load_(library_, names.load),
        unload_(library_, names.unload),
        get_function_(library_, names.get_function),
        launch_(library_, names.launch),
        cooperative_(library_, names.cooperative),
        room_(library_, names.room),
        get_global_(library_, names.get_global),
        wait_(library_, names.wait),
        end_(end),
        takes_structs_(takes_structs) {}

  // Makes a function's device current where another one is (or none, in a thread of the user's own): whether it did.
  virtual bool enter(const char* op, const Loaded& at, int& before) const = 0;
  virtual void leave(int before) const = 0;
  virtual void copy(void* to, const void* from, size_t size, bool to_device, Handle stream) const = 0;
  virtual void describe(Result result, const char*& name, const char*& text) const = 0;
  virtual Handle context_of(int) { return nullptr; }
  virtual void finish(Loaded&, unsigned) {}  // of loading, with the shared memory that launches will ask for
  virtual void allow(const char*, Loaded&, unsigned) const {}  // so much shared memory
  virtual bool launch_early(const char*, Loaded&, const Launch&, void**) { return false; }

  class Within {
   public:
    Within(const ModuleDriver& driver, const char* op, const Loaded& at)
        : driver_(driver), entered_(driver.enter(op, at, before_)) {}
    ~Within() {
      if (entered_) driver_.leave(before_);
    }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

   private:
    const ModuleDriver& driver_;
    int before_ = 0;
    bool entered_;
  };

  void check(const char* op, const char* call, Result result, const char* function = "") const {
    if (result == 0) return;
    const char *name = nullptr, *text = nullptr;
    describe(result, name, text);
    fail_call(op, library_.path(), call, function, result, name, text);
  }
  template <class... Parameters, class... Arguments>
  void run(const char* op, const Call<Parameters...>& call, Arguments... arguments) const {
    check(op, call.name, call.function(arguments...));
  }

  SharedLibrary library_;

 private:
  // In the stream's order, and done when this returns: a launch on another stream may follow.
  bool copy_variable(int64_t function, const char* name, void* data, size_t size, bool to_device) const {
    const Loaded& loaded = *reinterpret_cast<const Loaded*>(function);
    Within within(*this, "", loaded);
    void* at = nullptr;
    size_t bytes = 0;
    const Result result = get_global_.function(&at, &bytes, loaded.module, name);
    if (result == kNotFound) return false;
    check("", get_global_.name, result, name);
    if (bytes != size || !at) return false;
    const Handle stream = current_stream(loaded.device);
    to_device ? copy(at, data, size, true, stream) : copy(data, at, size, false, stream);
    run("", wait_, stream);
    return true;
  }

  static inline void* const kBufferPointer = reinterpret_cast<void*>(1);  // {CU,HIP}_LAUNCH_PARAM_*
  static inline void* const kBufferSize = reinterpret_cast<void*>(2);
  using Dimension = unsigned;
  Call<Handle*, const void*> load_;
  Call<Handle> unload_;
  Call<Handle*, Handle, const char*> get_function_;
  Call<Handle, Dimension, Dimension, Dimension, Dimension, Dimension, Dimension, unsigned, Handle, void**, void**>
      launch_;
  Call<Handle, Dimension, Dimension, Dimension, Dimension, Dimension, Dimension, unsigned, Handle, void**> cooperative_;
  Call<int*, Handle, int, size_t> room_;
  Call<void**, size_t*, Handle, const char*> get_global_;  // CUDA's address is as wide as a pointer
  Call<Handle> wait_;
  void* end_;
  bool takes_structs_;
};

}  // namespace wmma_ops
