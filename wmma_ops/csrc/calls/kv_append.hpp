// New keys and values into the pages of sequences, on whatever device their tensors are.
#pragma once

#include "calls/problem.hpp"

namespace wmma_ops {

// The tokens from cu_seq[i] to cu_seq[i + 1] become the last of the used[i] keys of sequence i, whose key j lies in
// page block_table[i][j / page_size]. With cos and sin the first 2·angles elements of a key are rotated by those of its
// position: element c and element c + angles, or, interleaved, neighbours. Pages of numbers of 8 bits have what is
// divided by the descales, and nothing beyond their largest number.
struct KvAppend {
  Tensor key, value;              // [tokens, heads, E] and [tokens, heads, Ev]
  Tensor key_pages, value_pages;  // [pages, page size, heads, size]
  Tensor block_table, cu_seq, used;
  OptTensor cos = {}, sin = {};  // [places, angles]
  bool interleaved = false;
  OptTensor k_descale = {}, v_descale = {};  // what broadcasts to [count, heads]

  // Filled in by check.
  static constexpr const char* op = "kv_append";
  Device device{};
  ScalarType type{};
  ScalarType stored{};  // of the pages
  int64_t tokens = 0, heads = 0, e = 0, ev = 0, pages = 0, page_size = 0, count = 0, columns = 0;
  int64_t places = 0, angles = 0;

  void check();

 private:
  void check_pages();
  void check_numbers();
  void check_angles();
  void check_memory() const;
};

void kv_append(const KvAppend& p);

}  // namespace wmma_ops
