// Derivatives of calls that nobody but autograd looks on, without Python: the kernels of our ops for Autograd.
//
// torch's stable interface has no autograd, so this is a library of its own, built against one torch and loaded beside
// that one alone. Without it, and for all that is not plain (transforms, modes, subclasses, gradients that are
// differentiated again), the formulas in ops/autograd.py do the same, a few times slower; they are the reference.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>

namespace wmma_ops {

namespace {

using at::IValue;
using at::ScalarType;
using at::Tensor;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::OperatorHandle;
using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using torch::jit::Stack;
using Arguments = at::ArrayRef<IValue>;

// ------------------------------------------------------------------------------------------------------ who looks on

// Of a backend's own memory, and no wrapper around another.
bool is_plain(const Tensor& x) {
  constexpr DispatchKeySet kPlain = DispatchKeySet(DispatchKey::CPU) | DispatchKeySet(DispatchKey::CUDA) |
                                    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
  return !x.defined() ||
         ((x.key_set().raw_repr() & ~kPlain.raw_repr()) == 0 && x.layout() == at::kStrided && !x._fw_grad(0).defined());
}

bool are_plain(const variable_list& tensors) { return std::all_of(tensors.begin(), tensors.end(), is_plain); }

bool somebody_looks_on() {
  constexpr DispatchKeySet kTransforms{DispatchKey::FuncTorchDynamicLayerFrontMode,
                                       DispatchKey::FuncTorchDynamicLayerBackMode};
  return c10::impl::dispatch_mode_enabled() || c10::impl::tls_local_dispatch_key_set().included_.has_any(kTransforms);
}

OperatorHandle operation(const std::string& name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
}

// ------------------------------------------------------------------------------------------------------------- rules

Tensor tensor_of(const IValue& value) { return value.isNone() ? Tensor() : value.toTensor(); }

bool is_differentiable(const Tensor& x) {
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
  const Tensor& aux;             // what the activation was given; likewise
  const std::vector<bool>& needs;
  const std::vector<Shape>& shapes;  // of those whose values were not kept
  const std::vector<IValue>& scalars;
  variable_list found;
};

constexpr int kNone = -1;
constexpr int64_t kRelu = 1, kBuiltinActivations = 8;

// Whether what smooth activations are given is not kept: the formulas multiply again.
thread_local bool recomputes = false;

// One whose derivative is that of its argument.
bool is_smooth(int64_t activation) { return activation > kRelu; }
bool may_be(int64_t activation) { return activation < kBuiltinActivations && !(is_smooth(activation) && recomputes); }

bool never(Arguments) { return false; }

// An op's derivative: which of its calls have it here, what is kept, and how gradients come in one op.
struct Rule {
  const char* op;
  const char* name;  // of its nodes
  bool (*takes)(Arguments tensors, Arguments scalars);
  bool (*keeps_values)(int tensor, Arguments scalars);
  bool (*keeps_outputs)(Arguments scalars);
  bool (*backward)(Backward&);  // false: by formulas
  // Where what the activation is given has to be kept: the call, of which that comes as well.
  void (*with_aux)(Stack&) = nullptr;
  bool (*has_aux)(Arguments scalars) = never;
};

bool always(int, Arguments) { return true; }

using OptTensor = std::optional<Tensor>;
using GemmBackward = std::vector<Tensor>(const Tensor&, const Tensor&, const Tensor&, const OptTensor&, double, int64_t,
                                         bool, bool, bool, std::optional<ScalarType>);
using LinearBackward = std::vector<Tensor>(const Tensor&, const Tensor&, const Tensor&, const OptTensor&, int64_t, bool,
                                           bool, bool, std::optional<ScalarType>);

// D = act(alpha·A·B + beta·C + bias): where an op has these among its arguments.
struct Places {
  int a, b, c, bias;
  bool is_linear;  // B is a weight's transpose
};

// Whether its values were kept or not.
Shape shape_of_argument(const Backward& x, int place) {
  const Tensor& kept = x.tensors[place];
  return kept.defined() ? Shape{kept.sizes().vec(), kept.options()} : x.shapes[place];
}
ScalarType type_of_argument(const Backward& x, int place) {
  const Tensor& kept = x.tensors[place];
  return kept.defined() ? kept.scalar_type() : x.shapes[place].options.dtype().toScalarType();
}

bool product_gradients(Backward& x, const Places& at, double alpha, double beta, int64_t activation) {
  Tensor g = x.grads[0];
  const auto needs = [&](int place) { return place != kNone && x.needs[place]; };
  const Tensor &a = x.tensors[at.a], &b = x.tensors[at.b];
  OptTensor s;
  if (activation == kRelu) {
    if (g.scalar_type() == a.scalar_type()) {
      s = x.outputs[0];
    } else {
      g = at::threshold_backward(g, x.outputs[0], 0);
    }
  } else if (activation != 0) {
    s = x.aux;
  }
  if (!s) activation = 0;
  const bool of_a = needs(at.a), of_b = needs(at.b), of_c = needs(at.c), of_s = of_c && s;
  std::optional<ScalarType> bias;
  if (needs(at.bias)) bias = type_of_argument(x, at.bias);
  at::AutoDispatchBelowAutograd guard;
  const auto found_of_c = [&](const Tensor& g_s) {
    const bool is_half = g_s.scalar_type() == at::kHalf || g_s.scalar_type() == at::kBFloat16;
    return shape_of_argument(x, at.c).sum_of(beta == 1 ? g_s : is_half ? g_s.to(at::kFloat) * beta : g_s * beta);
  };
  if (of_c && !of_s) x.found[at.c] = found_of_c(g);
  if (!of_a && !of_b && !bias && !of_s) return true;
  std::vector<Tensor> found;
  if (at.is_linear) {
    static const auto call = operation("wmma::_linear_backward").typed<LinearBackward>();
    found = call.call(g, a, b, s, activation, of_a, of_b, of_s, bias);
  } else {
    static const auto call = operation("wmma::_gemm_backward").typed<GemmBackward>();
    found = call.call(g, a, b, s, alpha, activation, of_a, of_b, of_s, bias);
  }
  auto next = found.begin();
  if (of_a) x.found[at.a] = *next++;
  if (of_b) x.found[at.b] = *next++;
  if (bias) x.found[at.bias] = *next++;
  if (of_s) x.found[at.c] = found_of_c(*next);
  return true;
}

bool are_matrices(const IValue& a, const IValue& b) {
  return a.toTensor().dim() >= 2 && b.toTensor().dim() >= 2 && is_differentiable(a.toTensor());
}
bool is_none_or_row(const IValue& bias) { return bias.isNone() || bias.toTensor().dim() == 1; }

const Rule kMatmul{
    "matmul",
    "WmmaMatmulBackward",
    [](Arguments t, Arguments) { return are_matrices(t[0], t[1]); },
    always,
    never,
    [](Backward& x) { return product_gradients(x, {0, 1, kNone, kNone, false}, 1, 1, 0); },
};

const Rule kAddmm{
    "addmm",
    "WmmaAddmmBackward",
    [](Arguments t, Arguments) { return are_matrices(t[1], t[2]); },
    [](int tensor, Arguments) { return tensor != 0; },
    never,
    [](Backward& x) {
      return product_gradients(x, {1, 2, 0, kNone, false}, x.scalars[1].toDouble(), x.scalars[0].toDouble(), 0);
    },
};

const Rule kLinear{
    "linear",
    "WmmaLinearBackward",
    [](Arguments t, Arguments s) {
      const Tensor& weight = t[1].toTensor();
      return t[0].toTensor().dim() >= 2 && weight.dim() == 2 && is_differentiable(t[0].toTensor()) &&
             is_none_or_row(t[2]) && may_be(s[0].toInt());
    },
    [](int tensor, Arguments s) { return tensor < 2 || is_smooth(s[0].toInt()); },
    [](Arguments s) { return s[0].toInt() == kRelu; },
    [](Backward& x) { return product_gradients(x, {0, 1, 3, 2, true}, 1, 1, x.scalars[0].toInt()); },
    [](Stack& stack) {
      static const OperatorHandle call = operation("wmma::_linear_aux");
      call.callBoxed(stack);
    },
    [](Arguments s) { return is_smooth(s[0].toInt()); },
};

// alpha, beta, a_activation, activation, out_dtype
const Rule kGemm{
    "gemm",
    "WmmaGemmBackward",
    [](Arguments t, Arguments s) {
      const bool is_bare = std::all_of(t.begin() + 4, t.end(), [](const IValue& one) { return one.isNone(); });
      const int64_t activation = s[3].toInt();
      const bool keeps_type = s[4].isNone() || s[4].toScalarType() == t[0].toTensor().scalar_type();
      return is_bare && are_matrices(t[0], t[1]) && is_none_or_row(t[3]) && s[2].toInt() == 0 && may_be(activation) &&
             (keeps_type || !is_smooth(activation));
    },
    [](int tensor, Arguments s) { return tensor < 2 || is_smooth(s[3].toInt()); },
    [](Arguments s) { return s[3].toInt() == kRelu; },
    [](Backward& x) {
      const auto& s = x.scalars;
      return product_gradients(x, {0, 1, 2, 3, false}, s[0].toDouble(), s[1].toDouble(), s[3].toInt());
    },
    [](Stack& stack) {
      static const OperatorHandle call = operation("wmma::_gemm_aux");
      static const size_t tensors = 10, scalars = 5, kept = 4;
      const auto given = stack.end() - (tensors + scalars), options = given + tensors;
      Stack own(given, given + kept);
      own.insert(own.end(), {options[0], options[1], options[3]});
      call.callBoxed(own);
      torch::jit::drop(stack, tensors + scalars);
      stack.insert(stack.end(), own.begin(), own.end());
    },
    [](Arguments s) { return is_smooth(s[3].toInt()); },
};

// q, k and v, then what also has a gradient, by way of all scores; behind them what has none.
constexpr int kOperands = 3, kDifferentiable = 6;
constexpr int64_t kWidest = 128;  // of head sizes, whose gradients have kernels of 16 bits on every GPU

const Rule kAttention{
    "attention",
    "WmmaAttentionBackward",
    [](Arguments t, Arguments) {
      for (size_t i = kDifferentiable; i < t.size(); ++i) {
        if (!t[i].isNone() && t[i].toTensor().requires_grad()) return false;  // refused
      }
      return is_differentiable(t[0].toTensor());
    },
    always,
    [](Arguments) { return true; },
    [](Backward& x) {
      const Tensor &q = x.tensors[0], &v = x.tensors[2];
      const int64_t widest = std::max(q.size(-1), v.size(-1));
      if (!q.is_cuda() || q.element_size() != 2 || widest > kWidest || v.size(-1) == 0) return false;
      if (std::any_of(x.needs.begin() + kOperands, x.needs.end(), [](bool one) { return one; })) return false;
      static const OperatorHandle call = operation("wmma::_attention_backward");
      const Tensor &out = x.outputs[0], &g_out = x.grads[0], &g_lse = x.grads[1];
      const auto optional = [](const Tensor& one) { return one.defined() ? IValue(one) : IValue(); };
      Stack stack{g_out.defined() ? g_out : at::zeros_like(out), q, x.tensors[1], v, out, x.outputs[1]};
      stack.push_back(optional(x.tensors[kOperands]));
      stack.push_back(optional(g_lse));
      for (size_t i = kOperands + 1; i < x.tensors.size(); ++i) stack.push_back(optional(x.tensors[i]));
      stack.insert(stack.end(), x.scalars.begin(), x.scalars.end());
      at::AutoDispatchBelowAutograd guard;
      call.callBoxed(stack);
      for (int i = 0; i < kOperands; ++i) x.found[i] = x.needs[i] ? stack[i].toTensor() : Tensor();
      return true;
    },
};

// ------------------------------------------------------------------------------------------------------------- nodes

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
      const bool is_kept = x.defined() && rule.keeps_values(static_cast<int>(i), scalars);
      is_kept ? tensors_.emplace_back(x, false) : tensors_.emplace_back();
      if (x.defined()) edges[i] = torch::autograd::impl::gradient_edge(x);
      if (x.defined() && !is_kept) shapes_[i] = {x.sizes().vec(), x.options()};
      kinds_.push_back(is_kept ? Kind::kKept : x.defined() ? Kind::kShape : Kind::kAbsent);
    }
    set_next_edges(std::move(edges));
  }

  void remember(const Tensor& output) { outputs_.emplace_back(output, true); }
  void remember_aux(const Tensor& x) { aux_ = SavedVariable(x, false); }

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
    const Tensor aux = rule_.has_aux(scalars_) ? aux_.unpack() : Tensor();
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
    aux_.reset_data();
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
  std::vector<SavedVariable> tensors_, outputs_;
  SavedVariable aux_;
  std::vector<Shape> shapes_;
  std::vector<IValue> scalars_;
};

// ----------------------------------------------------------------------------------------------------------- kernels

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
  const bool keeps_outputs = kRule.keeps_outputs(scalars);
  if (kRule.has_aux(scalars)) {
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

// What was wanted before.
TORCH_LIBRARY_FRAGMENT(wmma_general, library) {
  library.def("recompute(bool wanted) -> bool", torch::dispatch(DispatchKey::CompositeImplicitAutograd, &recompute));
}

TORCH_LIBRARY_IMPL(wmma, Autograd, library) {
  library.impl("matmul", torch::CppFunction::makeFromBoxedFunction<&kernel<kMatmul>>());
  library.impl("addmm", torch::CppFunction::makeFromBoxedFunction<&kernel<kAddmm>>());
  library.impl("linear", torch::CppFunction::makeFromBoxedFunction<&kernel<kLinear>>());
  library.impl("gemm", torch::CppFunction::makeFromBoxedFunction<&kernel<kGemm>>());
  library.impl("attention", torch::CppFunction::makeFromBoxedFunction<&kernel<kAttention>>());
}

}  // namespace wmma_ops
