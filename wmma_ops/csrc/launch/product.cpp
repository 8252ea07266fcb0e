#include "launch/product.hpp"

#include <algorithm>
#include <utility>

#include "torch_internals.hpp"

namespace wmma_ops {

namespace {

// Where a row that is alone is not to know it: how far from it the next one would be.
int64_t lone_row(const Tensor& a) {
  return is_batch_invariant() && a.sizes()[a.dim() - 2] == 1 ? a.strides()[a.dim() - 2] : 0;
}

}  // namespace

Product::Product(const Gemm& p, const Tensor& out, int64_t device) : Operands(static_cast<int64_t>(p.batch.size())) {
  int64_t m = p.m, n = p.n, k = p.alpha == 0 ? 0 : p.k, k2 = p.alpha == 0 ? 0 : p.k2;
  add(kA, p.names.a, p.a, p.in, View::kMatrix, p.a.const_data_ptr());
  add(kB, p.names.b, p.b, p.in_b, View::kMatrix, p.b.const_data_ptr());
  if (p.beta != 0) add_optional(kC, p.names.c, p.c, View::kMatrix);
  add(kD, "out", out, p.out, View::kMatrix, out.mutable_data_ptr());
  add_optional(kBias, p.names.bias, p.bias, View::kAlongColumns);
  if (p.alpha != 0) {  // 0·scale would be NaN for a scale that is not finite
    add_optional(kRowScale, p.names.row_scale, p.row_scale, View::kAlongRows);
    add_optional(kColScale, p.names.col_scale, p.col_scale, View::kAlongColumns);
    add_optional(kAScale, "a_scale", p.a_scale, View::kAlongColumns);
  }
  add_optional(kMultiply, p.names.multiply, p.multiply, View::kMatrix);
  if (k2 > 0) {
    add(kA2, "a2", *p.a2, p.in, View::kMatrix, p.a2->const_data_ptr());
    add(kB2, "b2", *p.b2, p.in_b, View::kMatrix, p.b2->const_data_ptr());
  }
  if (p.aux) add(kAux, "aux", *p.aux, p.out, View::kMatrix, p.aux->mutable_data_ptr());
  if (p.gate) add(kGate, p.names.gate, *p.gate, p.in_b, View::kMatrix, p.gate->const_data_ptr());
  add_optional(kGateBias, p.names.gate_bias, p.gate_bias, View::kAlongColumns);
  if (p.gate_aux) add(kGateAux, "gate_aux", *p.gate_aux, p.out, View::kMatrix, p.gate_aux->mutable_data_ptr());
  int64_t a_activation = p.alpha == 0 ? 0 : p.a_activation;

  // Where D's memory runs down its columns, Dᵀ = Bᵀ·Aᵀ is the product that writes along it. A's prologue and the bias
  // stay with their sides, so a product that has one is left as it is; so is one with a second pair or a gate, which no
  // op writes to such memory, and one whose rows are to have as columns none of the other's sums.
  bool down = v[kD].row == 1 && n > 1 && v[kD].column != 1 && !is_batch_invariant();
  if (down && !v[kBias].present && !v[kAScale].present && !v[kA2].present && !v[kGate].present && a_activation == 0) {
    is_flipped = true;
    std::swap(v[kA], v[kB]);
    std::swap(v[kRowScale], v[kColScale]);
    std::swap(m, n);
    for (Operand which : {kA, kB, kC, kD, kRowScale, kColScale, kMultiply, kAux})
      std::swap(v[which].row, v[which].column);
  }

  for (int which = 0; which < kOperands; ++which) {
    v[which].is_read = k > 0 || (which != kA && which != kB && which != kAScale);
    v[which].has_rows = which != kB && which != kBias && which != kColScale && which != kAScale && which != kB2 &&
                        which != kGate && which != kGateBias;
  }
  batch = Batch(p.batch, v, kOperands, wmma::kBatchDims, &m);
  arguments.batch = batch.fill(arguments.batch_sizes);
  place_all();
  arguments.m = m;
  arguments.n = n;
  arguments.k = k;
  arguments.k2 = k2;
  arguments.alpha = k == 0 ? 1 : p.alpha;  // infinity times nothing is nothing
  arguments.beta = v[kC].present ? p.beta : 0;

  const View &a = v[kA], &b = v[kB];
  const Direction a_way = direction_of(batch, a, a.column, a.row != 0 ? a.row : lone_row(p.a), k, m, false),
                  b_way = direction_of(batch, b, b.row, b.column, k, n, true);
  a_across = a_way.across;
  b_across = b_way.across;
  Direction a2_way{false, 1}, b2_way{false, 1};  // where there is no second pair
  if (k2 > 0) {
    const View &a2 = v[kA2], &b2 = v[kB2];
    a2_way = direction_of(batch, a2, a2.column, a2.row, k2, m, false);
    b2_way = direction_of(batch, b2, b2.row, b2.column, k2, n, true);
  }
  Direction gate_way{false, b_way.vec};
  if (p.gate) gate_way = direction_of(batch, v[kGate], v[kGate].row, v[kGate].column, k, n, true);
  auto along_n = [&](Operand which) { return batch.vec_of(v[which], v[which].column, n, v[which].row); };
  border::GemmProblem fields;
  fields.device = device;
  fields.a = a.code;
  fields.b = b.code;
  fields.c = v[kC].code;
  fields.d = v[kD].code;
  fields.bias = v[kBias].code;
  fields.row_scale = v[kRowScale].code;
  fields.col_scale = v[kColScale].code;
  fields.a_scale = v[kAScale].code;
  fields.multiply = v[kMultiply].code;
  fields.a_order = a_way.across;
  fields.b_order = b_way.across;
  fields.a_vec = a_way.vec;
  fields.b_vec = std::min(b_way.vec, gate_way.vec);
  fields.c_vec = along_n(kC);
  fields.d_vec = along_n(kD);
  for (Operand kept : {kAux, kGateAux}) {
    if (v[kept].present) fields.d_vec = std::min(fields.d_vec, along_n(kept));
  }
  fields.multiply_vec = along_n(kMultiply);
  fields.wide = is_wide(a) || is_wide(b) || is_wide(v[kA2]) || is_wide(v[kB2]) || is_wide(v[kGate]);
  fields.a_activation = a_activation;
  fields.activation = p.activation;
  fields.batch_dims = batch.dims - batch.outer_dims();
  fields.batch = arguments.batch;
  fields.m = m;
  fields.n = n;
  fields.k = k;
  fields.precision = p.in == ScalarType::Float ? torch_internals::matmul_precision() : 0;
  fields.k2 = k2;
  fields.a2_order = a2_way.across;
  fields.b2_order = b2_way.across;
  fields.a2_vec = a2_way.vec;
  fields.b2_vec = b2_way.vec;
  fields.aux = v[kAux].present;
  fields.gate = v[kGate].present;
  fields.gate_order = gate_way.across;
  fields.gate_bias = v[kGateBias].code;
  fields.slopes = p.slopes;
  fields.row_sums = p.row_sums ? element_code(*p.row_sums) : int64_t{wmma::kNoElement};
  fields.invariant = is_batch_invariant();
  problem = ProblemKey(fields);
}

}  // namespace wmma_ops
