#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/cpu.hpp"

namespace wmma_ops::cpu {

namespace {

std::vector<int64_t> numbers_of(const Tensor& x) {
  const Tensor wide = aten::to(x, ScalarType::Long);
  const int64_t* at = static_cast<const int64_t*>(wide.const_data_ptr());
  std::vector<int64_t> numbers(x.numel());
  for (int64_t& number : numbers) {
    number = *at;
    at += wide.strides()[0];
  }
  return numbers;
}

// Where sequences start, and after them where the last one ends.
std::vector<int64_t> starts_of(const char* op, const char* name, const Tensor& x, const char* max_name, int64_t most,
                               const char* of, int64_t tokens) {
  const std::vector<int64_t> starts = numbers_of(x);
  if (starts[0] != 0) fail_value(op, name, "starts at " + std::to_string(starts[0]) + "; takes 0");
  for (size_t i = 1; i < starts.size(); ++i) {
    const int64_t length = starts[i] - starts[i - 1];
    const std::string at = " at " + std::to_string(i);
    if (length < 0) {
      fail_value(op, name,
                 "has " + std::to_string(starts[i]) + at + "; takes " + std::to_string(starts[i - 1]) +
                     ", which is before it, or more");
    }
    if (starts[i] > tokens) {
      fail_value(op, name,
                 "has " + std::to_string(starts[i]) + at + "; takes up to " + std::to_string(tokens) +
                     ", the tokens of " + of);
    }
    if (length > most) {
      fail_value(
          op, max_name,
          "is " + std::to_string(most) + "; takes " + std::to_string(length) + ", the longest sequence, or more");
    }
  }
  return starts;
}

}  // namespace

// One sequence after the other. Tokens of none are as rows that see no key.
std::tuple<Tensor, Tensor> attention_of_sequences(const Attention& p) {
  const Sequences& of = *p.sequences;
  const auto [qn, kn, vn] = p.names;
  const std::vector<int64_t> starts_q = starts_of(p.op, "cu_seq_q", of.cu_q, "max_q", of.max_q, qn, of.tokens_q);
  const std::vector<int64_t> starts_k = starts_of(p.op, "cu_seq_k", of.cu_k, "max_k", of.max_k, kn, of.tokens_k);
  const std::vector<int64_t> used = of.used_k ? numbers_of(*of.used_k) : std::vector<int64_t>{};
  for (size_t i = 0; i < used.size(); ++i) {
    const int64_t length = starts_k[i + 1] - starts_k[i];
    if (used[i] < 0 || used[i] > length) {
      fail_value(p.op, "seqused_k",
                 "has " + std::to_string(used[i]) + " at " + std::to_string(i) + "; takes 0 to " +
                     std::to_string(length) + ", the keys of that sequence");
    }
  }

  Tensor out = aten::zeros({of.tokens_q, p.heads, p.ev}, p.type);
  Tensor lse =
      aten::empty({p.heads, of.tokens_q}, p.type == ScalarType::Double ? ScalarType::Double : ScalarType::Float);
  aten::fill_(lse, -INFINITY);
  for (int64_t i = 0; i < of.count; ++i) {
    const int64_t queries = starts_q[i + 1] - starts_q[i];
    const int64_t keys = used.empty() ? starts_k[i + 1] - starts_k[i] : used[i];
    if (queries == 0) continue;
    Attention one{p.op, aten::narrow(p.q, 1, starts_q[i], queries), aten::narrow(p.k, 1, starts_k[i], keys),
                  aten::narrow(p.v, 1, starts_k[i], keys)};
    one.scale_argument = p.scale;
    one.enable_gqa = p.enable_gqa;
    one.sinks = p.sinks;
    one.alibi_slopes = p.alibi_slopes;
    one.window_left = p.window_left;
    one.window_right = p.window_right;
    one.softcap = p.softcap;
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
