"""Our products against torch's on a GPU: medians in turn, cold L2, one line a shape, and the geometric means.

python bench/bench_gemm.py [--quick] [--json FILE]
"""

from collections.abc import Callable, Iterator

import running
import torch
import torch.nn.functional as F
from running import check, compiled, matrix

import wmma_ops
from wmma_ops.cli.benching import OURS, Calls, Case

BIG = [(8192, 8192, 8192), (4096, 4096, 4096), (4096, 14336, 4096), (4096, 4096, 14336)]
SMALL = [(1, 4096, 4096), (16, 4096, 4096), (128, 14336, 4096), (1000, 1000, 1000), (127, 1031, 515), (512, 512, 512)]
LAYERS = [(6144, 4096), (4096, 4096), (14336, 4096), (4096, 14336), (11008, 4096)]  # of language models: N, K
ROWS = (32, 128, 256, 512, 1024, 2048)
FUSED = [(4096, 4096, 4096), (8192, 1024, 1024), (16384, 4096, 1024), (512, 4096, 1024)]


def _checked(calls: dict[str, Callable], flops: float) -> Calls:
    ours, theirs, *_ = calls.values()
    return Calls(calls, flops=flops, error=check(ours(), theirs()))


def product(m: int, n: int, k: int) -> Calls:
    a, b = matrix(m, k), matrix(k, n)
    return _checked({OURS: lambda: wmma_ops.matmul(a, b), "torch": lambda: torch.mm(a, b)}, 2 * m * n * k)


def layer(m: int, n: int, k: int) -> Calls:
    x, w = matrix(m, k), matrix(n, k) * k**-0.5
    return _checked({OURS: lambda: wmma_ops.linear(x, w), "torch": lambda: F.linear(x, w)}, 2 * m * n * k)


def _gelu(x, w, b):
    return F.gelu(F.linear(x, w, b))


def _residual(x, w, b, r):
    return F.linear(x, w, b) + r


def _affine(c, a, w):
    return torch.addmm(c, a, w.t(), alpha=0.5, beta=2.0)


# Ours, and what is written in torch, of x, w, b and r.
EPILOGUES: dict[str, tuple[Callable, Callable, Callable]] = {
    "linear+gelu": (
        lambda x, w, b, r: wmma_ops.linear(x, w, b, activation="gelu"),
        _gelu,
        lambda x, w, b, r: (x, w, b),
    ),
    "linear+residual": (lambda x, w, b, r: wmma_ops.linear(x, w, b, residual=r), _residual, lambda *given: given),
    "addmm 0.5, 2": (
        lambda x, w, b, r: wmma_ops.addmm(r, x, w.t(), alpha=0.5, beta=2.0),
        _affine,
        lambda x, w, b, r: (r, x, w),
    ),
}


def fused(kind: str, m: int, n: int, k: int) -> Calls:
    ours, torchs, takes = EPILOGUES[kind]
    given = matrix(m, k), matrix(n, k) * k**-0.5, matrix(n), matrix(m, n)
    taken = takes(*given)
    calls = {OURS: lambda: ours(*given), "torch": lambda: torchs(*taken), "compiled": lambda: compiled(torchs)(*taken)}
    return _checked(calls, 2 * m * n * k)


def host() -> Calls:
    """What a warm call keeps the host: the GPU is done with each before the next comes."""
    a = matrix(64, 64)
    return _checked({OURS: lambda: wmma_ops.matmul(a, a), "torch": lambda: torch.mm(a, a)}, 2 * 64**3)


def cases() -> Iterator[Case]:
    def case(group: str, name: str, make: Callable, *given, peers=("torch",), device=None) -> Case:
        return Case(group, name, lambda: make(*given), peers, device or running.DEVICE)

    for group, make, name, shapes in (
        ("large", product, "mm", BIG),
        ("small", product, "mm", SMALL),
        ("layers", layer, "linear", [(m, n, k) for m in ROWS for n, k in LAYERS]),
    ):
        for m, n, k in shapes:
            yield case(group, f"{name} {m}x{n}x{k}", make, m, n, k)
    for m, n, k in FUSED:
        for kind in EPILOGUES:
            yield case("fused", f"{kind} {m}x{n}x{k}", fused, kind, m, n, k, peers=("torch", "compiled"))
    yield case("host time of a warm call", "mm 64x64x64", host, device="cpu")


if __name__ == "__main__":
    running.main(cases(), running.parser(__doc__).parse_args())
