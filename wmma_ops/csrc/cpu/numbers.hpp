// Numbers that say where sequences and their pages are: on the CPU they are known, and wrong ones refused.
#pragma once

#include "calls/problem.hpp"

namespace wmma_ops::cpu {

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
  const int32_t* at_;
  int64_t pages_, row_, column_;
  const char* of_;
};

}  // namespace wmma_ops::cpu
