#include "launch.hpp"

#include "driver.hpp"
#include "product.hpp"

namespace wmma_ops::launch {

Tensor gemm(const Gemm& p, const Way& way, const OptTensor& into) {
  Tensor out = into ? *into
                    : aten::empty(p.out_sizes.data(), static_cast<int64_t>(p.out_sizes.size()), p.out, p.device.type,
                                  p.device.index);
  for (int64_t size : p.out_sizes) {
    if (size == 0) return out;
  }
  Product product(p, out, way.place);
  const Plan plan = plan_of(p.op, product.problem, way.remembered);
  if (!way.executes) return out;

  product.arguments.k_split = plan.k_split;
  product.arguments.splits = plan.splits;
  product.arguments.tiles_m = plan.tiles_m;
  product.arguments.tiles_n = plan.tiles_n;
  OptTensor workspace;
  if (plan.workspace > 0) {  // from torch's allocator, which gives it to nobody else before the launches are done
    workspace = aten::empty(&plan.workspace, 1, ScalarType::Byte, p.device.type, p.device.index);
    product.arguments.partial = workspace->mutable_data_ptr();
    product.tensors[product.tensor_count] = &*workspace;
    product.names[product.tensor_count++] = "workspace";
  }

  const bool emulated = way.place < 0;
  Launch launch{};
  launch.size = sizeof(wmma::GemmArguments);
  launch.tensors = product.tensors;
  launch.names = product.names;
  launch.tensor_count = product.tensor_count;
  for (int64_t i = 0; i < product.outer_count; ++i) {
    wmma::GemmArguments moved = product.arguments;
    if (product.outer_dims > 0) product.start(i, moved);
    launch.arguments = &moved;
    for (int j = 0; j < plan.launch_count; ++j) {
      const PlannedLaunch& planned = plan.launches[j];
      launch.function = planned.function;
      launch.grid[0] = planned.grid[0];
      launch.grid[1] = planned.grid[1];
      launch.block[0] = planned.block;
      launch.grid[2] = launch.block[1] = launch.block[2] = 1;
      launch.shared = planned.shared;
      emulated ? emulated_driver().launch(p.op, launch) : launch_loaded(p.op, launch);
    }
  }
  return out;
}

}  // namespace wmma_ops::launch
