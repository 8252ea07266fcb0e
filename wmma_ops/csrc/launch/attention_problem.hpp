// A checked attention in the one form that kernels take: every tensor as [batch, heads, rows, columns] with strides.
#pragma once

#include "launch/operands.hpp"

namespace wmma_ops {

// What a kernel of any kind is given a part of.
struct AllAttentionArguments : wmma::NarrowPagesArguments {
  wmma::ScaleArguments scales;
};

class AttentionProblem : public Operands<AttentionProblem, AllAttentionArguments, wmma::AttentionOperand, 18> {
 public:
  // Binds q, k, v, the mask and the slopes. `p` must outlive this, as must what else is bound.
  AttentionProblem(const Attention& p, int64_t device);

  // In the order of RuledAttentionArguments.
  enum Operand {
    kQ,
    kK,
    kV,
    kMask,
    kOut,
    kLse,
    kGOut,
    kGLse,
    kDelta,
    kGQ,
    kGK,
    kGV,
    kSinks,
    kSlopes,
    kBlocks,
    kScaleQ,
    kScaleK,
    kScaleV,
    kOperands
  };
  static std::array<wmma::AttentionOperand*, kOperands> pointers(AllAttentionArguments& x) {
    return {&x.q,        &x.k,       &x.v,   &x.mask, &x.out,         &x.lse,          &x.g_out,        &x.g_lse,
            &x.delta,    &x.g_q,     &x.g_k, &x.g_v,  &x.rules.sinks, &x.rules.slopes, &x.rules.blocks, &x.scales.q,
            &x.scales.k, &x.scales.v};
  }

  // A tensor of q's (k's) batch and heads; those whose core is kAlongRows, as lse, have no columns, those that are
  // kOfBatch no rows either.
  void bind(Operand which, const char* name, const Tensor& x, View::Core core = View::kMatrix);

  // What else depends on the outer batch's index.
  void move(wmma::PagesArguments& x, int64_t index) const;

  void bind_scales();

  void join_batch();  // once all are bound: the batch has one dimension in a kernel

  ProblemKey key(bool backward) const;

  // Where the plan's first kernel turns values, in its workspace.
  void bind_transposed(const border::AttentionNumbers& numbers, const Tensor& workspace);

  // The block mask that the plan's first kernel finds, in its workspace.
  void bind_found_blocks(const border::AttentionNumbers& numbers, const Tensor& workspace);

  // The kernels of a plan with functions of scores.
  void launch_modified(const Way& way, const Plan& plan) const;

  // The kernels of a plan whose tiles sm_90's copy engine brings.
  void launch_mapped(const Way& way, const Plan& plan, const border::AttentionNumbers& numbers) const;

 private:
  // act(arguments), of each part of the batch, with those of functions of scores.
  template <class Others, class Act>
  void each_modified(const Act& act) const;
  template <class Act>
  void each_modified(const Act& act) const;
  template <class Others>
  void launch_with_maps(const Way& way, const Plan& plan, const border::AttentionNumbers& numbers,
                        const Others& others) const;
  void bind_dropout();
  void bind_sequences(const Sequences& of);
  void bind_pages(const Sequences& of);
  void bind_blocks_of_sequences(const Tensor& states);
  void bind_functions();
  int64_t query_rows() const { return p_.sequences ? p_.sequences->tokens_q : p_.sq; }
  int64_t key_rows() const;  // one after the other: in pages, those of one
  ScalarType in_memory() const { return p_.is_scaled ? p_.stored : p_.type; }  // queries are
  Direction way_of(Operand which) const;
  MappedMatrix mapped(const wmma::AttentionOperand& x, int64_t rows, int64_t columns, int64_t heads, int64_t lines,
                      ScalarType type) const;
  MappedMatrix mapped_transposed(int64_t lines) const;
  MappedMatrix mapped_keys(wmma::AttentionOperand x, int64_t page_stride, int64_t columns, int64_t lines) const;
  MappedMatrix mapped_packed(const wmma::AttentionOperand& q, int64_t queries) const;

  const Attention& p_;
  wmma::ScoreFunctionArguments functions_{};
  int64_t device_;
  int64_t batch_dims_;
};

}  // namespace wmma_ops
