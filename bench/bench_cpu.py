"""The CPU ops against torch: what a call costs, and that composing ours loses nothing. python bench/bench_cpu.py [--json]

Each line: a limit on ours ÷ torch's time (both medians of one run, in turn), and whether it holds. Exits with 1 where
one does not.
"""

import argparse
import json
import math
import platform
import statistics
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from timing import commit, in_turn

import wmma_ops
from wmma_ops.ops import library


def _close(got, want):
    got, want = (x[0] if isinstance(x, tuple) else x for x in (got, want))
    error = (got.double() - want.double()).abs().max() / want.double().abs().max()
    assert error < 2e-2, f"wrong result: {error:.2g}"


def small():
    a = torch.randn(16, 16)
    with torch.no_grad():
        yield "wmma_ops.matmul 16x16, no grad", 2.2, lambda: wmma_ops.matmul(a, a), lambda: torch.matmul(a, a), 2000
    op = torch.ops.wmma.matmul
    yield "torch.ops.wmma.matmul 16x16, inference_mode", 2.2, lambda: op(a, a), lambda: torch.matmul(a, a), 2000


def large():
    for dtype in (torch.float32, torch.bfloat16):
        a, b = torch.randn(1024, 1024).to(dtype), torch.randn(1024, 1024).to(dtype)
        yield f"matmul 1024³ {dtype}", 1 / 0.97, lambda a=a, b=b: wmma_ops.matmul(a, b), lambda a=a, b=b: a @ b, 1
    for dtype in (torch.float32, torch.bfloat16):
        x, w, bias = (torch.randn(s).to(dtype) for s in ((1024, 1024), (1024, 1024), (1024,)))
        yield (
            f"linear+gelu 1024³ {dtype}",
            1 / 0.95,
            lambda x=x, w=w, bias=bias: wmma_ops.linear(x, w, bias, activation="gelu"),
            lambda x=x, w=w, bias=bias: F.gelu(F.linear(x, w, bias)),
            1,
        )
        a, b0, b1 = (torch.randn(s).to(dtype) for s in ((4096, 256), (256, 256), (256, 256)))
        yield (
            f"gemm_gemm 4096,256,256,256 relu {dtype}",
            1 / 0.95,
            lambda a=a, b0=b0, b1=b1: wmma_ops.gemm_gemm(a, b0, b1, activation="relu"),
            lambda a=a, b0=b0, b1=b1: torch.relu(a @ b0) @ b1,
            1,
        )
    q, k, v = (torch.randn(2, 8, 512, 64) for _ in range(3))
    yield (
        "attention 2x8 512x512x64 float32, against softmax(q·kᵀ·s)·v",
        1 / 0.95,
        lambda: wmma_ops.attention(q, k, v),
        lambda: torch.softmax(q @ k.mT * 64**-0.5, -1) @ v,
        1,
    )


def informative():
    """No limit: what the fused torch op does, and where one rounding in bfloat16 costs time on a CPU."""
    for dtype in (torch.float32, torch.bfloat16):
        q = torch.randn(2, 8, 512, 64).to(dtype)
        yield (
            f"attention 2x8 512x512x64 {dtype}, against SDPA",
            math.inf,
            lambda q=q: wmma_ops.attention(q, q, q),
            lambda q=q: F.scaled_dot_product_attention(q, q, q),
            1,
        )
    a = torch.randn(1024, 1024).bfloat16()
    yield (
        "gemm 1024³ bfloat16, bias+silu+multiply",
        math.inf,
        lambda: wmma_ops.gemm(a, a, bias=a[0], activation="silu", multiply=a),
        lambda: F.silu(a @ a + a[0]) * a,
        1,
    )
    h = torch.randn(256, 256).half()
    yield "matmul 256³ float16", math.inf, lambda: wmma_ops.matmul(h, h), lambda: h @ h, 1


def import_milliseconds() -> float:
    code = "import time, torch; t = time.perf_counter(); import wmma_ops; print((time.perf_counter() - t) * 1e3)"
    times = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout) for _ in range(5)
    ]
    return statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    records = []
    for group in (small, large, informative):
        for name, limit, ours, theirs, calls in group():
            with torch.inference_mode("inference_mode" in name):
                _close(ours(), theirs())
                pair = in_turn(ours, theirs, rounds=31, calls=calls)
            records.append(
                {
                    "case": name,
                    "ours_us": pair.ours * 1e6,
                    "torch_us": pair.theirs * 1e6,
                    "ratio": pair.ours / pair.theirs,
                    "spread": pair.spread,
                    "limit": None if limit == math.inf else limit,
                    "holds": pair.ours / pair.theirs <= limit,
                }
            )
    milliseconds, size = import_milliseconds(), library.PATH.stat().st_size
    extra = {"import_ms": milliseconds, "import_holds": milliseconds <= 150, "library_bytes": size}
    holds = all(record["holds"] for record in records) and extra["import_holds"] and size < 3_000_000
    if as_json:
        print(json.dumps({"rows": records, **extra, "holds": holds}, indent=2, ensure_ascii=False))
        return 0 if holds else 1
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in lines if "model name" in line), "")
    print(
        f"{cpu or platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, commit {commit()}"
    )
    print(f"{'case':<62}{'ours µs':>11}{'torch µs':>11}{'ratio':>8}{'limit':>8}{'spread':>8}")
    for r in records:
        limit = "" if r["limit"] is None else f"{r['limit']:.2f}"
        mark = "" if r["holds"] else "  missed"
        print(
            f"{r['case']:<62}{r['ours_us']:>11.2f}{r['torch_us']:>11.2f}{r['ratio']:>8.2f}{limit:>8}{r['spread']:>8.0%}{mark}"
        )
    print(f"geomean of ratios {statistics.geometric_mean([r['ratio'] for r in records]):.2f}")
    print(f"import wmma_ops after torch: {milliseconds:.0f} ms (limit 150); library: {size:,} bytes (limit 3,000,000)")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
