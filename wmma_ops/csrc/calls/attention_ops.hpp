// Attention's ops as the dispatcher calls them, made of the list of their options.
#pragma once

#include "calls/attention_options.hpp"

namespace wmma_ops {

const char* attention_name(AttentionOp op);  // as it is registered

// "attention(Tensor q, …) -> (Tensor, Tensor)"
std::string attention_schema(AttentionOp op);

using BoxedKernel = void (*)(StableIValue*, uint64_t, uint64_t);
BoxedKernel attention_kernel(AttentionOp op);

}  // namespace wmma_ops
