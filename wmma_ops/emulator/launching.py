"""Starts a kernel: its arguments in memory, what its waves' registers begin with, and its blocks one after the other."""

import contextlib
import functools
import math
import random
import struct
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import numpy as np

from wmma_ops.emulator import limits
from wmma_ops.emulator.assembly import KernelText
from wmma_ops.emulator.buffers import SCRATCH_MARK
from wmma_ops.emulator.errors import BUDGET, Malformed
from wmma_ops.emulator.machine import Machine, Statistics
from wmma_ops.emulator.memory import PRIVATE_BASE, SHARED_BASE, GlobalMemory, Region, Traffic
from wmma_ops.emulator.operands import EXEC, TTMP
from wmma_ops.emulator.program import END, Program
from wmma_ops.emulator.timing import Enough, Trace

DYNAMIC_STACK = 16384  # bytes a lane where a kernel's need is known at run time only
_UNWRITTEN = 0x7FBAD000  # a NaN that stands out


def orders(name: str, seed: int = 0):
    """How the waves of a block take turns: forward, reverse or random."""
    if name == "forward":
        return lambda waves: waves
    if name == "reverse":
        return lambda waves: waves[::-1]
    if name == "random":
        rng = random.Random(seed)
        return lambda waves: rng.sample(waves, len(waves))
    raise ValueError(f"order is {name!r}; takes forward, reverse or random")


def kernel_arguments(kernel: KernelText, explicit: bytes, grid, block, shared_bytes: int) -> bytes:
    """The kernel's argument segment: what the caller passes, and what the compiler asks for beside."""
    size = kernel.facts.get("kernarg_segment_size", len(explicit))
    limits.check(f"the arguments of {kernel.name}", size)
    out = bytearray(max(size, len(explicit)) + 256)
    out[: len(explicit)] = explicit
    hidden = {
        "hidden_block_count_x": struct.pack("<I", grid[0]),
        "hidden_block_count_y": struct.pack("<I", grid[1]),
        "hidden_block_count_z": struct.pack("<I", grid[2]),
        "hidden_group_size_x": struct.pack("<H", block[0]),
        "hidden_group_size_y": struct.pack("<H", block[1]),
        "hidden_group_size_z": struct.pack("<H", block[2]),
        "hidden_grid_dims": struct.pack("<H", 3),
        "hidden_dynamic_lds_size": struct.pack("<I", shared_bytes),
        "hidden_shared_base": struct.pack("<I", SHARED_BASE >> 32),
        "hidden_private_base": struct.pack("<I", PRIVATE_BASE >> 32),
    }
    for argument in kernel.arguments:
        if argument.kind in hidden:
            value = hidden[argument.kind]
            out[argument.offset : argument.offset + len(value)] = value
    return bytes(out)


def dispatch_packet(grid, block) -> bytes:
    """The start of the packet that some kernels read their sizes from."""
    sizes = [g * b for g, b in zip(grid, block, strict=True)]
    return struct.pack("<HHHHHHIII", 0, 3, *block, 0, *sizes).ljust(64, b"\0")


@contextlib.contextmanager
def _held(program: Program, variables: Mapping[str, bytearray]) -> Iterator[None]:
    """Within it the program's variables hold what is given; what they then hold is given back."""
    for name, content in variables.items():
        program.variable(name)[:] = np.frombuffer(content, np.uint8)
    try:
        yield
    finally:
        for name, content in variables.items():
            content[:] = program.variable(name).tobytes()


def _user_registers(program: Program, segment: np.ndarray, packet: np.ndarray) -> tuple[list[int], int]:
    """What the scalar registers of all waves begin with, in the order of the descriptor, and how many of them."""
    kernel, described = program.kernel, program.kernel.descriptor
    given = [0] * len(program.scalars)
    at = 0
    for name, count, value in (
        ("private_segment_buffer", 4, SCRATCH_MARK << 64),
        ("dispatch_ptr", 2, packet.ctypes.data),
        ("queue_ptr", 2, 0),
        ("kernarg_segment_ptr", 2, segment.ctypes.data),
        ("dispatch_id", 2, 0),
        ("flat_scratch_init", 2, 0),
        ("private_segment_size", 1, described.get("private_segment_fixed_size", 0)),
    ):
        if described.get(f"user_sgpr_{name}"):
            given[at : at + count] = [value >> 32 * j & 0xFFFFFFFF for j in range(count)]
            at += count
    # Arguments that lie in registers already, their number and the first in words.
    loaded, first = (described.get(f"user_sgpr_kernarg_preload_{what}", 0) for what in ("length", "offset"))
    words = segment[: segment.size & -4].view(np.uint32)[first : first + loaded].tolist()
    if len(words) < loaded:
        raise Malformed(
            f"{kernel.name}: {loaded} words of its arguments from word {first} on lie in registers as it begins"
        )
    given[at : at + loaded] = words
    return given, max(at + loaded, described.get("user_sgpr_count", at))


