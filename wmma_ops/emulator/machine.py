"""Runs a decoded kernel: blocks one after the other, the waves of a block in turns from barrier to barrier."""

import contextlib
import functools
import math
import random
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from wmma_ops.emulator import barriers, limits
from wmma_ops.emulator.assembly import Instruction, KernelText, class_of
from wmma_ops.emulator.bits import WORD
from wmma_ops.emulator.buffers import SCRATCH_MARK, Buffers
from wmma_ops.emulator.errors import (
    BUDGET,
    EmulationError,
    EndlessLoop,
    Malformed,
    OutOfBounds,
    Trap,
    Uninitialised,
    UnknownInstruction,
)
from wmma_ops.emulator.linking import CODE_BASE, CODE_STEP
from wmma_ops.emulator.memory import (
    PRIVATE_BASE,
    SHARED_BASE,
    Flat,
    GlobalMemory,
    Region,
    Scratch,
    Traffic,
)
from wmma_ops.emulator.operands import EXEC, GENERAL_SCALARS, TTMP
from wmma_ops.emulator.program import BARRIER, END, GIVEN, SLEEP, WAIT, Program
from wmma_ops.emulator.shared import AwaitedWrite, SharedMemory
from wmma_ops.emulator.timing import Enough, Timing, Trace

DYNAMIC_STACK = 16384  # bytes a lane where a kernel's need is known at run time only
_UNWRITTEN = 0x7FBAD000  # a NaN that stands out
_PRODUCT = (
    "a matrix instruction, which takes the whole wave's registers as they are: mma_sync stands where all lanes come"
)
_CLOCK_START = (1 << 40) - 950  # of a device that has run for a while: the counter's low words wrap during the kernel


@dataclass
class Statistics:
    """What a launch executed."""

    waves: int = 0
    instructions: int = 0
    by_class: dict[str, int] = field(default_factory=dict)
    traffic: Traffic | None = None  # where `count_traffic` was asked for
    trace: Trace | None = field(default=None, repr=False)  # where `timing` was
    # Of tensors that it stored into, by the arguments' names: how many of their elements it left as they were.
    unwritten: dict[str, int] = field(default_factory=dict)

    def timing(self) -> Timing:
        """How long the blocks take that are resident together on one compute unit, by the rules of its family."""
        return self._traced().timing()

    def draw(self, path: str, title: str = "", cycles: int | None = None) -> None:
        """Draws that: a lane a wave, what it issues and what it waits for, into a .png or .svg. `cycles` says how many of
        them, in the middle."""
        from wmma_ops.emulator.timing import timeline

        timeline.draw(self._traced(), self.timing(), title, path, cycles)

    def _traced(self) -> Trace:
        if self.trace is None:
            raise ValueError("timing: takes a launch within wmma_ops.emulate(…, timing=True)")
        return self.trace


@dataclass
class _Wave:
    index: int
    block: tuple[int, int, int]
    registers: np.ndarray | None = None
    accumulators: np.ndarray | None = None
    scalars: list[int] | None = None
    resume: int = 0
    signals: int = 0
    waits: int = 0
    told: int = 0  # see global_races.Stretch
    seen: int = 0
    done: bool = False
    waiting: bool = False  # at a barrier
    stopped: str = ""  # where it last did
    fresh: bool = True  # not begun
    # By register, of those that are watched: the bits that are.
    written: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GIVEN, WORD))
    reached: dict[Region, tuple[int, int]] = field(default_factory=dict)  # of memory
    scratch: Scratch | None = None


def _place(ins: Instruction) -> str:
    """Its line in the source, and the instruction."""
    return (f"{ins.source}: " if ins.source else "") + f"`{ins.text}`"


