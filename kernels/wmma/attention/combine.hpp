// What puts the parts of attention together whose keys are split, always in the same order; and the kernel that does so
// where another's blocks left them in memory.
#pragma once

#include <wmma/arch/sm90.hpp>
#include <wmma/attention/rows.hpp>
#include <wmma/attention/sequences.hpp>

namespace wmma {

// An element of the result from its parts: all are looked at before the first is added.
template <class Number, class Math>
class Parts {
 public:
  WMMA_DEVICE void look(Number largest) { largest_ = Math::max(largest_, largest); }
  WMMA_DEVICE void add(Number largest, Number sum, Number value) {
    if (sum == Number(0)) return;
    const Number factor = Math::ratio(largest, -largest_);
    sum_ += sum * factor;
    result_ += value * factor;
  }

  // Of a row that `offset` finds in an operand.
  template <class T, class Offset>
  WMMA_DEVICE void store(const AttentionArguments& p, int column, const Offset& offset) const {
    const bool blind = sum_ == Number(0);  // NaN is not
    if (column == 0) {
      *(static_cast<Number*>(const_cast<void*>(p.lse.data)) + offset(p.lse)) =
          blind ? -Math::infinity() : Math::log_sum(largest_, sum_);
    }
    *(static_cast<T*>(const_cast<void*>(p.out.data)) + offset(p.out) + column * p.out.column_stride) =
        convert<T>(blind ? Number(0) : result_ * Math::inverse(sum_));
  }

 private:
  Number largest_ = -Math::infinity();
  Number sum_ = Number(0);
  Number result_ = Number(0);
};

// A thread for each element of the result; of packed sequences more blocks, which have what no sequence has.
template <class Config, class Arguments>
WMMA_DEVICE void attention_combine(const Arguments& p) {
  using T = typename Config::Element;
  using Number = typename ComputeType<T>::Type;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * Config::kThreads + threadIdx.x;
  const int64_t rows = rows_of_all(p);
  if constexpr (Config::Rules::kSequences) {
    const int64_t blocks = (rows * p.ev + Config::kThreads - 1) / Config::kThreads;
    if (blockIdx.x >= blocks) SequencesRest<Config>(static_cast<int>(blockIdx.x - blocks)).run(p);
  }
  const int64_t row = item / p.ev;
  const int column = static_cast<int>(item - row * p.ev);
  arch::await_previous();  // also by who has nothing to do: who waits for this kernel waits for that one too
  if (!is_row(p, row)) return;
  const int64_t step = rows * (2 + p.ev);
  const Number* first = static_cast<const Number*>(p.partial) + row * (2 + p.ev);
  Parts<Number, SoftmaxOf<Config, Number>> parts;
  for (int split = 0; split < p.splits; ++split) parts.look(first[split * step]);
  for (int split = 0; split < p.splits; ++split) {
    const Number* part = first + split * step;
    parts.add(part[0], part[1], part[2 + column]);
  }
  parts.template store<T>(p, column, offsets_of(p, row));
}

}  // namespace wmma
