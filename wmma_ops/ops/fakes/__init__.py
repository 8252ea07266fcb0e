"""What each op's result looks like, for torch.compile, torch.export and meta tensors.

In Python because sizes are symbolic there: one graph serves every size. Refuses what changes the result's shape or
type, in the words of the library's checks; the rest is checked by the library when the call runs, but for `kv_append`,
which has no result: all that shapes and types tell. Where a size is known only then (rows picked by a mask), it is
taken to fit, and a check of it is left in the graph.
"""

# ruff: noqa: F401  (fakes are looked up here by the names of their ops)
import torch

from wmma_ops.ops.fakes.attentions import attention, scaled_attention, varlen_attention
from wmma_ops.ops.fakes.pages import kv_append
from wmma_ops.ops.fakes.products import addmm, addmm_, baddbmm, gemm, gemm_gemm, linear, matmul, scaled_mm
from wmma_ops.ops.library import NAMESPACES, OPS, WRITERS

for _op in (*OPS, *WRITERS):
    for _namespace in NAMESPACES:
        torch.library.register_fake(f"{_namespace}::{_op}", globals()[_op])
