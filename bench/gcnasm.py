"""Attention for RDNA4 by hand in twelve versions, whose times on a card are published, by the emulator's clock: no number
of its rules was fitted to them.

    git clone --branch carhuang/opus_attn_gfx1201 https://github.com/carlushuang/gcnasm build/gcnasm
    python bench/gcnasm.py build/gcnasm [--version N …]

Compiled by our clang (the card's by ROCm's) and executed for as many blocks as a WGP holds; results are held against
float64. A version's whole time is that of its loop, for all key tiles of 32 heads of 2,048 queries and keys, on 32 WGPs at
2.97 GHz; what the card's clock was is not said. Prints each beside what its README measured on an RX 9070 XT, and whether
both have them in one order (Spearman's coefficient). Fails where a result is wrong. Three minutes on one core.
"""

import argparse
import math
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

import wmma_ops
from wmma_ops.emulator.timing import Timing
from wmma_ops.hardware import arch
from wmma_ops.jit import kernels_dir
from wmma_ops.plan import model

FOLDER = "opus_attn_gfx1201"
# TFLOP/s of its README at commit 31d6326, of 32 heads of 2,048 queries and keys.
MEASURED = (30.3, 27.5, 6.6, 28.1, 15.0, 23.5, 34.4, 29.9, 30.9, 42.9, 39.2, 37.2)
TARGET, GIGAHERTZ = "gfx1201", 2.97
SIZE, HEADS, KEYS = 128, 32, 2048
TURNED = (9, 10)  # versions that take V by columns
_ROUNDING = 2.0**-8


class Version(NamedTuple):
    number: int
    kernel: wmma_ops.Kernel
    rows: int  # of a block
    tile: int  # of keys

    @property
    def waves(self) -> int:
        return self.rows // 16


def version(folder: Path, number: int) -> Version:
    stem = f"attn_gfx1201_kernel_v{number}"
    text = (folder / f"{stem}.cc").read_text()
    text = text.replace(f'#include "{stem}_template.hpp"', (folder / f"{stem}_template.hpp").read_text())
    name, rows, tile = re.search(r"void (opus_attn\w+)<opus_attn_traits<(\d+), (\d+), 128>>", text).groups()
    options = ("-std=c++20", "-w", f"-I{folder}", f"-I{kernels_dir.PATH / kernels_dir.COMPAT / 'hip'}")
    return Version(number, wmma_ops.Kernel(text, name, options=options), int(rows), int(tile))


def run(of: Version, heads: int, keys: int) -> tuple[float, Timing]:
    """The largest error, of what is allowed, and how long a WGP's blocks take."""
    torch.manual_seed(0)
    q, k, v = (torch.rand(1, heads, keys, SIZE).sub(0.5).bfloat16() for _ in range(3))
    out = torch.full_like(q, math.nan)
    given = v.mT.contiguous() if of.number in TURNED else v
    sizes = (*map(np.int32, (1, heads, keys, SIZE)), np.float32(SIZE**-0.5))
    with wmma_ops.emulate(TARGET, timing=True) as emulation:
        of.kernel[(keys // of.rows, heads, 1), 32 * of.waves]((q, k, given, out, *sizes))
    weights = (q.double() @ k.double().mT / SIZE**0.5).softmax(-1)
    exact, sums = weights @ v.double(), weights @ v.double().abs()
    error = ((out.double() - exact).abs() / (4 * _ROUNDING * (exact.abs() + sums))).max().item()
    return error, emulation.launches[0].timing()


def teraflops(of: Version, timing: Timing) -> float:
    """Of all heads, each WGP with as many blocks at once as it holds."""
    tiles = HEADS * KEYS // of.rows * (KEYS // of.tile)  # that blocks go through, of all heads
    cycles = tiles / model.wholes(arch.target(TARGET)) / timing.blocks * timing.loops[0].cycles
    return 4 * HEADS * KEYS**2 * SIZE / (cycles / GIGAHERTZ) / 1e3


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    def ranks(values: Sequence[float]) -> list[int]:
        order = sorted(values)
        return [order.index(value) for value in values]

    return statistics.correlation(ranks(a), ranks(b))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path)
    parser.add_argument("--version", type=int, nargs="+", default=[*range(len(MEASURED))], choices=range(len(MEASURED)))
    parser.add_argument("--heads", type=int, default=3, help="that are executed (%(default)s)")
    parser.add_argument("--keys", type=int, default=256, help="that are executed (%(default)s)")
    options = parser.parse_args(arguments)
    failed, found, measured = 0, [], []
    for number in options.version:
        of = version(options.clone / FOLDER, number)
        error, timing = run(of, options.heads, options.keys)
        failed += not error <= 1
        found.append(teraflops(of, timing))
        measured.append(MEASURED[number])
        loop, ratio = timing.loops[0], found[-1] / measured[-1]
        print(
            f"v{number:<3} {found[-1]:6.1f} TFLOP/s by the clock, {measured[-1]:5.1f} measured, {ratio:.2f}; "
            f"{timing.blocks} blocks of {of.waves} waves, {loop.cycles:.0f} cycles for {of.tile} keys, bound by {loop.bound}"
            + ("" if error <= 1 else f"  WRONG {error:.3g}"),
            flush=True,
        )
    if len(found) > 2:
        mean = statistics.geometric_mean(ours / theirs for ours, theirs in zip(found, measured, strict=True))
        print(f"Spearman {spearman(found, measured):.2f}, mean of the ratios {mean:.2f}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
