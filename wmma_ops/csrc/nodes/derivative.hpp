// An op's derivative by a rule of its own, as a node of autograd's.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "nodes/looking.hpp"

namespace wmma_ops {

using at::IValue;
using at::ScalarType;
using c10::OperatorHandle;
using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::jit::Stack;
using Arguments = at::ArrayRef<IValue>;
using OptTensor = std::optional<Tensor>;

inline OperatorHandle operation(const std::string& name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
}

inline Tensor tensor_of(const IValue& value) { return value.isNone() ? Tensor() : value.toTensor(); }

inline bool is_differentiable(const Tensor& x) {
  const ScalarType type = x.scalar_type();
  return type == at::kHalf || type == at::kBFloat16 || type == at::kFloat || type == at::kDouble;
}

// What a tensor has beside its values.
struct Shape {
  std::vector<int64_t> sizes;
  at::TensorOptions options;

  // A tensor of this shape, without memory for its values.
  Tensor placeholder() const { return at::empty({1}, options).expand(sizes); }
  // The gradient of such a tensor that was broadcast.
  Tensor sum_of(const Tensor& g) const {
    const ScalarType own = options.dtype().toScalarType();
    return g.to(at::promote_types(g.scalar_type(), own)).sum_to_size(sizes).to(own);
  }
};

// What a backward pass has, and where its gradients go.
struct Backward {
  const variable_list& grads;    // of the outputs
  const variable_list& tensors;  // arguments; undefined where there is none, or its values were not kept
  const variable_list& outputs;  // undefined where not kept
  const variable_list& aux;      // what else was kept: of an op what the activation was given
  const std::vector<bool>& needs;
  const std::vector<Shape>& shapes;  // of those whose values were not kept
  const std::vector<IValue>& scalars;
  variable_list found;
};

constexpr int64_t kRelu = 1, kBuiltinActivations = 8;

// Whether what smooth activations are given is not kept: the formulas multiply again.
inline thread_local bool recomputes = false;

// One whose derivative is that of its argument.
inline bool is_smooth(int64_t activation) { return activation > kRelu; }
inline bool may_be(int64_t activation) {
  return activation < kBuiltinActivations && !(is_smooth(activation) && recomputes);
}

inline bool never(Arguments, Arguments) { return false; }

// An op's derivative: which of its calls have it here, what is kept, and how gradients come in one op.
struct Rule {
  const char* op;
  const char* name;  // of its nodes
  bool (*takes)(Arguments tensors, Arguments scalars);
  bool (*keeps_values)(int tensor, Arguments tensors, Arguments scalars);
  bool (*keeps_outputs)(Arguments tensors, Arguments scalars);
  bool (*backward)(Backward&);  // false: by formulas
  // Where what the activation is given has to be kept: the call, of which that comes as well.
  void (*with_aux)(Stack&) = nullptr;
  bool (*has_aux)(Arguments tensors, Arguments scalars) = never;
};

inline bool always(int, Arguments, Arguments) { return true; }

using NodePointer = decltype(Edge::function);  // std's or c10's, by torch's version

template <class T, class... Given>
std::shared_ptr<T> made(const std::shared_ptr<Node>*, Given&&... given) {
  return std::shared_ptr<T>(new T(given...), [](auto* node) { deleteNode(node); });
}
template <class T, class... Given>
c10::intrusive_ptr<T> made(const c10::intrusive_ptr<Node>*, Given&&... given) {
  return c10::make_intrusive<T>(given...);
}

class Derivative : public Node {
 public:
  Derivative(const Rule& rule, Arguments tensors, Arguments scalars)
      : rule_(rule), shapes_(tensors.size()), scalars_(scalars.begin(), scalars.end()) {
    torch::autograd::edge_list edges(tensors.size());
    tensors_.reserve(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Tensor x = tensor_of(tensors[i]);
      const bool is_kept = x.defined() && rule.keeps_values(static_cast<int>(i), tensors, scalars);
      is_kept ? tensors_.emplace_back(x, false) : tensors_.emplace_back();
      if (x.defined()) edges[i] = torch::autograd::impl::gradient_edge(x);
      if (x.defined() && !is_kept) shapes_[i] = {x.sizes().vec(), x.options()};
      kinds_.push_back(is_kept ? Kind::kKept : x.defined() ? Kind::kShape : Kind::kAbsent);
    }
    set_next_edges(std::move(edges));
  }

  void remember(const Tensor& output) { outputs_.emplace_back(output, true); }
  void remember_aux(const Tensor& x) { aux_.emplace_back(x, false); }

  std::string name() const override { return rule_.name; }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const size_t count = kinds_.size();
    if (std::none_of(grads.begin(), grads.end(), [](const Tensor& g) { return g.defined(); })) {
      return variable_list(count);
    }
    variable_list tensors(count), outputs(grads.size());
    std::vector<bool> needs(count);
    for (size_t i = 0; i < count; ++i) {
      if (kinds_[i] == Kind::kKept) tensors[i] = tensors_[i].unpack();
      needs[i] = task_should_compute_output(i);
    }
    for (size_t i = 0; i < outputs_.size(); ++i) outputs[i] = outputs_[i].unpack(getptr());
    variable_list aux;
    for (const SavedVariable& one : aux_) aux.push_back(one.unpack());
    Backward x{grads, tensors, outputs, aux, needs, shapes_, scalars_, variable_list(count)};
    const bool is_once = !at::GradMode::is_enabled() && !somebody_looks_on() && are_plain(grads) &&
                         are_plain(tensors) && are_plain(outputs);
    if (!is_once || !rule_.backward(x)) by_formulas(x);
    return std::move(x.found);
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable& one : tensors_) one.reset_data();
    for (SavedVariable& one : outputs_) one.reset_data();
    for (SavedVariable& one : aux_) one.reset_data();
  }

 private:
  enum class Kind { kAbsent, kShape, kKept };

  // In Python, by ops that differentiate again.
  void by_formulas(Backward& x) const {
    const auto optional = [](const variable_list& list) {
      c10::List<std::optional<Tensor>> made;
      for (const Tensor& one : list) made.push_back(one.defined() ? std::optional(one) : std::nullopt);
      return made;
    };
    Stack stack{optional(x.grads), optional(x.outputs), c10::List<bool>()};
    for (const bool one : x.needs) stack.back().toBoolList().push_back(one);
    for (size_t i = 0; i < kinds_.size(); ++i) {
      stack.push_back(kinds_[i] == Kind::kKept    ? IValue(x.tensors[i])
                      : kinds_[i] == Kind::kShape ? IValue(shapes_[i].placeholder())
                                                  : IValue());
    }
    stack.insert(stack.end(), scalars_.begin(), scalars_.end());
    operation(std::string("wmma_general::") + rule_.op + "_gradients").callBoxed(stack);
    const auto found = stack[0].toTensorVector();
    auto next = found.begin();
    for (size_t i = 0; i < kinds_.size(); ++i) x.found[i] = x.needs[i] ? *next++ : Tensor();
  }

  const Rule& rule_;
  std::vector<Kind> kinds_;
  std::vector<SavedVariable> tensors_, outputs_, aux_;
  std::vector<Shape> shapes_;
  std::vector<IValue> scalars_;
};

}  // namespace wmma_ops
