// What an op is asked to do, checked: the one form that the CPU, emulated and GPU paths share. `check` refuses what
// cannot be done, before anything is computed.
#pragma once

#include <array>
#include <utility>

#include "calls/attention_options.hpp"
#include "calls/checks.hpp"

namespace wmma_ops {

// How an op's users call its operands, for messages.
struct Names {
  const char* a = "a";
  const char* b = "b";
  const char* c = "c";
  const char* row_scale = "row_scale";
  const char* col_scale = "col_scale";
  const char* bias = "bias";
  const char* multiply = "multiply";
  const char* gate = "gate";
  const char* gate_bias = "gate_bias";
};

// D = cast(act(alpha·(pro(A)·B + A2·B2)·row_scale[m]·col_scale[n] + beta·C + bias[n]) · multiply), pro(A) =
// act_a(A·a_scale[k]).
//
// A gate, like B, is in the place of multiply: what that would be is A·gate + gate_bias[n].
struct Gemm {
  const char* op;
  Tensor a;  // [batch…, M, K]
  Tensor b;  // [batch…, K, N]
  OptTensor c = {}, bias = {}, row_scale = {}, col_scale = {}, a_scale = {}, multiply = {};
  OptTensor a2 = {};  // [batch…, M, K2]
  OptTensor b2 = {};  // [batch…, K2, N]
  double alpha = 1, beta = 1;
  int64_t a_activation = 0, activation = 0;
  std::optional<ScalarType> out_dtype = {};
  Names names = {};
  OptTensor aux = {};  // where what the activation is given is kept: as the result, and in its type
  OptTensor gate = {}, gate_bias = {};
  OptTensor gate_aux = {};  // where what that gives is kept, beside aux
  // The product is the gradient by act(c)·multiply: the result is that by c, and what is kept the one by multiply.
  bool slopes = false;
  std::optional<ScalarType> row_sums = {};  // the sums of A's rows are asked for beside, in this type

  // Filled in by check.
  Device device{};
  int64_t m = 0, n = 0, k = 0, k2 = 0;
  Sizes batch = {};
  Sizes out_sizes = {};  // [batch…, M, N]
  ScalarType in{}, in_b{}, out{};

  // After it, where there is a second pair and no gate, neither K nor K2 is 0: a pair with nothing to sum up is gone.
  void check();
  bool has_prologue() const { return a_scale || a_activation != 0; }
  // Whether it is gated and no more, which there are kernels for.
  bool is_gated_alone() const { return gate && !c && !row_scale && !col_scale && !has_prologue() && !a2 && alpha == 1; }

 private:
  void check_pair();
  void check_gate() const;
  void drop_empty_pair();
};

// D0 = act(alpha0·A·B0 + bias0) [· (A·gate)], rounded to A's type; D1 = alpha1·D0·B1 + beta1·C + bias1.
struct GemmGemm {
  const char* op;
  Tensor a;   // [batch…, M, K]
  Tensor b0;  // [batch…, K, H]
  Tensor b1;  // [batch…, H, N]
  OptTensor c = {}, bias0 = {}, bias1 = {}, gate = {};
  double alpha0 = 1, alpha1 = 1, beta1 = 1;
  int64_t activation = 0;
  std::optional<ScalarType> out_dtype = {};

  // Filled in by check.
  Device device{};
  int64_t m = 0, k = 0, h = 0, n = 0;
  Sizes batch = {};
  Sizes out_sizes = {};  // [batch…, M, N]
  ScalarType out{};

