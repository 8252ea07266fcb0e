#include "cpu/numbers.hpp"

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace wmma_ops::cpu {

namespace {

// x, or what it holds on a GPU: waits for that.
Tensor here(const Tensor& x) {
  if (x.is_cpu()) return x;
  Tensor copy = aten::empty(sizes_of(x), type_of(x));
  return aten::copy_(copy, x), copy;
}

// That no sequence is longer than was said.
void check_most(const char* op, const char* name, int64_t most, const std::vector<int64_t>& starts) {
  for (size_t i = 1; i < starts.size(); ++i) {
    const int64_t length = starts[i] - starts[i - 1];
    if (length > most) fail_number(op, name, most, length, ", the longest sequence, or more");
  }
}

// So many of each sequence's keys as there are.
void check_used(const Attention& p, const std::vector<int64_t>& used, const std::vector<int64_t>& starts) {
  const Sequences& of = *p.sequences;
  for (size_t i = 0; i < used.size(); ++i) {
    const int64_t most = p.block_table ? of.tokens_k : starts[i + 1] - starts[i];
    if (used[i] < 0 || used[i] > most) {
      fail_value(p.op, "seqused_k", "has ", used[i], " at ", i, "; takes 0 to ", most,
                 (p.block_table ? ", the keys of its pages" : ", the keys of that sequence"));
    }
    if (p.block_table && used[i] > of.longest_k) {
      fail_value(p.op, "max_k", "is ", of.longest_k, "; takes ", used[i], ", the longest sequence, or more");
    }
  }
}

}  // namespace

bool are_checked_everywhere() {
  const char* asked = std::getenv("WMMA_OPS_CHECK");
  return asked != nullptr && std::strcmp(asked, "1") == 0;
}

std::vector<int64_t> numbers_of(const Tensor& x) {
  const Tensor wide = aten::to(here(x), ScalarType::Long);
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
  if (starts[0] != 0) fail_value(op, name, "starts at ", starts[0], "; takes 0");
  for (size_t i = 1; i < starts.size(); ++i) {
    const std::string at = " at " + std::to_string(i);
    if (starts[i] < starts[i - 1]) {
      fail_value(op, name, "has ", starts[i], at, "; takes ", starts[i - 1], ", which is before it, or more");
    }
    if (starts[i] > tokens) {
      fail_value(op, name, "has ", starts[i], at, "; takes up to ", tokens, ", the tokens of ", of);
    }
  }
  return starts;
}

BlockTable::BlockTable(const char* op, const Tensor& x, int64_t pages, const char* of)
    : op_(op),
      table_(here(x)),
      at_(static_cast<const int32_t*>(table_.const_data_ptr())),
      pages_(pages),
      row_(table_.strides()[0]),
      column_(table_.strides()[1]),
      of_(of) {}

int64_t BlockTable::page(int64_t sequence, int64_t column) const {
  const int64_t page = at_[sequence * row_ + column * column_];
  if (page < 0 || page >= pages_) {
    fail_value(op_, "block_table", "has ", page, " at [", sequence, ", ", column, "]; takes 0 to ", pages_ - 1,
               ", the pages of ", of_);
  }
  return page;
}

SequenceNumbers checked_numbers(const Attention& p) {
  const Sequences& of = *p.sequences;
  const auto [qn, kn, vn] = p.names;
  SequenceNumbers found;
  found.starts_q = starts_of(p.op, "cu_seq_q", *p.cu_seq_q, qn, of.tokens_q);
  check_most(p.op, "max_q", p.max_q, found.starts_q);
  if (p.seqused_k) found.used = numbers_of(*p.seqused_k);
  if (p.block_table) {
    found.table.emplace(p.op, *p.block_table, of.pages, kn);
  } else {
    found.starts_k = starts_of(p.op, "cu_seq_k", *p.cu_seq_k, kn, of.tokens_k);
    check_most(p.op, "max_k", of.longest_k, found.starts_k);
  }
  check_used(p, found.used, found.starts_k);
  for (int64_t i = 0; found.table && i < of.count; ++i) {
    if (found.starts_q[i + 1] == found.starts_q[i]) continue;  // nobody looks at its keys
    for (int64_t first = 0; first < found.used[i]; first += of.page_size) found.table->page(i, first / of.page_size);
  }
  return found;
}

AppendNumbers checked_numbers(const KvAppend& p) {
  std::vector<int64_t> starts = starts_of(p.op, "cu_seq", p.cu_seq, "key", p.tokens), used = numbers_of(p.used);
  BlockTable table(p.op, p.block_table, p.pages, "key_pages");
  const auto new_ones = [&](int64_t i) { return starts[i + 1] - starts[i]; };
  for (int64_t i = 0; i < p.count; ++i) {
    const std::string has = "has " + std::to_string(used[i]) + " at " + std::to_string(i);
    const int64_t most = p.columns * p.page_size;
    if (used[i] < new_ones(i) || used[i] > most) {
      fail_value(p.op, "seqused_k", has, "; takes ", new_ones(i), " to ", most,
                 ", the new keys and what its pages hold");
    }
    if (p.cos && new_ones(i) > 0 && used[i] > p.places) {
      fail_value(p.op, "cos", "has shape ", *p.cos, "; takes ", used[i],
                 " places, the keys of the longest sequence, or more");
    }
    for (int64_t at = used[i] - new_ones(i); at < used[i]; at = (at / p.page_size + 1) * p.page_size) {
      table.page(i, at / p.page_size);
    }
  }
  return {std::move(starts), std::move(used), std::move(table)};
}

}  // namespace wmma_ops::cpu
