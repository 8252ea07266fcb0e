"""Runs a block of a decoded kernel: its waves one after the other, each to the next barrier."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from wmma_ops.emulator import barriers
from wmma_ops.emulator.assembly import Instruction, class_of
from wmma_ops.emulator.bits import WORD
from wmma_ops.emulator.buffers import Buffers
from wmma_ops.emulator.errors import EmulationError, EndlessLoop, OutOfBounds, Trap, Uninitialised, UnknownInstruction
from wmma_ops.emulator.linking import CODE_BASE, CODE_STEP
from wmma_ops.emulator.memory import Flat, GlobalMemory, Region, Scratch, Traffic
from wmma_ops.emulator.operands import EXEC, GENERAL_SCALARS
from wmma_ops.emulator.program import BARRIER, END, GIVEN, SLEEP, WAIT, Program
from wmma_ops.emulator.shared import AwaitedWrite, SharedMemory
from wmma_ops.emulator.timing import Timing, Trace

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
    released: int = 0  # see global_races.Stretch
    acquired: int = 0
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
                "another's store never ends here.)" + barriers.waiting(self.waves)
            )
        self.memory.progress = False
        return self.budget

    def _where(self, ins: Instruction, wave: _Wave, block) -> str:
        return f"{self.program.kernel.name} on {self.program.target}: {_place(ins)}, block {block}, wave {wave.index}: "

    def block(
        self, index: tuple[int, int, int], start, threads: int, shared_bytes: int, order, cooperative: bool
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
        alone = len(waves) == 1 and not cooperative  # then its registers stay in the machine's

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
            if slept and cooperative:
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
