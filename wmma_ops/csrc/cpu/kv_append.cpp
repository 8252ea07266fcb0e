#include <algorithm>

#include "cpu/cpu.hpp"
#include "cpu/numbers.hpp"

namespace wmma_ops::cpu {

namespace {

// New keys [tokens, heads, E] of places first …, rotated, in the accumulator's type.
Tensor rotated(const KvAppend& p, const Tensor& keys, int64_t first) {
  const ScalarType type = accumulator(p.type);
  const int64_t tokens = keys.sizes()[0];
  const Tensor x = aten::to(keys, type);
  const auto angles = [&](const Tensor& all) {
    return aten::unsqueeze(aten::to(aten::narrow(all, 0, first, tokens), type), 1);
  };
  const Tensor cos = angles(*p.cos), sin = angles(*p.sin);
  // The two sides of each plane: element c and element c + angles, or neighbours.
  const auto side = [&](const Tensor& of, int64_t i) {
    if (!p.interleaved) return aten::narrow(of, 2, i * p.angles, p.angles);
    return aten::call("aten::slice", "Tensor", of, int64_t{2}, std::optional<int64_t>(i),
                      std::optional<int64_t>(2 * p.angles), int64_t{2});
  };
  Tensor result = aten::empty(sizes_of(x), type);
  aten::copy_(result, x);
  Tensor a = side(result, 0), b = side(result, 1);
  aten::copy_(a, aten::add(aten::mul(side(x, 0), cos), aten::mul(side(x, 1), sin), -1));
  aten::copy_(b, aten::add(aten::mul(side(x, 1), cos), aten::mul(side(x, 0), sin)));
  return result;
}

// As torch's conversion of what is clamped. The descale is that of a sequence: [1 or heads, 1], or [].
Tensor narrowed(const Tensor& x, const OptTensor& descale, int64_t sequence, ScalarType stored) {
  constexpr double kLargest = 448;
  const Tensor one = aten::to(aten::scalar(1), ScalarType::Float);
  Tensor wide = aten::div(aten::to(x, ScalarType::Float), descale ? descale_of_heads(*descale, sequence) : one);
  aten::clamp_(wide, -kLargest, kLargest);
  return aten::to(wide, stored);
}

}  // namespace

// All numbers are looked at before anything is written.
void kv_append(const KvAppend& p) {
  const auto [starts, used, table] = checked_numbers(p);
  const auto new_ones = [&, &starts = starts](int64_t i) { return starts[i + 1] - starts[i]; };
  for (int64_t i = 0; i < p.count; ++i) {
    if (new_ones(i) == 0) continue;
    const int64_t first = used[i] - new_ones(i);
    Tensor keys = aten::narrow(p.key, 0, starts[i], new_ones(i));
    if (p.cos) keys = rotated(p, keys, first);
    Tensor values = aten::narrow(p.value, 0, starts[i], new_ones(i));
    if (p.stored != p.type) {
      keys = narrowed(keys, p.k_descale, i, p.stored);
      values = narrowed(values, p.v_descale, i, p.stored);
    }
    for (int64_t at = first; at < used[i];) {
      const int64_t end = std::min((at / p.page_size + 1) * p.page_size, used[i]);
      for (auto [from, pages] : {std::pair{&keys, &p.key_pages}, {&values, &p.value_pages}}) {
        const Tensor page = aten::select(*pages, 0, table.page(i, at / p.page_size));
        Tensor rows = aten::narrow(page, 0, at % p.page_size, end - at);
        aten::copy_(rows, aten::narrow(*from, 0, at - first, end - at));
      }
      at = end;
    }
  }
}

}  // namespace wmma_ops::cpu
