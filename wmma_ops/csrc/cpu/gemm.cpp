#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "cpu/cpu.hpp"
#include "launch/plans.hpp"
#include "torch_internals.hpp"
#include "wmma/activation.hpp"

namespace wmma_ops::cpu {

namespace {

using S = ScalarType;
using torch::headeronly::MemoryFormat;

// [batch…, rows, columns] as one list of matrices.
Tensor as_3d(const Tensor& x, const Sizes& batch) {
  int64_t rows = x.sizes()[x.dim() - 2], columns = x.sizes()[x.dim() - 1];
  if (x.dim() == 3 && batch.size() == 1 && x.sizes()[0] == batch[0]) return x;
  return aten::reshape(aten::expand(x, matrices(batch, rows, columns)), {product_of(batch), rows, columns});
}

// The same as one matrix, the batch before the rows.
Tensor rows_of(const Tensor& x, const Sizes& batch) {
  int64_t rows = x.sizes()[x.dim() - 2], columns = x.sizes()[x.dim() - 1];
  return aten::reshape(aten::expand(x, matrices(batch, rows, columns)), {product_of(batch) * rows, columns});
}

bool has_amx_bf16() {
#if defined(__x86_64__)
  static const bool has = [] {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 22 & 1) != 0;
  }();
  return has;
#else
  return false;
#endif
}

// Whether oneDNN multiplies bfloat16 by instructions of its own. By ONEDNN_MAX_CPU_ISA, its own setting, it does
// without.
bool has_bf16_units() {
#if defined(__x86_64__)
  static const bool has = [] {
    const char* most = std::getenv("ONEDNN_MAX_CPU_ISA");
    const std::string isa = most ? most : "ALL";
    const bool may = isa == "ALL" || isa == "DEFAULT" || isa.find("BF16") != isa.npos || isa.find("AMX") != isa.npos ||
                     isa.find("FP16") != isa.npos || isa.find("AVX10") != isa.npos;
    unsigned a, b, c, d;
    const bool avx = __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 5 & 1) != 0;
    return may && (avx || has_amx_bf16());
  }();
  return has;
#else
  return true;
#endif
}

// Whether a product is left to aten in its own type. Elsewhere than on such units that of bfloat16 takes up to 30 times
// as long as one in float32, conversions counted; of few elements these are what takes the time.
bool multiplies_as_it_is(const Gemm& p) {
  constexpr int64_t kFew = int64_t{1} << 15;
  return p.in != S::BFloat16 || has_bf16_units() || product_of(p.out_sizes) * p.k <= kFew;
}

// Where a row of A is no whole number of AMX's tile rows, oneDNN multiplies what lies behind it (the next row, or what
// a slice left out) by zeros, and a NaN or infinity there becomes a NaN here (torch 2.13 with oneDNN 3.12). Zeros
// behind every row keep that harmless.
constexpr int64_t kTileRow = 32;
bool reads_behind_rows(ScalarType type, int64_t k) {
  return type == S::BFloat16 && k % kTileRow != 0 && has_amx_bf16();
}
Tensor with_zeros_behind(const Tensor& x, int64_t dim) {
  Sizes sizes = sizes_of(x);
  const int64_t k = sizes[dim];
  sizes[dim] = (k + kTileRow - 1) / kTileRow * kTileRow;
  Tensor out = aten::zeros(sizes, type_of(x));
  Tensor front = aten::narrow(out, dim, 0, k);
  aten::copy_(front, x);
  return out;
}

