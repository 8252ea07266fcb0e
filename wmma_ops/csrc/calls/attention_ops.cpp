#include "calls/attention_ops.hpp"

#include "calls/attention.hpp"

namespace wmma_ops {

namespace {

struct Named {
  const char* op;        // as errors name it
  const char* overload;  // as it is registered
  AttentionNames operands;
};

Named named(AttentionOp op) {
  switch (op) {
    case kPacked:
      return {"varlen_attention", "varlen_attention", {"query", "key", "value"}};
    case kScaled:
      return {"scaled_attention", "scaled_attention", {}};
    case kDenseGradients:
      return {"attention", "_attention_backward", {}};
    case kPackedGradients:
      return {"varlen_attention", "_varlen_attention_backward", {"query", "key", "value"}};
    default:
      return {"attention", "attention", {}};
  }
}

// As schemas have an option's type; of one that may be missing, with its default.
std::string type_in_schema(const OptTensor*) { return "Tensor?"; }
std::string type_in_schema(const OptInt*) { return "int?"; }
std::string type_in_schema(const OptNumber*) { return "float?"; }
std::string type_in_schema(const OptType*) { return "ScalarType?"; }
std::string type_in_schema(const int64_t*) { return "int"; }
std::string type_in_schema(const double*) { return "float"; }
std::string type_in_schema(const bool*) { return "bool"; }

template <class T>
std::string default_in_schema(const std::optional<T>&) {
  return "None";
}
std::string default_in_schema(bool x) { return x ? "True" : "False"; }
std::string default_in_schema(int64_t x) { return std::to_string(x); }
std::string default_in_schema(double x) { return std::to_string(static_cast<int64_t>(x)); }

template <class T>
std::string argument_in_schema(const char* name, const T& fallback, bool is_required) {
  std::string type = type_in_schema(&fallback);
  if (!is_required) return type + " " + name + "=" + default_in_schema(fallback);
  if (type.back() == '?') type.pop_back();
  return type + " " + name;
}

template <class T>
void unbox(T& into, StableIValue value, bool) {
  into = torch::stable::detail::to<T>(value);
}
template <class T>
void unbox(std::optional<T>& into, StableIValue value, bool is_required) {
  if (is_required) {
    into = torch::stable::detail::to<T>(value);
  } else {
    into = torch::stable::detail::to<std::optional<T>>(value);
  }
}

void require_option(const char* op, const char* name, const OptTensor& x) { require(op, name, *x); }
template <class T>
void require_option(const char*, const char*, const T&) {}

template <class... Results>
void box(StableIValue* stack, const std::tuple<Results...>& results) {
  std::apply([&](const Results&... each) { ((*stack++ = torch::stable::detail::from(each)), ...); }, results);
}

template <AttentionOp kOp>
void boxed(StableIValue* stack, uint64_t, uint64_t) {
  const StableIValue* next = stack;
  const auto tensor = [&] { return torch::stable::detail::to<Tensor>(*next++); };
  OptTensor g_out;
  if constexpr (kOp & kGradients) g_out = tensor();
  Tensor q = tensor(), k = tensor(), v = tensor();
  AttentionOptions options;
#define WMMA_UNBOX(type, name, fallback, ops, needed_by) \
  if constexpr (kOp & (ops)) unbox(options.name, *next++, kOp&(needed_by));
  WMMA_ATTENTION_OPTIONS(WMMA_UNBOX)
#undef WMMA_UNBOX

  NoGrad guard;
  const auto [op, overload, operands] = named(kOp);
  if constexpr (kOp & kGradients) require(op, "g_out", *g_out);
  require(op, operands.q, q, operands.k, k, operands.v, v);
#define WMMA_REQUIRE(type, name, fallback, ops, needed_by) \
  if constexpr (kOp & (needed_by)) require_option(op, #name, options.name);
  WMMA_ATTENTION_OPTIONS(WMMA_REQUIRE)
#undef WMMA_REQUIRE
  Attention p(op, std::move(q), std::move(k), std::move(v), std::move(options));
  p.names = operands;
  if constexpr (kOp & kOfPacked) p.sequences.emplace();
  p.is_scaled = kOp == kScaled;
  p.check();
  if constexpr (kOp & kGradients) {
    p.check_gradients(*g_out);
    box(stack, attention_backward(p, *g_out));
  } else {
    box(stack, attention(p));
  }
}

}  // namespace

const char* attention_name(AttentionOp op) { return named(op).overload; }

std::string attention_schema(AttentionOp op) {
  const auto [name, overload, operands] = named(op);
  std::string text = std::string(overload) + "(";
  if (op & kGradients) text += "Tensor g_out, ";
  for (const char* operand : {operands.q, operands.k, operands.v}) text += std::string("Tensor ") + operand + ", ";
  bool are_tensors = true;
  const auto add = [&](bool is_tensor, const std::string& argument) {
    if (are_tensors && !is_tensor) text += "*, ";
    are_tensors = is_tensor;
    text += argument + ", ";
  };
  const AttentionOptions defaults;
#define WMMA_ADD(type, name, fallback, ops, needed_by) \
  if (op & (ops)) add(std::is_same_v<type, OptTensor>, argument_in_schema(#name, defaults.name, op&(needed_by)));
  WMMA_ATTENTION_OPTIONS(WMMA_ADD)
#undef WMMA_ADD
  text.erase(text.size() - 2);
  return text + (op & kGradients ? ") -> (Tensor, Tensor, Tensor)" : ") -> (Tensor, Tensor)");
}

BoxedKernel attention_kernel(AttentionOp op) {
  switch (op) {
    case kPacked:
      return boxed<kPacked>;
    case kScaled:
      return boxed<kScaled>;
    case kDenseGradients:
      return boxed<kDenseGradients>;
    case kPackedGradients:
      return boxed<kPackedGradients>;
    default:
      return boxed<kDense>;
  }
}

}  // namespace wmma_ops
