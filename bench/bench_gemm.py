"""Our products against torch's on a GPU: medians in turn, cold L2, one line a shape, and the geometric means.

python bench/bench_gemm.py [--quick] [--json FILE]
"""

import argparse
import json
import math
import statistics
import time

import torch
import torch.nn.functional as F
from timing import commit

import wmma_ops

FLUSH_BYTES = 256 << 20
BIG = [(8192, 8192, 8192), (4096, 4096, 4096), (4096, 14336, 4096), (4096, 4096, 14336)]
SMALL = [(1, 4096, 4096), (16, 4096, 4096), (128, 14336, 4096), (1000, 1000, 1000), (127, 1031, 515), (512, 512, 512)]
FUSED = [(4096, 4096, 4096), (8192, 1024, 1024), (16384, 4096, 1024), (512, 4096, 1024)]


def times(calls: list, rounds: int, flush: torch.Tensor) -> list[float]:
    """The median of each call's time in microseconds, taken in turn."""
    for call in calls:
        for _ in range(3):
            call()
    found = [[] for _ in calls]
    for turn in range(rounds):
        for index in [*range(len(calls))][:: 1 if turn % 2 else -1]:
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.zero_()
            start.record()
            calls[index]()
            stop.record()
            stop.synchronize()
            found[index].append(start.elapsed_time(stop) * 1e3)
    return [statistics.median(x) for x in found]


def check(got: torch.Tensor, want: torch.Tensor) -> None:
    error = ((got.double() - want.double()).norm() / want.double().norm()).item()
    assert error < 1e-2, f"relative error {error}"


def matrix(*shape):
    return torch.randn(shape, dtype=torch.bfloat16, device="cuda")


def products(shapes, rounds, flush):
    for m, n, k in shapes:
        a, b = matrix(m, k), matrix(k, n)
        check(wmma_ops.matmul(a, b), a @ b)
        ours, theirs = times([lambda a=a, b=b: wmma_ops.matmul(a, b), lambda a=a, b=b: torch.mm(a, b)], rounds, flush)
        yield f"mm {m}x{n}x{k}", ours, theirs, 2 * m * n * k


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


def fused(rounds, flush):
    for m, n, k in FUSED:
        for name, calls in fused_calls(matrix(m, k), matrix(n, k) * k**-0.5, matrix(n), matrix(m, n)).items():
            check(calls[0](), calls[1]())
            ours, eager, compiled = times(calls, rounds, flush)
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", help="also write the rows to a file")
    options = parser.parse_args()
    rounds = 9 if options.quick else 31
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {commit()}, bf16, medians of {rounds}, cold L2")
    rows = []
    groups = {
        "large": products(BIG, rounds, flush),
        "small": products(SMALL, rounds, flush),
        "fused": fused(rounds, flush),
    }
    for group, found in groups.items():
        ratios = []
        for name, ours, theirs, flops in found:
            ratios.append(theirs / ours)
            rate = flops / ours / 1e6
            rows.append({"group": group, "name": name, "ours_us": ours, "theirs_us": theirs, "tflops": rate})
            print(f"{name:36} {ours:8.1f} µs {rate:6.1f} TFLOP/s  torch {theirs:8.1f} µs  {theirs / ours:5.2f}×")
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"{group}: geometric mean {mean:.2f}× torch's speed, least {min(ratios):.2f}×")
    ours, theirs = host_time()
    print(f"host time of a warm call: {ours:.1f} µs, torch.mm {theirs:.1f} µs")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
