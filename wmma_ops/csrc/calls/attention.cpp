#include "calls/attention.hpp"

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
