"""Triton's products and attention on Radeon, compiled by its AMD code and executed by the emulator: right, and how quick.

    pip install triton
    python bench/triton_kernels.py

Triton needs no GPU to compile. Its kernels here are the usual ones: a product whose blocks go through K, attention that
goes through keys with a running softmax, its gradients by a kernel for keys and values and one for queries. Of each some
tiles and numbers of waves are tried, and held against float64; the line has the best one by the clock of
docs/pages/loops.md. Waves there store the same bytes to shared memory, so that the emulator does not watch it. Fails
where a result is wrong. Twenty minutes on one core.
"""

import argparse
import itertools
import math
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from unwatched import unwatched

import wmma_ops
from wmma_ops.emulator.timing import Timing

TARGETS = ("gfx1100", "gfx1201")
_K, _KEYS = 1024, 1024


@triton.jit
def product(a, b, d, k, a_row, b_row, d_row, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """B by columns: `b_row` is the stride of its columns."""
    rows, columns = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    depth = tl.arange(0, K)
    a += rows[:, None] * a_row + depth[None, :]
    b += columns[None, :] * b_row + depth[:, None]
    sums = tl.zeros((M, N), tl.float32)
    for _ in range(0, k, K):
        sums = tl.dot(tl.load(a), tl.load(b), sums)
        a += K
        b += K
    tl.store(d + rows[:, None] * d_row + columns[None, :], sums.to(d.dtype.element_ty))


@triton.jit
def attention(q, k, v, out, scale, queries, keys, M: tl.constexpr, N: tl.constexpr, E: tl.constexpr):
    """Of heads one after the other; `scale` in powers of two."""
    tile, head = tl.program_id(0), tl.program_id(1)
    rows, columns, others = tile * M + tl.arange(0, M), tl.arange(0, E), tl.arange(0, N)
    of_q = head * queries * E + rows[:, None] * E + columns[None, :]
    k += head * keys * E + others[None, :] * E + columns[:, None]
    v += head * keys * E + others[:, None] * E + columns[None, :]
    x = tl.load(q + of_q)
    largest = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    sums = tl.zeros((M, E), tl.float32)
    for _ in range(0, keys, N):
        scores = tl.dot(x, tl.load(k)) * scale
        above = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - above[:, None])
        factor = tl.exp2(largest - above)
        total = total * factor + tl.sum(weights, 1)
        sums = tl.dot(weights.to(v.dtype.element_ty), tl.load(v), sums * factor[:, None])
        largest = above
        k += N * E
        v += N * E
    tl.store(out + of_q, (sums / total[:, None]).to(out.dtype.element_ty))


@triton.jit
def gradients_of_keys(
    q, k, v, g_out, lse, delta, g_k, g_v, scale, queries, N: tl.constexpr, M: tl.constexpr, E: tl.constexpr
):
    """Of a tile of one head's keys: four products a tile of queries. `scale` in powers of two, as `lse`."""
    keys, columns, rows = tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, E), tl.arange(0, M)
    mine = keys[:, None] * E + columns[None, :]
    x, y = tl.load(k + mine), tl.load(v + mine)
    sums_k, sums_v = tl.zeros((N, E), tl.float32), tl.zeros((N, E), tl.float32)
    for first in range(0, queries, M):
        others = (first + rows)[:, None] * E + columns[None, :]
        of_q, of_out = tl.load(q + others), tl.load(g_out + others)
        weights = tl.exp2(tl.dot(x, tl.trans(of_q)) * scale - tl.load(lse + first + rows)[None, :])
        sums_v = tl.dot(weights.to(q.dtype.element_ty), of_out, sums_v)
        slopes = weights * (tl.dot(y, tl.trans(of_out)) - tl.load(delta + first + rows)[None, :])
        sums_k = tl.dot(slopes.to(q.dtype.element_ty), of_q, sums_k)
    tl.store(g_k + mine, (sums_k * (scale * 0.6931471805599453)).to(q.dtype.element_ty))
    tl.store(g_v + mine, sums_v.to(q.dtype.element_ty))


