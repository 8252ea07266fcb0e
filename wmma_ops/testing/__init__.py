"""Cases, float64 references and error bounds: one set for the tests and benches of every backend.

from wmma_ops.testing import cases, run
for case in cases("gemm"):
    run(case, backend="cpu")          # raises Mismatch, with the worst coordinates
"""

from wmma_ops.testing.cases import cases
from wmma_ops.testing.cases.case import AttentionCase, GemmCase, GemmGemmCase, VarlenAttentionCase
from wmma_ops.testing.suite import Mismatch, backends, run

__all__ = ["AttentionCase", "GemmCase", "GemmGemmCase", "Mismatch", "VarlenAttentionCase", "backends", "cases", "run"]
