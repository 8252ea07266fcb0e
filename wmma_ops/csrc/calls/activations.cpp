#include <mutex>
#include <set>
#include <shared_mutex>
#include <wmma/activation.hpp>

#include "calls/checks.hpp"

namespace wmma_ops {

namespace {
std::shared_mutex registered_mutex;
std::set<int64_t>& registered() {
  static std::set<int64_t> codes;
  return codes;
}
}  // namespace

void register_activation(int64_t code) {
  if (code < wmma::kFirstRegistered) fail_number("register_activation", "code", code, "one of 256 or more");
  std::unique_lock lock(registered_mutex);
  registered().insert(code);
}

bool is_activation(int64_t code) {
  if (code >= 0 && code < wmma::kBuiltinActivations) return true;
  std::shared_lock lock(registered_mutex);
  return registered().count(code) > 0;
}

void check_activation(const char* op, const char* name, int64_t code) {
  if (!is_activation(code)) {
    fail_value(op, name, "is code ", code, "; takes 0 to ", wmma::kBuiltinActivations - 1,
               " or the code of a registered activation");
  }
}

}  // namespace wmma_ops
