// A checked attention in the one form that kernels take: every tensor as [batch, heads, rows, columns] with strides.
#pragma once

#include "../../kernels/wmma/tile/attention_arguments.hpp"
#include "launch.hpp"

namespace wmma_ops {

// One of the struct's operands.
using Which = wmma::AttentionOperand wmma::AttentionArguments::*;

class AttentionProblem {
 public:
  AttentionProblem(const Attention& p, int64_t place);

  // Binds a tensor of q's (k's) batch and heads to an operand; `columns` is false for lse and its like.
  void bind(Which which, const char* name, const Tensor& x, bool columns = true);

  wmma::AttentionArguments arguments{};  // but for what the plan decides
  launch::Touched touched;

  ProblemKey key(bool backward) const;

  // The batch has one dimension in a kernel: the host goes through what does not join it, one launch an index.
  void join_batch();
  int64_t outer_count() const;
  void start(int64_t index, wmma::AttentionArguments& moved) const;

 private:
  struct Bound {
    Which which;
    int64_t size;  // of an element
    int64_t rows, columns;
    int64_t batch[64];  // strides, outermost first
  };
  const Bound* bound(Which which) const;
  // Which way its memory runs (1: along the rows' index), and how many neighbours are aligned.
  struct Run {
    bool down;
    int64_t vec;
  };
  Run run_of(Which which) const;
  bool wide_of(Which which) const;

  const Attention& p_;
  int64_t place_;
  int64_t batch_dims_;
  Sizes batch_;  // outermost first
  std::vector<Bound> bound_;
  int64_t outer_dims_ = 0;
};

}  // namespace wmma_ops
