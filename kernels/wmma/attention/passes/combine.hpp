// What puts the parts of attention together whose keys are split, always in the same order; and the kernel that does so
// where another's blocks left them in memory.
#pragma once

#include <wmma/arch/sm90.hpp>
#include <wmma/attention/balanced/last_round.hpp>
#include <wmma/attention/rows/dense.hpp>
#include <wmma/attention/rows/varlen.hpp>
#include <wmma/attention/softmax/parts.hpp>

namespace wmma {

// Neighbours in a row of the result from their parts: some, or all, are looked at before the first of them is added.
template <class Number, class Math, int kColumns = 1, bool kAlone = false>
class Parts {
 public:
  WMMA_DEVICE void look(Number largest) { largest_ = Math::max(largest_, largest); }
  // Once more are looked at: what was added before follows the largest.
  WMMA_DEVICE void follow(Number before) {
    if (sum_ == Number(0)) return;
    const Number factor = ratio(before);
    sum_ *= factor;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) result_[i] *= factor;
  }
  WMMA_DEVICE Number largest() const { return largest_; }
  WMMA_DEVICE void add(Number largest, Number sum, const Number* values) {
    if (sum == Number(0)) return;
    const Number factor = ratio(largest);
    sum_ += sum * factor;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) result_[i] += values[i] * factor;
  }

  // One more, which is looked at as it is added.
  WMMA_DEVICE void join(Number largest, Number sum, const Number* values) {
    const Joint<Number> joint = join_part<Math>(largest_, sum_, largest, sum);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) result_[i] = joint.of(result_[i], values[i]);
  }

  // Of a row that `offset` finds in an operand.
  template <class T, class Offset>
  WMMA_DEVICE void store(const AttentionArguments& p, int column, const Offset& offset) const {
    const bool blind = sum_ == Number(0);  // NaN is not
    if (column == 0) {
      *(static_cast<Number*>(const_cast<void*>(p.lse.data)) + offset(p.lse)) =
          blind ? -Math::infinity() : lse_of<kAlone, Math>(largest_, sum_);
    }
    const Number factor = blind ? Number(0) : Math::share(sum_);
    alignas(kColumns * sizeof(T)) T results[kColumns];
#pragma unroll
    for (int i = 0; i < kColumns; ++i) results[i] = convert<T>(blind ? Number(0) : result_[i] * factor);
    // Several lie side by side.
    const int64_t step = kColumns > 1 ? 1 : p.out.column_stride;
    arch::copy<kColumns>(static_cast<T*>(const_cast<void*>(p.out.data)) + offset(p.out) + column * step, results);
  }

 private:
  // How much less weights count that are relative to another score, of which half is given, as of all of them.
  WMMA_DEVICE Number ratio(Number half) const {
    const Number difference = half - largest_;
    return Math::ratio(difference, difference);
  }

  Number largest_ = -Math::infinity();
  Number sum_ = Number(0);
  Number result_[kColumns] = {};
};

// A thread's columns of a row of the result. The splits' rows lie `rows` apart, and several come from memory at once.
// `offsets` says where in an operand this one is.
template <class Config, class Arguments, class Offsets>
WMMA_DEVICE void combine_row(const Arguments& p, int64_t row, int64_t rows, int column, const Offsets& offsets) {
  using T = typename Config::Element;
  using Number = typename ComputeType<T>::Type;
  constexpr int kColumns = Config::kThreadColumns;
  constexpr int kPiece = kColumns > 1 ? 2 : 1;
  constexpr int kInFlight = 8;
  static_assert(Config::kPartHead == kPartHead, "the planner and the kernel agree");
  const int64_t step = rows * (kPartHead + p.ev);
  const Number* first = static_cast<const Number*>(p.partial) + row * (kPartHead + p.ev) + kPartHead;
  Parts<Number, SoftmaxOf<Config, Number>, kColumns, kStandsAlone<Config>> parts;
  for (int from = 0; from < p.splits; from += kInFlight) {
    alignas(16) Number numbers[kInFlight][2];
    alignas(16) Number values[kInFlight][kColumns];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (from + i < p.splits) {
        const Number* part = first + (from + i) * step;
#pragma unroll
        for (int j = 0; j < 2; j += kPiece) arch::copy<kPiece>(numbers[i] + j, part - 2 + j);
        arch::copy<kColumns>(values[i], part + column);
      } else {
        numbers[i][0] = -Softmax<Number>::infinity();
        numbers[i][1] = Number(0);
      }
    }
    if constexpr (kStandsAlone<Config>) {
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (from + i < p.splits) parts.join(numbers[i][0], numbers[i][1], values[i]);
      }
      continue;
    }
    const Number before = parts.largest();
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) parts.look(numbers[i][0]);
    parts.follow(before);
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) parts.add(numbers[i][0], numbers[i][1], values[i]);
  }
  parts.template store<T>(p, column, offsets);
}

// A thread for every few elements of the result; of packed sequences more blocks, which have what no sequence has.
template <class Config, class Arguments>
WMMA_DEVICE void attention_combine(const Arguments& p) {
  const int of_row = p.ev / Config::kThreadColumns;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * Config::kThreads + threadIdx.x;
  const int64_t rows = rows_of_all(p);
  if constexpr (Config::Rules::kSequences) {
    const int64_t blocks = (rows * of_row + Config::kThreads - 1) / Config::kThreads;
    // Seldom, as the compiler is told: these instructions lie behind those that most threads wait for.
    if (__builtin_expect(blockIdx.x >= blocks, 0)) {
      const int of_rest = static_cast<int>(gridDim.x - blocks);
      SequencesRest<Config>(p.sequences, static_cast<int>(blockIdx.x - blocks), of_rest).run(p);
    }
  }
  const int64_t row = item / of_row;
  // Where rows are is known before what they have.
  const bool is_there = is_row(p, row);
  const auto offsets = offsets_of(p, row);
  arch::await_previous();  // also by who has nothing to do: who waits for this kernel waits for that one too
  if (is_there) {
    const int column = static_cast<int>(item - row * of_row) * Config::kThreadColumns;
    combine_row<Config>(p, row, rows, column, offsets);
  }
}

// The same for the tiles of a last round, of kTileRows rows.
template <class Config, class Arguments>
WMMA_DEVICE void attention_combine_last(const Arguments& p) {
  const int of_row = p.ev / Config::kThreadColumns;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * Config::kThreads + threadIdx.x;
  const int64_t row = item / of_row;
  const int64_t rows = static_cast<int64_t>(last_tiles(p)) * Config::kTileRows;
  const uint32_t tile = p.whole + static_cast<uint32_t>(row / Config::kTileRows);
  const AttentionPlace<false> place(p, HeadTile(tile, p.heads * p.batch, p.tiles, p.head_group));
  const uint32_t of_head = place.tile * Config::kTileRows + static_cast<uint32_t>(row % Config::kTileRows);
  arch::await_previous();
  if (row >= rows || of_head >= place.rows) return;
  const int column = static_cast<int>(item - row * of_row) * Config::kThreadColumns;
  combine_row<Config>(p, row, rows, column, [&](const AttentionOperand& x) { return place.offset(x, of_head); });
}

}  // namespace wmma
