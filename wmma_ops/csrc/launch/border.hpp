// What crosses the border to the Python planner, by name: the fields of each kind of problem, which are also its key,
// and the numbers that each kind of plan decides of its kernels' arguments. Python's dataclasses
// (wmma_ops/plan/problem.py) have the same fields in the same order; wmma_ops/runtime/border.py holds the two against
// each other when it is loaded.
#pragma once

#include <cstdint>

#include "calls/attention_options.hpp"

// clang-format off
#define WMMA_GEMM_PROBLEM(X)                                                                                            \
  X(device) X(a) X(b) X(c) X(d) X(bias) X(row_scale) X(col_scale) X(a_scale) X(multiply) X(a_order) X(b_order) X(a_vec)  \
  X(b_vec) X(c_vec) X(d_vec) X(multiply_vec) X(wide) X(a_activation) X(activation) X(batch_dims) X(batch) X(m) X(n)     \
  X(k) X(precision) X(k2) X(a2_order) X(b2_order) X(a2_vec) X(b2_vec) X(aux) X(gate) X(gate_order) X(gate_bias)      \
  X(slopes) X(row_sums) X(invariant)
#define WMMA_GEMM_NUMBERS(X)                                                                                            \
  X(splits) X(k_split) X(tiles_m) X(tiles_n) X(whole) X(split_stride) X(lines_a) X(lines_b) X(lines_d) X(aligned)  \
  X(sum_slabs) X(sums_at)

#define WMMA_GEMM_GEMM_PROBLEM(X)                                                                                       \
  X(device) X(a) X(c) X(d) X(bias0) X(bias1) X(gate) X(a_order) X(b0_order) X(gate_order) X(b1_order) X(a_vec) X(b0_vec) \
  X(gate_vec) X(b1_vec) X(c_vec) X(d_vec) X(wide) X(activation) X(batch_dims) X(batch) X(m) X(n) X(k) X(h)
#define WMMA_GEMM_GEMM_NUMBERS(X) X(blocks) X(lines_a) X(lines_b0) X(lines_b1) X(lines_d)

// Facets: calls/attention_options.hpp.
#define WMMA_ATTENTION_PROBLEM(X)                                                                                       \
  X(device) X(backward) X(dtype) X(stored) X(e) X(ev) X(q_order) X(q_vec) X(k_order) X(k_vec) X(v_order) X(v_vec)        \
  X(out_vec) X(g_order) X(g_vec) X(wide) X(batch) X(heads) X(group) X(sq) X(skv) X(seen) X(sequences) X(page_size)      \
  X(unordered) X(invariant) WMMA_ATTENTION_FACETS(X)
#define WMMA_ATTENTION_NUMBERS(X)                                                                                       \
  X(splits) X(keys_of_split) X(tiles) X(slices) X(queries) X(packed) X(lines_k) X(lines_out) X(head_group) X(whole)  \
  X(team) X(passes) X(block_q) X(block_k) X(blocks_at) X(blocks_of_batches) X(blocks_of_heads) X(transposed) X(transposed_at) X(lines_v) \
  X(words_at) X(words_rows) X(words_tiles) X(query_slices) X(unlisted)

#define WMMA_KV_APPEND_PROBLEM(X)                                                                                       \
  X(device) X(dtype) X(stored) X(angle) X(vec) X(e) X(ev) X(heads) X(page_size) X(angles) X(interleaved) X(tokens)
#define WMMA_KV_APPEND_NUMBERS(X) X(blocks)

#define WMMA_ACTIVATION_GRADIENT_PROBLEM(X) \
  X(device) X(dtype) X(sums) X(activation) X(gates) X(aligns) X(vec) X(columns) X(rows)
#define WMMA_ACTIVATION_GRADIENT_NUMBERS(X) X(slabs) X(aligns)

// Of each launch of a plan.
#define WMMA_LAUNCH(X) X(function) X(grid_x) X(grid_y) X(block) X(shared) X(early) X(cooperative)

// The kinds, by the number that stands before a problem's fields.
#define WMMA_KINDS(X)                                                                                      \
  X(0, Gemm, GEMM) X(1, GemmGemm, GEMM_GEMM) X(2, Attention, ATTENTION) X(3, KvAppend, KV_APPEND)           \
  X(4, ActivationGradient, ACTIVATION_GRADIENT)
// clang-format on

namespace wmma_ops::border {

#define WMMA_FIELD(name, ...) int64_t name = 0;
#define WMMA_STRUCTS(number, Kind, KIND)     \
  struct Kind##Problem {                     \
    static constexpr int64_t kKind = number; \
    WMMA_##KIND##_PROBLEM(WMMA_FIELD)        \
  };                                         \
  struct Kind##Numbers {                     \
    WMMA_##KIND##_NUMBERS(WMMA_FIELD)        \
  };
WMMA_KINDS(WMMA_STRUCTS)
struct Launch {
  WMMA_LAUNCH(WMMA_FIELD)
};
#undef WMMA_STRUCTS
#undef WMMA_FIELD

// Each struct on a line: its name, then its fields.
inline constexpr char kText[] =
#define WMMA_FIELD(name, ...) " " #name
#define WMMA_LINES(number, Kind, KIND)                                  \
  #Kind "Problem " #number WMMA_##KIND##_PROBLEM(WMMA_FIELD) "\n" #Kind \
                                                             "Numbers " #number WMMA_##KIND##_NUMBERS(WMMA_FIELD) "\n"
    WMMA_KINDS(WMMA_LINES) "Launch 0" WMMA_LAUNCH(WMMA_FIELD) "\n";
#undef WMMA_LINES
#undef WMMA_FIELD

}  // namespace wmma_ops::border
