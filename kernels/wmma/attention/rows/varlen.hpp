// Packed sequences: queries and keys of all of them lie one after the other in tensors without a batch. A kernel of
// attention has blocks for as many tiles as the longest sequence may have, of each sequence and head; here a block is
// given the arguments of its own sequence, as if there were no other, and one beyond its end leaves at once.
// (Persistent blocks take the tiles that there are: balanced/tile_list.hpp.)
//
// Where sequences start is read on the device, by who needs it. Whatever is written there, nothing outside the tensors
// is read or written.
#pragma once

#include <wmma/attention/terms/scores.hpp>

namespace wmma {

// Rules of attention whose operands are those of all sequences.
template <class Others>
struct SequenceRules : Others {
  using Arguments = ArgumentsBy<Others, SequencesArguments>;
  static constexpr bool kSequences = true;
};

// The rows of a sequence, of the queries or of the keys.
struct Stretch {
  int start;
  int length;
};

WMMA_DEVICE int64_t number_at(const NumbersOperand& x, int index) {
  const int64_t at = index * x.stride;
  return x.is_wide ? static_cast<const int64_t*>(x.data)[at] : static_cast<const int32_t*>(x.data)[at];
}
WMMA_DEVICE void prefetch_number(const NumbersOperand& x, int index) {
  const int64_t size = x.is_wide ? sizeof(int64_t) : sizeof(int32_t);
  if (x.data != nullptr) arch::prefetch_near(static_cast<const char*>(x.data) + index * x.stride * size);
}

WMMA_DEVICE float descale_at(const DescaleOperand& x, uint32_t sequence, uint32_t head) {
  if (x.data == nullptr) return 1.0f;
  return static_cast<const float*>(x.data)[sequence * x.sequence_stride + head * x.head_stride];
}

WMMA_DEVICE Stretch stretch_of(const NumbersOperand& starts, int index, int count, int tokens, int longest) {
  if (index >= count) return {tokens, 0};
  const int start = clamped(number_at(starts, index), 0, tokens);
  const int end = clamped(number_at(starts, index + 1), start, tokens);
  return {start, detail::lower(end - start, longest)};
}
WMMA_DEVICE Stretch queries_of(const SequenceArguments& p, int index) {
  return stretch_of(p.starts_q, index, p.count, p.tokens_q, p.longest_q);
}
WMMA_DEVICE Stretch keys_of(const SequenceArguments& p, int index) {
  Stretch keys = stretch_of(p.starts_k, index, p.count, p.tokens_k, p.longest_k);
  if (p.used_k.data != nullptr && keys.length > 0) keys.length = clamped(number_at(p.used_k, index), 0, keys.length);
  return keys;
}
WMMA_DEVICE Stretch keys_of(const SequencesArguments& all, int index) { return keys_of(all.sequences, index); }

template <class T, class... Operands>
WMMA_DEVICE void move_rows(int rows, Operands&... operands) {
  ((operands.data = static_cast<const T*>(operands.data) + rows * operands.row_stride), ...);
}

// The arguments of one sequence: bounds and places count from where its last query stands, at its last key.
template <class T, class Number>
WMMA_DEVICE SequencesArguments arguments_of(const SequencesArguments& all, const Stretch& queries,
                                            const Stretch& keys) {
  SequencesArguments p = all;
  move_rows<T>(queries.start, p.q, p.out, p.g_out, p.g_q);
  move_rows<Number>(queries.start, p.lse, p.delta);
  move_rows<T>(keys.start, p.k, p.v, p.g_k, p.g_v);
  p.sq = queries.length;
  p.skv = keys.length;
  const int apart = keys.length - queries.length;
  p.shift += apart;
  p.rules.from += apart;
  p.rules.diagonal += apart;
  return p;
}

template <class T, class Number>
WMMA_DEVICE SequencesArguments arguments_of(const SequencesArguments& all, int index) {
  return arguments_of<T, Number>(all, queries_of(all.sequences, index), keys_of(all, index));
}

// Functions of scores are the same for all.
template <class T, class Number, class Others>
WMMA_DEVICE ModifiedArguments<Others> arguments_of(const ModifiedArguments<Others>& all, int index) {
  return {arguments_of<T, Number>(static_cast<const Others&>(all), index), all.functions};
}

template <class Kernel>
struct OfSequences {
  using Arguments = typename Kernel::Arguments;
  static constexpr int kThreads = Kernel::kThreads;
  static constexpr int kSharedBytes = Kernel::kSharedBytes;

  static WMMA_DEVICE void run(const Arguments& all) {
    using Rules = typename Kernel::Rules;
    const int index = static_cast<int>(uniform(Kernel::place_of(all).batch));
    if constexpr (Rules::kPageSize > 0) prefetch_table(all, index, Rules::kPageSize, threadIdx.x, kThreads);
    Arguments own = arguments_of<typename Kernel::T, typename Kernel::Number>(all, index);
    const auto place = Kernel::place_of(own);
    if (place.tile * Kernel::kBlockRows >= place.rows) return;
    if constexpr (!kIsNone<typename Rules::Narrow>) multiply_by_descales(own, place);
    Kernel::run(own);
  }
};

// What a persistent block looks at for one of all sequences: that one, and where in the tensors it starts.
template <class T, class Number, class Rules>
struct OneSequence {
  using Arguments = typename Rules::Arguments;  // where its keys are, they tell: in pages, or one after the other
  using Own = ArgumentsBy<Rules, SequencesArguments>;
  Stretch queries;
  Stretch keys;
  Own own;

