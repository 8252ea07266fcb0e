#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <wmma/activation.hpp>

#include "calls/problem.hpp"

namespace wmma_ops {

namespace {
std::shared_mutex registered_mutex;
std::map<std::pair<bool, int64_t>, ScoreFunction>& registered() {
  static std::map<std::pair<bool, int64_t>, ScoreFunction> functions;
  return functions;
}
}  // namespace

void register_score_function(bool is_mask, int64_t code, int64_t operands, int64_t a, int64_t b, int64_t c, int64_t d) {
  if (code < wmma::kFirstRegistered) fail_number("register_score_function", "code", code, "one of 256 or more");
  const char* const op = "register_score_function";
  if (operands < 0 || operands > kScoreOperands) fail_number(op, "operands", operands, "0 to 4");
  for (auto [name, dims] : {std::pair{"a", a}, {"b", b}, {"c", c}, {"d", d}}) {
    if (dims < -1 || dims > kScoreOperands) fail_number(op, name, dims, "0 to 4 indices, or -1 for any");
  }
  std::unique_lock lock(registered_mutex);
  registered()[{is_mask, code}] = {operands, {a, b, c, d}};
}

ScoreFunction score_function(const char* op, bool is_mask, int64_t code) {
  if (code == 0) return {};
  std::shared_lock lock(registered_mutex);
  const auto found = registered().find({is_mask, code});
  if (found == registered().end()) {
    fail_value(op, is_mask ? "mask_mod" : "score_mod", "is code ", code,
               "; takes 0 (none) or the code of a registered function");
  }
  return found->second;
}

void Attention::check_functions() const {
  const std::pair<const char*, ScoreFunction> both[] = {{"score_mod", score_function(op, false, score_mod)},
                                                        {"mask_mod", score_function(op, true, mask_mod)}};
  for (int i = 0; i < kScoreOperands; ++i) {
    const OptTensor& x = score_operand(i);
    const char* name = kScoreOperandNames[i];
    bool is_read = false;
    for (const auto& [which, function] : both) {
      if (i >= function.operands) continue;
      is_read = true;
      const std::string count = std::to_string(function.operands) + (function.operands == 1 ? " tensor" : " tensors");
      if (!x) fail_type(op, name, "is None; takes a tensor, as ", which, " reads ", count);
      if (function.dims[i] >= 0 && x->dim() != function.dims[i]) {
        fail_shape(op, name, *x, "a tensor of ", function.dims[i], " dimensions, as many as ", which,
                   " gives it indices");
      }
    }
    if (!x) continue;
    if (!is_read) fail_value(op, name, "is a tensor that no function reads; takes None");
    using S = ScalarType;
    check_tensor(op, name, *x, device, {S::Half, S::BFloat16, S::Float, S::Double, S::Int, S::Long, S::Bool});
    if (x->dim() > kScoreOperands) fail_shape(op, name, *x, "up to 4 dimensions");
    for (int64_t size : sizes_of(*x)) {
      if (size < 1 || size >= int64_t{1} << 31) fail_shape(op, name, *x, "sizes of 1 or more, and less than 2^31");
    }
  }
}

void Attention::check_blocks() const {
  constexpr int64_t kStep = 32;  // that kernels' tiles divide
  for (auto [name, size] : {std::pair{"block_q", block_q}, {"block_k", block_k}}) {
    if (!block_mask && size != 0) fail_number(op, name, size, "0 without block_mask");
    if (block_mask && (size <= 0 || size % kStep != 0)) fail_number(op, name, size, "a multiple of ", kStep);
  }
  if (!block_mask) return;
  const Tensor& x = *block_mask;
  check_tensor(op, "block_mask", x, device, {ScalarType::Char});
  // Of packed sequences each has as many as the longest.
  const int64_t queries = sequences ? max_q : sq, keys = sequences ? sequences->longest_k : skv;
  const int64_t of_queries = (queries + block_q - 1) / block_q, of_keys = (keys + block_k - 1) / block_k;
  if (x.dim() < 2 || x.sizes()[x.dim() - 2] != of_queries || x.sizes()[x.dim() - 1] != of_keys) {
    fail_shape(op, "block_mask", x, "[..., ", of_queries, ", ", of_keys, "], blocks of ", block_q, " queries and of ",
               block_k, " keys");
  }
  Sizes target = sequences ? Sizes{sequences->count, heads} : head_sizes();
  target.push_back(of_queries);
  target.push_back(of_keys);
  check_matrix(op, "block_mask", x, target);
}

}  // namespace wmma_ops
