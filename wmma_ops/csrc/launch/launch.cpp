#include "launch/launch.hpp"

#include "launch/product.hpp"

namespace wmma_ops::launch {

Tensor made(const Sizes& sizes, ScalarType type, const Device& device) {
  return aten::empty(sizes.data(), static_cast<int64_t>(sizes.size()), type, device.type, device.index);
}

OptTensor workspace_of(const Plan& plan, const Device& device) {
  if (plan.workspace == 0) return std::nullopt;
  return aten::empty(&plan.workspace, 1, ScalarType::Byte, device.type, device.index);
}

void execute(const char* op, const Way& way, const Plan& plan, const void* arguments, size_t size,
             const Touched& touched) {
  const bool emulated = way.device < 0;
  Launch launch{};
  launch.arguments = arguments;
  launch.size = size;
  launch.is_struct = true;
  launch.tensors = touched.tensors;
  launch.names = touched.names;
  launch.tensor_count = touched.count;
  void* parameters[] = {const_cast<void*>(arguments), nullptr};
  for (int i = 0; i < plan.launch_count; ++i) {
    const PlannedLaunch& planned = plan.launches[i];
    launch.function = planned.function;
    launch.grid[0] = planned.grid[0];
    launch.grid[1] = planned.grid[1];
    launch.block[0] = planned.block;
    launch.grid[2] = launch.block[1] = launch.block[2] = 1;
    launch.shared = planned.shared;
    launch.is_early = planned.early;
    launch.parameters = planned.cooperative ? parameters : nullptr;
    emulated ? emulated_driver().launch(op, launch) : launch_loaded(op, launch);
  }
}

namespace {

// A copy whose rows, or else columns, lie along memory and start aligned; itself where they do. What lies behind each
// of them nobody reads: the copy engine knows where they end.
Tensor aligned(const Tensor& x, bool by_rows, const Device& device) {
  if (!by_rows) return aten::transposed(aligned(aten::transposed(x), true, device));
  const ScalarType type = type_of(x);
  const int64_t last = x.dim() - 1, bytes = bytes_of(element_code(type), 1);
  uint64_t bits = reinterpret_cast<uint64_t>(x.const_data_ptr());
  for (int64_t i = 0; i < last; ++i) bits |= static_cast<uint64_t>(x.strides()[i] * bytes);
  if (x.strides()[last] == 1 && bits % 16 == 0) return x;
  Sizes sizes = sizes_of(x);
  const int64_t columns = sizes.back();
  sizes.back() = aligned_width(columns, bytes);
  Tensor found = aten::narrow(made(sizes, type, device), last, 0, columns);
  aten::copy_(found, x);
  return found;
}

// The same call with aligned operands, of those that the plan names.
Gemm with_aligned(const Gemm& p, const Product& product, int64_t which) {
  Gemm found = p;
  const bool a = which & 1, b = which & 2, flipped = product.is_flipped;
  if (flipped ? b : a) found.a = aligned(p.a, !(flipped ? product.b_across : product.a_across), p.device);
  if (flipped ? a : b) found.b = aligned(p.b, flipped ? product.a_across : product.b_across, p.device);
  return found;
}

// `row_sums`: where the plan gives them, their memory.
void launch_product(const Gemm& p, const Way& way, const Plan& plan, Product& product, const OptTensor& row_sums) {
  wmma::GemmArguments& arguments = product.arguments;
  const auto numbers = plan.numbers<border::GemmNumbers>();
  arguments.splits = static_cast<unsigned>(numbers.splits);
  arguments.k_split = numbers.k_split;
  arguments.tiles_m = static_cast<unsigned>(numbers.tiles_m);
  arguments.tiles_n = static_cast<unsigned>(numbers.tiles_n);
  arguments.whole = static_cast<unsigned>(numbers.whole);
  arguments.split_stride = numbers.split_stride;
  const OptTensor workspace = workspace_of(plan, p.device);
  if (workspace) {
    arguments.partial = workspace->mutable_data_ptr();
    product.touched.add("workspace", *workspace);
  }
  if (row_sums) {
    arguments.row_sums = row_sums->mutable_data_ptr();
    product.touched.add("row_sums", *row_sums);
    arguments.row_partial = reinterpret_cast<float*>(static_cast<char*>(arguments.partial) + numbers.sums_at);
    arguments.sum_slabs = static_cast<int>(numbers.sum_slabs);
  }
  const int64_t lines_a = numbers.lines_a, lines_b = numbers.lines_b, lines_d = numbers.lines_d;
  if (lines_a == 0) {
    product.launch_all(p.op, way, plan);
    return;
  }
  wmma::MappedGatedArguments with_maps{};  // of which kernels take as much as they know
  wmma::MappedPairArguments of_pairs{};
  static_cast<wmma::GemmArguments&>(with_maps) = arguments;
  const bool paired = arguments.k2 > 0;
  if (way.device >= 0) {  // else it is recorded, not run
    const wmma::GemmOperand &a = arguments.a, &b = arguments.b, &d = arguments.d;
    const int64_t function = plan.launches[0].function, code = element_code(p.in);
    auto map = [&](const wmma::GemmOperand& x, Extent outer, Extent inner, int64_t of, int64_t lines,
                   wmma::TileMap& to) {
      map_loaded(p.op, function, mapped(product.batch, x, outer, inner, of, lines), to);
    };
    map(a, {arguments.m, a.row_stride}, {arguments.k, a.column_stride}, code, lines_a, with_maps.a_map);
    map(b, {arguments.n, b.column_stride}, {arguments.k, b.row_stride}, code, lines_b, with_maps.b_map);
    if (paired) {  // whose tiles are as those of the first
      const wmma::GemmOperand &a2 = arguments.a2, &b2 = arguments.b2;
      map(a2, {arguments.m, a2.row_stride}, {arguments.k2, a2.column_stride}, code, lines_a, of_pairs.a2_map);
      map(b2, {arguments.n, b2.column_stride}, {arguments.k2, b2.row_stride}, code, lines_b, of_pairs.b2_map);
    }
    auto map_result = [&](const wmma::GemmOperand& x, wmma::TileMap& to) {
      map(x, {arguments.m, x.row_stride}, {arguments.n, x.column_stride}, element_code(p.out), lines_d, to);
    };
    if (lines_d > 0) map_result(d, with_maps.d_map);
    if (lines_d > 0 && p.aux) map_result(arguments.aux, with_maps.aux_map);
    if (lines_d > 0 && p.gate_aux) map_result(arguments.gate_aux, with_maps.gate_aux_map);
    if (p.gate) {
      const wmma::GemmOperand& gate = arguments.gate;
      map(gate, {arguments.n, gate.column_stride}, {arguments.k, gate.row_stride}, code, lines_b, with_maps.gate_map);
    }
  }
  if (paired) {
    static_cast<wmma::MappedGemmArguments&>(of_pairs) = with_maps;
    execute(p.op, way, plan, &of_pairs, sizeof of_pairs, product.touched);
    return;
  }
  const size_t bytes = p.gate  ? sizeof(wmma::MappedGatedArguments)
                       : p.aux ? sizeof(wmma::MappedAuxArguments)
                               : sizeof(wmma::MappedGemmArguments);
  execute(p.op, way, plan, &with_maps, bytes, product.touched);
}

}  // namespace

namespace {

struct Started {
  Tensor out;
  OptTensor row_sums = {};  // of a kernel that gives them
};

Started started(const Gemm& p, const Way& way, const OptTensor& into) {
  Started found{into ? *into : made(p.out_sizes, p.out, p.device)};
  if (product_of(p.out_sizes) == 0) return found;
  Product product(p, found.out, way.device);
  const Plan plan = plan_of(p.op, product.problem, way.remembered);
  const auto numbers = plan.numbers<border::GemmNumbers>();
  if (numbers.sum_slabs > 0) found.row_sums = made({p.m}, *p.row_sums, p.device);
  if (!way.executes) return found;
  if (numbers.aligned == 0) {
    launch_product(p, way, plan, product, found.row_sums);
    return found;
  }
  const Gemm copied = with_aligned(p, product, numbers.aligned);
  Product of_copies(copied, found.out, way.device);
  launch_product(copied, way, plan, of_copies, found.row_sums);
  return found;
}

}  // namespace

Tensor gemm(const Gemm& p, const Way& way, const OptTensor& into) { return started(p, way, into).out; }

std::pair<Tensor, Tensor> gemm_and_row_sums(const Gemm& p, ScalarType type, const Way& way) {
  Gemm with_sums = p;
  with_sums.row_sums = type;
  const auto [out, row_sums] = started(with_sums, way, std::nullopt);
  if (row_sums) return {out, *row_sums};
  const Tensor columns = aten::transposed(p.a);
  return {out, *activation_gradient({p.op, p.device, columns, columns, 0, type, false, std::nullopt}, way).sums};
}

OptTensor gated(const Gemm& p, const Way& way) {
  if (p.k == 0 || product_of(p.out_sizes) == 0 || is_batch_invariant()) return std::nullopt;
  Tensor out = made(p.out_sizes, p.out, p.device);
  Product product(p, out, way.device);
  const Plan plan = plan_of(p.op, product.problem, way.remembered);
  if (plan.launch_count == 0) return std::nullopt;
  if (way.executes) launch_product(p, way, plan, product, std::nullopt);
  return out;
}

}  // namespace wmma_ops::launch
