// What calls of attention are given beside queries, keys and values: one list, of which the schemas of its five ops,
// the calls' own form and its defaults are made, and the part of a kernel's key that follows from it.
#pragma once

#include "calls/types.hpp"

namespace wmma_ops {

using OptInt = std::optional<int64_t>;
using OptNumber = std::optional<double>;
using OptType = std::optional<ScalarType>;

// The ops, each a bit: attention, varlen_attention, scaled_attention and the gradients of the first two.
enum AttentionOp : unsigned {
  kDense = 1,
  kPacked = 2,
  kScaled = 4,
  kDenseGradients = 8,
  kPackedGradients = 16,

  kNever = 0,
  kOfDense = kDense | kDenseGradients,
  kOfPacked = kPacked | kPackedGradients,
  kGradients = kDenseGradients | kPackedGradients,
  kOfScores = kOfDense | kOfPacked,
  kAlways = kOfScores | kScaled,
};

// clang-format off
// X(type, name, default, which ops take it, which of them must be given it), in the order of all schemas: tensors first.
#define WMMA_ATTENTION_OPTIONS(X)                                                                          \
  X(OptTensor, out, {}, kGradients, kGradients)               /* the results, and the gradient of lse */   \
  X(OptTensor, lse, {}, kGradients, kGradients)                                                            \
  X(OptTensor, cu_seq_q, {}, kOfPacked, kOfPacked)            /* [sequences + 1] */                        \
  X(OptTensor, cu_seq_k, {}, kOfPacked, kPackedGradients)     /* likewise; without pages alone */          \
  X(OptTensor, scale_q, {}, kScaled, kNever)                  /* float32, broadcasts to [batch…, heads] */ \
  X(OptTensor, scale_k, {}, kScaled, kNever)                  /* likewise, of key heads */                 \
  X(OptTensor, scale_v, {}, kScaled, kNever)                                                               \
  X(OptTensor, mask, {}, kOfDense, kNever)                    /* bool: may look; else added */             \
  X(OptTensor, g_lse, {}, kGradients, kNever)                                                              \
  X(OptTensor, sinks, {}, kOfScores, kNever)                  /* broadcast to [batch…, heads] */           \
  X(OptTensor, alibi_slopes, {}, kOfScores, kNever)           /* likewise */                               \
  X(OptTensor, seqused_k, {}, kOfPacked, kNever)              /* [sequences] */                            \
  X(OptTensor, block_table, {}, kPacked, kNever)              /* [sequences, pages of a sequence] */       \
  X(OptTensor, dropout_seed, {}, kOfScores, kNever)           /* a number, beside dropout_p */             \
  X(OptTensor, mod_a, {}, kOfScores, kNever)                  /* what score and mask functions read */     \
  X(OptTensor, mod_b, {}, kOfScores, kNever)                                                               \
  X(OptTensor, mod_c, {}, kOfScores, kNever)                                                               \
  X(OptTensor, mod_d, {}, kOfScores, kNever)                                                               \
  X(OptTensor, k_descale, {}, kPacked, kNever)                /* broadcast to [sequences, key heads] */    \
  X(OptTensor, v_descale, {}, kPacked, kNever)                                                             \
  X(OptTensor, block_mask, {}, kOfScores, kNever)             /* int8 [batch…, heads, blocks, blocks] */   \
  X(int64_t, is_causal, 0, kOfDense | kScaled, kNever)        /* see Causal */                             \
  X(int64_t, max_q, 0, kOfPacked, kOfPacked)                  /* the longest sequence */                   \
  X(OptInt, max_k, {}, kOfPacked, kPackedGradients)           /* none: as a row of the table has */        \
  X(OptNumber, scale, {}, kAlways, kNever)                    /* none: 1/√E */                             \
  X(bool, enable_gqa, false, kAlways, kNever)                                                              \
  X(OptType, out_dtype, {}, kScaled, kNever)                                                               \
  X(int64_t, window_left, -1, kOfScores, kNever)              /* keys; −1: no bound */                     \
  X(int64_t, window_right, -1, kOfScores, kNever)                                                          \
  X(double, softcap, 0, kOfScores, kNever)                    /* 0: none */                                \
  X(double, dropout_p, 0, kOfScores, kNever)                                                               \
  X(int64_t, score_mod, 0, kOfScores, kNever)                 /* functions of users' own, by code */       \
  X(int64_t, mask_mod, 0, kOfScores, kNever)                                                               \
  X(int64_t, block_q, 0, kOfScores, kNever)                   /* queries of a block of block_mask */       \
  X(int64_t, block_k, 0, kOfScores, kNever)

// X(field, its value): what of the options has kernels of its own, of a checked call p whose operands are bound in v
// (AttentionProblem::key). Fields of the border, and of plan/problem.py.
#define WMMA_ATTENTION_FACETS(X)                                                               \
  X(mask, p.mask ? element_code(type_of(*p.mask)) : int64_t{wmma::kNoElement})                 \
  X(key_mask, is_of_keys(p, v[kMask]))                                                         \
  X(mask_queries, has_pairs(p, v[kMask]))                                                      \
  X(mask_batches, is_bool(p.mask) && arguments.mask.batch_stride != 0)                         \
  X(mask_heads, is_bool(p.mask) && arguments.mask.head_stride != 0)                            \
  X(mask_vec, batch.outer_dims() == 0 ? mask_vec_of(p, arguments.mask) : 1)                    \
  X(sinks, v[kSinks].code)                                                                     \
  X(slopes, v[kSlopes].code)                                                                   \
  X(capped, p.softcap > 0)                                                                     \
  X(large_cap, p.softcap > wmma::kQuickCaps)                                                   \
  X(causal, p.up_to.has_value())                                                               \
  X(windowed, p.from.has_value())                                                              \
  X(drops, p.dropout_p > 0)                                                                    \
  X(score_mod, p.score_mod)                                                                    \
  X(mask_mod, p.mask_mod)                                                                      \
  X(mod_a, form_of(p.mod_a))                                                                   \
  X(mod_b, form_of(p.mod_b))                                                                   \
  X(mod_c, form_of(p.mod_c))                                                                   \
  X(mod_d, form_of(p.mod_d))                                                                   \
  X(block_q, p.block_q)                                                                        \
  X(block_k, p.block_k)
// clang-format on

struct AttentionOptions {
#define WMMA_OPTION(type, name, fallback, ...) type name = fallback;
  WMMA_ATTENTION_OPTIONS(WMMA_OPTION)
#undef WMMA_OPTION
};

}  // namespace wmma_ops