@triton.jit
def gradients_of_queries(
    q, k, v, g_out, lse, delta, g_q, scale, keys, M: tl.constexpr, N: tl.constexpr, E: tl.constexpr
):
    """Of a tile of queries: three products a tile of keys."""
    rows, columns, others = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, E), tl.arange(0, N)
    mine = rows[:, None] * E + columns[None, :]
    x, y = tl.load(q + mine), tl.load(g_out + mine)
    of_lse, of_delta = tl.load(lse + rows)[:, None], tl.load(delta + rows)[:, None]
    sums = tl.zeros((M, E), tl.float32)
    for first in range(0, keys, N):
        there = (first + others)[:, None] * E + columns[None, :]
        of_k, of_v = tl.load(k + there), tl.load(v + there)
        weights = tl.exp2(tl.dot(x, tl.trans(of_k)) * scale - of_lse)
        slopes = weights * (tl.dot(y, tl.trans(of_v)) - of_delta)
        sums = tl.dot(slopes.to(q.dtype.element_ty), of_k, sums)
    tl.store(g_q + mine, (sums * (scale * 0.6931471805599453)).to(q.dtype.element_ty))


def compiled(function, target: str, types: dict[str, str], constants: dict, waves: int, stages: int, folder: Path):
    """The kernel, and its bytes of shared memory; pointers and whole numbers are multiples of 16."""
    signature = types | dict.fromkeys(constants, "constexpr")
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(types.values()) if kind != "fp32"}
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=aligned)
    options = {"num_warps": waves, "num_stages": stages}
    found = triton.compile(source, target=GPUTarget("hip", target, 32), options=options)
    path = folder / f"{function.__name__}.hsaco"
    path.write_bytes(found.asm["hsaco"])
    return wmma_ops.Kernel.from_code_object(path), found.metadata.shared


def timed(kernel, target: str, grid, waves: int, shared: int, *given) -> Timing:
    missing = len(kernel.parameters) - len(given)  # room for Triton's own tools
    with unwatched(), wmma_ops.emulate(target, timing=True) as emulation:
        kernel[grid, 32 * waves](*given, *[None] * missing, shared=shared)
    return emulation.launches[0].timing()


def share(timing: Timing) -> float:
    return next((loop.share for loop in timing.loops if loop.share > 0), 0.0)


def products(target: str, folder: Path):
    types = dict.fromkeys(("a", "b", "d"), "*bf16")
    types |= dict.fromkeys(("k", "a_row", "b_row", "d_row"), "i32")
    for (m, n), depth, waves, stages in itertools.product(
        ((128, 128), (128, 256), (256, 128)), (32, 64), (4, 8), (1, 2)
    ):
        constants = {"M": m, "N": n, "K": depth}
        kernel, shared = compiled(product, target, types, constants, waves, stages, folder)
        a, b = torch.randn(m, _K).bfloat16(), torch.randn(n, _K).bfloat16()
        d = torch.full((m, n), math.nan).bfloat16()
        sizes = map(np.int32, (_K, _K, _K, n))
        timing = timed(kernel, target, (1, 1), waves, shared, a, b, d, *sizes)
        exact = a.double() @ b.double().T
        yield f"{m}x{n}x{depth}, {waves} waves, {stages} stages", timing, (d - exact).abs().max() / exact.abs().max()


def attentions(target: str, folder: Path, size: int):
    types = dict.fromkeys(("q", "k", "v", "out"), "*bf16") | {"scale": "fp32", "queries": "i32", "keys": "i32"}
    for m, n, waves, stages in itertools.product((64, 128), (32, 64), (4, 8), (1, 2)):
        constants = {"M": m, "N": n, "E": size}
        kernel, shared = compiled(attention, target, types, constants, waves, stages, folder)
        q, k, v = (torch.randn(1, 1, rows, size).bfloat16() for rows in (m, _KEYS, _KEYS))
        out = torch.full_like(q, math.nan)
        sizes = map(np.int32, (m, _KEYS))
        scale = np.float32(size**-0.5 / math.log(2))
        timing = timed(kernel, target, (1, 1), waves, shared, q, k, v, out, scale, *sizes)
        scores = q.double() @ k.double().mT * size**-0.5
        exact = scores.softmax(-1) @ v.double()
        yield f"{m} queries, {n} keys, {waves} waves, {stages} stages", timing, (out - exact).abs().max()


