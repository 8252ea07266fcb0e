#include "cpu/numbers.hpp"

namespace wmma_ops::cpu {

std::vector<int64_t> numbers_of(const Tensor& x) {
  const Tensor wide = aten::to(x, ScalarType::Long);
  const int64_t* at = static_cast<const int64_t*>(wide.const_data_ptr());
  std::vector<int64_t> numbers(x.numel());
  for (int64_t& number : numbers) {
    number = *at;
    at += wide.strides()[0];
  }
  return numbers;
}

std::vector<int64_t> starts_of(const char* op, const char* name, const Tensor& x, const char* of, int64_t tokens) {
  const std::vector<int64_t> starts = numbers_of(x);
  if (starts[0] != 0) fail_value(op, name, "starts at " + std::to_string(starts[0]) + "; takes 0");
  for (size_t i = 1; i < starts.size(); ++i) {
    const std::string at = " at " + std::to_string(i);
    if (starts[i] < starts[i - 1]) {
      fail_value(op, name,
                 "has " + std::to_string(starts[i]) + at + "; takes " + std::to_string(starts[i - 1]) +
                     ", which is before it, or more");
    }
    if (starts[i] > tokens) {
      fail_value(op, name,
                 "has " + std::to_string(starts[i]) + at + "; takes up to " + std::to_string(tokens) +
                     ", the tokens of " + of);
    }
  }
  return starts;
}

BlockTable::BlockTable(const char* op, const Tensor& x, int64_t pages, const char* of)
    : op_(op),
      at_(static_cast<const int32_t*>(x.const_data_ptr())),
      pages_(pages),
      row_(x.strides()[0]),
      column_(x.strides()[1]),
      of_(of) {}

int64_t BlockTable::page(int64_t sequence, int64_t column) const {
  const int64_t page = at_[sequence * row_ + column * column_];
  if (page < 0 || page >= pages_) {
    fail_value(op_, "block_table",
               "has " + std::to_string(page) + " at [" + std::to_string(sequence) + ", " + std::to_string(column) +
                   "]; takes 0 to " + std::to_string(pages_ - 1) + ", the pages of " + of_);
  }
  return page;
}

}  // namespace wmma_ops::cpu
