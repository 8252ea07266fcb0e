#include "launch/gemm_gemm.hpp"

namespace wmma_ops {

TwoProducts::TwoProducts(const GemmGemm& p, const Tensor& out, int64_t place)
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
  problem = {kGemmGemmProblem,
             place,
             v[kA].code,
             v[kC].code,
             v[kD].code,
             v[kBias0].code,
             v[kBias1].code,
             p.gate.has_value(),
             a.across,
             b0.across,
             gate.across,
             b1.across,
             a.vec,
             b0.vec,
             gate.vec,
             b1.vec,
             along_n(kC),
             along_n(kD),
             is_wide(v[kA]) || is_wide(v[kB0]) || is_wide(v[kGate]) || is_wide(v[kB1]),
             p.activation,
             batch.dims - batch.outer_dims(),
             last.batch,
             m,
             n,
             k,
             h};
}

OptTensor launch::gemm_gemm(const GemmGemm& p, const Way& way) {
  // What does not depend on A, B0 or B1 is left to products, which then read none of them.
  if (p.k == 0 || p.h == 0 || p.alpha0 == 0 || p.alpha1 == 0) return std::nullopt;
  for (int64_t size : p.out_sizes) {
    if (size == 0) return std::nullopt;
  }
  Tensor out =
      aten::empty(p.out_sizes.data(), static_cast<int64_t>(p.out_sizes.size()), p.out, p.device.type, p.device.index);
  TwoProducts both(p, out, way.place);
  const Plan plan = plan_of(p.op, both.problem, way.remembered);
  if (plan.launch_count == 0) return std::nullopt;
  if (!way.executes) return out;
  wmma::GemmGemmArguments& arguments = both.arguments;
  arguments.last.tiles_m = static_cast<unsigned>(plan.numbers[0]);
  const int64_t lines_a = plan.numbers[1], lines_b0 = plan.numbers[2], lines_b1 = plan.numbers[3],
                lines_d = plan.numbers[4];
  if (lines_a == 0) {
    both.launch_all(p.op, way, plan);
    return out;
  }
  wmma::MappedGemmGemmArguments with_maps{arguments, {}, {}, {}, {}, {}};
  if (way.place >= 0) {  // else it is recorded, not run
    const int64_t function = plan.launches[0].function, size = element_size(element_code(type_of(p.a)));
    auto map = [&](const wmma::GemmOperand& x, Extent outer, Extent k, int64_t lines, wmma::TileMap& into) {
      map_loaded(p.op, function, mapped(both.batch, x, outer, k, size, lines), into);
    };
    auto map_weights = [&](const wmma::GemmOperand& x, int64_t n, int64_t k, int64_t lines, wmma::TileMap& into) {
      map(x, {n, x.column_stride}, {k, x.row_stride}, lines, into);
    };
    const wmma::GemmArguments& last = arguments.last;
    map(arguments.a, {last.m, arguments.a.row_stride}, {arguments.k, arguments.a.column_stride}, lines_a,
        with_maps.a_map);
    map_weights(arguments.b0, last.k, arguments.k, lines_b0, with_maps.b0_map);
    if (p.gate) map_weights(arguments.gate, last.k, arguments.k, lines_b0, with_maps.gate_map);
    map_weights(last.b, last.n, last.k, lines_b1, with_maps.b1_map);
    if (lines_d > 0) map(last.d, {last.m, last.d.row_stride}, {last.n, last.d.column_stride}, lines_d, with_maps.d_map);
  }
  execute(p.op, way, plan, &with_maps, sizeof with_maps, both.touched);
  return out;
}

}  // namespace wmma_ops
