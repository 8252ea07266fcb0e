"""HipKittens' bfloat16 products and attention, compiled by our clang and executed by the emulator: right, and how quick.

    git clone https://github.com/HazyResearch/HipKittens build/hipkittens
    python bench/hipkittens.py build/hipkittens

Those of gfx950 are on the branch main, that of gfx942 on cdna3: both are read from the clone as they were committed, with
sizes put in. Results are held against float64; then a block of many steps is timed by the clock of docs/pages/timing.md.
Where a kernel is wrong as published, that is shown first, then that it is right once mended. Fails where anything comes out
otherwise than is expected here. Two minutes on one core.
"""

import argparse
import io
import math
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import wmma_ops
from wmma_ops.emulator import EmulationError
from wmma_ops.emulator.assembly import parse_instruction
from wmma_ops.emulator.timing import LoopTiming, Timing, operation
from wmma_ops.hardware import arch
from wmma_ops.jit import kernels_dir

# What stands before each source: HIP's names, and what their layouts throw on the host.
_HEAD = "#include <hip/hip_runtime.h>\nnamespace std { struct runtime_error { runtime_error(const char*); }; }\n"
# Headers that are the host's, or parts of HIP's own.
_EMPTY = ("pyutils/pyutils.cuh", "pyutils/util.cuh", "hip/amd_detail/amd_hip_runtime.h", "hip/amd_detail/hip_ldg.h")
_ROUNDING = 2.0**-8  # of bfloat16, to nearest
Mend = tuple[str, str]  # what is found once or more, as a regular expression, and what it becomes

# The fourth phase of the product's loop reads B's next tile, and waits for its load after that: here, two phases before.
WAIT = (
    r"(?s)(load\(A_tile, st_subtile_a\);\s+G::load\(As\[0\]\[0\][^;]+;)",
    r'\1 asm volatile("s_waitcnt vmcnt(10)");',
)
# Where a maximum has grown, the sums so far are rescaled with one of four products of that step already in them, and after
# the loop their divisor by a scale that may be of an earlier step.
RESCALE = (
    (r"\n +mul_col\(o_reg, o_reg, scale_vec\);(\n +copy\(max_vec_prev, max_vec\);\n +pending_scale = 1;)", r"\1"),
    (r"(att_block_bf16_in, 3\), o_reg\);)", r"\1 if (pending_scale) mul_col(o_reg, o_reg, scale_vec);"),
    (r"(?s)(// Epilogue.*?)(mul\(norm_vec, norm_vec, scale_vec\);)", r"\1if (pending_scale) \2"),
)
# The last rows of a causal attention first: the clock times the block that comes first.
LAST = ((r"block_tile_idx = blockIdx\.y;", "block_tile_idx = gridDim.y - 1 - blockIdx.y;"),)


@dataclass(frozen=True)
class Case:
    target: str
    file: str  # the end of its path
    size: tuple[int, ...]  # of a product m, n, k; of attention batch, heads, groups, length
    expected: str = "right"
    mends: tuple[Mend, ...] = ()
    depth: int = 0  # of attention's heads; 0 for a product
    causal: bool = False
    scale: float = 1.0  # of Q's values
    timed: int = 0  # matrix instructions of a wave for 64 of K, or for 64 keys

    @property
    def told(self) -> str:
        if not self.depth:
            size = "x".join(map(str, self.size))
        else:
            batch, heads, groups, length = self.size
            size = f"{batch}x{heads}/{groups} heads, {length} keys" + f", Q times {self.scale:.0f}" * (self.scale != 1)
        return size + ", mended" * (not {*self.mends} <= {*LAST})


