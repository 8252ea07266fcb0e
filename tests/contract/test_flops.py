"""FlopCounterMode counts our ops as it counts torch's."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

import wmma_ops
from wmma_ops.ops import flops
from wmma_ops.ops.library import OPS

A, B, C = torch.randn(3, 8, 16), torch.randn(3, 16, 12), torch.randn(3, 8, 12)
Q, K, V = torch.randn(2, 4, 8, 16), torch.randn(2, 2, 10, 16), torch.randn(2, 2, 10, 6)
PACKED, ENDS = torch.randn(8, 2, 16), torch.tensor([0, 3, 8])
PAGES = torch.randn(3, 16, 2, 16)

PAIRS = {  # ours, and torch's
    "matmul": (lambda: wmma_ops.matmul(A, B), lambda: A @ B),
    "matmul of one batch": (lambda: wmma_ops.matmul(A, B[0]), lambda: A @ B[0]),
    "addmm": (lambda: wmma_ops.addmm(C[0], A[0], B[0]), lambda: torch.addmm(C[0], A[0], B[0])),
    "addmm_": (lambda: wmma_ops.addmm_(C[0].clone(), A[0], B[0]), lambda: torch.addmm(C[0], A[0], B[0])),
    "baddbmm": (lambda: wmma_ops.baddbmm(C, A, B), lambda: torch.baddbmm(C, A, B)),
    "gemm": (lambda: wmma_ops.gemm(A, B, c=C, activation="gelu", multiply=C), lambda: F.gelu(A @ B + C) * C),
    "gemm of two pairs": (
        lambda: wmma_ops.gemm(A, B[0], a2=C, b2=torch.ones(12, 12)),
        lambda: A @ B[0] + C @ torch.ones(12, 12),
    ),
    "linear": (lambda: wmma_ops.linear(A, B[0].mT, residual=C), lambda: F.linear(A, B[0].mT) + C),
    "gemm_gemm": (lambda: wmma_ops.gemm_gemm(A, B, B.mT), lambda: A @ B @ B.mT),
    "gemm_gemm with a gate": (lambda: wmma_ops.gemm_gemm(A, B, B.mT, gate=B), lambda: ((A @ B) * (A @ B)) @ B.mT),
    "attention": (
        lambda: wmma_ops.attention(Q, K, V, enable_gqa=True),
        lambda: F.scaled_dot_product_attention(Q, K, V, enable_gqa=True),
    ),
    "varlen_attention": (
        lambda: wmma_ops.varlen_attention(PACKED, PACKED, PACKED, ENDS, ENDS, 5, 5),
        lambda: [(x @ x.mT) @ x for x in PACKED.transpose(0, 1).split((3, 5), 1)],
    ),
    "varlen_attention of pages": (
        lambda: wmma_ops.varlen_attention(
            PACKED,
            PAGES,
            PAGES,
            ENDS,
            None,
            5,
            None,
            seqused_k=torch.tensor([2, 20]),
            block_table=torch.zeros(2, 2, dtype=torch.int32),
        ),
        lambda: [
            (x @ torch.ones(x.shape[0], x.shape[2], keys)) @ torch.ones(x.shape[0], keys, x.shape[2])
            for x, keys in zip(PACKED.transpose(0, 1).split((3, 5), 1), (2, 20), strict=True)
        ],
    ),
    "scaled_attention": (
        lambda: wmma_ops.scaled_attention(*(x.to(torch.float8_e4m3fn) for x in (Q, K, V)), enable_gqa=True),
        lambda: F.scaled_dot_product_attention(Q, K, V, enable_gqa=True),
    ),
    "scaled_mm": (
        lambda: wmma_ops.scaled_mm(A[0].to(torch.int8), B[0].to(torch.int8), torch.ones(()), torch.ones(())),
        lambda: A[0] @ B[0],
    ),
}


def _counted(call) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


@pytest.mark.parametrize("name", PAIRS)
def test_as_many_as_torch_counts(name):
    ours, torchs = PAIRS[name]
    assert _counted(ours) == _counted(torchs) > 0


def test_every_op_has_a_formula():
    assert set(flops.FORMULAS) == set(OPS)


def test_a_training_step_of_a_swapped_model_counts_the_same():
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))
    x = torch.randn(5, 16)

    def step():
        model(x).sum().backward()

    want = _counted(step)
    wmma_ops.swap_(model)
    assert _counted(step) == want


def test_attentions_gradient_is_counted_as_torch_counts_it():
    q, k, v = (torch.randn(2, 4, 8, 16, device="meta") for _ in range(3))
    out, lse = torch.empty_like(q), torch.empty(2, 4, 8, device="meta")
    ours = _counted(lambda: torch.ops.wmma._attention_backward(out, q, k, v, out, lse))
    empty, seed = torch.empty(0, device="meta"), torch.empty((), dtype=torch.int64, device="meta")
    want = _counted(
        lambda: torch.ops.aten._scaled_dot_product_efficient_attention_backward(
            out, q, k, v, empty, out, lse, seed, seed, 0.0, [True, True, True, False]
        )
    )
    assert ours == want


@pytest.mark.full
def test_whichever_is_imported_first():
    """Each in a child of a process that has imported torch alone."""
    code = """if True:
        import os, torch
        for first in ("import wmma_ops", "import torch.utils.flop_counter"):
            if os.fork():
                os.wait()
                continue
            exec(first)
            import wmma_ops
            from torch.utils.flop_counter import FlopCounterMode
            with FlopCounterMode(display=False) as counter:
                wmma_ops.matmul(torch.ones(2, 3), torch.ones(3, 4))
            print(counter.get_total_flops(), flush=True)
            os._exit(0)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "48\n48\n", done.stderr
