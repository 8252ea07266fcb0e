"""The documented functions: names for activations, ValueError and TypeError, the raw op where no gradient is asked for."""

# ruff: noqa: F401  (the functions are taken from here)
from wmma_ops.ops.functions.attentions import CAUSAL, attention, kv_append, scaled_attention, varlen_attention
from wmma_ops.ops.functions.products import addmm, addmm_, baddbmm, gemm, gemm_gemm, linear, matmul, scaled_mm
