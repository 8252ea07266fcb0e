#include "product.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

namespace wmma_ops {

using S = ScalarType;

int64_t element_code(S type) {
  switch (type) {
    case S::Half:
      return wmma::kFloat16;
    case S::BFloat16:
      return wmma::kBfloat16;
    case S::Float:
      return wmma::kFloat32;
    case S::Double:
      return wmma::kFloat64;
    case S::Char:
      return wmma::kInt8;
    case S::Int:
      return wmma::kInt32;
    case S::Float8_e4m3fn:
      return wmma::kFloat8E4m3;
    case S::Float8_e5m2:
      return wmma::kFloat8E5m2;
    case S::Float8_e4m3fnuz:
      return wmma::kFloat8E4m3Fnuz;
    case S::Float8_e5m2fnuz:
      return wmma::kFloat8E5m2Fnuz;
    case S::Bool:
      return wmma::kBool;
    default:
      return wmma::kNoElement;
  }
}

int64_t element_size(int64_t code) {
  constexpr int64_t kSizes[] = {2, 2, 4, 8, 1, 4, 1, 1, 1, 1, 1};
  return kSizes[code];
}

namespace {

constexpr int kMostDims = 64;  // torch's own limit

// torch.get_float32_matmul_precision(): 0 highest, 1 high, 2 medium. The stable interface does not tell it. Asking
// Python costs microseconds, so torch's own function is called where this build of torch has it under that name.
int64_t precision() {
  using Global = void* (*)();
  using Get = int (*)(const void*);
  struct Functions {
    Global global;
    Get get;
  };
  static const Functions torch = [] {
    void* library = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
    auto find = [&](const char* name) { return library ? dlsym(library, name) : nullptr; };
    return Functions{reinterpret_cast<Global>(find("_ZN2at13globalContextEv")),
                     reinterpret_cast<Get>(find("_ZNK2at7Context22float32MatmulPrecisionEv"))};
  }();
  if (!torch.global || !torch.get) return aten::call<int64_t>("wmma::_precision", "");
  try {
    return torch.get(torch.global()) & 3;
  } catch (const std::exception&) {  // torch refuses to tell where its old and new settings were mixed
    return aten::call<int64_t>("wmma::_precision", "");
  }
}

// One operand: where it starts and how far apart its elements are. Strides of dimensions of one element are 0.
struct View {
  bool present = false;
  const char* data = nullptr;
  int64_t code = wmma::kNoElement, size = 0;  // of an element
  int64_t row = 0, column = 0;
  int64_t batch[kMostDims];
};

enum Core { kMatrix, kAlongColumns, kAlongRows };  // which dimensions of the product its last ones are

void fill(View& v, const Tensor& x, S type, Core core, int64_t rank, const void* data) {
  v.present = true;
  v.data = static_cast<const char*>(data);
  v.code = element_code(type);
  v.size = element_size(v.code);
  auto sizes = x.sizes(), strides = x.strides();
  int64_t at = static_cast<int64_t>(sizes.size());
  auto next = [&] { return --at >= 0 && sizes[at] != 1 ? strides[at] : 0; };
  if (core != kAlongRows) v.column = next();
  if (core != kAlongColumns) v.row = next();
  for (int64_t i = rank; i-- > 0;) v.batch[i] = next();
}

// As many neighbours as are aligned in memory: `along` is the stride between them, `other` the one across.
int64_t vec_of(const View& v, int64_t along, int64_t extent, int64_t other, int64_t batch_bits) {
  if (!v.present || along != 1) return 1;
  uint64_t bits = reinterpret_cast<uint64_t>(v.data) | static_cast<uint64_t>((extent | other | batch_bits) * v.size);
  uint64_t aligned = std::min<uint64_t>(bits == 0 ? 16 : bits & -bits, 16);
  return std::max<int64_t>(static_cast<int64_t>(aligned) / v.size, 1);
}

wmma::GemmOperand operand_of(const View& v, int rank) {
  wmma::GemmOperand x{v.data, v.row, v.column, {}};
  for (int i = 0; i < std::min(rank, wmma::kBatchDims); ++i) {
    x.batch_strides[wmma::kBatchDims - 1 - i] = v.batch[rank - 1 - i];
  }
  return x;
}

}  // namespace

Product::Product(const Gemm& p, const Tensor& out, int64_t place) {
  View v[kOperands];
  int64_t m = p.m, n = p.n, k = p.alpha == 0 ? 0 : p.k;
  int64_t rank = static_cast<int64_t>(p.batch.size());
  auto add = [&](Operand which, const char* name, const Tensor& x, S type, Core core, const void* data) {
    fill(v[which], x, type, core, rank, data);
    touched.add(name, x);
  };
  auto add_optional = [&](Operand which, const char* name, const OptTensor& x, Core core) {
    if (x) add(which, name, *x, type_of(*x), core, x->const_data_ptr());
  };
  add(kA, p.names.a, p.a, p.in, kMatrix, p.a.const_data_ptr());
  add(kB, p.names.b, p.b, p.in_b, kMatrix, p.b.const_data_ptr());
  if (p.beta != 0) add_optional(kC, p.names.c, p.c, kMatrix);
  add(kD, "out", out, p.out, kMatrix, out.mutable_data_ptr());
  add_optional(kBias, p.names.bias, p.bias, kAlongColumns);
  if (p.alpha != 0) {  // 0·scale would be NaN for a scale that is not finite
    add_optional(kRowScale, p.names.row_scale, p.row_scale, kAlongRows);
    add_optional(kColScale, p.names.col_scale, p.col_scale, kAlongColumns);
    add_optional(kAScale, "a_scale", p.a_scale, kAlongColumns);
  }
  add_optional(kMultiply, p.names.multiply, p.multiply, kMatrix);
  int64_t a_activation = p.alpha == 0 ? 0 : p.a_activation;

  // Where D's memory runs down its columns, Dᵀ = Bᵀ·Aᵀ is the product that writes along it. A's prologue and the bias
  // stay with their sides, so a product that has one is left as it is.
  bool down = v[kD].row == 1 && n > 1 && v[kD].column != 1;
  if (down && !v[kBias].present && !v[kAScale].present && a_activation == 0) {
    std::swap(v[kA], v[kB]);
    std::swap(v[kRowScale], v[kColScale]);
    std::swap(m, n);
    for (Operand which : {kA, kB, kC, kD, kRowScale, kColScale, kMultiply}) std::swap(v[which].row, v[which].column);
  }

  // The batch, from its innermost dimension out: joined with the rows where all of them share B and lie evenly spaced,
  // else with the dimension inside it where every operand's strides allow, else kept.
  auto reads = [&](int which) {
    return v[which].present && (k > 0 || (which != kA && which != kB && which != kAScale));
  };
  auto has_rows = [](int which) { return which != kB && which != kBias && which != kColScale && which != kAScale; };
  int64_t kept[kMostDims], sizes[kMostDims];  // innermost first; a joined dimension has the strides of its innermost
  int kept_dims = 0;
  for (int64_t i = rank; i-- > 0;) {
    int64_t size = p.batch[i];
    if (size == 1) continue;
    bool joins = true;
    for (int which = 0; which < kOperands && joins; ++which) {
      if (!reads(which)) continue;
      const View& x = v[which];
      if (kept_dims > 0) {
        joins = x.batch[i] == x.batch[kept[kept_dims - 1]] * sizes[kept_dims - 1];
      } else {
        joins = has_rows(which) ? m == 1 || x.batch[i] == x.row * m : x.batch[i] == 0;
      }
    }
    if (!joins) {
      kept[kept_dims] = i;
      sizes[kept_dims++] = size;
    } else if (kept_dims > 0) {
      sizes[kept_dims - 1] *= size;
    } else {
      for (int which = 0; which < kOperands && m == 1; ++which) {
        if (v[which].present && has_rows(which)) v[which].row = v[which].batch[i];
      }
      m *= size;
    }
  }

  // From here on outermost first. What exceeds kBatchDims is left to the host.
  int64_t batch_bits[kOperands] = {};
  outer_dims = std::max(kept_dims - wmma::kBatchDims, 0);
  for (int which = 0; which < kOperands; ++which) {
    View& x = v[which];
    if (!x.present) continue;
    for (int i = 0; i < kept_dims; ++i) {
      x.batch[i] = x.batch[kept[kept_dims - 1 - i]];
      batch_bits[which] |= x.batch[i];
      if (i < outer_dims) outer_strides[which][i] = x.batch[i] * x.size;
    }
  }
  for (int i = 0; i < wmma::kBatchDims; ++i) arguments.batch_sizes[i] = 1;
  arguments.batch = 1;
  for (int i = 0; i < kept_dims; ++i) {
    int64_t size = sizes[kept_dims - 1 - i];
    if (i < outer_dims) {
      outer_sizes[i] = size;
      outer_count *= size;
    } else {
      arguments.batch_sizes[wmma::kBatchDims - kept_dims + i] = size;
      arguments.batch *= size;
    }
  }
  wmma::GemmOperand* const operands[kOperands] = {&arguments.a,         &arguments.b,       &arguments.c,
                                                  &arguments.d,         &arguments.bias,    &arguments.row_scale,
                                                  &arguments.col_scale, &arguments.a_scale, &arguments.multiply};
  for (int which = 0; which < kOperands; ++which) {
    if (v[which].present) *operands[which] = operand_of(v[which], kept_dims);
  }
  arguments.m = m;
  arguments.n = n;
  arguments.k = k;
  arguments.alpha = k == 0 ? 1 : p.alpha;  // infinity times nothing is nothing
  arguments.beta = v[kC].present ? p.beta : 0;

  const View &a = v[kA], &b = v[kB];
  int64_t a_along_k = vec_of(a, a.column, k, a.row, batch_bits[kA]),
          a_along_m = vec_of(a, a.row, m, a.column, batch_bits[kA]);
  int64_t b_along_k = vec_of(b, b.row, k, b.column, batch_bits[kB]),
          b_along_n = vec_of(b, b.column, n, b.row, batch_bits[kB]);
  bool a_has_k = a.column == 1 || k <= 1, a_has_m = a.row == 1 || m == 1;
  bool b_has_k = b.row == 1 || k <= 1, b_has_n = b.column == 1 || n == 1;
  bool a_by_m = a_has_m && (!a_has_k || a_along_m > a_along_k);
  bool b_by_n = !b_has_k || (b_has_n && b_along_n > b_along_k);
  auto along_n = [&](Operand which) { return vec_of(v[which], v[which].column, n, v[which].row, batch_bits[which]); };
  auto is_wide = [](const View& x) { return 512 * (x.row + x.column) * x.size >= int64_t{1} << 31; };
  problem = {kGemmProblem,
             place,
             a.code,
             b.code,
             v[kC].code,
             v[kD].code,
             v[kBias].code,
             v[kRowScale].code,
             v[kColScale].code,
             v[kAScale].code,
             v[kMultiply].code,
             a_by_m,
             b_by_n,
             a_by_m ? a_along_m : a_along_k,
             b_by_n ? b_along_n : b_along_k,
             along_n(kC),
             along_n(kD),
             along_n(kMultiply),
             is_wide(a) || is_wide(b),
             a_activation,
             p.activation,
             kept_dims - outer_dims,
             arguments.batch,
             m,
             n,
             k,
             p.in == S::Float ? precision() : 0};
}

void Product::start(int64_t index, wmma::GemmArguments& moved) const {
  wmma::GemmOperand* const operands[kOperands] = {&moved.a,         &moved.b,       &moved.c,
                                                  &moved.d,         &moved.bias,    &moved.row_scale,
                                                  &moved.col_scale, &moved.a_scale, &moved.multiply};
  for (int dim = outer_dims; dim-- > 0;) {
    int64_t at = index % outer_sizes[dim];
    index /= outer_sizes[dim];
    for (int which = 0; which < kOperands; ++which) {
      if (operands[which]->data) {
        operands[which]->data = static_cast<const char*>(operands[which]->data) + at * outer_strides[which][dim];
      }
    }
  }
}

}  // namespace wmma_ops
