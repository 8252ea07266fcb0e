"""Loops whose share of the matrix pipe others measured, by the emulator's clock: the table of docs/decisions/clock.md.

python bench/published_loops.py             the loops that are rebuilt from what was printed of them
python bench/published_loops.py FOLDER …    kernels as Triton compiled them, the .amdgcn files under a folder; in a checkout
                                            of ROCm/gfx950-gluon-tutorials they are those of ir_dumps

Of a kernel one block is executed: float16 matrices by rows, the second one transposed, tiles of 256 x 256. The product is
compared with numpy's.
"""

import re
import struct
import sys
from pathlib import Path

import numpy as np
import torch

from wmma_ops.emulator import assembly, launching
from wmma_ops.emulator.assembly import parse_instruction
from wmma_ops.emulator.program import build
from wmma_ops.emulator.timing import LoopTiming, Timing, Trace, operation, rules
from wmma_ops.hardware import arch
from wmma_ops.runtime.emulated import regions

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))
from measured_loops import DUMPS, LOOPS
from measured_loops import share as rebuilt

TILE, K = 256, 1024
SHARED = {"gfx942": 65536, "gfx950": 163840}


def timed(path: Path, k: int) -> tuple[Timing, bool]:
    """One block's time, and whether its product is right."""
    text = path.read_text()
    target = re.search(r"amdhsa-.*?-(gfx\w+)", text)[1]
    (kernel,) = assembly.parse(text).kernels.values()
    # Its first instructions load the arguments, for firmware that does not.
    kernel.descriptor["user_sgpr_kernarg_preload_length"] = 0
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((TILE, k)).astype(np.float16) for _ in range(2))
    tensors = {"a": torch.from_numpy(a), "b": torch.from_numpy(b), "c": torch.zeros(TILE, TILE, dtype=torch.float16)}
    program = build(kernel, target)
    declared = [one for one in kernel.arguments if not one.kind.startswith("hidden")]
    has_k = sum(one.size == 4 for one in declared) == 6  # or K's value is in its instructions
    sizes = [TILE, TILE, *[k] * has_k]
    values = iter([*(x.data_ptr() for x in tensors.values()), *sizes, k, k, TILE])
    arguments = bytearray(max(one.offset + one.size for one in declared))
    for one in declared:
        struct.pack_into("<q" if one.size == 8 else "<i", arguments, one.offset, next(values, 0))
    threads = kernel.facts.get("max_flat_workgroup_size", 256)
    trace = Trace(target, rules(target), arch.target(target).wave, 1)
    launching.launch(program, (1, 1, 1), (threads, 1, 1), bytes(arguments), regions(tensors),
                   shared_bytes=SHARED[target], trace=trace)  # fmt: skip
    wanted = a.astype(np.float32) @ b.astype(np.float32).T
    return trace.timing(), bool(np.allclose(tensors["c"].float().numpy(), wanted, rtol=1e-3, atol=1e-2))


def share(timing: Timing, loop: LoopTiming) -> float:
    """Percent of the matrix pipes in a loop's rounds: two groups of waves overlap in all but its ends."""
    busy = sum(
        operation(parse_instruction(one.text), timing.target).cycles * one.executed
        for one in (timing.instructions[number] for number in loop.instructions)
        if one.text.startswith("v_mfma")
    )
    return 100 * busy / (arch.target(timing.target).simds * loop.cycles * loop.iterations)


def row(name: str, measured: float | None, found: float, more: str = "") -> float | None:
    told = "" if measured is None else f"{measured:.1f}"
    off = None if measured is None else found - measured
    print(f"| {name} | {told} | {found:.1f} | {'' if off is None else f'{off:+.1f}'} | {more} |", flush=True)
    return off


def main(folders: list[str]) -> None:
    print("| loop | measured | by the clock | difference | |\n|---|---|---|---|---|")
    off = []
    if not folders:
        off = [row(loop.name, loop.measured, rebuilt(loop), loop.source) for loop in LOOPS]
    for path in sorted(path for folder in folders for path in Path(folder).rglob("*.amdgcn")):
        known = next((dump for dump in DUMPS if path.as_posix().endswith(dump.path)), None)
        timing, is_right = timed(path, known.k if known and known.k else K)
        loop = max(timing.loops, key=lambda one: one.share * one.cycles * one.iterations)
        more = f"{loop.cycles:.0f} cycles, product {'right' if is_right else 'WRONG'}"
        off.append(row(known.name if known else path.name, known and known.measured, share(timing, loop), more))
    if off := [abs(one) for one in off if one is not None]:
        print(f"\n{len(off)} loops: {sum(off) / len(off):.1f} points off on the average, {max(off):.1f} at most")


if __name__ == "__main__":
    main(sys.argv[1:])
