#include <algorithm>
#include <cmath>

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
OptTensor blocks_of_sequence(const Attention& p, int64_t sequence, int64_t queries, int64_t keys) {
  if (!p.block_mask) return {};
  Tensor own = *p.block_mask;
  if (own.dim() == 4) own = aten::select(own, 0, own.sizes()[0] == 1 ? 0 : sequence);
  own = aten::narrow(own, own.dim() - 2, 0, (queries + p.block_q - 1) / p.block_q);
  return aten::narrow(own, own.dim() - 1, 0, (keys + p.block_k - 1) / p.block_k);
}

// What is asked of the whole, of one sequence as of a batch of its own.
AttentionOptions of_one(const Attention& p) {
  AttentionOptions found = p;
  for (OptTensor* of_all :
       {&found.cu_seq_q, &found.cu_seq_k, &found.seqused_k, &found.block_table, &found.k_descale, &found.v_descale}) {
    of_all->reset();
  }
  found.max_q = 0;
  found.max_k.reset();
  if (p.stored == p.type) return found;
  for (OptTensor* x : {&found.sinks, &found.alibi_slopes}) {
    if (*x) *x = aten::to(**x, ScalarType::Float);
  }
  return found;
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
  Tensor lse = aten::empty({p.heads, of.tokens_q}, accumulator(p.type));
  aten::fill_(lse, -INFINITY);
  const AttentionOptions options = of_one(p);
  for (int64_t i = 0; i < of.count; ++i) {
    const int64_t queries = starts_q[i + 1] - starts_q[i];
    const int64_t keys = used.empty() ? starts_k[i + 1] - starts_k[i] : used[i];
    if (queries == 0) continue;
    const auto own = [&, &starts_k = starts_k, &table = table](const Tensor& x) {
      return table ? from_pages(x, *table, i, keys) : aten::narrow(x, 1, starts_k[i], keys);
    };
    Attention one(p.op, aten::narrow(p.q, 1, starts_q[i], queries), own(p.k), own(p.v), options);
    if (p.stored != p.type) {
      one.q = aten::to(one.q, ScalarType::Float);
      one.k = widened(one.k, p.k_descale, i);
      one.v = widened(one.v, p.v_descale, i);
    }
    one.block_mask = blocks_of_sequence(p, i, queries, keys);
    one.origin.batch = i;
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
