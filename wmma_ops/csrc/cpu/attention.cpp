#include <algorithm>
#include <cmath>

#include "cpu/cpu.hpp"

namespace wmma_ops::cpu {

namespace {

// Scores of one block of query rows: small enough to stay in the caches, large enough to keep the products busy.
constexpr int64_t kBlockElements = int64_t{1} << 20;

// Where query row i may not look at key j: [rows, Skv], for rows first … first + rows − 1.
Tensor hidden_by_causal(const Attention& p, int64_t first, int64_t rows) {
  int64_t shift = p.causal == kBottomRight ? p.skv - p.sq : 0;
  Tensor hidden = aten::empty({rows, p.skv}, ScalarType::Bool);
  aten::fill_(hidden, 1);
  return aten::call("aten::triu", "", hidden, first + shift + 1);
}

}  // namespace

std::tuple<Tensor, Tensor> attention(const Attention& p) {
  ScalarType type = p.type == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
  Sizes out_sizes = sizes_of(p.q), lse_sizes(out_sizes.begin(), out_sizes.end() - 1);
  out_sizes.back() = p.ev;
  if (product_of(lse_sizes) == 0 || p.skv == 0) {
    Tensor lse = aten::empty(lse_sizes, type);
    aten::fill_(lse, -INFINITY);
    return {aten::zeros(out_sizes, p.type), lse};
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
  for (int64_t first = 0; first < p.sq; first += block) {
    int64_t rows = std::min(block, p.sq - first);
    // 1. scores = scale·Q·Kᵀ + mask
    Tensor scores = aten::empty({matrices, group * rows, p.skv}, type);
    Tensor q_rows = aten::reshape(aten::narrow(q, 2, first, rows), {matrices, group * rows, p.e});
    aten::baddbmm_out(scores, scores, q_rows, kt, 0, p.scale);
    if (mask) {
      Tensor view = aten::reshape(scores, {p.batch, p.kv_heads, group, rows, p.skv});
      Tensor part = aten::narrow(*mask, 3, first, rows);
      if (type_of(*p.mask) == ScalarType::Bool) {
        aten::masked_fill_(view, part, -INFINITY);
      } else {
        scores = aten::reshape(aten::add(view, part), {matrices, group * rows, p.skv});
      }
    } else if (p.causal != kNotCausal) {
      Tensor view = aten::reshape(scores, {matrices * group, rows, p.skv});
      aten::masked_fill_(view, hidden_by_causal(p, first, rows), -INFINITY);  // −inf added to a NaN would be one
    }
    // 2. weights = softmax(scores); the largest weight of a row is exp(its largest score − lse)
    Tensor largest = aten::amax(scores, -1);
    Tensor weights = aten::call("aten::softmax", "int", scores, int64_t{-1}, std::nullopt);
    Tensor row_lse = aten::add(largest, aten::call("aten::log", "", aten::amax(weights, -1)), -1);
    // 3. out = weights·V; rows that see no key give 0 and −inf
    Tensor row_out = aten::empty({matrices, group * rows, p.ev}, type);
    aten::bmm_out(row_out, weights, v);
    Tensor blind = aten::equal(largest, -INFINITY);
    aten::masked_fill_(row_out, blind, 0);
    aten::masked_fill_(row_lse, blind, -INFINITY);
    Tensor out_rows = aten::narrow(out, 2, first, rows), lse_rows = aten::narrow(lse, 2, first, rows);
    aten::copy_(out_rows, aten::reshape(row_out, {matrices, group, rows, p.ev}));
    aten::copy_(lse_rows, aten::reshape(row_lse, {matrices, group, rows, 1}));
  }
  return {aten::to(aten::reshaped_result(out, out_sizes), p.type), aten::reshaped_result(lse, lse_sizes)};
}

}  // namespace wmma_ops::cpu
