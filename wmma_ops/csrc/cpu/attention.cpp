#include "calls/attention.hpp"

#include <algorithm>
#include <cmath>
#include <wmma/attention/terms/dropout.hpp>

#include "cpu/cpu.hpp"
#include "launch/plans.hpp"

namespace wmma_ops::cpu {

namespace {

// Scores of one block of query rows: small enough to stay in the caches, large enough to keep the products busy.
constexpr int64_t kBlockElements = int64_t{1} << 20;

// Where query row i may not look at key j: [rows, Skv], for rows first … first + rows − 1. `side` is aten::triu for the
// keys from i + bound on, aten::tril for those up to there.
Tensor hidden(const Attention& p, const char* side, int64_t bound, int64_t first, int64_t rows) {
  Tensor all = aten::empty({rows, p.skv}, ScalarType::Bool);
  aten::fill_(all, 1);
  return aten::call(side, "", all, first + bound);
}

// How far key j is from where query row i stands, likewise.
template <class T>
void fill_distances(Tensor& x, const Attention& p, int64_t first) {
  T* to = static_cast<T*>(x.mutable_data_ptr());
  for (int64_t i = 0; i < x.sizes()[0]; ++i) {
    const int64_t at = first + i + p.diagonal;
    for (int64_t j = 0; j < p.skv; ++j) *to++ = static_cast<T>(std::abs(at - j));
  }
}
Tensor distances(const Attention& p, ScalarType type, int64_t first, int64_t rows) {
  Tensor x = aten::empty({rows, p.skv}, type);
  type == ScalarType::Double ? fill_distances<double>(x, p, first) : fill_distances<float>(x, p, first);
  return x;
}

// Which weights of query rows first … first + rows − 1 are dropped: [batch·heads, rows, Skv].
Tensor dropped(const Attention& p, int64_t first, int64_t rows) {
  Tensor x = aten::empty({p.batch * p.heads, rows, p.skv}, ScalarType::Bool);
  bool* to = static_cast<bool*>(x.mutable_data_ptr());
  const int64_t seed = *static_cast<const int64_t*>(p.dropout_seed->const_data_ptr());
  const unsigned threshold = p.kept_below();
  for (int64_t head = 0; head < p.batch * p.heads; ++head) {
    const auto batch = static_cast<unsigned>(p.origin.batch + head / p.heads);
    const auto of_batch = static_cast<unsigned>(p.origin.head + head % p.heads);
    for (int64_t i = p.origin.query + first; i < p.origin.query + first + rows; ++i) {
      const auto row = wmma::dropout_row(seed, static_cast<unsigned>(i), of_batch, batch);
      for (int64_t j = 0; j < p.skv; ++j) *to++ = !wmma::keeps(row, static_cast<unsigned>(j), threshold);
    }
  }
  return x;
}

// A number of each head, beside scores of the given form.
Tensor of_heads(const Attention& p, const Tensor& x, ScalarType type, const Sizes& sizes) {
  return aten::reshape(aten::expand(aten::to(x, type), p.head_sizes()), sizes);
}

// [batch, heads, blocks of queries, blocks of keys]
OptTensor blocks_of(const Attention& p) {
  if (!p.block_mask) return {};
  const Tensor& x = *p.block_mask;
  Sizes sizes = p.head_sizes();
  const int64_t rows = x.sizes()[x.dim() - 2], columns = x.sizes()[x.dim() - 1];
  sizes.push_back(rows);
  sizes.push_back(columns);
  return aten::reshape(aten::expand(x, sizes), {p.batch, p.heads, rows, columns});
}

// Scores of rows from `first` on by one of the functions, which are Python's, or by blocks.
Tensor by_function(const Attention& p, const Tensor& scores, bool is_mask, int64_t first, const OptTensor& blocks) {
  Tensor by_heads = aten::reshape(scores, {p.batch, p.heads, scores.numel() / (p.batch * p.heads * p.skv), p.skv});
  const int64_t code = is_mask ? p.mask_mod : p.score_mod;
  check_answer(p.op, aten::call<std::vector<int64_t>>("wmma::_score_function", "", by_heads, is_mask, code,
                                                      p.origin.query + first, p.origin.head, p.origin.batch, p.mod_a,
                                                      p.mod_b, p.mod_c, p.mod_d, blocks, p.block_q, p.block_k));
  return aten::reshape(by_heads, sizes_of(scores));
}

// Weights become 0 of which float16, as the second operand of a product, has nothing left beside the row's largest.
void drop_lost(Tensor& weights, const Tensor& of_row) {
  constexpr double kLost = 0x1p-25;  // half of float16's least number
  const Tensor least = aten::mul(aten::amax(of_row, -1), aten::scalar(kLost));
  aten::masked_fill_(weights, aten::call("aten::lt", "Tensor", weights, least), 0);
}

}  // namespace

std::tuple<Tensor, Tensor> attention_together(const Attention& p) {
  ScalarType type = accumulator(p.type);
  Sizes out_sizes = sizes_of(p.q), lse_sizes(out_sizes.begin(), out_sizes.end() - 1);
  out_sizes.back() = p.ev;
  if (product_of(lse_sizes) == 0 || p.skv == 0) {
    Tensor lse = aten::empty(lse_sizes, type);
    fill_without_keys(lse, p);
    Tensor nothing = made_by_heads(out_sizes, *p.heads_together, p.type, p.device);
    aten::fill_(nothing, 0);
    return {nothing, lse};
  }
  // Query heads that share a key head become rows of one product: k and v are not repeated.
  int64_t group = p.heads / p.kv_heads, matrices = p.batch * p.kv_heads;
  Tensor q = aten::reshape(aten::to(p.q, type), {matrices, group, p.sq, p.e});
  Tensor kt = aten::transpose(aten::reshape(aten::to(p.k, type), {matrices, p.skv, p.e}), 1, 2);
  Tensor v = aten::reshape(aten::to(p.v, type), {matrices, p.skv, p.ev});
  Tensor out = aten::empty({matrices, group, p.sq, p.ev}, type), lse = aten::empty({matrices, group, p.sq, 1}, type);
  OptTensor mask;
  if (p.mask) {
    Sizes sizes(lse_sizes);
    sizes.push_back(p.skv);
    mask = type_of(*p.mask) == ScalarType::Bool ? aten::logical_not(*p.mask) : aten::to(*p.mask, type);
    mask = aten::reshape(aten::expand(*mask, sizes), {p.batch, p.kv_heads, group, p.sq, p.skv});
  }

  int64_t block = std::clamp<int64_t>(kBlockElements / std::max<int64_t>(1, matrices * group * p.skv), 1, p.sq);
  const OptTensor blocks = blocks_of(p);
  for (int64_t first = 0; first < p.sq; first += block) {
    int64_t rows = std::min(block, p.sq - first);
    // 1. scores = f(cap(scale·Q·Kᵀ) − slope·distance) + mask
    Tensor scores = aten::empty({matrices, group * rows, p.skv}, type);
    Tensor q_rows = aten::reshape(aten::narrow(q, 2, first, rows), {matrices, group * rows, p.e});
    const double factor = p.softcap > 0 ? p.steepness : p.factor;
    if (factor == 0) q_rows = aten::mul(q_rows, aten::scalar(0.0));  // operands of a product times 0 are not read
    aten::baddbmm_out(scores, scores, q_rows, kt, 0, factor == 0 ? 1.0 : factor);
    if (p.softcap > 0) {
      aten::unary_("aten::tanh_", scores);
      aten::mul_(scores, aten::scalar(p.softcap));
    }
    if (p.alibi_slopes) {
      Tensor slopes = of_heads(p, *p.alibi_slopes, type, {matrices, group, 1, 1});
      Tensor view = aten::reshape(scores, {matrices, group, rows, p.skv});
      scores = aten::reshape(aten::add(view, aten::mul(slopes, distances(p, type, first, rows)), -1),
                             {matrices, group * rows, p.skv});
    }
    if (p.score_mod != 0) scores = by_function(p, scores, false, first, {});
    if (mask) {
      Tensor view = aten::reshape(scores, {p.batch, p.kv_heads, group, rows, p.skv});
      Tensor part = aten::narrow(*mask, 3, first, rows);
      if (type_of(*p.mask) == ScalarType::Bool) {
        aten::masked_fill_(view, part, -INFINITY);
      } else {
        scores = aten::reshape(aten::add(view, part), {matrices, group * rows, p.skv});
      }
    }
    if (p.mask_mod != 0 || blocks) scores = by_function(p, scores, true, first, blocks);
    Tensor of_head = aten::reshape(scores, {matrices * group, rows, p.skv});
    // −inf added to a NaN would be one.
    if (p.up_to) aten::masked_fill_(of_head, hidden(p, "aten::triu", *p.up_to + 1, first, rows), -INFINITY);
    if (p.from) aten::masked_fill_(of_head, hidden(p, "aten::tril", *p.from - 1, first, rows), -INFINITY);
    // 2. weights = softmax(scores); the largest weight of a row is exp(its largest score − lse)
    if (p.sinks) {
      Tensor sinks = of_heads(p, *p.sinks, type, {matrices, group, 1, 1});
      sinks = aten::reshape(aten::expand(sinks, {matrices, group, rows, 1}), {matrices, group * rows, 1});
      scores = aten::cat({scores, sinks}, 2);
    }
    Tensor largest = aten::amax(scores, -1);
    Tensor weights = aten::call("aten::softmax", "int", scores, int64_t{-1}, std::nullopt);
    Tensor row_lse = aten::add(largest, aten::call("aten::log", "", aten::amax(weights, -1)), -1);
    aten::masked_fill_(row_lse, aten::equal(largest, INFINITY), INFINITY);
    // 3. out = weights·V; rows that see no key give 0 and −inf
    Tensor row_out = aten::empty({matrices, group * rows, p.ev}, type);
    Tensor of_keys = p.sinks ? aten::narrow(weights, 2, 0, p.skv) : weights;
    if (p.type == ScalarType::Half) drop_lost(of_keys, weights);
    if (p.dropout_p > 0) {
      aten::masked_fill_(of_keys, aten::reshape(dropped(p, first, rows), {matrices, group * rows, p.skv}), 0);
    }
    aten::bmm_out(row_out, of_keys, v);
    if (p.dropout_p > 0) aten::mul_(row_out, aten::scalar(p.kept_factor()));
    Tensor blind = aten::equal(largest, -INFINITY);
    aten::masked_fill_(row_out, blind, 0);
    aten::masked_fill_(row_lse, blind, -INFINITY);
    Tensor out_rows = aten::narrow(out, 2, first, rows), lse_rows = aten::narrow(lse, 2, first, rows);
    aten::copy_(out_rows, aten::reshape(row_out, {matrices, group, rows, p.ev}));
    aten::copy_(lse_rows, aten::reshape(row_lse, {matrices, group, rows, 1}));
  }
  lse = aten::reshaped_result(lse, lse_sizes);
  if (!*p.heads_together) return {aten::to(aten::reshaped_result(out, out_sizes), p.type), lse};
  Tensor laid = made_by_heads(out_sizes, true, p.type, p.device);
  aten::copy_(laid, aten::reshape(out, out_sizes));
  return {laid, lse};
}

}  // namespace wmma_ops::cpu
