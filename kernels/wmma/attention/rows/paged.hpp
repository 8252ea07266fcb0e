// Packed sequences whose keys and values lie in pages, in any order (rows/page_loaders.hpp says how they are loaded):
// here a block finds its own sequence's row of the table, and how many keys it has.
//
// They may be kept as numbers of 8 bits, which become the queries' type on their way to shared memory: from there on
// all is as with others. What they are multiplied by is one number for all of a block, since it has one sequence and
// one key head: the keys' is part of what scores are multiplied by, the values' of what results are.
#pragma once

#include <wmma/attention/rows/varlen.hpp>

namespace wmma {

// Rules of attention whose keys and values come in pages of kRows.
template <class Others, int kRows, class NarrowType>
struct PageRules : SequenceRules<Others> {
  using Narrow = NarrowType;
  using Arguments = ArgumentsBy<Others, Choose<kIsNone<Narrow>, PagesArguments, NarrowPagesArguments> >;
  static constexpr int kPageSize = kRows;
};

// All from the first on.
WMMA_DEVICE Stretch keys_of(const PagesArguments& p, int index) {
  if (index >= p.sequences.count) return {0, 0};
  return {0, clamped(number_at(p.sequences.used_k, index), 0, p.sequences.longest_k)};
}

WMMA_DEVICE PageArguments pages_of(const PagesArguments& all, int index) {
  PageArguments pages = all.pages;
  pages.table = static_cast<const int32_t*>(all.pages.table) + index * all.pages.sequence_stride;
  return pages;
}

// By `threads` threads: what the table has for a sequence is on its way while others find how many keys that has.
// Neither is near the unit.
WMMA_DEVICE void prefetch_table(const PagesArguments& all, int index, int page_size, uint32_t thread,
                                uint32_t threads) {
  constexpr int kLine = 32;  // numbers
  const PageArguments pages = pages_of(all, index);
  const int64_t count = (all.sequences.longest_k + page_size - 1) / page_size;
  for (int64_t column = thread * kLine; column < count; column += threads * kLine) {
    arch::prefetch_near(static_cast<const int32_t*>(pages.table) + column * pages.column_stride);
  }
}

template <class T, class Number>
WMMA_DEVICE PagesArguments arguments_of(const PagesArguments& all, int index) {
  return {arguments_of<T, Number>(all, queries_of(all.sequences, index), keys_of(all, index)), pages_of(all, index)};
}

template <class T, class Number>
WMMA_DEVICE NarrowPagesArguments arguments_of(const NarrowPagesArguments& all, int index) {
  NarrowPagesArguments p = all;
  static_cast<PagesArguments&>(p) = arguments_of<T, Number>(static_cast<const PagesArguments&>(all), index);
  return p;
}

// `own` are the arguments of the place's sequence.
template <class Own, class Place>
WMMA_DEVICE void multiply_by_key_descale(Own& own, const NarrowPagesArguments& p, const Place& place) {
  const double of_keys = static_cast<double>(descale_at(p.k_descale, place.batch, place.key_head));
  own.scale *= of_keys;
  own.rules.steepness *= of_keys;
}
template <class Place>
WMMA_DEVICE float scale_of_values(const NarrowPagesArguments& p, const Place& place) {
  return descale_at(p.v_descale, place.batch, place.key_head);
}
template <class Place>
WMMA_DEVICE void multiply_by_descales(NarrowPagesArguments& p, const Place& place) {
  multiply_by_key_descale(p, p, place);
  p.of_values = static_cast<double>(scale_of_values(p, place));
}

}  // namespace wmma
