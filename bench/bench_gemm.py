"""Our products against torch's on a GPU: medians in turn, cold L2, one line a shape, and the geometric means.

python bench/bench_gemm.py [--quick] [--json FILE]
"""

import statistics
import time

import torch
import torch.nn.functional as F
from gpu import Clock, check, matrix, parser, summary, write

import wmma_ops

BIG = [(8192, 8192, 8192), (4096, 4096, 4096), (4096, 14336, 4096), (4096, 4096, 14336)]
SMALL = [(1, 4096, 4096), (16, 4096, 4096), (128, 14336, 4096), (1000, 1000, 1000), (127, 1031, 515), (512, 512, 512)]
LAYERS = [(6144, 4096), (4096, 4096), (14336, 4096), (4096, 14336), (11008, 4096)]  # of language models: N, K
ROWS = (32, 128, 256, 512, 1024, 2048)
FUSED = [(4096, 4096, 4096), (8192, 1024, 1024), (16384, 4096, 1024), (512, 4096, 1024)]


def products(shapes, clock: Clock):
    for m, n, k in shapes:
        a, b = matrix(m, k), matrix(k, n)
        check(wmma_ops.matmul(a, b), a @ b)
        ours, theirs = clock.times([lambda a=a, b=b: wmma_ops.matmul(a, b), lambda a=a, b=b: torch.mm(a, b)])
        yield f"mm {m}x{n}x{k}", ours, theirs, 2 * m * n * k


def layers(clock: Clock):
    for m in ROWS:
        for n, k in LAYERS:
            x, w = matrix(m, k), matrix(n, k) * k**-0.5
            check(wmma_ops.linear(x, w), F.linear(x, w))
            ours, theirs = clock.times([lambda x=x, w=w: wmma_ops.linear(x, w), lambda x=x, w=w: F.linear(x, w)])
            yield f"linear {m}x{n}x{k}", ours, theirs, 2 * m * n * k


GELU = torch.compile(lambda x, w, b: F.gelu(F.linear(x, w, b)))
RESIDUAL = torch.compile(lambda x, w, b, r: F.linear(x, w, b) + r)
AFFINE = torch.compile(lambda c, a, w: torch.addmm(c, a, w.t(), alpha=0.5, beta=2.0))


def fused_calls(x, w, b, r) -> dict:
    """Ours, torch's and the compiled one of each kind."""
    return {
        "linear+gelu": (
            lambda: wmma_ops.linear(x, w, b, activation="gelu"),
            lambda: F.gelu(F.linear(x, w, b)),
            lambda: GELU(x, w, b),
        ),
        "linear+residual": (
            lambda: wmma_ops.linear(x, w, b, residual=r),
            lambda: F.linear(x, w, b) + r,
            lambda: RESIDUAL(x, w, b, r),
        ),
        "addmm 0.5, 2": (
            lambda: wmma_ops.addmm(r, x, w.t(), alpha=0.5, beta=2.0),
            lambda: torch.addmm(r, x, w.t(), alpha=0.5, beta=2.0),
            lambda: AFFINE(r, x, w),
        ),
    }


def fused(clock: Clock):
    for m, n, k in FUSED:
        for name, calls in fused_calls(matrix(m, k), matrix(n, k) * k**-0.5, matrix(n), matrix(m, n)).items():
            check(calls[0](), calls[1]())
            ours, eager, compiled = clock.times(calls)
            yield f"{name} {m}x{n}x{k}", ours, min(eager, compiled), 2 * m * n * k


def host_time(calls: int = 3000) -> tuple[float, float]:
    """Microseconds that a warm call keeps the host."""
    a = matrix(64, 64)
    found = []
    for call in (lambda: wmma_ops.matmul(a, a), lambda: torch.mm(a, a)):
        best = []
        for _ in range(5):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls // 10):
                call()
            best.append((time.perf_counter() - start) / (calls // 10) * 1e6)
        found.append(statistics.median(best))
    return found[0], found[1]


def main() -> None:
    options = parser(__doc__).parse_args()
    clock = Clock(options.quick)
    print(clock.header())
    rows = []
    groups = {
        "large": products(BIG, clock),
        "small": products(SMALL, clock),
        "layers": layers(clock),
        "fused": fused(clock),
    }
    for group, found in groups.items():
        ratios = []
        for name, ours, theirs, flops in found:
            ratios.append(theirs / ours)
            rate = flops / ours / 1e6
            rows.append({"group": group, "name": name, "ours_us": ours, "theirs_us": theirs, "tflops": rate})
            print(f"{name:36} {ours:8.1f} µs {rate:6.1f} TFLOP/s  torch {theirs:8.1f} µs  {theirs / ours:5.2f}×")
        print(f"{group}:", summary(ratios, "torch's speed"))
    ours, theirs = host_time()
    print(f"host time of a warm call: {ours:.1f} µs, torch.mm {theirs:.1f} µs")
    write(rows, options.json)


if __name__ == "__main__":
    main()