  WMMA_DEVICE OneSequence(const Arguments& all, int index)
      : OneSequence(all, queries_of(all.sequences, index), keys_of(all, index)) {}
  WMMA_DEVICE OneSequence(const Arguments& all, const Stretch& of_queries, const Stretch& of_keys)
      : queries(of_queries), keys(of_keys), own(own_of(all, of_queries, of_keys)) {}
  WMMA_DEVICE uint32_t query(uint32_t row) const { return queries.start + row; }
  WMMA_DEVICE uint32_t key(uint32_t row) const { return keys.start + row; }

 private:
  static WMMA_DEVICE Own own_of(const Arguments& all, const Stretch& queries, const Stretch& keys) {
    const SequencesArguments own = arguments_of<T, Number>(static_cast<const SequencesArguments&>(all), queries, keys);
    if constexpr (kSame<Own, SequencesArguments>) {
      return own;
    } else {
      return {own, all.functions};
    }
  }
};
// Where there are none: everything. `Arguments` are those of no sequences.
template <class Arguments>
struct NoSequence {
  const Arguments& own;

  WMMA_DEVICE NoSequence(const Arguments& all, int) : own(all) {}
  WMMA_DEVICE uint32_t query(uint32_t row) const { return row; }
  WMMA_DEVICE uint32_t key(uint32_t row) const { return row; }
};

// Of rows of all sequences and heads, as if each sequence were as long as may be (see rows/dense.hpp).
WMMA_DEVICE bool is_row(const SequencesArguments& p, int64_t row) {
  const int64_t index = row / p.sq / p.heads;
  return index < p.batch && row % p.sq < queries_of(p.sequences, static_cast<int>(index)).length;
}
WMMA_DEVICE auto offsets_of(const SequencesArguments& p, int64_t row) {
  const int64_t head = row / p.sq % p.heads;
  const Stretch queries = queries_of(p.sequences, static_cast<int>(row / p.sq / p.heads));
  const int64_t token = clamped(queries.start + row % p.sq, 0, p.sequences.tokens_q - 1);
  return [=](const AttentionOperand& x) { return head * x.head_stride + token * x.row_stride; };
}

// What no sequence has of the results, which are contiguous: zeros, and −∞ as the log-sum-exp. A block has what lies
// between a sequence and the one before it, which is little; all that are left have what follows the last.
template <class Config, int kThreads = Config::kThreads>
class SequencesRest {
  using T = typename Config::Element;
  using Number = typename ComputeType<T>::Type;

 public:
  // The number of the block among those that do this, more than there are sequences, and of its thread.
  WMMA_DEVICE SequencesRest(const SequenceArguments& of, int block, int blocks, uint32_t thread = threadIdx.x)
      : index_(detail::lower(block, of.count)),
        first_(static_cast<int64_t>(block - index_) * kThreads + thread),
        step_(static_cast<int64_t>(index_ < of.count ? 1 : blocks - of.count) * kThreads) {}

  WMMA_DEVICE void run(const SequencesArguments& p) const {
    const SequenceArguments& of = p.sequences;
    const Span queries = between(index_, [&](int i) { return queries_of(of, i); });
    if constexpr (Config::kBackward) {
      const Span keys = between(index_, [&](int i) { return keys_of(of, i); });
      const int64_t key_heads = p.heads / p.group;
      clear(p.g_q, queries, static_cast<int64_t>(p.heads) * p.e);
      clear(p.g_k, keys, key_heads * p.e);
      clear(p.g_v, keys, key_heads * p.ev);
    } else {
      clear(p.out, queries, static_cast<int64_t>(p.heads) * p.ev);
      Number* lse = static_cast<Number*>(const_cast<void*>(p.lse.data));
      for (int head = 0; head < p.heads; ++head) {
        for (int64_t row = queries.begin + first_; row < queries.end; row += step_) {
          lse[head * p.lse.head_stride + row * p.lse.row_stride] = -Softmax<Number>::infinity();
        }
      }
    }
  }

 private:
  struct Span {
    int64_t begin;
    int64_t end;
  };
  template <class StretchOf>
  static WMMA_DEVICE Span between(int index, const StretchOf& stretch_of) {
    Span span{0, stretch_of(index).start};
    if (index > 0) {
      const Stretch before = stretch_of(index - 1);
      span.begin = before.start + before.length;
    }
    return span;
  }

  // By whole chunks but for the first and the last.
  WMMA_DEVICE void clear(const AttentionOperand& x, const Span& rows, int64_t elements) const {
    constexpr int kPerChunk = 16 / sizeof(T);
    T* to = static_cast<T*>(const_cast<void*>(x.data));
    const int64_t begin = rows.begin * elements;
    const int64_t end = rows.end * elements;
    const T nothing[kPerChunk] = {};
    for (int64_t at = begin / kPerChunk + first_; at * kPerChunk < end; at += step_) {
      const int64_t from = at * kPerChunk;
      if (from >= begin && from + kPerChunk <= end) {
        arch::copy<kPerChunk>(to + from, nothing);
        continue;
      }
      for (int i = 0; i < kPerChunk; ++i) {
        if (from + i >= begin && from + i < end) to[from + i] = T(0.0f);
      }
    }
  }

  int index_;
  int64_t first_;
  int64_t step_;
};

}  // namespace wmma
