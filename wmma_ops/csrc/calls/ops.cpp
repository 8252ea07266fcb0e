// Every op's schema and its way to the kernels, in one table.
//
// Each op stands twice: wmma::X, to which Python adds the derivative, and wmma_raw::X, the same without one. A
// registered derivative costs several times the call itself, so wmma_ops.X takes the raw op where no gradient is asked
// for. Schemas hold no str (torch before 2.14 leaks each one) and no Scalar; activations are codes
// (kernels/wmma/activation.hpp). Tensors stand before the *, as torch.library.register_autograd needs them.
#include <utility>

#include "calls/attention_ops.hpp"
#include "calls/gemm.hpp"
#include "calls/gradients.hpp"
#include "calls/kv_append.hpp"
#include "launch/launch.hpp"

namespace wmma_ops {

namespace {

using OutType = std::optional<ScalarType>;

// Every single product: checked, then handed to its device.
Tensor run(Gemm& p) {
  NoGrad guard;
  p.check();
  return wmma_ops::gemm(p);
}

Tensor matmul(const Tensor& a, const Tensor& b, const OutType& out_dtype) {
  require("matmul", "a", a, "b", b);
  Gemm p{"matmul", a, b};
  p.out_dtype = out_dtype;
  int64_t a_dim = a.dim(), b_dim = b.dim();
  if (a_dim >= 2 && b_dim >= 2) return run(p);

  // A vector is a matrix of one row (A) or one column (B); its dimension is missing from the result.
  for (auto [name, x] : {std::pair{"a", &a}, {"b", &b}}) {
    if (x->dim() == 0) fail_value(p.op, name, "has shape []; takes 1 dimension or more");
  }
  int64_t a_k = a.sizes()[a_dim - 1], b_k = b.sizes()[b_dim == 1 ? 0 : b_dim - 2];
  if (a_k != b_k) fail_shape(p.op, "b", b, a_k, " elements along K, as a, ", a, ", has");
  if (a_dim == 1) p.a = aten::unsqueeze(a, 0);
  if (b_dim == 1) p.b = aten::unsqueeze(b, 1);
  Tensor out = run(p);
  Sizes sizes = sizes_of(out);
  if (b_dim == 1) sizes.pop_back();
  if (a_dim == 1) sizes.erase(sizes.end() - (b_dim == 1 ? 1 : 2));
  return aten::reshaped_result(out, sizes);
}

// addmm and baddbmm.
template <int64_t rank>
Tensor add_product(const Tensor& input, const Tensor& a, const Tensor& b, double beta, double alpha,
                   const OutType& out_dtype) {
  const char* const op = rank == 2 ? "addmm" : "baddbmm";
  require(op, "input", input, "a", a, "b", b);
  Gemm p{op, a, b, input};
  check_rank(op, "a", a, rank);
  check_rank(op, "b", b, rank);
  if (rank == 3 && a.sizes()[0] != b.sizes()[0]) fail_shape(op, "b", b, "the batch size of a, ", a.sizes()[0]);
  p.beta = beta;
  p.alpha = alpha;
  p.out_dtype = out_dtype;
  p.names.c = "input";
  return run(p);
}

void addmm_(const Tensor& input, const Tensor& a, const Tensor& b, double beta, double alpha) {
  NoGrad guard;
  require("addmm_", "input", input, "a", a, "b", b);
  Gemm p{"addmm_", a, b, input};
  check_rank(p.op, "a", a, 2);
  check_rank(p.op, "b", b, 2);
  p.beta = beta;
  p.alpha = alpha;
  p.names.c = "input";
  p.check();  // before the next check, so that an input of another kind is named first
  check_output(p.op, "input", type_of(input), p.in);
  p.out = type_of(input);
  if (sizes_of(input) != p.out_sizes) {
    fail_shape(p.op, "input", input, "[", p.m, ", ", p.n, "], the shape of the product");
  }
  check_written(p.op, "input", input);
  check_apart(p.op, "input", input, "a", a);
  check_apart(p.op, "input", input, "b", b);
  wmma_ops::gemm(p, input);
}

Tensor gemm(const Tensor& a, const Tensor& b, const OptTensor& c, const OptTensor& bias, const OptTensor& row_scale,
            const OptTensor& col_scale, const OptTensor& a_scale, const OptTensor& multiply, const OptTensor& a2,
            const OptTensor& b2, const OptTensor& gate, const OptTensor& gate_bias, double alpha, double beta,
            int64_t a_activation, int64_t activation, const OutType& out_dtype) {
  require("gemm", "a", a, "b", b);
  Gemm p{"gemm",   a,  b,  c,     bias, row_scale,    col_scale,  a_scale,
         multiply, a2, b2, alpha, beta, a_activation, activation, out_dtype};
  p.gate = gate;
  p.gate_bias = gate_bias;
  return run(p);
}

Gemm layer(const char* op, const Tensor& x, const Tensor& weight, const OptTensor& bias, const OptTensor& residual,
           int64_t activation) {
  require(op, "x", x, "weight", weight);
  check_rank(op, "weight", weight, 2);
  int64_t rank = x.dim();
  if (rank == 0) fail_value(op, "x", "has shape []; takes 1 dimension or more");
  int64_t k = x.sizes()[rank - 1];
  if (weight.sizes()[1] != k) {
    fail_shape(op, "weight", weight, "[N, ", k, "], as the last dimension of x, ", x, ", is ", k);
  }
  const Tensor transposed = is_strided(weight) ? aten::transposed(weight) : weight;  // else it is refused by its name
  Gemm p{op, rank == 1 ? aten::unsqueeze(x, 0) : x, transposed, residual, bias};
  p.activation = activation;
  p.names.a = "x";
  p.names.b = "weight";
  p.names.c = "residual";
  return p;
}

Tensor linear(const Tensor& x, const Tensor& weight, const OptTensor& bias, const OptTensor& residual,
              int64_t activation) {
  Gemm p = layer("linear", x, weight, bias, residual, activation);
  Tensor out = run(p);
  return x.dim() == 1 ? aten::reshaped_result(out, {weight.sizes()[0]}) : out;
}

// The result, and what the activation is given, in the operands' type.
std::tuple<Tensor, Tensor> run_with_aux(Gemm& p) {
  NoGrad guard;
  p.check();
  check_floating(p.op, p.names.a, p.in);
  p.aux = launch::made(p.out_sizes, p.out, p.device);
  return {wmma_ops::gemm(p), *p.aux};
}

std::tuple<Tensor, Tensor> gemm_aux(const Tensor& a, const Tensor& b, const OptTensor& c, const OptTensor& bias,
                                    const OptTensor& multiply, double alpha, double beta, int64_t activation) {
  require("_gemm_aux", "a", a, "b", b);
  Gemm p{"_gemm_aux", a, b, c, bias};
  p.multiply = multiply;
  p.alpha = alpha;
  p.beta = beta;
  p.activation = activation;
  return run_with_aux(p);
}

std::tuple<Tensor, Tensor> linear_aux(const Tensor& x, const Tensor& weight, const OptTensor& bias,
                                      const OptTensor& residual, int64_t activation) {
  Gemm p = layer("linear", x, weight, bias, residual, activation);
  return run_with_aux(p);
}

// The result, and both factors before the activation.
std::tuple<Tensor, Tensor, Tensor> gated_aux(const Tensor& a, const Tensor& b, const Tensor& gate,
                                             const OptTensor& bias, const OptTensor& gate_bias, int64_t activation) {
  NoGrad guard;
  require("gemm", "a", a, "b", b, "gate", gate);
  Gemm p{"gemm", a, b};
  p.bias = bias;
  p.gate = gate;
  p.gate_bias = gate_bias;
  p.activation = activation;
  p.check();
  check_floating(p.op, p.names.a, p.in);
  p.aux = launch::made(p.out_sizes, p.out, p.device);
  p.gate_aux = launch::made(p.out_sizes, p.out, p.device);
  return {wmma_ops::gemm(p), *p.aux, *p.gate_aux};
}

Tensor gemm_gemm(const Tensor& a, const Tensor& b0, const Tensor& b1, const OptTensor& c, const OptTensor& bias0,
                 const OptTensor& bias1, const OptTensor& gate, double alpha0, double alpha1, double beta1,
                 int64_t activation, const OutType& out_dtype) {
  NoGrad guard;
  require("gemm_gemm", "a", a, "b0", b0, "b1", b1);
  GemmGemm p{"gemm_gemm", a, b0, b1, c, bias0, bias1, gate, alpha0, alpha1, beta1, activation, out_dtype};
  p.check();
  return wmma_ops::gemm_gemm(p);
}

void append_to_pages(const Tensor& key, const Tensor& value, const Tensor& key_pages, const Tensor& value_pages,
                     const Tensor& block_table, const Tensor& cu_seq, const Tensor& seqused_k, const OptTensor& cos,
                     const OptTensor& sin, const OptTensor& k_descale, const OptTensor& v_descale, bool interleaved) {
  NoGrad guard;
  require("kv_append", "key", key, "value", value, "key_pages", key_pages, "value_pages", value_pages, "block_table",
          block_table, "cu_seq", cu_seq, "seqused_k", seqused_k);
  KvAppend p{key, value, key_pages, value_pages, block_table, cu_seq, seqused_k, cos, sin, interleaved};
  p.k_descale = k_descale;
  p.v_descale = v_descale;
  p.check();
  wmma_ops::kv_append(p);
}

// Whether a scale is [batch…, M, 1] (one = 1, the place from the end) or [batch…, 1, N] (one = 2), as torch's are, and
// not [batch…, M] or [batch…, N]. As ops/sizes.py says it.
bool is_matrix_scale(const Tensor& scale, const Tensor& operand, int64_t one) {
  int64_t rank = scale.dim();
  auto sizes = scale.sizes();
  if (rank < 2 || sizes[rank - one] != 1) return false;
  if (one == 2) return rank >= operand.dim();
  if (operand.sizes()[operand.dim() - 2] != 1) return true;
  return sizes[rank - 2] == 1 && rank >= operand.dim();  // else it is [batch…, M] with M = 1
}

// A scale as gemm takes it: without the dimension of one of torch's, a single element without any.
Tensor as_vector(const char* name, const Tensor& scale, const char* operand_name, const Tensor& operand, int64_t one) {
  check_first("scaled_mm", name, scale);
  check_type("scaled_mm", name, type_of(scale), {ScalarType::Float});
  if (scale.numel() == 1) return aten::reshape(scale, {});
  int64_t rank = scale.dim(), operand_rank = operand.dim();
  if (operand_rank < 2 || !is_matrix_scale(scale, operand, one)) return scale;  // operands of other ranks are refused
  Sizes sizes = sizes_of(scale);
  int64_t length = operand.sizes()[operand_rank - (one == 1 ? 2 : 1)], came = sizes[rank - (one == 1 ? 2 : 1)];
  if ((came != length && came != 1) || (rank > 2 && rank < operand_rank)) {
    std::string n = std::to_string(length);
    fail_shape("scaled_mm", name, scale, "one element, [", n, "] or ", (one == 1 ? "[" + n + ", 1]" : "[1, " + n + "]"),
               ", after all batch dimensions of ", operand_name, " or none");
  }
  sizes.erase(sizes.end() - one);
  return aten::reshape(scale, sizes);
}

Tensor scaled_mm(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b, const OptTensor& bias,
                 const OutType& out_dtype) {
  require("scaled_mm", "a", a, "b", b, "scale_a", scale_a, "scale_b", scale_b);
  ScalarType in = type_of(a);
  if (!is_integer(in) && !is_fp8(in)) fail_dtype("scaled_mm", "a", in, "int8 or a float8 type");
  Gemm p{"scaled_mm", a, b, std::nullopt, bias};
  p.row_scale = as_vector("scale_a", scale_a, "a", a, 1);
  p.col_scale = as_vector("scale_b", scale_b, "b", b, 2);
  p.out_dtype = out_dtype ? *out_dtype : ScalarType::BFloat16;
  p.names.row_scale = "scale_a";
  p.names.col_scale = "scale_b";
  return run(p);
}

struct Op {
  const char* name;
  const char* schema;
  BoxedKernel kernel;
};

const Op kOps[] = {
    {"matmul", "matmul(Tensor a, Tensor b, *, ScalarType? out_dtype=None) -> Tensor", TORCH_BOX(&matmul)},
    {"addmm",
     "addmm(Tensor input, Tensor a, Tensor b, *, float beta=1, float alpha=1, ScalarType? out_dtype=None) -> Tensor",
     TORCH_BOX(&add_product<2>)},
    {"addmm_", "addmm_(Tensor(a!) input, Tensor a, Tensor b, *, float beta=1, float alpha=1) -> ()",
     TORCH_BOX(&addmm_)},
    {"baddbmm",
     "baddbmm(Tensor input, Tensor a, Tensor b, *, float beta=1, float alpha=1, ScalarType? out_dtype=None) -> Tensor",
     TORCH_BOX(&add_product<3>)},
    {"gemm",
     "gemm(Tensor a, Tensor b, Tensor? c=None, Tensor? bias=None, Tensor? row_scale=None, Tensor? col_scale=None, "
     "Tensor? a_scale=None, Tensor? multiply=None, Tensor? a2=None, Tensor? b2=None, Tensor? gate=None, "
     "Tensor? gate_bias=None, *, float alpha=1, float beta=1, int a_activation=0, int activation=0, "
     "ScalarType? out_dtype=None) -> Tensor",
     TORCH_BOX(&gemm)},
    {"linear",
     "linear(Tensor x, Tensor weight, Tensor? bias=None, Tensor? residual=None, *, int activation=0) -> Tensor",
     TORCH_BOX(&linear)},
    {"gemm_gemm",
     "gemm_gemm(Tensor a, Tensor b0, Tensor b1, Tensor? c=None, Tensor? bias0=None, Tensor? bias1=None, "
     "Tensor? gate=None, *, float alpha0=1, float alpha1=1, float beta1=1, int activation=0, "
     "ScalarType? out_dtype=None) -> Tensor",
     TORCH_BOX(&gemm_gemm)},
    {"kv_append",
     "kv_append(Tensor key, Tensor value, Tensor(a!) key_pages, Tensor(b!) value_pages, Tensor block_table, "
     "Tensor cu_seq, Tensor seqused_k, Tensor? cos=None, Tensor? sin=None, Tensor? k_descale=None, "
     "Tensor? v_descale=None, *, bool interleaved=False) -> ()",
     TORCH_BOX(&append_to_pages)},
    {"scaled_mm",
     "scaled_mm(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias=None, *, "
     "ScalarType? out_dtype=None) -> Tensor",
     TORCH_BOX(&scaled_mm)},
};

using Library = torch::stable::detail::StableLibrary;

// What autograd calls, which has no derivative of its own. Those with aux give what the activation is given, too, and
// what a gate multiplies.
const Op kGradients[] = {
    {"_gated_aux",
     "_gated_aux(Tensor a, Tensor b, Tensor gate, Tensor? bias=None, Tensor? gate_bias=None, *, int activation=0) "
     "-> (Tensor, Tensor, Tensor)",
     TORCH_BOX(&gated_aux)},
    {"_gemm_aux",
     "_gemm_aux(Tensor a, Tensor b, Tensor? c=None, Tensor? bias=None, Tensor? multiply=None, *, float alpha=1, "
     "float beta=1, int activation=0) -> (Tensor, Tensor)",
     TORCH_BOX(&gemm_aux)},
    {"_linear_aux",
     "_linear_aux(Tensor x, Tensor weight, Tensor? bias=None, Tensor? residual=None, *, int activation=0) "
     "-> (Tensor, Tensor)",
     TORCH_BOX(&linear_aux)},
    {"_gemm_slopes",
     "_gemm_slopes(Tensor g, Tensor b, Tensor s, Tensor? multiply=None, *, int activation=0) -> Tensor[]",
     TORCH_BOX(&gemm_slopes)},
    {"_gemm_backward",
     "_gemm_backward(Tensor g, Tensor a, Tensor b, Tensor? s=None, Tensor? multiply=None, *, float alpha=1, "
     "int activation=0, bool of_a=True, bool of_b=True, bool of_s=False, bool of_multiply=False, "
     "ScalarType? bias_dtype=None) -> Tensor[]",
     TORCH_BOX(&gemm_backward)},
    {"_linear_backward",
     "_linear_backward(Tensor g, Tensor x, Tensor weight, Tensor? s=None, *, int activation=0, "
     "bool of_x=True, bool of_weight=True, bool of_s=False, ScalarType? bias_dtype=None) -> Tensor[]",
     TORCH_BOX(&linear_backward)},
};

constexpr AttentionOp kAttentions[] = {kDense, kPacked, kScaled};
constexpr AttentionOp kAttentionGradients[] = {kDenseGradients, kPackedGradients};

void define(Library& m) {
  for (const Op& op : kOps) m.def(op.schema);
  for (AttentionOp op : kAttentions) m.def(attention_schema(op).c_str());
}

void implement(Library& m) {
  for (const Op& op : kOps) m.impl(op.name, op.kernel);
  for (AttentionOp op : kAttentions) m.impl(attention_name(op), attention_kernel(op));
}

void define_gradients(Library& m) {
  for (const Op& op : kGradients) m.def(op.schema);
  for (AttentionOp op : kAttentionGradients) m.def(attention_schema(op).c_str());
}

void implement_all(Library& m) {
  implement(m);
  for (const Op& op : kGradients) m.impl(op.name, op.kernel);
  for (AttentionOp op : kAttentionGradients) m.impl(attention_name(op), attention_kernel(op));
}

}  // namespace

STABLE_TORCH_LIBRARY(wmma_raw, m) { define(m); }

STABLE_TORCH_LIBRARY(wmma, m) {
  define(m);
  define_gradients(m);
  // Python implements the first (a registered torch function) and calls the second when one is registered.
  m.def("_registered_activation(Tensor(a!) x, int code) -> int[]");
  m.def("_register_activation(int code) -> ()");
  // The same of functions of scores [batch, heads, rows, keys], whose first row is that of query `first`, of head
  // `first_head` of batch `first_batch`: changed in place, or −inf where a mask function or a block mask [batch, heads,
  // blocks, blocks] hides the key.
  m.def(
      "_score_function(Tensor(a!) scores, bool is_mask, int code, int first, int first_head, int first_batch, "
      "Tensor? mod_a, Tensor? mod_b, Tensor? mod_c, Tensor? mod_d, Tensor? block_mask, int block_q, int block_k) -> "
      "int[]");
  m.def("_register_score_function(bool is_mask, int code, int operands, int a, int b, int c, int d) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(wmma, CompositeExplicitAutograd, m) {
  m.impl("_register_activation", TORCH_BOX(&register_activation));
  m.impl("_register_score_function", TORCH_BOX(&register_score_function));
}

// Other devices and layouts arrive at the same checks, which refuse them by name.
STABLE_TORCH_LIBRARY_IMPL(wmma, CPU, m) { implement_all(m); }
STABLE_TORCH_LIBRARY_IMPL(wmma, CUDA, m) { implement_all(m); }
STABLE_TORCH_LIBRARY_IMPL(wmma, SparseCPU, m) { implement_all(m); }
STABLE_TORCH_LIBRARY_IMPL(wmma, SparseCsrCPU, m) { implement_all(m); }
STABLE_TORCH_LIBRARY_IMPL(wmma_raw, CPU, m) { implement(m); }
STABLE_TORCH_LIBRARY_IMPL(wmma_raw, CUDA, m) { implement(m); }
STABLE_TORCH_LIBRARY_IMPL(wmma_raw, SparseCPU, m) { implement(m); }
STABLE_TORCH_LIBRARY_IMPL(wmma_raw, SparseCsrCPU, m) { implement(m); }

}  // namespace wmma_ops