class Machine:
    """The state that generated code sees as `st`, and the loop around it."""

    def __init__(self, program: Program, memory: GlobalMemory, budget: int):
        self.program = program
        self.memory = memory
        self.wave = program.wave
        self.budget = budget
        self.left = budget  # of the block's
        self.failed: Instruction | None = None
        self.scratch = None
        self.lds: SharedMemory | None = None
        self.flat = Flat(memory, lambda: self.lds, lambda: self.scratch)
        self.buffers = Buffers(memory, program.target.startswith("gfx9"), lambda: self.scratch)
        self.resume = 0
        self.cycles = _CLOCK_START
        # Of the clock of constant rate: 25 MHz on the first two, 100 MHz on others.
        self.cycles_a_tick = 100 if program.target in ("gfx908", "gfx90a") else 25
        self.statistics = Statistics()
        self.counts = [0] * len(program.blocks)
        self.current: _Wave | None = None
        self.waves: list[_Wave] = []  # of the block
        self.scalars = program.scalars
        self.masks: dict[int, tuple[bool, np.ndarray]] = {}
        self.banks = 32
        self.private = 0  # bytes of scratch memory a lane

    # Called from generated code.

    def exec_changed(self):
        s = self.program.scalars
        bits = s[EXEC] | s[EXEC + 1] << 32 if self.wave == 64 else s[EXEC]
        found = self.masks.get(bits)
        if found is None:
            lanes = np.array([bool(bits >> lane & 1) for lane in range(self.wave)])
            found = self.masks[bits] = (bool(lanes.all()), lanes)
        self.full, self.mask = found
        if self.memory.trace is not None:
            self.memory.trace.lanes_on(bits)
        return found

    def first_lane(self) -> int:
        found = np.flatnonzero(self.mask)
        return int(found[0]) if len(found) else 0

    def clock(self) -> int:
        """Cycles: each reading is 100 later."""
        self.cycles += 100
        return self.cycles

    def sleep(self, units: int) -> None:
        """Of 64 cycles each."""
        self.cycles += 64 * units

    def realtime(self) -> int:
        """Ticks of the clock of constant rate."""
        return self.clock() // self.cycles_a_tick

    def getreg(self, what: str) -> int:
        match = re.match(r"^hwreg\((\w+)(?:,\s*(\d+),\s*(\d+))?\)$", what)
        name, offset, width = match.groups() if match else (what, None, None)
        # (bits, lowest of the counter's).
        counters = {"SHADER_CYCLES": (20, 0), "SHADER_CYCLES_LO": (32, 0), "SHADER_CYCLES_HI": (32, 32)}
        found = counters.get(name.removeprefix("HW_REG_"))
        if found is None:
            raise EmulationError(f"the hardware register {name} is not emulated")
        value = self.clock() >> found[1] & (1 << found[0]) - 1
        return (value >> int(offset or 0)) & ((1 << int(width or 32)) - 1)

    def signal(self) -> None:
        barriers.signal(self.current)
        self.lds.signals = self.current.signals
        self.memory.races.synchronised()

    def acquire(self) -> None:
        self.memory.races.acquire()

    def wait(self) -> None:
        barriers.wait(self.current, self.waves)

    def uninitialised(self, register: str) -> None:
        raise Uninitialised(f"register {register} is read, but was never written")

    def all_live(self, live, mask) -> None:
        if (mask & ~live).any():
            lane = int(np.argmax(mask & ~live))
            raise EmulationError(f"lane {lane}: its source lane is off or absent, which is not emulated here")

    def takes_all_lanes(self, mask, what: str = _PRODUCT) -> None:
        """A matrix instruction does not heed exec. (One of which no lane is on is the compiler's, around a branch.)"""
        if mask.any():
            raise EmulationError(f"lane {int(np.argmin(mask))} is off at {what}")

    def jump(self, address: int) -> int:
        """The block at an address of code."""
        block, rest = divmod(address - CODE_BASE, CODE_STEP)
        if rest or block not in self.program.entries:
            raise EmulationError(f"a jump to 0x{address:x}, where no function of this kernel is")
        return block

    def to_shared(self, base: int, step: int) -> np.ndarray:
        """Where each lane's bytes of a load straight to shared memory go."""
        if base & 3:
            raise EmulationError(
                f"a load straight to shared memory at byte {base & 0xFFFFFFFF}: M0 + offset is no word's"
            )
        return (base + step * np.arange(self.wave)).astype(np.uint32)

    def scalar_index(self, index: int, count: int) -> int:
        """The place of a scalar register by its number at run time, if it is a general one."""
        index &= 0xFFFFFFFF
        if index + count > GENERAL_SCALARS:
            raise OutOfBounds(f"scalar register s{index} by an index: there are {GENERAL_SCALARS}")
        return index

    def register(self, index: int) -> np.ndarray:
        """A vector register by its number at run time."""
        index &= 0xFFFFFFFF
        if index >= len(self.program.registers):
            raise OutOfBounds(f"register v{index} by an index: the kernel has {len(self.program.registers)}")
        return self.program.registers[index]

    def halt(self) -> None:
        raise Trap("s_sethalt: the wave stops for good, as after a failed assertion")

    def trap(self, number: int) -> None:
        if number != 3:  # 3 is a breakpoint
            raise Trap(f"s_trap {number}: an assertion in the kernel failed, or it reached what must not be reached")

    def permlane16(self, low: int, high: int, across: int) -> np.ndarray:
        lanes = np.arange(self.wave)
        select = np.array([(low >> 4 * i) & 15 for i in range(8)] + [(high >> 4 * i) & 15 for i in range(8)])
        return (lanes // 16 ^ across) * 16 + select[lanes % 16]

    def bpermute(self, address, data, offset: int, mask) -> np.ndarray:
        index = ((np.asarray(address, np.uint32) + np.uint32(offset)) >> np.uint32(2)) % np.uint32(self.wave)
        # A lane that is off gives 0.
        return np.where(mask, data, np.uint32(0))[index]

    def permute(self, address, data, offset: int, mask) -> np.ndarray:
        out = np.zeros(self.wave, dtype=np.uint32)
        index = ((np.asarray(address, np.uint32) + np.uint32(offset)) >> np.uint32(2)) % np.uint32(self.wave)
        lanes = np.flatnonzero(mask)
        out[index[lanes]] = data[lanes]
        return out

    # The loop.

    def _load(self, wave: _Wave) -> None:
        program = self.program
        program.registers[:] = wave.registers
        program.accumulators[:] = wave.accumulators
        program.scalars[:] = wave.scalars
        self._enter(wave)

    def _enter(self, wave: _Wave) -> None:
        self.current = wave
        self.memory.reached = wave.reached
        self.memory.races.enter(wave)
        self.written = wave.written
        self.scratch = wave.scratch
        self.lds.wave, self.lds.signals, self.lds.waits = wave.index, wave.signals, wave.waits
        self.exec_changed()

    def _store(self, wave: _Wave) -> None:
        program = self.program
        wave.registers = program.registers.copy()
        wave.accumulators = program.accumulators.copy()
        wave.scalars = list(program.scalars)

    def run(self, wave: _Wave, block: tuple[int, int, int]) -> int:
        """Runs the wave on the machine's registers until it ends or reaches a barrier."""
        blocks = self.program.blocks
        at = wave.resume
        counts = self.counts
        left, trace = self.left, self.lds.trace
        self.failed = blocks[at].instructions[-1]
        try:
            while at >= 0:
                body = blocks[at]
                counts[at] += 1
                left -= body.cost
                if left < 0:
                    self.failed = body.instructions[-1]
                    left = self._renewed()
                if trace is None:
                    at = body.steps.run(self)
                else:
                    trace.enter(block, wave.index, at)
                    at = body.steps.traced(self, trace)
        except UnknownInstruction:
            raise  # it names the instruction, which is of no one wave
        except AwaitedWrite as error:
            error.place = _place(self.failed)
            raise
        except EmulationError as error:
            placed = type(error)(self._where(self.failed, wave, block) + str(error))
            placed.place = self.failed.source or ""
            raise placed from None
        except (ValueError, IndexError, TypeError, AttributeError, OverflowError) as error:
            raise EmulationError(self._where(self.failed, wave, block) + f"{type(error).__name__}: {error}") from error
        self.left = left
        wave.resume = self.resume
        if at in (BARRIER, WAIT):
            wave.stopped = _place(body.instructions[-1])
        return at

    def _renewed(self) -> int:
        """The budget once more, if the block has reached new memory since it got it."""
        if not self.memory.progress:
            raise EndlessLoop(
                f"an endless loop? The block took {self.budget:,} steps without reaching new memory, which is its budget; "
                "wmma_ops.emulate(…, budget=…) raises it. (Waves take turns at barriers and where they sleep, blocks run "
                "one after the other, or where they sleep if they meet in sync_grid: any other loop that waits for "
                "another's store never ends here.)" + barriers.told(self.waves)
            )
        self.memory.progress = False
        return self.budget

    def _where(self, ins: Instruction, wave: _Wave, block) -> str:
        return f"{self.program.kernel.name} on {self.program.target}: {_place(ins)}, block {block}, wave {wave.index}: "

    def block(
        self, index: tuple[int, int, int], start, threads: int, shared_bytes: int, order, together: bool
    ) -> Iterator[None]:
        """Runs one block. `start(wave)` sets the machine's registers for a wave's first instruction. Where a wave sleeps the
        block's others have their turns, and then, by a yield, the other blocks if they run together with this one."""
        lds = self.lds = SharedMemory(shared_bytes, self.program.names)
        lds.traffic, lds.banks = self.statistics.traffic, self.banks
        trace = self.statistics.trace
        lds.trace = self.memory.trace = trace if trace is not None and trace.takes(index) else None
        self.left, self.memory.progress = self.budget, False
        waves = self.waves = [_Wave(i, index) for i in range(-(-threads // self.wave))]
        self.statistics.waves += len(waves)
        alone = len(waves) == 1 and not together  # then its registers stay in the machine's

        def begin(wave: _Wave) -> None:
            """Puts the wave's state into the machine's registers."""
            if wave.fresh:
                start(wave.index)
                wave.fresh = False
                wave.scratch = Scratch(self.private, self.wave) if self.private else None
                self._enter(wave)
            elif not alone:
                self._load(wave)
            else:
                self._enter(wave)

        while pending := [wave for wave in waves if not wave.done]:
            turns = order([wave for wave in pending if not wave.waiting])
            slept = False
            for turn, wave in enumerate(turns):
                begin(wave)
                try:
                    at = self.run(wave, index)
                except Uninitialised as error:
                    raise Uninitialised(f"{error}{self._written_later(turns[turn + 1 :], begin, index)}") from None
                wave.done, wave.waiting = at == END, at in (BARRIER, WAIT)
                slept |= at == SLEEP
                if not alone and not wave.done:
                    self._store(wave)
            barriers.release(waves)
            if slept and together:
                left, progress = self.left, self.memory.progress
                yield
                self.lds, self.waves, self.left, self.memory.progress = lds, waves, left, progress

    def _written_later(self, waves: list[_Wave], begin, block) -> str:
        """Of a read of shared memory before a write: who of `waves`, those yet to run to the next barrier, writes there."""
        if self.lds.unwritten is None:
            return ""
        self.lds.awaited = self.lds.unwritten
        unknown = False
        for wave in waves:
            begin(wave)
            try:
                self.run(wave, block)
            except AwaitedWrite as found:
                return f", or a barrier is missing: wave {wave.index} writes there with no barrier between, at {found.place}"
            except EmulationError:
                unknown = True
        return ", or a barrier is missing" if unknown else ""

    def finish(self) -> Statistics:
        by_class: dict[str, int] = {}
        total = 0
        for count, body in zip(self.counts, self.program.blocks, strict=True):
            if not count:
                continue
            for instruction in body.instructions:
                name = class_of(instruction.mnemonic)
                by_class[name] = by_class.get(name, 0) + count
                total += count
        self.statistics.instructions, self.statistics.by_class = total, by_class
        self.statistics.unwritten = self.memory.unwritten()
        return self.statistics


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
    together: bool = False,
) -> Statistics:
    """Runs a whole grid, or `only` some of its blocks. `regions` are the memory that the kernel may touch, `variables` what
    some of its variables hold before, and then after it. Blocks run one after the other; or `together`, in turns where all
    of one's waves sleep. `trace` gets what is to be timed."""
    kernel, wave = program.kernel, program.wave
    segment = np.frombuffer(bytearray(kernel_arguments(kernel, arguments, grid, block, shared_bytes)), dtype=np.uint8)
    packet = np.frombuffer(bytearray(dispatch_packet(grid, block)), dtype=np.uint8)
    own = [
        Region(segment.ctypes.data, segment.size, "the kernel's arguments", segment),
        Region(packet.ctypes.data, packet.size, "the dispatch packet", packet),
    ]
    for region in own:
        region.is_watched = False  # every wave loads them, and no compiler stores there
    machine = Machine(program, GlobalMemory([*regions, *own, *program.data]), budget)
    machine.private = kernel.descriptor.get("private_segment_fixed_size", 0)
    if kernel.descriptor.get("uses_dynamic_stack"):
        machine.private += DYNAMIC_STACK
    waves = -(-math.prod(block) // wave)
    limits.check(f"the scratch memory of a block of {kernel.name}", machine.private * wave * waves)
    if trace is not None:
        machine.statistics.trace = trace
        trace.basic_blocks = [body.instructions for body in program.blocks]
    if count_traffic:
        machine.statistics.traffic = machine.memory.traffic = Traffic()
        machine.banks = banks
    static = kernel.descriptor.get("group_segment_fixed_size", 0)
    threads = math.prod(block)
    machine.memory.races.alone = math.prod(grid) == 1 and threads <= wave
    turns = orders(order, seed)
    described = kernel.descriptor
    private = described.get("private_segment_fixed_size", 0)
    packed = not program.target.startswith(("gfx908", "gfx906", "gfx10"))
    gfx12 = program.target.startswith("gfx12")

    # What waves begin with, but for their block's index: the user registers, in the order of the descriptor.
    given = [0] * len(program.scalars)
    at = 0
    for name, count, value in (
        ("private_segment_buffer", 4, SCRATCH_MARK << 64),
        ("dispatch_ptr", 2, packet.ctypes.data),
        ("queue_ptr", 2, 0),
        ("kernarg_segment_ptr", 2, segment.ctypes.data),
        ("dispatch_id", 2, 0),
        ("flat_scratch_init", 2, 0),
        ("private_segment_size", 1, private),
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
    at = max(at + loaded, described.get("user_sgpr_count", at))
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
        return machine.block(index, first, threads, static + shared_bytes, turns, together)

    def goes_on(block: Iterator[None]) -> bool:
        try:
            return next(block, END) != END
        except Enough:  # was traced of it
            return False

    with program.lock, _held(program, variables), np.errstate(all="ignore"):
        indices = only or ((x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0]))
        running = [begun(index) for index in indices] if together else map(begun, indices)
        while running := [one for one in running if goes_on(one)]:
            pass  # each that is left sleeps
    return machine.finish()
