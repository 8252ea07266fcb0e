// The second kernel of attention whose keys are split.
#pragma once

#include <wmma/arch/sm90.hpp>
#include <wmma/tile/attention_rows.hpp>

namespace wmma {

// Puts the splits of the keys together, always in the same order: a thread for each element of the result.
template <class Config>
WMMA_DEVICE void attention_combine(const AttentionArguments& p) {
  using T = typename Config::Element;
  using Number = typename ComputeType<T>::Type;
  using Math = Softmax<Number>;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * Config::kCombineThreads + threadIdx.x;
  const int64_t rows = rows_of_all(p);
  const int64_t row = item / p.ev;
  const int column = static_cast<int>(item - row * p.ev);
  if (row >= rows) return;
  const int64_t step = rows * (2 + p.ev);
  arch::await_previous();
  const Number* first = static_cast<const Number*>(p.partial) + row * (2 + p.ev);
  Number largest = -Math::infinity();
  for (int split = 0; split < p.splits; ++split) largest = Math::max(largest, first[split * step]);
  Number sum(0);
  Number result(0);
  for (int split = 0; split < p.splits; ++split) {
    const Number* part = first + split * step;
    if (part[1] == Number(0)) continue;
    const Number factor = Math::exp(part[0] - largest);
    sum += part[1] * factor;
    result += part[2 + column] * factor;
  }
  const bool blind = sum == Number(0);  // NaN is not
  const auto offset = offsets_of(p, row);
  if (column == 0) {
    *(static_cast<Number*>(const_cast<void*>(p.lse.data)) + offset(p.lse)) =
        blind ? -Math::infinity() : Math::log_sum(largest, sum);
  }
  *(static_cast<T*>(const_cast<void*>(p.out.data)) + offset(p.out) + column * p.out.column_stride) =
      convert<T>(blind ? Number(0) : result * Math::inverse(sum));
}

}  // namespace wmma
