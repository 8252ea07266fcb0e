#include "attention_problem.hpp"

#include <algorithm>
#include <utility>

#include "product.hpp"

namespace wmma_ops {

using Arguments = wmma::AttentionArguments;

AttentionProblem::AttentionProblem(const Attention& p, int64_t place) : p_(p), place_(place) {
  constexpr int64_t kMost = int64_t{1} << 31;
  for (auto [name, length] : {std::pair{"q", p.sq * (p.heads / p.kv_heads)}, {"k", p.skv}}) {
    if (length >= kMost) {
      fail_value(p.op, name, "has " + std::to_string(length) + " rows a head; takes fewer than 2^31");
    }
  }
  int64_t rank = p.q.dim();
  batch_dims_ = std::max<int64_t>(rank - 3, 0);
  auto sizes = p.q.sizes();
  batch_.assign(sizes.data(), sizes.data() + batch_dims_);
  bind(&Arguments::q, "q", p.q);
  bind(&Arguments::k, "k", p.k);
  bind(&Arguments::v, "v", p.v);
  if (p.mask) bind(&Arguments::mask, "mask", *p.mask);
  arguments.scale = p.scale;
  arguments.shift = p.causal == kBottomRight ? p.skv - p.sq : 0;
  arguments.sq = static_cast<int>(p.sq);
  arguments.skv = static_cast<int>(p.skv);
  arguments.e = static_cast<int>(p.e);
  arguments.ev = static_cast<int>(p.ev);
  arguments.heads = static_cast<int>(p.heads);
  arguments.group = static_cast<int>(p.heads / p.kv_heads);
}

void AttentionProblem::bind(Which which, const char* name, const Tensor& x, bool columns) {
  auto sizes = x.sizes(), strides = x.strides();
  int64_t at = static_cast<int64_t>(sizes.size());
  auto size = [&] { return at > 0 ? sizes[at - 1] : 1; };
  // Dimensions that are missing or of one element repeat.
  auto next = [&] { return --at >= 0 && sizes[at] != 1 ? strides[at] : 0; };
  wmma::AttentionOperand& operand = arguments.*which;
  Bound b{which, element_size(element_code(type_of(x))), 1, 1, {}};
  operand.data = x.const_data_ptr();
  if (columns) {
    b.columns = size();
    operand.column_stride = next();
  }
  b.rows = size();
  operand.row_stride = next();
  operand.head_stride = next();
  for (int64_t i = batch_dims_; i-- > 0;) b.batch[i] = next();
  bound_.push_back(b);
  touched.add(name, x);
}

const AttentionProblem::Bound* AttentionProblem::bound(Which which) const {
  for (const Bound& b : bound_) {
    if (b.which == which) return &b;
  }
  return nullptr;
}

AttentionProblem::Run AttentionProblem::run_of(Which which) const {
  const Bound* b = bound(which);
  if (!b) return {false, 1};
  const wmma::AttentionOperand& x = arguments.*which;
  uint64_t bits = static_cast<uint64_t>(x.head_stride);
  for (int64_t i = 0; i < batch_dims_; ++i) bits |= static_cast<uint64_t>(b->batch[i]);
  auto vec = [&](int64_t along, int64_t extent, int64_t other) -> int64_t {
    if (along != 1) return 1;
    uint64_t all = reinterpret_cast<uint64_t>(x.data) |
                   (bits | static_cast<uint64_t>(extent | other)) * static_cast<uint64_t>(b->size);
    uint64_t aligned = std::min<uint64_t>(all == 0 ? 16 : all & -all, 16);
    return std::max<int64_t>(static_cast<int64_t>(aligned) / b->size, 1);
  };
  int64_t across = vec(x.column_stride, b->columns, x.row_stride), down = vec(x.row_stride, b->rows, x.column_stride);
  bool has_columns = x.column_stride == 1 || b->columns == 1, has_rows = x.row_stride == 1 || b->rows == 1;
  bool is_down = has_rows && (!has_columns || down > across);
  return {is_down, is_down ? down : across};
}

bool AttentionProblem::wide_of(Which which) const {
  const Bound* b = bound(which);
  const wmma::AttentionOperand& x = arguments.*which;
  return b && 512 * (x.row_stride + x.column_stride) * b->size >= int64_t{1} << 31;
}

void AttentionProblem::join_batch() {
  // From the innermost dimension out, as long as every tensor's strides allow.
  int64_t inner = batch_dims_, size = 1;
  int64_t last = -1;  // the innermost dimension that is not 1
  while (inner > 0) {
    int64_t i = inner - 1;
    if (batch_[i] != 1) {
      bool joins =
          last < 0 ||
          std::all_of(bound_.begin(), bound_.end(), [&](const Bound& b) { return b.batch[i] == b.batch[last] * size; });
      if (!joins) break;
      if (last < 0) last = i;
      size *= batch_[i];
    }
    --inner;
  }
  outer_dims_ = inner;
  arguments.batch = static_cast<int>(size);
  for (const Bound& b : bound_) (arguments.*b.which).batch_stride = last < 0 ? 0 : b.batch[last];
}

int64_t AttentionProblem::outer_count() const {
  return product_of(Sizes(batch_.begin(), batch_.begin() + outer_dims_));
}

void AttentionProblem::start(int64_t index, Arguments& moved) const {
  for (int64_t i = outer_dims_; i-- > 0;) {
    int64_t at = index % batch_[i];
    index /= batch_[i];
    for (const Bound& b : bound_) {
      auto& data = (moved.*b.which).data;
      data = static_cast<const char*>(data) + at * b.batch[i] * b.size;
    }
  }
}

ProblemKey AttentionProblem::key(bool backward) const {
  Run q = run_of(&Arguments::q), k = run_of(&Arguments::k), v = run_of(&Arguments::v);
  Run g_out = run_of(&Arguments::g_out);
  int64_t out_vec = 16;
  for (Which which : {&Arguments::out, &Arguments::g_q, &Arguments::g_k, &Arguments::g_v}) {
    bool result = backward != (which == &Arguments::out);
    if (result) out_vec = std::min(out_vec, run_of(which).down ? 1 : run_of(which).vec);
  }
  bool wide = wide_of(&Arguments::q) || wide_of(&Arguments::k) || wide_of(&Arguments::v) || wide_of(&Arguments::g_out);
  return {kAttentionProblem,
          place_,
          backward,
          element_code(p_.type),
          p_.mask ? element_code(type_of(*p_.mask)) : int64_t{wmma::kNoElement},
          p_.causal != kNotCausal,
          p_.e,
          p_.ev,
          q.down,
          q.vec,
          k.down,
          k.vec,
          v.down,
          v.vec,
          out_vec,
          g_out.down,
          g_out.vec,
          wide,
          arguments.batch,
          p_.heads,
          p_.heads / p_.kv_heads,
          p_.sq,
          p_.skv};
}

}  // namespace wmma_ops