// out = alpha·a·b + beta·addend, all of one floating type that aten accumulates in float32 or wider and rounds once.
// alpha, M, N, K and the batch are not zero here.
void product_into(Tensor& out, const Tensor& a, const Tensor& b, const Sizes& batch, double alpha,
                  const OptTensor& addend, double beta) {
  if (reads_behind_rows(type_of(a), a.sizes()[a.dim() - 1])) {
    return product_into(out, with_zeros_behind(a, a.dim() - 1), with_zeros_behind(b, b.dim() - 2), batch, alpha, addend,
                        beta);
  }
  bool plain = !addend && alpha == 1;
  if (!addend) beta = 0;  // aten then ignores the addend, for which out itself stands in
  if (batch.empty()) {
    plain ? aten::mm_out(out, a, b) : aten::addmm_out(out, addend ? *addend : out, a, b, beta, alpha);
    return;
  }
  int64_t m = a.sizes()[a.dim() - 2], n = b.sizes()[b.dim() - 1];
  int64_t rows = product_of(batch) * m;
  // One shared B: the batch joins the rows, and one product does it all.
  if (b.dim() == 2) {
    Tensor out_2d = aten::reshape(out, {rows, n}), a_2d = rows_of(a, batch);
    if (plain) {
      aten::mm_out(out_2d, a_2d, b);
    } else {
      Tensor addend_2d = !addend              ? out_2d
                         : addend->dim() <= 1 ? *addend
                                              : aten::reshape(aten::expand(*addend, matrices(batch, m, n)), {rows, n});
      aten::addmm_out(out_2d, addend_2d, a_2d, b, beta, alpha);
    }
    return;
  }
  Tensor out_3d = aten::reshape(out, {product_of(batch), m, n}), a_3d = as_3d(a, batch), b_3d = as_3d(b, batch);
  if (plain) {
    aten::bmm_out(out_3d, a_3d, b_3d);
  } else {
    Tensor addend_3d = addend ? as_3d(aten::expand(*addend, matrices(batch, m, n)), batch) : out_3d;
    aten::baddbmm_out(out_3d, addend_3d, a_3d, b_3d, beta, alpha);
  }
}

// aten::_int_mm reads wrong elements where a stride is 0 or 2³¹ and more, or where both of a row's are 1, and oneDNN's
// fused product fails where rows overlap (torch 2.13), so both get matrices that BLAS takes.
Tensor dense(const Tensor& x) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  auto sizes = x.sizes(), strides = x.strides();
  bool by_rows = strides[1] == 1 && strides[0] >= sizes[1] && strides[0] <= kMost;
  bool by_columns =
      strides[0] == 1 && strides[1] >= sizes[0] && strides[1] <= kMost && (strides[1] > 1 || sizes[1] == 1);
  return by_rows || by_columns ? x : aten::call("aten::clone", "", x, std::optional(MemoryFormat::Contiguous));
}

// a·b in int32.
Tensor integer_product(const Tensor& a, const Tensor& b, const Sizes& batch) {
  int64_t m = a.sizes()[a.dim() - 2], n = b.sizes()[b.dim() - 1];
  Tensor out = aten::empty(matrices(batch, m, n), S::Int);
  if (b.dim() == 2) {
    int64_t rows = product_of(batch) * m;
    Tensor out_2d = aten::reshape(out, {rows, n});
    aten::int_mm_out(out_2d, dense(rows_of(a, batch)), dense(b));
    return out;
  }
  Tensor out_3d = aten::reshape(out, {product_of(batch), m, n}), a_3d = as_3d(a, batch), b_3d = as_3d(b, batch);
  for (int64_t i = 0; i < product_of(batch); ++i) {
    Tensor slice = aten::select(out_3d, 0, i);
    aten::int_mm_out(slice, dense(aten::select(a_3d, 0, i)), dense(aten::select(b_3d, 0, i)));
  }
  return out;
}

// bias, col_scale and a_scale broadcast along rows; row_scale along columns. All may carry batch dimensions.
Tensor along_rows(const Tensor& x, ScalarType type) {
  Tensor y = aten::to(x, type);
  return y.dim() > 1 ? aten::unsqueeze(y, -2) : y;
}
Tensor along_columns(const Tensor& x, ScalarType type) {
  Tensor y = aten::to(x, type);
  return y.dim() > 0 ? aten::unsqueeze(y, -1) : y;
}

bool reads_c(const Gemm& p) { return p.c && p.beta != 0; }
bool is_scaled(const Gemm& p) { return p.row_scale || p.col_scale; }

