"""The documented functions: names for activations, ValueError and TypeError, the raw op where no gradient is asked for."""

from wmma_ops.ops.functions.attentions import CAUSAL, attention, kv_append, scaled_attention, varlen_attention  # noqa: F401
from wmma_ops.ops.functions.products import addmm, addmm_, baddbmm, gemm, gemm_gemm, linear, matmul, scaled_mm  # noqa: F401
