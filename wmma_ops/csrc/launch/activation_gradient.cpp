#include <algorithm>
#include <wmma/activation_gradient/arguments.hpp>

#include "launch/operands.hpp"

namespace wmma_ops::launch {

namespace {

constexpr int64_t kMany = int64_t{1} << 20;  // elements

}  // namespace

bool has_aligned_width(const Tensor& x) {
  const int64_t columns = x.sizes()[x.dim() - 1];
  return aligned_width(columns, bytes_of(element_code(type_of(x)), 1)) == columns;
}

ActivationGradient::Result activation_gradient(const ActivationGradient& p, const Way& way) {
  const ScalarType type = type_of(p.g);
  const Sizes sizes = sizes_of(p.g);
  const int64_t columns = sizes.back(), count = product_of(sizes), rows = columns == 0 ? 0 : count / columns;
  const int64_t bytes = bytes_of(element_code(type), 1);
  // Few are not worth a pass.
  const bool aligns = p.aligns && count >= kMany && !has_aligned_width(p.g);
  ActivationGradient::Result found{p.g, std::nullopt, p.u};
  if (p.sums) found.sums = made({columns}, *p.sums, p.device);
  const bool reads_s = p.activation != 0 || p.u;
  if (rows == 0 || !(p.sums || aligns || reads_s)) {
    if (p.sums) aten::fill_(*found.sums, 0);
    return found;
  }
  // As matrices whose rows lie one after the other.
  const Tensor g = aten::contiguous(p.g), s = reads_s ? aten::contiguous(p.s) : g;
  const Tensor u = p.u ? aten::contiguous(*p.u) : g;
  Touched touched;
  touched.add("g", g);
  wmma::ActivationGradientArguments arguments{};
  arguments.g = g.const_data_ptr();
  arguments.rows = rows;
  arguments.columns = columns;
  uint64_t aligned = reinterpret_cast<uint64_t>(arguments.g) | static_cast<uint64_t>(columns * bytes);
  if (reads_s) {
    arguments.s = s.const_data_ptr();
    aligned |= reinterpret_cast<uint64_t>(arguments.s);
    touched.add("s", s);
  }
  if (p.u) {
    arguments.u = u.const_data_ptr();
    aligned |= reinterpret_cast<uint64_t>(arguments.u);
    touched.add("u", u);
  }

  border::ActivationGradientProblem fields;
  fields.device = way.device;
  fields.dtype = element_code(type);
  fields.sums = p.sums ? element_code(*p.sums) : int64_t{wmma::kNoElement};
  fields.activation = p.activation;
  fields.gates = p.u.has_value();
  fields.aligns = aligns;
  fields.vec = aligned_elements(aligned, bytes);
  fields.columns = columns;
  fields.rows = power_of_two_from(rows);  // so that calls share plans
  const Plan plan = plan_of(p.op, ProblemKey(fields), way.remembered);
  const auto numbers = plan.numbers<border::ActivationGradientNumbers>();

  // A row's elements and those behind it, which nobody reads. New memory is aligned.
  const int64_t width = numbers.aligns ? aligned_width(columns, bytes) : columns;
  const auto result = [&] {
    Sizes wide = sizes;
    wide.back() = width;
    const Tensor memory = made(wide, type, p.device);
    return width == columns ? memory : aten::narrow(memory, -1, 0, columns);
  };
  arguments.g_s_stride = width;
  if (numbers.aligns || reads_s) {
    found.g_s = result();
    arguments.g_s = found.g_s.mutable_data_ptr();
    touched.add("g_s", found.g_s);
  }
  if (p.u) {
    found.g_u = result();
    arguments.g_u = found.g_u->mutable_data_ptr();
    touched.add("g_u", *found.g_u);
  }
  if (!way.executes) return found;
  if (p.sums) {
    arguments.sums = found.sums->mutable_data_ptr();
    touched.add("sums", *found.sums);
  }
  arguments.slabs = static_cast<int>(numbers.slabs);
  arguments.rows_of_slab = (rows + arguments.slabs - 1) / arguments.slabs;
  const OptTensor workspace = workspace_of(plan, p.device);
  if (workspace) {
    arguments.partial = workspace->mutable_data_ptr();
    touched.add("workspace", *workspace);
  }
  execute(p.op, way, plan, &arguments, sizeof arguments, touched);
  return found;
}

}  // namespace wmma_ops::launch
