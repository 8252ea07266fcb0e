// Numbers that say where sequences and their pages are: on the CPU they are known, and wrong ones refused. On a GPU
// nobody waits for them, unless WMMA_OPS_CHECK=1 asks for it.
#pragma once

#include <optional>
#include <vector>

#include "calls/kv_append.hpp"
#include "calls/problem.hpp"

namespace wmma_ops::cpu {

bool are_checked_everywhere();

std::vector<int64_t> numbers_of(const Tensor& x);

// Where sequences start, and after them where the last one ends, at the end of `of` or before it.
std::vector<int64_t> starts_of(const char* op, const char* name, const Tensor& x, const char* of, int64_t tokens);

// The numbers of a block table, whose rows are sequences' pages.
class BlockTable {
 public:
  BlockTable(const char* op, const Tensor& x, int64_t pages, const char* of);
  int64_t page(int64_t sequence, int64_t column) const;

 private:
  const char* op_;
  Tensor table_;
  const int32_t* at_;
  int64_t pages_, row_, column_;
  const char* of_;
};

// Where each sequence of an attention is, all looked at. `used` is empty where there is no seqused_k; keys are in pages
// or from starts_k on.
struct SequenceNumbers {
  std::vector<int64_t> starts_q, starts_k, used;
  std::optional<BlockTable> table;
};
SequenceNumbers checked_numbers(const Attention& p);

struct AppendNumbers {
  std::vector<int64_t> starts, used;
  BlockTable table;
};
AppendNumbers checked_numbers(const KvAppend& p);

}  // namespace wmma_ops::cpu
