// What the attention kernels are given: one plain struct, filled by the host library and read by the kernels. Included
// by both, so it uses nothing but the language.
#pragma once

#include <wmma/tile/arguments.hpp>

namespace wmma {

// A tensor [batch, heads, rows, columns], its strides in elements; 0 repeats. k and v have a head for each group of
// query heads, lse and delta have one column.
struct AttentionOperand {
  const void* data;
  long long batch_stride;
  long long head_stride;
  long long row_stride;
  long long column_stride;
};

// out = softmax(scale·Q·Kᵀ + mask)·V and lse. Backward: g_x is the gradient of x, and delta[row] = Σ g_out·out − g_lse.
struct AttentionArguments {
  AttentionOperand q, k, v, mask, out, lse;
  AttentionOperand g_out, g_lse, delta, g_q, g_k, g_v;
  double scale;
  long long shift;  // kCausal: row i sees the keys up to i + shift
  // Split keys: the splits' rows, [splits, batch·heads·sq, kPartHead + ev] of the accumulator's type (rows/dense.hpp).
  // Where tiles are scheduled dynamically: their list (balanced/tile_list.hpp). Gradients by warpgroups: the queries'
  // sums, and whose turn it is.
  void* partial;
  int sq, skv, e, ev;
  int batch, heads, group;  // query heads; how many of them share a key head
  int splits, keys_of_split;
  int tiles;       // blocks along the rows of a head
  int slices;      // blocks that share a tile of rows, each with a part of the columns
  int head_group;  // heads that persistent blocks go through before others, so that the L2 cache holds their keys
};

// Up to here scores are capped by a quick tanh, of results of 16 bits.
constexpr double kQuickCaps = 1024;

// What else bears on scores (see terms/scores.hpp). Sinks and slopes are a number of each head.
struct ScoreArguments {
  AttentionOperand sinks, slopes;
  double cap;
  double steepness;    // what Q·Kᵀ is multiplied by, as a multiple of the cap
  long long from;      // row i sees the keys from i + from on
  long long diagonal;  // and stands at key i + diagonal
  // Dropout (see terms/dropout.hpp). What is kept is multiplied by `kept`.
  const long long* seed;
  double kept;
  unsigned threshold;
  unsigned first_batch;     // of those that a launch is for, among all: to dropout, and to functions of scores
  AttentionOperand blocks;  // rows and columns are blocks of queries and of keys (see rows/blocks.hpp)
};

struct RuledAttentionArguments : AttentionArguments {
  ScoreArguments rules;
};

// A small tensor that functions of scores read: by indices, which are less than the sizes. Strides are in elements.
struct ScoreTensorOperand {
  const void* data;
  long long strides[4];
  int sizes[4];
};

// Of score functions and mask functions (see terms/functions.hpp).
struct ScoreFunctionArguments {
  ScoreTensorOperand tensors[4];
};

// And what a kernel is given beside them.
template <class Others>
struct ModifiedArguments : Others {
  ScoreFunctionArguments functions;
};

// Whole numbers, of int64 where they are wide, else of int32.
struct NumbersOperand {
  const void* data;
  long long stride;
  int is_wide;
};

// Packed sequences (see rows/varlen.hpp): tensors without a batch, where in them each sequence starts, and, one more,
// where the last one ends.
struct SequenceArguments {
  NumbersOperand starts_q, starts_k;
  NumbersOperand used_k;  // so many of its keys are there; without data all
  int count;
  int tokens_q, tokens_k;    // of the tensors
  int longest_q, longest_k;  // of a longer sequence the rest does not count
  int most_q, most_k;        // that there are blocks for
  int unlisted;              // sequences that persistent blocks begin with (balanced/tile_list.hpp)
};

struct SequencesArguments : RuledAttentionArguments {
  SequenceArguments sequences;
};

// Keys and values in pages (see rows/paged.hpp), of which k and v are the first one's: which pages a sequence has, in a
// row of a table of int32.
struct PageArguments {
  const void* table;
  long long sequence_stride, column_stride;  // in numbers
  long long k_stride, v_stride;              // from page to page, in elements
  int count;                                 // of all pages
};

struct PagesArguments : SequencesArguments {
  PageArguments pages;
};

// What numbers of 8 bits are multiplied by: a float32 for each sequence and key head, strides in elements; 0 repeats.
struct DescaleOperand {
  const void* data;  // without it 1
  long long sequence_stride, head_stride;
};

// Pages of numbers of 8 bits (see rows/paged.hpp).
struct NarrowPagesArguments : PagesArguments {
  DescaleOperand k_descale, v_descale;
  double of_values;  // a block's own: what its values are multiplied by
};

// Where queries, keys and values are all of 8 bits (see rows/scaled.hpp): how many times as much they stand for, a
// float32 of each head, of k and v of each key head, without data 1; and values turned (passes/transpose.hpp).
struct ScaleArguments {
  AttentionOperand q, k, v;
  void* transposed;  // a line of so many keys for each column
  int transposed_keys;
};

struct ScaledArguments : RuledAttentionArguments {
  ScaleArguments scales;
};

// For new keys and values, [tokens, heads, size], that go into pages (see append.hpp): of k_stride and v_stride the
// pages' own operands tell, whose batch they are.
struct AppendArguments {
  AttentionOperand key, value, key_pages, value_pages;
  AttentionOperand cos, sin;    // a row for each place in a sequence
  NumbersOperand starts, used;  // where sequences start among the tokens; how many keys they have with these
  PageArguments pages;
  int count;  // of sequences
  int tokens;
  int columns;  // of the table
  int places;
  DescaleOperand k_descale, v_descale;  // of pages of numbers of 8 bits
};

// A bool mask's bits (see terms/hidden.hpp). Strides are in rows, of which each 128 columns have so many: of all there
// are fewer than 2^31, as a mask has 128 bytes for each.
struct MaskWordsArguments {
  void* data;
  int batch_stride, head_stride, rows;
};

// For the kernel whose tiles sm_90's copy engine brings and, where it can, takes away.
template <class Others>
struct MappedArguments : Others {
  TileMap q_map, k_map, v_map, out_map, g_out_map;
  MaskWordsArguments words;
  int team;          // gradients: blocks that share a head's keys
  int passes;        // in which each of them has some
  int query_slices;  // gradients: parts of the queries, where that many blocks share keys
  int whole;         // forward: tiles of rows before those whose keys are split (balanced/last_round.hpp)
};
using MappedAttentionArguments = MappedArguments<PagesArguments>;

}  // namespace wmma
