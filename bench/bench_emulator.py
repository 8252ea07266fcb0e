"""What compiling, decoding and executing a GEMM costs, without a GPU, on one thread.

python bench/bench_emulator.py [--quick] [--json FILE]
"""

import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import running
import torch
from running import check

import wmma_ops
from wmma_ops import jit
from wmma_ops.cli.benching import OURS, Calls, Case
from wmma_ops.emulator import assembly, program
from wmma_ops.hardware import arch

SOURCE = (Path(__file__).parents[1] / "tests/support/examples/gemm.hip").read_text()
QUICK = ("gfx942", "gfx1201")
_numbers = itertools.count()


@contextlib.contextmanager
def cold_folder() -> Iterator[None]:
    """A cache folder that nothing was compiled into, and that goes with what was."""
    before = os.environ.get("WMMA_OPS_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WMMA_OPS_CACHE_DIR"] = folder
        try:
            yield
        finally:
            del os.environ["WMMA_OPS_CACHE_DIR"]
            if before is not None:
                os.environ["WMMA_OPS_CACHE_DIR"] = before


@contextlib.contextmanager
def emulated(target: str) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with wmma_ops.emulate(target):
            yield
    finally:
        torch.set_num_threads(threads)


def compiled(target: str) -> Calls:
    def fresh() -> object:
        return jit.compile(f"{SOURCE}\n// {next(_numbers)}\n", target, name="gemm.hip")

    return Calls({OURS: fresh}, inside=cold_folder)


def found(target: str) -> Calls:
    jit.compile(SOURCE, target, name="gemm.hip")
    return Calls({OURS: lambda: jit.compile(SOURCE, target, name="gemm.hip")})


def decoded(target: str) -> Calls:
    """The same body over and over, to a length of 5,000 instructions."""
    kernel = assembly.parse(jit.compile(SOURCE, target, name="gemm.hip").assembly).kernels["gemm"]
    body = [ins for ins in kernel.instructions if not ins.mnemonic.startswith(("s_endpgm", "s_cbranch", "s_branch"))]
    kernel.instructions = (body * (5000 // len(body) + 1))[:5000]
    kernel.labels = {}

    def decode():
        return [part.steps for part in program.build(kernel, target).blocks]

    return Calls({OURS: decode}, counted=(5000, "instructions"))


def executed(target: str) -> Calls:
    kernel = wmma_ops.Kernel(SOURCE, "gemm")
    m = n = k = 128
    wave = arch.target(target).wave
    a, b, c, d = torch.randn(m, k).half(), torch.randn(n, k).half(), torch.randn(m, n), torch.empty(m, n)

    def launch() -> None:
        kernel[(m // 64, n // 16), (4 * wave, 1)](m, n, k, a, b, c, d, k, k, n, n, np.float32(1), np.float32(0))

    with wmma_ops.emulate(target) as emulation:
        launch()
    counted = emulation.launches[-1].instructions, "wave-instructions"
    return Calls(
        {OURS: launch}, counted=counted, error=check(d, a.float() @ b.float().T), inside=partial(emulated, target)
    )


def cases() -> Iterator[Case]:
    steps = {
        "compile a GEMM": compiled,
        "find it in the cache": found,
        "decode 5,000 instructions": decoded,
        "emulate a product of 128³": executed,
    }
    for group, make in steps.items():
        for target in arch.EMULATED:
            yield Case(group, target, partial(make, target), (), quick=target in QUICK)


if __name__ == "__main__":
    running.main(cases(), running.parser(__doc__).parse_args(), "cpu")
