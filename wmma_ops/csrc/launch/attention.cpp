#include "launch/attention.hpp"

#include <algorithm>
#include <utility>

namespace wmma_ops {

namespace {

int64_t batch_dims_of(const Tensor& q) { return std::max<int64_t>(q.dim() - 3, 0); }

}  // namespace

// Views have the heads as their innermost batch dimension until they are bound.
AttentionProblem::AttentionProblem(const Attention& p, int64_t place)
    : Operands(batch_dims_of(p.q) + 1), p_(p), place_(place), batch_dims_(batch_dims_of(p.q)) {
  constexpr int64_t kMost = int64_t{1} << 31;
  for (auto [name, length] : {std::pair{"q", p.sq * (p.heads / p.kv_heads)}, {"k", p.skv}}) {
    if (length >= kMost) {
      fail_value(p.op, name, "has " + std::to_string(length) + " rows a head; takes fewer than 2^31");
    }
  }
  bind(kQ, "q", p.q);
  bind(kK, "k", p.k);
  bind(kV, "v", p.v);
  if (p.mask) bind(kMask, "mask", *p.mask);
  arguments.scale = p.scale;
  arguments.shift = p.causal == kBottomRight ? p.skv - p.sq : 0;
  arguments.sq = static_cast<int>(p.sq);
  arguments.skv = static_cast<int>(p.skv);
  arguments.e = static_cast<int>(p.e);
  arguments.ev = static_cast<int>(p.ev);
  arguments.heads = static_cast<int>(p.heads);
  arguments.group = static_cast<int>(p.heads / p.kv_heads);
}

void AttentionProblem::bind(Operand which, const char* name, const Tensor& x, View::Core core) {
  add(which, name, x, type_of(x), core, x.const_data_ptr());
  v[which].head = v[which].batch[batch_dims_];
}

void AttentionProblem::join_batch() {
  auto sizes = p_.q.sizes();
  batch = Batch(Sizes(sizes.data(), sizes.data() + batch_dims_), v, kOperands, 1);
  arguments.batch = static_cast<int>(batch.inner_count());
  place_all();
}

Direction AttentionProblem::way_of(Operand which) const {
  const View& x = v[which];
  if (!x.present) return {false, 1};
  const bool of_keys = which == kK || which == kV || which == kGK || which == kGV;
  const bool of_values = which == kV || which == kOut || which == kGOut || which == kGV;
  return direction_of(batch, x, x.column, x.row, of_values ? p_.ev : p_.e, of_keys ? p_.skv : p_.sq, false);
}

ProblemKey AttentionProblem::key(bool backward) const {
  const Direction q = way_of(kQ), k = way_of(kK), values = way_of(kV), g_out = way_of(kGOut);
  int64_t out_vec = 16;
  for (Operand which : {kOut, kGQ, kGK, kGV}) {
    if (backward == (which == kOut)) continue;  // not a result
    const Direction way = way_of(which);
    out_vec = std::min(out_vec, way.across ? 1 : way.vec);
  }
  bool wide = is_wide(v[kQ]) || is_wide(v[kK]) || is_wide(v[kV]) || is_wide(v[kGOut]);
  border::AttentionProblem asks;
  asks.place = place_;
  asks.backward = backward;
  asks.dtype = element_code(p_.type);
  asks.mask = p_.mask ? element_code(type_of(*p_.mask)) : int64_t{wmma::kNoElement};
  asks.causal = p_.causal != kNotCausal;
  asks.e = p_.e;
  asks.ev = p_.ev;
  asks.q_order = q.across;
  asks.q_vec = q.vec;
  asks.k_order = k.across;
  asks.k_vec = k.vec;
  asks.v_order = values.across;
  asks.v_vec = values.vec;
  asks.out_vec = out_vec;
  asks.g_order = g_out.across;
  asks.g_vec = g_out.vec;
  asks.wide = wide;
  asks.batch = arguments.batch;
  asks.heads = p_.heads;
  asks.group = p_.heads / p_.kv_heads;
  asks.sq = p_.sq;
  asks.skv = p_.skv;
  return ProblemKey(asks);
}

}  // namespace wmma_ops