// act(a·b + bias) in bfloat16 by oneDNN's fused product: its own type's speed, and still one rounding.
OptTensor fused_bf16(const Gemm& p) {
  struct Post {
    const char* attribute;
    const char* algorithm;
  };
  static const Post posts[] = {{"none", ""},  {nullptr, ""},   {"gelu", "none"}, {"gelu", "tanh"},
                               {"swish", ""}, {"sigmoid", ""}, {"tanh", ""},     {"leaky_relu", ""}};
  bool fits = p.in == S::BFloat16 && p.out == S::BFloat16 && p.b.dim() == 2 && p.alpha == 1 && p.k > 0 && !reads_c(p) &&
              !is_scaled(p) && !p.multiply && !p.has_prologue() && p.activation < wmma::kBuiltinActivations &&
              multiplies_as_it_is(p) && p.activation != wmma::kRelu &&  // its relu(NaN) is 0
              (!p.bias || (p.bias->dim() == 1 && type_of(*p.bias) == S::BFloat16));
  const auto linear_pointwise = fits ? torch_internals::bf16_linear_pointwise() : nullptr;
  if (!linear_pointwise) return std::nullopt;
  const Post& post = posts[p.activation];
  const bool zeros = reads_behind_rows(p.in, p.k);
  Tensor x = zeros ? with_zeros_behind(p.a, p.a.dim() - 1) : p.a;
  Tensor weight = aten::transpose(zeros ? with_zeros_behind(p.b, 0) : dense(p.b), 0, 1);
  // Which is read as if its elements were neighbours.
  OptTensor packed = p.bias ? std::optional(aten::contiguous(*p.bias)) : std::nullopt;
  AtenTensorHandle bias = packed ? packed->get() : nullptr, result;
  const char* algorithm = post.algorithm;
  const double slope = wmma::kLeakySlope;
  const double* scalars[] = {&slope};
  aten::ok(linear_pointwise(x.get(), weight.get(), bias ? &bias : nullptr, post.attribute, scalars,
                            p.activation == wmma::kLeakyRelu ? 1 : 0, *algorithm ? &algorithm : nullptr, &result),
           "linear_pointwise");
  return Tensor(result);
}

// pro(A): computed in float32, rounded once to A's type, as the matrix cores take it.
Tensor prologue(const Gemm& p) {
  S type = accumulator(p.in);
  Tensor x =
      p.a_scale ? aten::mul(aten::to(p.a, type), along_rows(*p.a_scale, type)) : aten::clone(aten::to(p.a, type));
  activate_(p.op, x, p.a_activation);
  if (p.in == S::Float8_e4m3fn) {
    // What rounds beyond 448 is NaN, as in the kernels; torch's conversion (2.13) makes 448 of it, of infinities too.
    constexpr double kRoundsTo448 = 464;
    Tensor beyond = aten::call("aten::gt", "Tensor", aten::call("aten::abs", "", x), aten::scalar(kRoundsTo448));
    aten::masked_fill_(x, beyond, NAN);
  }
  if (is_fp8(p.in)) return aten::to(x, p.in);
  return cast(std::move(x), p.in);
}

// The second pair's product on top of the first's, in the accumulator's own type.
void add_second_pair(Tensor& out, const Gemm& p) {
  const ScalarType type = type_of(out);
  if (p.a2) product_into(out, aten::to(*p.a2, type), aten::to(*p.b2, type), p.batch, p.alpha, out, 1);
}

