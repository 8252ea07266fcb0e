// Where rows are not to know each other (launch/mode.hpp): one by one, each as a call of its own whose operands lie as
// any other row's do. aten deals out rows, what products sum up, and the ends of what is not a product, by their
// number.
#include <algorithm>
#include <cmath>
#include <utility>

#include "calls/attention.hpp"
#include "cpu/cpu.hpp"
#include "launch/mode.hpp"

namespace wmma_ops::cpu {

namespace {

// [batch…, rows, columns] as [batch's matrices, rows, columns], whether it has them or broadcasts to them.
Tensor by_matrices(const Tensor& x, const Sizes& batch, int64_t rows, int64_t columns) {
  return aten::reshape(aten::expand(x, matrices(batch, rows, columns)), {product_of(batch), rows, columns});
}

// Line i of it, in memory of its own.
Tensor own(const Tensor& x, int64_t i) { return aten::clone(aten::select(x, 0, i)); }

// What the rows of a product's operand are: none, or [matrices·rows, columns].
OptTensor lines(const Gemm& p, const OptTensor& x, int64_t rows, int64_t columns) {
  if (!x) return x;
  return aten::reshape(by_matrices(*x, p.batch, rows, columns), {product_of(p.batch) * rows, columns});
}

// The same of a vector along what has `columns`: a line of each matrix, or one of all.
OptTensor vectors(const Gemm& p, const OptTensor& x, int64_t columns) {
  if (!x) return x;
  return lines(p, x->dim() > 1 ? aten::unsqueeze(*x, -2) : *x, 1, columns);
}

OptTensor line(const OptTensor& x, int64_t i) { return x ? OptTensor(own(*x, i)) : x; }
OptTensor row(const OptTensor& x, int64_t i) { return x ? OptTensor(aten::unsqueeze(own(*x, i), 0)) : x; }

Tensor gemm_by_rows(const Gemm& p, const OptTensor& into) {
  const int64_t k = p.a.sizes()[p.a.dim() - 1], count = product_of(p.batch);
  const OptTensor a = lines(p, p.a, p.m, k), c = lines(p, p.c, p.m, p.n), multiply = lines(p, p.multiply, p.m, p.n),
                  a2 = p.a2 ? lines(p, p.a2, p.m, p.a2->sizes()[p.a2->dim() - 1]) : p.a2,
                  bias = vectors(p, p.bias, p.n), col_scale = vectors(p, p.col_scale, p.n),
                  a_scale = vectors(p, p.a_scale, k);
  OptTensor row_scale = p.row_scale;
  if (row_scale) row_scale = lines(p, row_scale->dim() > 0 ? aten::unsqueeze(*row_scale, -1) : *row_scale, p.m, 1);
  const auto of_batch = [&](const Tensor& x) {
    return x.dim() == 2 ? x : by_matrices(x, p.batch, x.sizes()[x.dim() - 2], x.sizes()[x.dim() - 1]);
  };
  const auto of_matrix = [](const Tensor& x, int64_t i) { return x.dim() == 2 ? x : aten::select(x, 0, i); };
  const Tensor b = of_batch(p.b);
  const OptTensor b2 = p.b2 ? OptTensor(of_batch(*p.b2)) : p.b2;
  Tensor results = aten::empty({count * p.m, p.n}, p.out);
  const OptTensor kept = p.aux ? OptTensor(aten::empty({count * p.m, p.n}, p.out)) : p.aux;
  for (int64_t i = 0; i < count * p.m; ++i) {
    const int64_t matrix = i / p.m;
    Gemm one = p;
    one.batch = one.out_sizes = {};
    one.a = *row(a, i);
    one.b = of_matrix(b, matrix);
    one.c = row(c, i);
    one.multiply = row(multiply, i);
    one.a2 = row(a2, i);
    if (b2) one.b2 = of_matrix(*b2, matrix);
    one.row_scale = line(row_scale, i);
    one.bias = line(bias, matrix);
    one.col_scale = line(col_scale, matrix);
    one.a_scale = line(a_scale, matrix);
    if (kept) one.aux = aten::empty({1, p.n}, p.out);
    one.check();
    const auto leave = [&](const Tensor& all, const Tensor& found) {
      Tensor to = aten::narrow(all, 0, i, 1);
      aten::copy_(to, found);
    };
    leave(results, gemm_together(one, std::nullopt));
    if (kept) leave(*kept, *one.aux);
  }
  if (kept) {
    Tensor aux = *p.aux;
    aten::copy_(aux, aten::reshape(*kept, p.out_sizes));
  }
  if (!into) return aten::reshaped_result(results, p.out_sizes);
  Tensor out = *into;
  aten::copy_(out, aten::reshape(results, p.out_sizes));
  return out;
}

// How many keys there are up to the last that a row of a mask shows.
int64_t shown(const Tensor& row) {
  const bool is_bool = type_of(row) == ScalarType::Bool;
  const Tensor numbers = is_bool ? row : aten::to(row, ScalarType::Double);
  const auto is_hidden = [&, data = numbers.const_data_ptr()](int64_t i) {
    return is_bool ? !static_cast<const bool*>(data)[i] : static_cast<const double*>(data)[i] == -INFINITY;
  };
  int64_t count = row.numel();
  while (count > 0 && is_hidden(count - 1)) --count;
  return count;
}

// A number of each head, [batch…, heads] or what broadcasts to that, as [batch · heads].
OptTensor of_heads(const Attention& p, const OptTensor& x) {
  if (!x) return x;
  return aten::reshape(aten::expand(*x, p.head_sizes()), {p.batch * p.heads});
}

// [batch…, heads, rows, columns] as [batch · heads, rows, columns].
Tensor by_heads(const Attention& p, const Tensor& x) {
  const int64_t rows = x.sizes()[x.dim() - 2], columns = x.sizes()[x.dim() - 1];
  return by_matrices(x, p.head_sizes(), rows, columns);
}

// A row's keys are those up to the last that it sees, so that it does not know how many more others have.
std::tuple<Tensor, Tensor> attention_by_rows(const Attention& p) {
  Sizes sizes = sizes_of(p.q);
  const int64_t heads = p.batch * p.heads, group = p.heads / p.kv_heads;
  Tensor lse = aten::empty({heads, p.sq}, accumulator(p.type)), found = aten::empty({heads, p.sq, p.ev}, p.type);
  const Tensor q = aten::reshape(p.q, {heads, p.sq, p.e}), k = aten::reshape(p.k, {p.batch * p.kv_heads, p.skv, p.e}),
               v = aten::reshape(p.v, {p.batch * p.kv_heads, p.skv, p.ev});
  const OptTensor sinks = of_heads(p, p.sinks), slopes = of_heads(p, p.alibi_slopes);
  OptTensor mask = p.mask, blocks = p.block_mask;
  if (mask) {
    Sizes of_scores = p.head_sizes();
    for (int64_t size : {p.sq, p.skv}) of_scores.push_back(size);
    mask = by_heads(p, aten::expand(*mask, of_scores));
  }
  if (blocks) blocks = by_heads(p, *blocks);
  AttentionOptions options = p;
  options.is_causal = kNotCausal;
  options.window_left = options.window_right = -1;
  options.enable_gqa = false;
  options.block_mask.reset();
  options.block_q = options.block_k = 0;
  for (int64_t head = 0; head < heads; ++head) {
    const Tensor keys = own(k, head / group), values = own(v, head / group);
    options.sinks = sinks ? OptTensor(aten::clone(aten::narrow(*sinks, 0, head, 1))) : sinks;
    options.alibi_slopes = slopes ? OptTensor(aten::clone(aten::narrow(*slopes, 0, head, 1))) : slopes;
    for (int64_t i = 0; i < p.sq; ++i) {
      int64_t count = p.skv;
      if (p.up_to) count = std::clamp<int64_t>(i + *p.up_to + 1, 0, count);
      if (mask) {
        const Tensor line = aten::select(aten::select(*mask, 0, head), 0, i);
        count = std::min(count, shown(aten::contiguous(line)));
        options.mask = aten::clone(aten::reshape(aten::narrow(line, 0, 0, count), {1, 1, count}));
      }
      const auto alone = [&](const Tensor& x, int64_t first, int64_t rows) {
        return aten::unsqueeze(aten::narrow(x, 0, first, rows), 0);
      };
      Attention one(p.op, aten::clone(alone(aten::select(q, 0, head), i, 1)), alone(keys, 0, count),
                    alone(values, 0, count), options);
      one.heads_together = false;
      one.check();
      one.diagonal = i + p.diagonal;
      if (p.from) one.from = i + *p.from;
      one.origin = {p.origin.batch + head / p.heads, p.origin.head + head % p.heads, p.origin.query + i};
      if (blocks) {
        one.block_mask = alone(*blocks, head, 1);
        one.block_q = p.block_q;
        one.block_k = p.block_k;
      }
      const auto [row_out, row_lse] = attention_together(one);
      const auto leave = [&](const Tensor& all, const Tensor& row) {
        Tensor to = aten::select(aten::select(all, 0, head), 0, i);
        aten::copy_(to, aten::reshape(row, sizes_of(to)));
      };
      leave(found, row_out);
      leave(lse, row_lse);
    }
  }
  Sizes lse_sizes(sizes.begin(), sizes.end() - 1);
  sizes.back() = p.ev;
  Tensor out = made_by_heads(sizes, *p.heads_together, p.type, p.device);
  aten::copy_(out, aten::reshape(found, sizes));
  return {out, aten::reshaped_result(lse, lse_sizes)};
}

}  // namespace

Tensor gemm(const Gemm& p, const OptTensor& into) {
  const bool alone = is_batch_invariant() && product_of(p.out_sizes) > 0;
  return alone ? gemm_by_rows(p, into) : gemm_together(p, into);
}

std::tuple<Tensor, Tensor> attention(const Attention& p) {
  if (p.sequences) return attention_of_sequences(p);  // which come here one by one
  const bool alone = is_batch_invariant() && std::min({p.batch, p.heads, p.sq, p.skv}) > 0;
  return alone ? attention_by_rows(p) : attention_together(p);
}

}  // namespace wmma_ops::cpu
