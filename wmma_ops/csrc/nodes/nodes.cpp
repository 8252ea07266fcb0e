// Derivatives of calls that nobody but autograd looks on, without Python: the kernels of our ops for Autograd.
//
// torch's stable interface has no autograd, so this is a library of its own, built against one torch and loaded beside
// that one alone. Without it, and for all that is not plain (transforms, modes, subclasses, gradients that are
// differentiated again), the formulas in ops/autograd.py do the same, a few times slower; they are the reference.
#include <torch/library.h>

#include "nodes/attention.hpp"
#include "nodes/layers.hpp"

namespace wmma_ops {

namespace {

// An op's tensors come before its keywords.
size_t tensors_of(const c10::FunctionSchema& schema) {
  const auto& all = schema.arguments();
  return std::count_if(all.begin(), all.end(), [](const c10::Argument& one) { return !one.kwarg_only(); });
}

template <const Rule& kRule>
void kernel(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const Arguments given = torch::jit::last(*stack, op.schema().arguments().size());
  static const size_t count = tensors_of(op.schema());
  const Arguments tensors = given.slice(0, count), scalars = given.slice(count);
  bool is_unseen = !somebody_looks_on(), requires_grad = false;
  for (const IValue& one : tensors) {
    if (one.isNone()) continue;
    const Tensor& x = one.toTensor();
    is_unseen &= is_plain(x);
    requires_grad |= x.defined() && x.requires_grad();
  }
  const bool records = requires_grad && at::GradMode::is_enabled();
  if (!is_unseen || (records && !kRule.takes(tensors, scalars))) {
    static const OperatorHandle general = operation(std::string("wmma_general::") + kRule.op);
    return general.redispatchBoxed(keys, stack);
  }
  const auto proceed = [&] {
    at::AutoDispatchBelowADInplaceOrView guard;
    op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  };
  if (!records) return proceed();
  const auto node = made<Derivative>(static_cast<const NodePointer*>(nullptr), kRule, tensors, scalars);
  const bool keeps_outputs = kRule.keeps_outputs(tensors, scalars);
  if (kRule.has_aux(tensors, scalars)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    kRule.with_aux(*stack);
    node->remember_aux(torch::jit::pop(*stack).toTensor());
  } else {
    proceed();
  }
  for (const IValue& one : torch::jit::last(*stack, op.schema().returns().size())) {
    torch::autograd::set_history(one.toTensor(), node);
    if (keeps_outputs) node->remember(one.toTensor());
  }
}

bool recompute(bool wanted) { return std::exchange(recomputes, wanted); }

}  // namespace

// `recompute` gives what was wanted before. Layers are torch code to all who look on.
TORCH_LIBRARY_FRAGMENT(wmma_general, library) {
  const auto implement = [&](const char* schema, auto function) {
    library.def(schema, torch::dispatch(DispatchKey::CompositeImplicitAutograd, function));
  };
  implement("recompute(bool wanted) -> bool", &recompute);
  implement("adapted(Tensor x, Tensor weight, Tensor? bias, Tensor down, Tensor up, *, float factor) -> Tensor",
            &adapted);
  implement("gated(Tensor x, Tensor gate, Tensor? gate_bias, Tensor up, Tensor? up_bias, *, int activation) -> Tensor",
            &gated);
  implement(
      "mlp(Tensor x, Tensor first, Tensor? first_bias, Tensor? up, Tensor? up_bias, Tensor second, "
      "Tensor? second_bias, *, int activation) -> Tensor",
      &mlp);
}

TORCH_LIBRARY_IMPL(wmma, Autograd, library) {
  library.impl("matmul", torch::CppFunction::makeFromBoxedFunction<&kernel<kMatmul>>());
  library.impl("addmm", torch::CppFunction::makeFromBoxedFunction<&kernel<kAddmm>>());
  library.impl("linear", torch::CppFunction::makeFromBoxedFunction<&kernel<kLinear>>());
  library.impl("gemm", torch::CppFunction::makeFromBoxedFunction<&kernel<kGemm>>());
  library.impl("attention", torch::CppFunction::makeFromBoxedFunction<&kernel<kAttention>>());
}

}  // namespace wmma_ops