// alpha·pro(A)·B, to which `addend` is added on the way, in `type`; zeros (or the addend) where there is nothing to
// multiply.
Tensor accumulate(const Gemm& p, ScalarType type, const OptTensor& addend, double beta) {
  if (p.alpha == 0 || p.k == 0) {  // A and B are not read
    if (!addend || beta == 0) return aten::zeros(p.out_sizes, type);
    Tensor out = aten::empty(p.out_sizes, type);
    aten::copy_(out, *addend);
    if (beta != 1) aten::mul_(out, aten::scalar(beta));
    return out;
  }
  Tensor a = p.has_prologue() ? prologue(p) : p.a;
  if (is_integer(p.in)) {
    Tensor x = aten::to(integer_product(a, p.b, p.batch), type);
    if (p.alpha != 1) aten::mul_(x, aten::scalar(p.alpha));
    return addend && beta != 0 ? aten::add(x, *addend, beta) : x;
  }
  Tensor out = aten::empty(p.out_sizes, type);
  product_into(out, aten::to(a, type), aten::to(p.b, type), p.batch, p.alpha, addend, beta);
  add_second_pair(out, p);
  return out;
}

// Whether both pairs are one call of aten's, which leaves sums of bfloat16 rounded; int8 is exact in a single one.
bool is_one_call(const Gemm& p) { return is_integer(p.in) || p.in == S::BFloat16; }

// A product of [pro(A) A2] with [B; B2], and with the zeros behind both that would otherwise be a copy more.
Gemm joined(const Gemm& p) {
  const int64_t k = p.k + p.k2;
  const int64_t behind = reads_behind_rows(p.in, k) ? kTileRow - k % kTileRow : 0;
  // Both of [batch…, M, K] or [batch…, K, N], for the batch that the two have.
  auto concatenated = [&](const Tensor& x, const Tensor& y, int64_t dim) {
    Sizes batch;
    broadcast(p.op, p.names.a, batch, x, 2, p.names.b);
    broadcast(p.op, "a2 or b2", batch, y, 2, "a and b");
    auto spread = [&](const Tensor& t) {
      return aten::expand(t, matrices(batch, t.sizes()[t.dim() - 2], t.sizes()[t.dim() - 1]));
    };
    Sizes filled = matrices(batch, x.sizes()[x.dim() - 2], x.sizes()[x.dim() - 1]);
    filled[filled.size() + dim] = behind;
    const Tensor zeros = aten::zeros(filled, type_of(x));
    // As the longer runs: a weight in columns made one in rows takes aten many times as long.
    const Tensor& larger = y.sizes()[y.dim() + dim] > x.sizes()[x.dim() + dim] ? y : x;
    if (larger.strides()[larger.dim() - 2] != 1) return aten::cat({spread(x), spread(y), zeros}, dim);
    auto transposed = [&](const Tensor& t) { return aten::transpose(spread(t), -2, -1); };
    return aten::transpose(aten::cat({transposed(x), transposed(y), transposed(zeros)}, -3 - dim), -2, -1);
  };
  Gemm q = p;
  q.a = concatenated(p.has_prologue() ? prologue(p) : p.a, *p.a2, -1);
  q.b = concatenated(p.b, *p.b2, -2);
  q.k = k + behind;
  q.k2 = 0;
  q.a_activation = 0;
  q.a_scale = q.a2 = q.b2 = std::nullopt;
  return q;
}

// True where one aten call in the operands' own type does it all: accumulated in float32 or wider, rounded once. (relu
// may follow the rounding: it does not round.)
bool is_direct(const Gemm& p) {
  auto addend_fits = [&](const Tensor& x) { return type_of(x) == p.out; };
  bool type_fits = p.in == p.out && (p.in == S::Float || p.in == S::Double || p.in == S::BFloat16);
  bool addends_fit =
      reads_c(p) ? !p.bias && addend_fits(*p.c) : !p.bias || (p.bias->dim() == 1 && addend_fits(*p.bias));
  bool act_fits = p.activation == wmma::kNone || p.activation == wmma::kRelu;
  return type_fits && multiplies_as_it_is(p) && addends_fit && act_fits && !is_scaled(p) && !p.multiply &&
         !p.has_prologue() && p.alpha != 0 && p.k > 0;
}