def launch(
    program: Program,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    arguments: bytes,
    regions: list[Region],
    *,
    shared_bytes: int = 0,
    order: str = "forward",
    seed: int = 0,
    budget: int = BUDGET,
    count_traffic: bool = False,
    banks: int = 32,
    trace: Trace | None = None,
    only: Iterable[tuple[int, int, int]] | None = None,
    variables: Mapping[str, bytearray] = MappingProxyType({}),
    cooperative: bool = False,
) -> Statistics:
    """Runs a whole grid, or `only` some of its blocks. `regions` are the memory that the kernel may touch, `variables` what
    some of its variables hold before, and then after it. Blocks run one after the other; or `cooperative`, interleaved where
    all of one's waves sleep. `trace` gets what is to be timed."""
    kernel, wave = program.kernel, program.wave
    described, threads = kernel.descriptor, math.prod(block)
    segment = np.frombuffer(bytearray(kernel_arguments(kernel, arguments, grid, block, shared_bytes)), dtype=np.uint8)
    packet = np.frombuffer(bytearray(dispatch_packet(grid, block)), dtype=np.uint8)
    own = [
        Region(segment.ctypes.data, segment.size, "the kernel's arguments", segment),
        Region(packet.ctypes.data, packet.size, "the dispatch packet", packet),
    ]
    for region in own:
        region.is_watched = False  # every wave loads them, and no compiler stores there
    machine = Machine(program, GlobalMemory([*regions, *own, *program.data]), budget)
    machine.private = described.get("private_segment_fixed_size", 0)
    if described.get("uses_dynamic_stack"):
        machine.private += DYNAMIC_STACK
    waves = -(-threads // wave)
    limits.check(f"the scratch memory of a block of {kernel.name}", machine.private * wave * waves)
    if trace is not None:
        machine.statistics.trace = trace
        trace.basic_blocks = [body.instructions for body in program.blocks]
    if count_traffic:
        machine.statistics.traffic = machine.memory.traffic = Traffic()
        machine.banks = banks
    machine.memory.races.alone = math.prod(grid) == 1 and threads <= wave
    turns = orders(order, seed)
    shared = described.get("group_segment_fixed_size", 0) + shared_bytes
    packed = not program.target.startswith(("gfx908", "gfx906", "gfx10"))
    gfx12 = program.target.startswith("gfx12")

    given, at = _user_registers(program, segment, packet)
    axes = [j for j, name in enumerate("xyz") if described.get(f"system_sgpr_workgroup_id_{name}", j == 0)]
    wanted = described.get("system_vgpr_workitem_id", 0)

    @functools.cache
    def lanes_of(number: int) -> tuple[list[np.ndarray], int]:
        """A wave's first vector registers, and which of its lanes are on."""
        mask = (1 << min(threads - number * wave, wave)) - 1
        lanes = np.minimum(np.arange(number * wave, (number + 1) * wave), threads - 1)
        x, y, z = lanes % block[0], lanes // block[0] % block[1], lanes // (block[0] * block[1])
        if packed:
            x |= (y << 10 if wanted >= 1 else 0) | (z << 20 if wanted >= 2 else 0)
        return [row.astype(np.uint32) for row in (x, y, z)[: 1 if packed else wanted + 1]], mask

    def start(index: tuple[int, int, int], number: int) -> None:
        program.registers.fill(_UNWRITTEN)
        program.accumulators.fill(_UNWRITTEN)
        scalars = program.scalars
        scalars[:] = given
        if gfx12:
            scalars[TTMP + 9] = index[0]
            scalars[TTMP + 7] = index[1] | index[2] << 16
            scalars[TTMP + 8] = number << 25
        else:
            scalars[at : at + len(axes)] = [index[j] for j in axes]
        rows, mask = lanes_of(number)
        for register, row in zip(program.registers, rows, strict=False):
            register[:] = row
        scalars[EXEC], scalars[EXEC + 1] = mask & 0xFFFFFFFF, mask >> 32

    def begun(index: tuple[int, int, int]) -> Iterator[None]:
        first = functools.partial(start, index)
        return machine.block(index, first, threads, shared, turns, cooperative)

    def goes_on(block: Iterator[None]) -> bool:
        try:
            return next(block, END) != END
        except Enough:  # was traced of it
            return False

    with program.lock, _held(program, variables), np.errstate(all="ignore"):
        indices = only or ((x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0]))
        running = [begun(index) for index in indices] if cooperative else map(begun, indices)
        while running := [one for one in running if goes_on(one)]:
            pass  # each that is left sleeps
    return machine.finish()