def cases():
    file = "mi325x/.*256_256_64_16.cpp"
    for size in ((256, 256, 128), (512, 256, 256), (512, 512, 512)):
        yield Case("gfx942", file, size)
    yield Case("gfx942", file, (256, 256, 8192), timed=128)
    file = "mi350x/256_256_64_32_with16x32.cpp"
    yield Case("gfx950", file, (256, 256, 128))
    yield Case("gfx950", file, (256, 256, 256), "race")
    for size in ((256, 256, 256), (512, 512, 512)):
        yield Case("gfx950", file, size, mends=(WAIT,))
    yield Case("gfx950", file, (256, 256, 8192), mends=(WAIT,), timed=64)
    for depth in (128, 64):
        for causal in (False, True):
            file = f"attn/gqa{'_causal' * causal}/kernel{'_d64' * (depth == 64)}.cpp"
            attention = {"target": "gfx950", "file": file, "depth": depth, "causal": causal}
            yield Case(**attention, size=(1, 1, 1, 256))
            yield Case(**attention, size=(2, 4, 2, 512))
            yield Case(**attention, size=(1, 1, 1, 512), scale=10, expected="wrong")
            yield Case(**attention, size=(1, 1, 1, 512), scale=10, mends=RESCALE)
            yield Case(**attention, size=(1, 1, 1, 2048), mends=LAST if causal else (), timed=depth // 4)


class Sources:
    """The files of both branches, in a folder."""

    def __init__(self, clone: Path, branches: dict[str, str], folder: Path):
        self.folder = folder
        for target, branch in branches.items():
            tracked = _git(clone, "ls-tree", "-r", "--name-only", branch).decode().splitlines()
            files = filter(re.compile(r"include/|kernels/(gemm/bf16fp32|attn/gqa)[^.]*\.cpp$").match, tracked)
            with tarfile.open(fileobj=io.BytesIO(_git(clone, "archive", branch, *files))) as archive:
                archive.extractall(folder / target, filter="data")
            for name in _EMPTY:
                path = folder / target / "include" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("")

    def kernel(self, case: Case) -> wmma_ops.Kernel:
        here = self.folder / case.target
        (path,) = (one for one in here.rglob("*.cpp") if re.search(case.file + "$", one.as_posix()))
        text, _ = re.split(r"(?:template<int D>\s+)?void dispatch_micro", path.read_text(), maxsplit=1)
        for found, wanted in case.mends:
            text, count = re.subn(found, wanted, text)
            if not count:
                raise ValueError(f"{path}: nothing there is like {found}")
        options = ["-std=c++20", "-w", f"-I{here / 'include'}", f"-I{kernels_dir.PATH / kernels_dir.COMPAT / 'hip'}"]
        options.append("-DKITTENS_CDNA3" if case.target == "gfx942" else "-DKITTENS_CDNA4")
        if not case.depth:
            for name, value in zip("MNK", case.size, strict=True):
                text = re.sub(rf"#define {name} \d+", f"#define {name} {value}", text)
            return wmma_ops.Kernel(_HEAD + text, "micro_tk", options=tuple(options))
        sizes = zip(("B", "H", "H_KV", "N", "D"), (*case.size, case.depth), strict=True)
        options += ["-ffast-math", *(f"-DATTN_{name}={value}" for name, value in sizes)]
        text += f"\ntemplate __global__ void attend_ker<{case.depth}>(const attn_globals<{case.depth}>);\n"
        return wmma_ops.Kernel(_HEAD + text, "attend_ker", options=tuple(options))


def _git(clone: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", clone, *arguments], stdout=subprocess.PIPE, check=True).stdout


def _struct(*tensors: torch.Tensor) -> tuple:
    """As their kernels take them: of each its address, four sizes and nothing more; then the stream."""
    found = []
    for x in tensors:
        found += [x, *map(np.uint64, [1] * (4 - x.dim()) + list(x.shape)), np.uint64(0)]
    return (*found, np.uint64(0))


def run(case: Case, kernel: wmma_ops.Kernel) -> tuple[float, Timing | None]:
    """The largest error, of what is allowed, and how long the first block takes."""
    torch.manual_seed(0)
    inputs, outputs, grid, check = (attention if case.depth else product)(case)
    shared = 65536 if case.target == "gfx942" else 160_000
    with wmma_ops.emulate(case.target, timing=case.timed > 0) as emulation:
        kernel[grid, 512](_struct(*inputs, *outputs), shared=shared)
    return check(), emulation.launches[0].timing() if case.timed else None


def product(case: Case):
    m, n, k = case.size
    a, b = torch.randn(m, k).bfloat16(), torch.randn(n, k).bfloat16()
    c = torch.full((m, n), math.nan).bfloat16()

    def error() -> float:
        exact, sums = a.double() @ b.double().T, a.double().abs() @ b.double().abs().T
        allowed = exact.abs() * 2 * _ROUNDING + sums * math.sqrt(k) * 2.0**-24  # it is rounded towards zero
        return ((c - exact).abs() / allowed).max().item()

    return (a, b), (c,), (m // 256) * (n // 256), error


def attention(case: Case):
    (batch, heads, groups, length), d = case.size, case.depth
    q = (case.scale * torch.randn(batch, length, heads, d)).bfloat16()
    k, v = (torch.randn(batch, length, groups, d).bfloat16() for _ in range(2))
    out = torch.full_like(q, math.nan)
    lse = torch.full((batch, heads, 1, length), math.nan)

    def error() -> float:
        # Q is scaled, to powers of two, and rounded: the one rounding that grows with the scores.
        scaled = (q.float() * np.float32(np.float32(d**-0.5) * np.float32(1.44269504089))).bfloat16().double()
        wide_k, wide_v = (x.double().repeat_interleave(heads // groups, 2) for x in (k, v))
        scores = torch.einsum("bqhd,bkhd->bhqk", scaled, wide_k) * math.log(2)
        if case.causal:
            scores.masked_fill_(torch.ones(length, length).triu(1).bool(), -torch.inf)
        exact, sums = (torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), x) for x in (wide_v, wide_v.abs()))
        of_out = (out - exact).abs() / ((sums + exact.abs()) * _ROUNDING)
        of_lse = (lse[:, :, 0] - scores.logsumexp(-1)).abs() / (1e-5 + 1e-5 * scores.amax(-1).abs())
        return torch.stack((of_out.max(), of_lse.max())).max().item()

    return (q, k, v), (out, lse), (heads, length // 256, batch), error


def _loop(timing: Timing, loop: LoopTiming, steps: int) -> str:
    """Cycles of 64 of K, or of 64 keys, in the loop: in all, of the matrix pipe, and what held a wave."""
    products = [one for one in (timing.instructions[i] for i in loop.instructions) if one.text.startswith("v_mfma")]
    times = timing.waves * loop.iterations
    unit = sum(one.executed for one in products) / times / steps  # of them in a round
    busy = sum(operation(parse_instruction(one.text), timing.target).cycles * one.executed for one in products)
    matrix = busy / arch.target(timing.target).simds / loop.iterations
    held = ", ".join(f"{why} {cycles / unit:.0f}" for why, cycles in loop.stalls.items() if cycles >= 4 * unit)
    return (
        f"{loop.cycles / unit:.0f} cycles a step, {matrix / unit:.0f} of the matrix pipe, share {matrix / loop.cycles:.3f}; "
        f"{loop.iterations:.0f} rounds of {unit:.0f}; the whole block {timing.cycles}, {timing.share:.3f}; held: {held}"
    )


def _registers(assembly: str) -> str:
    counts = {
        name: re.search(rf"\.{name}:\s+(\d+)", assembly)[1] for name in ("vgpr_count", "agpr_count", "vgpr_spill_count")
    }
    return "{vgpr_count} registers, {agpr_count} of them AGPRs, {vgpr_spill_count} spilled".format(**counts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clone", type=Path, help="a clone of github.com/HazyResearch/HipKittens")
    parser.add_argument("--gfx942", default="origin/cdna3", help="the branch or commit for it (%(default)s)")
    parser.add_argument("--gfx950", default="origin/main", help="the branch or commit for it (%(default)s)")
    parser.add_argument("--only", default="", help="files whose path has this in it")
    parser.add_argument("--timed", action="store_true", help="only what is timed")
    options = parser.parse_args(arguments)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        branches = {"gfx942": options.gfx942, "gfx950": options.gfx950}
        try:
            sources = Sources(options.clone, branches, Path(folder))
        except subprocess.CalledProcessError as error:  # git has said why
            parser.error(f"{options.clone} is no clone with {' and '.join(branches.values())} ({error.returncode})")
        for case in cases():
            if options.only not in case.file or (options.timed and not case.timed):
                continue
            began, kernel, timing = time.perf_counter(), sources.kernel(case), None
            try:
                error, timing = run(case, kernel)
                found = "right" if error <= 1 else "wrong"
                told = f"right, {error:.2f} of the bound" if error <= 1 else f"WRONG, {error:.3g} times the bound"
            except EmulationError as refused:
                found, told = type(refused).__name__.lower(), f"{type(refused).__name__}: {refused}"
            if found != case.expected:
                failed, told = failed + 1, f"{told}   <- {case.expected} was expected"
            took = f"{time.perf_counter() - began:5.1f} s"
            print(f"{case.target}  {case.file.replace('.*', ''):<36}  {case.told:<46}  {took}  {told}", flush=True)
            if timing:
                print(f"        {_registers(kernel.compile(case.target).assembly)}")
                print(f"        {_loop(timing, timing.loops[0], case.timed)}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
