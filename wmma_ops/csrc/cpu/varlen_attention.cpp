#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "cpu/cpu.hpp"
#include "cpu/numbers.hpp"

namespace wmma_ops::cpu {

namespace {

// The keys of a sequence, as [heads, keys, size], from pages that are [heads, page size, size] each.
Tensor from_pages(const Tensor& x, const BlockTable& table, int64_t sequence, int64_t keys) {
  Sizes sizes = sizes_of(x);
  const int64_t page_size = sizes[2];
  sizes.erase(sizes.begin());
  sizes[1] = keys;
  Tensor found = aten::empty(sizes, type_of(x));
  for (int64_t first = 0; first < keys; first += page_size) {
    const int64_t count = std::min(page_size, keys - first);
    Tensor to = aten::narrow(found, 1, first, count);
    aten::copy_(to, aten::narrow(aten::select(x, 0, table.page(sequence, first / page_size)), 1, 0, count));
  }
  return found;
}

// Numbers of 8 bits, [heads, keys, size], as float32.
Tensor widened(const Tensor& x, const OptTensor& descale, int64_t sequence) {
  const Tensor wide = aten::to(x, ScalarType::Float);
  return descale ? aten::mul(wide, aten::unsqueeze(descale_of_heads(*descale, sequence), -1)) : wide;
}

// A sequence's own part of a block mask that has as many blocks for each as for the longest.
BlockMask blocks_of_sequence(const BlockMask& of, int64_t sequence, int64_t queries, int64_t keys) {
  if (!of.states) return {};
  Tensor own = *of.states;
  if (own.dim() == 4) own = aten::select(own, 0, own.sizes()[0] == 1 ? 0 : sequence);
  own = aten::narrow(own, own.dim() - 2, 0, (queries + of.queries - 1) / of.queries);
  own = aten::narrow(own, own.dim() - 1, 0, (keys + of.keys - 1) / of.keys);
  return {own, of.queries, of.keys};
}

}  // namespace

Tensor descale_of_heads(const Tensor& x, int64_t sequence) {
  const Tensor own = x.dim() < 2 ? x : aten::select(x, 0, x.sizes()[0] == 1 ? 0 : sequence);
  return aten::unsqueeze(own.dim() == 0 ? aten::unsqueeze(own, 0) : own, -1);
}

// One sequence after the other. Tokens of none are as rows that see no key.
std::tuple<Tensor, Tensor> attention_of_sequences(const Attention& p) {
  const Sequences& of = *p.sequences;
  const auto [starts_q, starts_k, used, table] = checked_numbers(p);
  Tensor out = aten::zeros({of.tokens_q, p.heads, p.ev}, p.type);
  Tensor lse =
      aten::empty({p.heads, of.tokens_q}, p.type == ScalarType::Double ? ScalarType::Double : ScalarType::Float);
  aten::fill_(lse, -INFINITY);
  for (int64_t i = 0; i < of.count; ++i) {
    const int64_t queries = starts_q[i + 1] - starts_q[i];
    const int64_t keys = used.empty() ? starts_k[i + 1] - starts_k[i] : used[i];
    if (queries == 0) continue;
    const auto own = [&, &starts_k = starts_k, &table = table](const Tensor& x) {
      return table ? from_pages(x, *table, i, keys) : aten::narrow(x, 1, starts_k[i], keys);
    };
    Attention one{p.op, aten::narrow(p.q, 1, starts_q[i], queries), own(p.k), own(p.v)};
    if (p.stored != p.type) {
      one.q = aten::to(one.q, ScalarType::Float);
      one.k = widened(one.k, of.k_descale, i);
      one.v = widened(one.v, of.v_descale, i);
    }
    one.scale_argument = p.scale;
    one.enable_gqa = p.enable_gqa;
    for (auto [from, to] : {std::pair{&p.sinks, &one.sinks}, {&p.alibi_slopes, &one.alibi_slopes}}) {
      if (*from) *to = p.stored != p.type ? aten::to(**from, ScalarType::Float) : **from;
    }
    one.window_left = p.window_left;
    one.window_right = p.window_right;
    one.softcap = p.softcap;
    one.dropout_seed = p.dropout_seed;
    one.dropout_p = p.dropout_p;
    one.functions = p.functions;
    one.blocks = blocks_of_sequence(p.blocks, i, queries, keys);
    one.first_batch = i;
    one.check();
    const auto [own_out, own_lse] = attention(one);
    Tensor to = aten::narrow(aten::transpose(out, 0, 1), 1, starts_q[i], queries);
    aten::copy_(to, own_out);
    to = aten::narrow(lse, 1, starts_q[i], queries);
    aten::copy_(to, own_lse);
  }
  return {out, lse};
}

}  // namespace wmma_ops::cpu
