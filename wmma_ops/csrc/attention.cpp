#include "attention.hpp"

#include <cmath>

#include "attention_problem.hpp"
#include "cpu.hpp"

namespace wmma_ops {

namespace {

using Arguments = wmma::AttentionArguments;

constexpr int64_t kMostColumns = 512;

void check_columns(const Attention& p, int64_t most) {
  for (auto [name, x, columns] : {std::tuple{"q", &p.q, p.e}, {"v", &p.v, p.ev}}) {
    if (columns > most) {
      fail_value(p.op, name, "has shape " + shape(*x) + "; takes a head size of up to " + std::to_string(most));
    }
  }
}

std::tuple<Tensor, Tensor> launch_attention(const Attention& p, const Way& way) {
  ScalarType number = p.type == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
  Sizes out_sizes = sizes_of(p.q), lse_sizes(out_sizes.begin(), out_sizes.end() - 1);
  out_sizes.back() = p.ev;
  auto made = [&](const Sizes& sizes, ScalarType type) {
    return aten::empty(sizes.data(), static_cast<int64_t>(sizes.size()), type, p.device.type, p.device.index);
  };
  Tensor out = made(out_sizes, p.type), lse = made(lse_sizes, number);
  if (product_of(lse_sizes) == 0) return {out, lse};
  if (p.skv == 0) {
    aten::fill_(out, 0);
    aten::fill_(lse, -INFINITY);
    return {out, lse};
  }
  check_columns(p, kMostColumns);
  if (p.ev == 0) {  // lse is still asked for
    Attention narrow = p;
    narrow.v = aten::narrow(p.k, p.k.dim() - 1, 0, 1);
    narrow.ev = 1;
    return {out, std::get<1>(launch_attention(narrow, way))};
  }

  AttentionProblem problem(p, way.place);
  problem.bind(&Arguments::out, "out", out);
  problem.bind(&Arguments::lse, "lse", lse, false);
  problem.join_batch();
  const Plan plan = plan_of(p.op, problem.key(false), way.remembered);
  if (!way.executes) return {out, lse};

  Arguments& arguments = problem.arguments;
  arguments.splits = static_cast<int>(plan.numbers[0]);
  arguments.keys_of_split = static_cast<int>(plan.numbers[1]);
  arguments.tiles = static_cast<int>(plan.numbers[2]);
  arguments.slices = static_cast<int>(plan.numbers[3]);
  const OptTensor workspace = launch::workspace_of(plan, p.device);
  if (workspace) {
    arguments.partial = workspace->mutable_data_ptr();
    problem.touched.add("workspace", *workspace);
  }
  for (int64_t i = 0; i < problem.outer_count(); ++i) {
    Arguments moved = arguments;
    problem.start(i, moved);
    launch::execute(p.op, way, plan, &moved, sizeof moved, problem.touched);
  }
  return {out, lse};
}

}  // namespace

std::tuple<Tensor, Tensor> attention(const Attention& p) {
  if (is_plain_cpu(p.device)) return cpu::attention(p);
  const Way way = way_of(p.device);
  return way.on_cpu ? cpu::attention(p) : launch_attention(p, way);
}

}  // namespace wmma_ops
