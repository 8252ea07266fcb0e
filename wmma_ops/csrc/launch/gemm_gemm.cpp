#include "launch/gemm_gemm.hpp"

namespace wmma_ops {

TwoProducts::TwoProducts(const GemmGemm& p, const Tensor& out, int64_t device)
    : Operands(static_cast<int64_t>(p.batch.size())) {
  int64_t m = p.m, k = p.k, h = p.h, n = p.n;
  const ScalarType in = type_of(p.a);
  add(kA, "a", p.a, in, View::kMatrix, p.a.const_data_ptr());
  add(kB0, "b0", p.b0, in, View::kMatrix, p.b0.const_data_ptr());
  add_optional(kGate, "gate", p.gate, View::kMatrix);
  add_optional(kBias0, "bias0", p.bias0, View::kAlongColumns);
  add(kB1, "b1", p.b1, in, View::kMatrix, p.b1.const_data_ptr());
  if (p.beta1 != 0) add_optional(kC, "c", p.c, View::kMatrix);
  add(kD, "out", out, p.out, View::kMatrix, out.mutable_data_ptr());
  add_optional(kBias1, "bias1", p.bias1, View::kAlongColumns);

  for (Operand which : {kA, kC, kD}) v[which].has_rows = true;
  batch = Batch(p.batch, v, kOperands, wmma::kBatchDims, &m);
  wmma::GemmArguments& last = arguments.last;
  last.batch = batch.fill(last.batch_sizes);
  place_all();
  last.m = m;
  last.n = n;
  last.k = h;
  last.alpha = p.alpha1;
  last.beta = v[kC].present ? p.beta1 : 0;
  arguments.k = k;
  arguments.alpha0 = p.alpha0;

  const Direction a = direction_of(batch, v[kA], v[kA].column, v[kA].row, k, m, false),
                  b0 = direction_of(batch, v[kB0], v[kB0].row, v[kB0].column, k, h, true),
                  gate = direction_of(batch, v[kGate], v[kGate].row, v[kGate].column, k, h, true),
                  b1 = direction_of(batch, v[kB1], v[kB1].row, v[kB1].column, h, n, true);
  auto along_n = [&](Operand which) { return batch.vec_of(v[which], v[which].column, n, v[which].row); };
  border::GemmGemmProblem fields;
  fields.device = device;
  fields.a = v[kA].code;
  fields.c = v[kC].code;
  fields.d = v[kD].code;
  fields.bias0 = v[kBias0].code;
  fields.bias1 = v[kBias1].code;
  fields.gate = p.gate.has_value();
  fields.a_order = a.across;
  fields.b0_order = b0.across;
  fields.gate_order = gate.across;
  fields.b1_order = b1.across;
  fields.a_vec = a.vec;
  fields.b0_vec = b0.vec;
  fields.gate_vec = gate.vec;
  fields.b1_vec = b1.vec;
  fields.c_vec = along_n(kC);
  fields.d_vec = along_n(kD);
  fields.wide = is_wide(v[kA]) || is_wide(v[kB0]) || is_wide(v[kGate]) || is_wide(v[kB1]);
  fields.activation = p.activation;
  fields.batch_dims = batch.dims - batch.outer_dims();
  fields.batch = last.batch;
  fields.m = m;
  fields.n = n;
  fields.k = k;
  fields.h = h;
  problem = ProblemKey(fields);
}

OptTensor launch::gemm_gemm(const GemmGemm& p, const Way& way) {
  // What does not depend on A, B0 or B1 is left to products, which then read none of them.
  if (p.k == 0 || p.h == 0 || p.alpha0 == 0 || p.alpha1 == 0 || product_of(p.out_sizes) == 0) return std::nullopt;
  Tensor out = made(p.out_sizes, p.out, p.device);
  TwoProducts both(p, out, way.device);
  const Plan plan = plan_of(p.op, both.problem, way.remembered);
  if (plan.launch_count == 0) return std::nullopt;
  if (!way.executes) return out;
  wmma::GemmGemmArguments& arguments = both.arguments;
  const auto numbers = plan.numbers<border::GemmGemmNumbers>();
  arguments.last.tiles_m = static_cast<unsigned>(numbers.blocks);
  if (numbers.lines_a == 0) {
    both.launch_all(p.op, way, plan);
    return out;
  }
  wmma::MappedGemmGemmArguments with_maps{arguments, {}, {}, {}, {}, {}};
  if (way.device >= 0) {  // else it is recorded, not run
    const int64_t function = plan.launches[0].function, code = element_code(type_of(p.a));
    auto map = [&](const wmma::GemmOperand& x, Extent outer, Extent k, int64_t lines, wmma::TileMap& into) {
      map_loaded(p.op, function, mapped(both.batch, x, outer, k, code, lines), into);
    };
    auto map_weights = [&](const wmma::GemmOperand& x, int64_t n, int64_t k, int64_t lines, wmma::TileMap& into) {
      map(x, {n, x.column_stride}, {k, x.row_stride}, lines, into);
    };
    const wmma::GemmArguments& last = arguments.last;
    map(arguments.a, {last.m, arguments.a.row_stride}, {arguments.k, arguments.a.column_stride}, numbers.lines_a,
        with_maps.a_map);
    map_weights(arguments.b0, last.k, arguments.k, numbers.lines_b0, with_maps.b0_map);
    if (p.gate) map_weights(arguments.gate, last.k, arguments.k, numbers.lines_b0, with_maps.gate_map);
    map_weights(last.b, last.n, last.k, numbers.lines_b1, with_maps.b1_map);
    if (numbers.lines_d > 0)
      map(last.d, {last.m, last.d.row_stride}, {last.n, last.d.column_stride}, numbers.lines_d, with_maps.d_map);
  }
  execute(p.op, way, plan, &with_maps, sizeof with_maps, both.touched);
  return out;
}

}  // namespace wmma_ops