  void check();
};

// Of a number among an op's arguments. An integer result of a NaN or an infinity has no meaning, so integer operands
// take finite factors alone. Beside others they are float32, unless the operands are wider.
std::string text_of(double value);
void check_factor(const char* op, const char* name, double value, ScalarType operand);

// Of the factor of a C that may be missing: 1, its default, is then all that it may be.
void check_factor_of_c(const char* op, const char* name, double value, const OptTensor& c, ScalarType operand);

enum Causal : int64_t { kNotCausal = 0, kTopLeft = 1, kBottomRight = 2 };

// Of sequences one after the other along the tokens of attention's tensors: the queries from cu_seq_q[i] to
// cu_seq_q[i + 1] see the keys from cu_seq_k[i] to cu_seq_k[i + 1], or the first seqused_k[i] of them. With a block
// table keys lie in pages, in any order: the key j of sequence i, of seqused_k[i], in page block_table[i][j /
// page_size].
struct Sequences {
  int64_t longest_k = 0;  // max_k, or as many keys as a row of the table has
  int64_t count = 0, tokens_q = 0, tokens_k = 0;
  int64_t page_size = 0, pages = 0;  // 0: there are none
};

// What numbers of 8 bits are multiplied by that are keys or values: float32 that broadcasts to `sizes`, of sequences
// and key heads.
void check_descale(const char* op, const char* name, const Tensor& x, const Sizes& sizes, const Device& device);
// The same of `pages`, where they are not of the operands' own type.
void check_descale_of_pages(const char* op, const char* name, const OptTensor& x, const Sizes& sizes,
                            const Device& device, const char* pages, ScalarType stored, ScalarType type);

// A row of pages' indices for each of the sequences, whose number follows from where they start.
void check_block_table(const char* op, const Tensor& x, const Device& device, int64_t count, const char* starts);

// Small tensors that functions of users' own, which bear on scores, read.
constexpr int kScoreOperands = 4;
constexpr const char* kScoreOperandNames[kScoreOperands] = {"mod_a", "mod_b", "mod_c", "mod_d"};

// Which batch, head and query comes first, where a call is a part of another.
struct Origin {
  int64_t batch = 0, head = 0, query = 0;
};

struct AttentionNames {
  const char* q = "q";
  const char* k = "k";
  const char* v = "v";
};

// out = softmax(f(cap(scale·Q·Kᵀ) − slope·distance) + mask)·V and lse, the logarithm of each row's sum; a row with no
// key left gives 0 and −inf. cap(x) = softcap·tanh(x/softcap). A sink is one more score of each of a head's rows: it
// counts in lse and in what weights are divided by, and gives nothing; a row that sees nothing else has it as lse. f is
// a score function; a mask function hides keys, as bounds do.
struct Attention : AttentionOptions {
  Attention(const char* op, Tensor q, Tensor k, Tensor v, AttentionOptions options = {})
      : AttentionOptions(std::move(options)), op(op), q(std::move(q)), k(std::move(k)), v(std::move(v)) {}

  const char* op;
  Tensor q;  // [batch…, heads, Sq, E]
  Tensor k;  // [batch…, kv_heads, Skv, E]
  Tensor v;  // [batch…, kv_heads, Skv, Ev]
  // With it q, k and v are [tokens, heads, size], until check makes them [heads, tokens, size]; of pages k and v are
  // [pages, page size, heads, size], and then [pages, heads, page size, size]. batch is the number of sequences, sq and
  // skv are those of the longest.
  std::optional<Sequences> sequences = {};
  AttentionNames names = {};
  bool is_scaled = false;                   // q, k and v are of 8 bits, and out of a type of its own
  std::optional<bool> heads_together = {};  // whether a row's heads lie together in out; as in q, unless it is known

  // Filled in by check.
  Device device{};
  int64_t batch = 1, heads = 1, kv_heads = 1, sq = 0, skv = 0, e = 0, ev = 0;
  double factor = 1;     // the scale
  double steepness = 0;  // factor / softcap, as far as float32 has such numbers
  ScalarType type{};     // of the results
  ScalarType stored{};   // of k and v; with scales of q, too
  // Of sequences each adds the number of its keys less that of its queries to these.
  int64_t diagonal = 0;                // query i stands at key i + diagonal
  Origin origin = {};                  // the indices of the first score, to dropout and functions
  std::optional<int64_t> from, up_to;  // query i sees the keys from i + from to i + up_to; without one all on that side

  bool has_functions() const { return score_mod != 0 || mask_mod != 0; }
  const OptTensor& score_operand(int i) const { return *std::array{&mod_a, &mod_b, &mod_c, &mod_d}[i]; }

  void check();
  // That gradients may be computed of these results, once the rest is checked: all as the op's users have them.
  void check_gradients(const Tensor& g_out) const;
  Sizes head_sizes() const;  // [batch…, heads]
  // Dropout keeps a weight whose number of 32 bits is below the one, times the other.
  unsigned kept_below() const;
  double kept_factor() const;

 private:
  void check_operands();
  void check_scaled();
  void check_scales() const;
  void check_stored(bool paged);
  void check_sequences();
  void check_pages();
  void check_window();
  void check_dropout();
  void check_functions() const;
  void check_blocks() const;
  void check_of_heads(const char* name, const Tensor& x) const;
};

}  // namespace wmma_ops
