// Packed sequences whose keys and values lie in pages, in any order (paged_rows.hpp says how they are loaded): here a
// block finds its own sequence's row of the table, and how many keys it has.
#pragma once

#include <wmma/attention/sequences.hpp>

namespace wmma {

// Rules of attention whose keys and values come in pages of kRows.
template <class ScoreRules, int kRows>
struct PageRules : SequenceRules<ScoreRules> {
  using Arguments = ArgumentsBy<ScoreRules, PagesArguments>;
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

template <class T, class Number>
WMMA_DEVICE PagesArguments arguments_of(const PagesArguments& all, int index) {
  return {arguments_of<T, Number>(all, queries_of(all.sequences, index), keys_of(all, index)), pages_of(all, index)};
}

}  // namespace wmma
