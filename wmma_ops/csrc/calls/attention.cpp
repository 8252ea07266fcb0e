#include "calls/attention.hpp"

#include <algorithm>
#include <cmath>

#include "cpu/cpu.hpp"
#include "cpu/numbers.hpp"
#include "launch/launch.hpp"

namespace wmma_ops {

namespace {

std::tuple<Tensor, Tensor> attention_on_cpu(const Attention& p) {
  if (!p.is_scaled) return cpu::attention(p);
  const auto [out, lse] = cpu::attention(widened(p, ScalarType::Float));
  return {aten::to(out, p.type), lse};
}

}  // namespace

void fill_without_keys(Tensor& lse, const Attention& p) {
  if (!p.sinks) return aten::fill_(lse, -INFINITY);
  aten::copy_(lse, aten::expand(aten::unsqueeze(*p.sinks, p.sinks->dim()), sizes_of(lse)));
}

bool has_heads_together(const Tensor& x) {
  if (x.dim() < 3) return false;
  const auto strides = x.strides();
  const int64_t heads = strides[x.dim() - 3];
  return heads != 0 && heads < strides[x.dim() - 2];
}

Tensor made_by_heads(const Sizes& sizes, bool heads_together, ScalarType type, const Device& device) {
  if (!heads_together) return launch::made(sizes, type, device);
  const int64_t rank = static_cast<int64_t>(sizes.size());
  Sizes strides(sizes.size(), 1);
  int64_t stride = 1;
  const auto next = [&](int64_t dim) {
    strides[dim] = stride;
    __builtin_mul_overflow(stride, std::max<int64_t>(sizes[dim], 1), &stride);  // torch refuses what is too large
  };
  for (int64_t dim : {rank - 1, rank - 3, rank - 2}) next(dim);
  for (int64_t dim = rank - 4; dim >= 0; --dim) next(dim);
  return aten::empty(sizes.data(), strides.data(), rank, type, device.type, device.index);
}

Attention widened(const Attention& p, ScalarType type) {
  const auto wide = [&](const Tensor& x, const OptTensor& scale) {
    if (!scale) return aten::to(x, type);
    Sizes sizes = sizes_of(*scale);
    for (int i = 0; i < 2; ++i) sizes.push_back(1);
    return aten::to(aten::mul(aten::to(x, ScalarType::Float), aten::reshape(*scale, sizes)), type);
  };
  AttentionOptions options = p;
  for (OptTensor* scale : {&options.scale_q, &options.scale_k, &options.scale_v}) scale->reset();
  options.out_dtype.reset();
  Attention found(p.op, wide(p.q, p.scale_q), wide(p.k, p.scale_k), wide(p.v, p.scale_v), options);
  found.heads_together = p.heads_together;
  found.check();
  return found;
}

std::tuple<Tensor, Tensor> attention(const Attention& p) {
  if (is_plain_cpu(p.device)) return attention_on_cpu(p);
  const Way way = way_of(p.device);
  if (way.on_cpu) return attention_on_cpu(p);
  if (p.sequences && way.executes && cpu::are_checked_everywhere()) cpu::checked_numbers(p);
  return launch::attention(p, way);
}

std::tuple<Tensor, Tensor, Tensor> attention_backward(const Attention& p, const Tensor& g_out) {
  const Way way = way_of(p.device);
  if (way.on_cpu) fail_type(p.op, p.names.q, "is on the cpu; takes tensors on a GPU");
  return launch::attention_backward(p, way, g_out);
}

}  // namespace wmma_ops
