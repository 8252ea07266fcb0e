#include "calls/attention.hpp"

#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

#include "launch/attention_problem.hpp"

namespace wmma_ops::launch {

namespace {

constexpr int64_t kMostColumns = 512;

void check_columns(const Attention& p, int64_t most) {
  for (auto [name, x, columns] : {std::tuple{"q", &p.q, p.e}, {"v", &p.v, p.ev}}) {
    if (columns > most) fail_shape(p.op, name, *x, "a head size of up to ", most, " on a GPU (on the CPU any)");
  }
}

// A tensor as its users have it, and as [..., heads, rows, columns].
struct Rows {
  Tensor x, by_heads;
};
Rows by_heads(const Attention& p, const Tensor& x) { return {x, p.sequences ? aten::transpose(x, 0, 1) : x}; }
Rows made_like(const Attention& p, const Tensor& rows, int64_t columns, bool heads_together) {
  Sizes sizes = sizes_of(rows);
  sizes.back() = columns;
  if (p.sequences) std::swap(sizes[0], sizes[1]);
  return by_heads(p, made_by_heads(sizes, !p.sequences && heads_together, p.type, p.device));
}
Rows made_like(const Attention& p, const Tensor& x, int64_t columns) {
  return made_like(p, x, columns, has_heads_together(x));
}

// Kernels have the heads that share keys in their tiles' lines, as far as there are lines.
constexpr int64_t kMostPackedHeads = 64;

// Whether many heads ask the same keys the same: one query each, and nothing that differs between heads.
bool is_one_query_of_many(const Attention& p) {
  const bool sees_all = !p.from && (!p.up_to || *p.up_to >= p.skv - 1);
  const bool differs =
      p.sequences || p.is_scaled || p.mask || p.sinks || p.alibi_slopes || p.block_mask || p.has_functions();
  return p.sq == 1 && p.heads / p.kv_heads > kMostPackedHeads && sees_all && !differs && p.dropout_p == 0;
}

// The heads that share keys as the queries of one: [batch…, heads, 1, columns] as [batch…, key heads, heads, columns].
Tensor with_heads_as_rows(const Attention& p, const Tensor& x, bool has_columns = true) {
  Sizes sizes = sizes_of(x);
  const size_t head = sizes.size() - (has_columns ? 3 : 2);
  sizes[head] = p.kv_heads;
  sizes[head + 1] = p.heads / p.kv_heads;
  return aten::reshape(x, sizes);
}

Attention with_heads_as_rows(const Attention& p) {
  Attention rows = p;
  rows.q = with_heads_as_rows(p, p.q);
  rows.sq = p.heads / p.kv_heads;
  rows.heads = p.kv_heads;
  rows.up_to = {};
  return rows;
}

void execute(const Attention& p, const Way& way, const Plan& plan, AttentionProblem& problem) {
  wmma::AttentionArguments& arguments = problem.arguments;
  const auto numbers = plan.numbers<border::AttentionNumbers>();
  arguments.splits = static_cast<int>(numbers.splits);
  arguments.keys_of_split = static_cast<int>(numbers.keys_of_split);
  arguments.tiles = static_cast<int>(numbers.tiles);
  arguments.slices = static_cast<int>(numbers.slices);
  arguments.head_group = static_cast<int>(numbers.head_group);
  problem.arguments.sequences.unlisted = static_cast<int>(numbers.unlisted);
  const OptTensor workspace = workspace_of(plan, p.device);
  if (workspace) {
    arguments.partial = workspace->mutable_data_ptr();
    problem.touched.add("workspace", *workspace);
    if (numbers.transposed > 0) problem.bind_transposed(numbers, *workspace);
    if (numbers.block_q > 0) problem.bind_found_blocks(numbers, *workspace);
  }
  if (numbers.lines_k > 0) {
    problem.launch_mapped(way, plan, numbers);
  } else if (p.has_functions()) {
    problem.launch_modified(way, plan);
  } else {
    problem.launch_all(p.op, way, plan);
  }
}

}  // namespace

std::tuple<Tensor, Tensor> attention(const Attention& p, const Way& way) {
  ScalarType number = accumulator(p.type);
  Sizes lse_sizes = sizes_of(p.q);
  lse_sizes.pop_back();
  Rows rows = made_like(p, p.q, p.ev, *p.heads_together);
  Tensor out = rows.x, lse = made(lse_sizes, number, p.device);
  if (product_of(lse_sizes) == 0) return {out, lse};
  if (p.sequences ? p.batch * p.sq == 0 : p.skv == 0) {
    aten::fill_(out, 0);
    p.sequences ? aten::fill_(lse, -INFINITY) : fill_without_keys(lse, p);
    return {out, lse};
  }
  check_columns(p, kMostColumns);
  if (p.ev == 0) {  // lse is still asked for
    Attention narrow = p;
    if (p.is_scaled) narrow = widened(p, p.type);
    narrow.v = aten::narrow(narrow.k, p.k.dim() - 1, 0, 1);
    narrow.ev = 1;
    return {out, std::get<1>(attention(narrow, way))};
  }

  const bool is_one = is_one_query_of_many(p);
  std::optional<Attention> changed;
  const Attention& asked = is_one ? changed.emplace(with_heads_as_rows(p)) : p;
  AttentionProblem problem(asked, way.device);
  const Tensor bound_out = is_one ? with_heads_as_rows(p, rows.by_heads) : rows.by_heads;
  const Tensor bound_lse = is_one ? with_heads_as_rows(p, lse, false) : lse;
  problem.bind(AttentionProblem::kOut, "out", bound_out);
  problem.bind(AttentionProblem::kLse, "lse", bound_lse, View::kAlongRows);
  if (p.sinks) problem.bind(AttentionProblem::kSinks, "sinks", *p.sinks, View::kOfBatch);
  if (p.is_scaled) problem.bind_scales();
  problem.join_batch();
  const Plan plan = plan_of(p.op, problem.key(false), way.remembered);
  if (p.is_scaled && plan.launch_count == 0) return attention(widened(p, p.type), way);
  if (!way.executes) return {out, lse};
  execute(asked, way, plan, problem);
  return {out, lse};
}

std::tuple<Tensor, Tensor, Tensor> attention_backward(const Attention& p, const Way& way, const Tensor& g_out) {
  Rows g_q = made_like(p, p.q, p.e), g_k = made_like(p, p.k, p.e), g_v = made_like(p, p.v, p.ev);
  const std::tuple<Tensor, Tensor, Tensor> gradients{g_q.x, g_k.x, g_v.x};
  if (p.batch * p.heads * p.sq == 0 || p.skv == 0 || p.ev == 0) {
    for (Rows* of : {&g_q, &g_k, &g_v}) aten::fill_(of->x, 0);
    return gradients;
  }
  // Beside a mask of numbers or a score function it has a second column: see
  // kernels/wmma/attention/gradients/elements.hpp.
  const bool corrects = p.score_mod != 0 || (p.mask && type_of(*p.mask) != ScalarType::Bool);
  Sizes delta_sizes = sizes_of(*p.lse);
  delta_sizes.push_back(corrects ? 2 : 1);
  Tensor delta = made(delta_sizes, type_of(*p.lse), p.device);
  AttentionProblem problem(p, way.device);
  const Rows results = by_heads(p, *p.out), g_results = by_heads(p, g_out);
  problem.bind(AttentionProblem::kOut, "out", results.by_heads);
  problem.bind(AttentionProblem::kLse, "lse", *p.lse, View::kAlongRows);
  problem.bind(AttentionProblem::kGOut, "g_out", g_results.by_heads);
  if (p.g_lse) problem.bind(AttentionProblem::kGLse, "g_lse", *p.g_lse, View::kAlongRows);
  problem.bind(AttentionProblem::kDelta, "delta", delta);
  problem.bind(AttentionProblem::kGQ, "g_q", g_q.by_heads);
  problem.bind(AttentionProblem::kGK, "g_k", g_k.by_heads);
  problem.bind(AttentionProblem::kGV, "g_v", g_v.by_heads);
  if (p.sinks && corrects) problem.bind(AttentionProblem::kSinks, "sinks", *p.sinks, View::kOfBatch);
  problem.join_batch();
  const Plan plan = plan_of(p.op, problem.key(true), way.remembered);
  if (way.executes) execute(p, way, plan, problem);
  return gradients;
}

}  // namespace wmma_ops::launch
