"""The CPU ops against torch: what a call costs, and that composing ours loses nothing.

python bench/bench_cpu.py [--quick] [--json FILE]
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

import running
import torch
import torch.nn.functional as F
from running import check

import wmma_ops
from wmma_ops.cli.benching import OURS, Calls, Case

Ours = Callable[[], object]


def beside(ours: Ours, theirs: Ours, flops: float | None = None, inside=torch.no_grad) -> Calls:
    with inside():
        got, want = (x[0] if isinstance(x, tuple) else x for x in (ours(), theirs()))
    return Calls({OURS: ours, "torch": theirs}, flops=flops, error=check(got, want), inside=inside)


def _of(dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.randn(shape).to(dtype) for shape in shapes]


def small(op: Callable, inside) -> Calls:
    a = torch.randn(16, 16)
    return beside(lambda: op(a, a), lambda: torch.matmul(a, a), 2 * 16**3, inside)


def product(dtype: torch.dtype, size: int) -> Calls:
    a, b = _of(dtype, (size, size), (size, size))
    return beside(lambda: wmma_ops.matmul(a, b), lambda: a @ b, 2 * size**3)


def linear(dtype: torch.dtype) -> Calls:
    x, w, bias = _of(dtype, (1024, 1024), (1024, 1024), (1024,))
    return beside(
        lambda: wmma_ops.linear(x, w, bias, activation="gelu"), lambda: F.gelu(F.linear(x, w, bias)), 2 * 1024**3
    )


def two(dtype: torch.dtype) -> Calls:
    a, b0, b1 = _of(dtype, (4096, 256), (256, 256), (256, 256))
    flops = 4 * 4096 * 256 * 256
    return beside(lambda: wmma_ops.gemm_gemm(a, b0, b1, activation="relu"), lambda: torch.relu(a @ b0) @ b1, flops)


def attention(dtype: torch.dtype, theirs: Callable) -> Calls:
    q, k, v = _of(dtype, *[(2, 8, 512, 64)] * 3)
    return beside(lambda: wmma_ops.attention(q, k, v), lambda: theirs(q, k, v), 4 * 16 * 512 * 512 * 64)


def _softmax(q, k, v):
    return torch.softmax(q @ k.mT * 64**-0.5, -1) @ v


def epilogue() -> Calls:
    (a,) = _of(torch.bfloat16, (1024, 1024))
    return beside(
        lambda: wmma_ops.gemm(a, a, bias=a[0], activation="silu", multiply=a),
        lambda: F.silu(a @ a + a[0]) * a,
        2 * 1024**3,
    )


def importing() -> Calls:
    def start(code: str) -> Ours:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    return Calls({OURS: start("import torch, wmma_ops"), "import torch": start("import torch")})


def cases() -> Iterator[Case]:
    yield Case("calls", "wmma_ops.matmul 16x16, no_grad", partial(small, wmma_ops.matmul, torch.no_grad))
    raw = torch.ops.wmma.matmul
    yield Case("calls", "torch.ops.wmma.matmul 16x16, inference_mode", partial(small, raw, torch.inference_mode))
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        yield Case("products", f"matmul 1024³ {name}", partial(product, dtype, 1024))
        yield Case("products", f"linear+gelu 1024³ {name}", partial(linear, dtype))
        yield Case("products", f"gemm_gemm 4096,256,256,256 relu {name}", partial(two, dtype))
    sdpa = F.scaled_dot_product_attention
    yield Case("attention beside SDPA", "2x8 512x512x64 float32", partial(attention, torch.float32, sdpa))
    yield Case(
        "attention beside its composition", "2x8 512x512x64 float32", partial(attention, torch.float32, _softmax)
    )
    # Not quick, so not in the baseline: how torch does these depends on the CPU. (With AMX its attention in bfloat16
    # took 0.4 of float32's time; ours multiplies in float32 everywhere.)
    yield Case(
        "attention beside SDPA", "2x8 512x512x64 bfloat16", partial(attention, torch.bfloat16, sdpa), quick=False
    )
    yield Case("products", "matmul 256³ float16", partial(product, torch.float16, 256), quick=False)
    yield Case("products", "gemm 1024³ bfloat16, bias+silu+multiply", epilogue, quick=False)
    yield Case("a new process", "import torch, wmma_ops", importing, ("import torch",), quick=False)


if __name__ == "__main__":
    running.main(cases(), running.parser(__doc__).parse_args(), "cpu")
