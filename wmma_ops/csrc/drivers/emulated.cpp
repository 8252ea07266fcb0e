// The emulator as a driver: it lives in Python (wmma_ops/runtime/launching.py) and is reached through the dispatcher.
#include <cstring>

#include "drivers/driver.hpp"
#include "launch/plans.hpp"

namespace wmma_ops {

namespace {

class EmulatedDriver : public Driver {
 public:
  int64_t load(int, const void*, const char*, unsigned, int64_t) override {
    fail_driver("", "the emulator loads no machine code: the planner hands it assembly");
  }

  void launch(const char* op, const Launch& l) override {
    std::vector<Tensor> tensors;
    std::vector<int64_t> names;  // their bytes, a zero after each
    for (int i = 0; i < l.tensor_count; ++i) {
      tensors.push_back(*l.tensors[i]);
      auto* bytes = reinterpret_cast<const unsigned char*>(l.names[i]);
      names.insert(names.end(), bytes, bytes + std::strlen(l.names[i]) + 1);
    }
    const Tensor arguments = aten::empty({static_cast<int64_t>(l.size)}, ScalarType::Byte);
    std::memcpy(arguments.mutable_data_ptr(), l.arguments, l.size);
    check_answer(op, aten::call<std::vector<int64_t>>("wmma::_emulate", "", l.function, Sizes(l.grid, l.grid + 3),
                                                      static_cast<int64_t>(l.block[0]), static_cast<int64_t>(l.shared),
                                                      arguments, tensors, names));
  }
};

}  // namespace

Driver& emulated_driver() {
  static EmulatedDriver driver;
  return driver;
}

}  // namespace wmma_ops
