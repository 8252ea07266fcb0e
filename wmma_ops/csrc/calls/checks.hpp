// How what cannot be done is refused, in the words
//   wmma.<op>: <argument> <what came>; takes <what is taken> [TypeError or ValueError]
// The tag at the end tells the Python functions which exception to raise.
#pragma once

#include "calls/types.hpp"

namespace wmma_ops {

// Where an op's tensors are, all of them.
struct Device {
  int32_t type, index;
  static const int32_t kCpu, kCuda;
  bool is_cpu() const { return type == kCpu; }
};

std::string shape(const Sizes& sizes);  // "[2, 3]"
std::string shape(const Tensor& x);

// Numbers, texts, element types and shapes as one text.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::string all;
  const auto add = [&](const auto& part) {
    using Part = std::decay_t<decltype(part)>;
    if constexpr (std::is_arithmetic_v<Part>) {
      all += std::to_string(part);
    } else if constexpr (std::is_same_v<Part, ScalarType>) {
      all += name_of(part);
    } else if constexpr (std::is_same_v<Part, Tensor> || std::is_same_v<Part, Sizes>) {
      all += shape(part);
    } else {
      all += part;
    }
  };
  (add(parts), ...);
  return all;
}

[[noreturn]] void fail(const char* op, const char* name, const std::string& came_and_taken, const char* kind);
template <class... Parts>
[[noreturn]] void fail_type(const char* op, const char* name, const Parts&... came_and_taken) {
  fail(op, name, text(came_and_taken...), "TypeError");
}
template <class... Parts>
[[noreturn]] void fail_value(const char* op, const char* name, const Parts&... came_and_taken) {
  fail(op, name, text(came_and_taken...), "ValueError");
}
template <class... Parts>
[[noreturn]] void fail_dtype(const char* op, const char* name, ScalarType came, const Parts&... taken) {
  fail_type(op, name, "is ", came, "; takes ", taken...);
}
template <class... Parts>
[[noreturn]] void fail_shape(const char* op, const char* name, const Tensor& x, const Parts&... taken) {
  fail_value(op, name, "has shape ", x, "; takes ", taken...);
}
template <class Number, class... Parts>
[[noreturn]] void fail_number(const char* op, const char* name, Number came, const Parts&... taken) {
  fail_value(op, name, "is ", came, "; takes ", taken...);
}

// Python's None arrives as an undefined tensor: to be refused before anything else is asked of it.
template <class... Rest>
void require(const char* op, const char* name, const Tensor& x, const Rest&... rest) {
  if (!x.defined()) fail_type(op, name, "is None; takes a tensor");
  if constexpr (sizeof...(rest) > 0) require(op, rest...);
}

bool is_strided(const Tensor& x);
Device check_first(const char* op, const char* name, const Tensor& x);  // where all others must be
void check_storage(const char* op, const char* name, const Tensor& x, const Device& first);
using Types = std::initializer_list<ScalarType>;
// That a type is one of these; "as <like> has", where it follows from another operand's.
void check_type(const char* op, const char* name, ScalarType came, Types taken, const char* like = nullptr);
void check_floating(const char* op, const char* name, ScalarType came);  // of 16 bits or more
void check_tensor(const char* op, const char* name, const Tensor& x, const Device& first, Types taken,
                  const char* like = nullptr);  // its storage and its type
void check_beside(const char* op, const char* name, const Tensor& x, ScalarType operand, const Device& first);
void check_type_beside(const char* op, const char* name, ScalarType type, ScalarType operand);
void check_output(const char* op, const char* name, ScalarType got, ScalarType operand);

void check_rank(const char* op, const char* name, const Tensor& x, int64_t rank);
// Broadcasts x's dimensions but the last `core` (aligned at the right) into `batch`, which is that of `other`.
void broadcast(const char* op, const char* name, Sizes& batch, const Tensor& x, int64_t core, const char* other);
// That it broadcasts to the target without enlarging it.
void check_matrix(const char* op, const char* name, const Tensor& x, const Sizes& target);
// A vector along one dimension of the product, with optional batch dimensions before it; a scale may be one element.
void check_vector(const char* op, const char* name, const Tensor& x, int64_t length, const Sizes& batch, bool or_one);

// That a result of these sizes has bytes that can be counted.
void check_result(const char* op, const Sizes& sizes);

// What is written in place: no two of its elements share memory, and none with an operand.
void check_written(const char* op, const char* name, const Tensor& target);
void check_apart(const char* op, const char* name, const Tensor& target, const char* other_name, const Tensor& other);

// Codes of activations that Python registered.
void register_activation(int64_t code);
bool is_activation(int64_t code);
void check_activation(const char* op, const char* name, int64_t code);

// Functions of attention's scores that Python registered: how many tensors they read, and how many indices they give
// each (−1: whatever it takes).
struct ScoreFunction {
  int64_t operands = 0;
  std::array<int64_t, 4> dims{-1, -1, -1, -1};
};
void register_score_function(bool is_mask, int64_t code, int64_t operands, int64_t a, int64_t b, int64_t c, int64_t d);
ScoreFunction score_function(const char* op, bool is_mask, int64_t code);  // a code of 0 is none, which reads nothing

}  // namespace wmma_ops