Tensor composed(const Gemm& p) {
  bool plain = !reads_c(p) && !p.bias && !is_scaled(p) && !p.multiply && !p.has_prologue() && p.activation == 0;
  if (plain && p.out == S::Int && p.alpha == 1 && p.k > 0) return integer_product(p.a, p.b, p.batch);
  if (OptTensor fused = fused_bf16(p)) return *fused;

  // The accumulator's type. float64 holds every int32 exactly, so integer outputs saturate as if computed exactly.
  S type = p.in == S::Double || p.out == S::Int || p.out == S::Char ? S::Double : S::Float;
  OptTensor c = reads_c(p) ? OptTensor(aten::to(*p.c, type)) : std::nullopt;
  OptTensor bias = p.bias ? OptTensor(along_rows(*p.bias, type)) : std::nullopt;
  Tensor x;
  if (is_scaled(p)) {
    x = accumulate(p, type, std::nullopt, 0);
    if (p.alpha != 0 && p.row_scale) aten::mul_(x, along_columns(*p.row_scale, type));
    if (p.alpha != 0 && p.col_scale) aten::mul_(x, along_rows(*p.col_scale, type));
    if (c) x = aten::add(x, *c, p.beta);
    if (bias) x = aten::add(x, *bias);
  } else if (c) {
    x = accumulate(p, type, c, p.beta);
    if (bias) x = aten::add(x, *bias);
  } else {
    x = accumulate(p, type, bias, 1);
  }
  activate_(p.op, x, p.activation);
  if (p.multiply) aten::mul_(x, aten::to(*p.multiply, type));
  return cast(std::move(x), p.out);
}

}  // namespace

void activate_(const char* op, Tensor& x, int64_t code) {
  switch (code) {
    case wmma::kNone:
      return;
    case wmma::kRelu:  // of any type and strides
      return aten::unary_("aten::relu_", x);
    default:
      if (code < wmma::kBuiltinActivations) return activate(x, x, code);
      check_answer(op, aten::call<std::vector<int64_t>>("wmma::_registered_activation", "", x, code));
  }
}

Tensor cast(Tensor x, ScalarType type) {
  if (type != S::Int && type != S::Char) return aten::to(x, type);
  aten::unary_("aten::round_", x);
  x = aten::call("aten::nan_to_num", "", x, std::optional<double>(0.0), std::optional<double>(INFINITY),
                 std::optional<double>(-INFINITY));
  type == S::Char ? aten::clamp_(x, -128, 127) : aten::clamp_(x, -2147483648.0, 2147483647.0);
  return aten::to(x, type);
}

namespace {

// What the activation is given, kept; then the result of it.
Tensor with_aux(const Gemm& p) {
  Gemm before = p;
  before.activation = 0;
  before.multiply = std::nullopt;
  before.aux = std::nullopt;
  before.out = accumulator(p.in);
  Tensor aux = *p.aux, x;
  if (type_of(aux) == before.out) {
    gemm(before, aux);
    x = aten::empty(p.out_sizes, before.out);
    activate(x, aux, p.activation);
  } else {
    x = gemm(before);
    aten::copy_(aux, x);
    activate_(p.op, x, p.activation);
  }
  if (p.multiply) aten::mul_(x, aten::to(*p.multiply, before.out));
  return cast(std::move(x), p.out);
}

}  // namespace

Tensor gemm_together(const Gemm& p, const OptTensor& into) {
  if (product_of(p.out_sizes) == 0) return into ? *into : aten::empty(p.out_sizes, p.out);
  if (p.aux) return with_aux(p);
  if (p.a2 && p.alpha != 0 && is_one_call(p)) return gemm(joined(p), into);
  if (is_direct(p)) {
    Tensor out = into ? *into : aten::empty(p.out_sizes, p.out);
    const OptTensor& addend = reads_c(p) ? p.c : p.bias;
    product_into(out, p.a, p.b, p.batch, p.alpha, addend, reads_c(p) ? p.beta : 1);
    add_second_pair(out, p);
    activate_(p.op, out, p.activation);
    return out;
  }
  Tensor result = composed(p);
  if (!into) return result;
  Tensor out = *into;
  aten::copy_(out, result);
  return out;
}

}  // namespace wmma_ops::cpu