def gradients(target: str, folder: Path, size: int, of_keys: bool):
    """Of one tile's keys, or queries, beside as many of the others as `_KEYS`."""
    outputs = ("g_k", "g_v") if of_keys else ("g_q",)
    types = dict.fromkeys(("q", "k", "v", "g_out"), "*bf16") | dict.fromkeys(("lse", "delta"), "*fp32")
    types |= dict.fromkeys(outputs, "*bf16") | {"scale": "fp32", "queries" if of_keys else "keys": "i32"}
    for mine, others, waves, stages in itertools.product((64, 128), (16, 32, 64), (4, 8), (1, 2)):
        constants = {"N" if of_keys else "M": mine, "M" if of_keys else "N": others, "E": size}
        function = gradients_of_keys if of_keys else gradients_of_queries
        kernel, shared = compiled(function, target, types, constants, waves, stages, folder)
        queries, keys = (_KEYS, mine) if of_keys else (mine, _KEYS)
        q, k, v, g_out = (torch.randn(n, size).bfloat16() for n in (queries, keys, keys, queries))
        scores = q.double() @ k.double().mT * size**-0.5
        weights, lse = scores.softmax(-1), (scores.logsumexp(-1) / math.log(2)).float()
        delta = (weights @ v.double() * g_out.double()).sum(-1)
        slopes = weights * (g_out.double() @ v.double().mT - delta[:, None]) * size**-0.5
        exact = (slopes.mT @ q.double(), weights.mT @ g_out.double()) if of_keys else (slopes @ k.double(),)
        found = [torch.full(x.shape, math.nan).bfloat16() for x in exact]
        scale = np.float32(size**-0.5 / math.log(2))
        given = (q, k, v, g_out, lse, delta.float(), *found, scale, np.int32(_KEYS))
        timing = timed(kernel, target, 1, waves, shared, *given)
        error = max((x - y).abs().max() / y.abs().max() for x, y in zip(found, exact, strict=True))
        yield f"{mine} beside {others}, {waves} waves, {stages} stages", timing, error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", action="append", choices=TARGETS, help="both, where none is named")
    parser.add_argument("--all", action="store_true", help="each one that is tried, not only the best")
    options = parser.parse_args()
    torch.manual_seed(0)
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for target in options.target or TARGETS:
            works = {"product NT": products(target, folder)}
            works |= {f"attention {size}": attentions(target, folder, size) for size in (64, 128)}
            for size in (64, 128):
                works |= {
                    f"gradients {size}, {of}": gradients(target, folder, size, of == "k, v") for of in ("k, v", "q")
                }
            bests = {}
            for work, tried in works.items():
                found = []
                for told, timing, error in tried:
                    is_right = bool(error < 0.02)
                    failed += not is_right
                    found.append((share(timing), told, timing))
                    if options.all or not is_right:
                        right = "right" if is_right else f"WRONG by {error:.3g}"
                        print(f"    {told:<40} {share(timing):.3f} of {timing.cycles} cycles, {right}", flush=True)
                best, told, timing = max(found, key=lambda one: one[0])
                print(f"{target}  {work:<19} {best:.2f} ({timing.share:.2f})  {told}", flush=True)
                bests[work] = best
            for size in (64, 128):  # the five products that are needed, of both kernels' loops
                both = 5 / (4 / bests[f"gradients {size}, k, v"] + 3 / bests[f"gradients {size}, q"])
                print(f"{target}  gradients {size:<9} {both:.2f}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
