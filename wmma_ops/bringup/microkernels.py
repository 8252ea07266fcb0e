"""Microkernels behind the clock's rules (emulator/timing/rules.py): what each takes on the card and by the clock.

kernels/microkernels.hip has the kernels. A thing takes (cycles of many − cycles of few) / (many − few), in both alike, so
that what the loop and reading the clock take falls out.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

import wmma_ops
from wmma_ops.bringup.item import FAILED, LEFT_OUT, TOLD, Item
from wmma_ops.bringup.machine import Machine
from wmma_ops.emulator.timing import rules as timing_rules
from wmma_ops.hardware import arch
from wmma_ops.jit import kernels_dir

PART = "microkernels"
_REPEATS = 7
_CPP = {
    "float16": "half_t", "bfloat16": "bf16_t", "int8": "int8_t", "float32": "float", "float64": "double",
    "int32": "int32_t",
}  # fmt: skip


@dataclass(frozen=True)
class Micro:
    """`function` of the file with `defines`; MICRO_COUNT and rounds are `few`, then `many`."""

    name: str
    function: str
    defines: dict[str, object]
    few: tuple[int, int]
    many: tuple[int, int]
    rules: tuple[str, ...] = ()  # that its time speaks of
    says: tuple[str, Callable[[float], float]] | None = None  # a rule, and what it is by the time of one thing
    waves: int = 1
    everywhere: bool = False  # a block on each unit, not one alone
    data: Callable[["Micro", Machine, torch.Generator], list] = lambda micro, machine, generator: []
    things: Callable[[int, int], float] = field(default=lambda count, rounds: count * rounds)
    result: Callable[[int, int], float] | None = None  # in every lane of the second argument

    @property
    def apart(self) -> float:
        return self.things(*self.many) - self.things(*self.few)


@functools.lru_cache(maxsize=4)
def _kernel(function: str, defines: tuple[tuple[str, object], ...]) -> wmma_ops.Kernel:
    options = tuple(f"-D{name}={value}" for name, value in defines)
    return wmma_ops.Kernel((kernels_dir.PATH / "microkernels.hip").read_text(), function, options=options)


def kernel(micro: Micro, count: int) -> wmma_ops.Kernel:
    return _kernel(micro.function, tuple({**micro.defines, "MICRO_COUNT": count}.items()))


# ------------------------------------------------------------------------------------------------------------- what there is


def _zeros(dtype: torch.dtype, size: int = 1024) -> torch.Tensor:
    return torch.zeros(size, dtype=dtype)


def products(target: arch.Target) -> Iterator[Micro]:
    nvidia = target.vendor == "nvidia"
    shapes = [(row.m, row.k, row.a, row.d, row.cycles) for row in target.instructions if row.m == row.n]
    if nvidia:
        shapes = [(16, 16, "float16", "float32", None), (16, 16, "bfloat16", "float32", None)]
        shapes.append((16, 16, "int8", "int32", None))
    longest: dict[tuple[int, str], tuple] = {}
    for row in shapes:
        size, k, a, d, _ = row
        if size >= 16 and a in _CPP and d == {"int8": "int32", "float64": "float64"}.get(a, "float32"):
            longest[size, a] = max(longest.get((size, a), row), row, key=lambda one: one[1])
    for size, k, a, d, cycles in longest.values():
        dtype = getattr(torch, d)

        def sums(micro, machine, generator, dtype=dtype):
            return [_zeros(dtype), _zeros(torch.float32)]

        def one(name, chains, few, many, *, a=a, d=d, size=size, k=k, sums=sums, result=None, waves=1, said=(), **more):
            defines = {"MICRO_A": _CPP[a], "MICRO_D": _CPP[d], "MICRO_M": size, "MICRO_K": k, "MICRO_CHAINS": chains}
            defines |= {"MICRO_BESIDE": 0, **more}
            label = f"{a} product {size}x{size}x{k}, {name}"
            rules, says = said or ((), None)
            return Micro(
                label, "products", defines, (few, 16), (many, 16), rules, says, waves, data=sums, result=result
            )

        chains = 2 if size == 32 or d == "float64" else 4

        def fills(count, rounds, k=k):
            return count * rounds * k

        yield one("each adding to the one before", 1, 8, 24, result=fills,
                  said=(("matrix_latency",), cycles and ("matrix_latency", lambda time, c=cycles: time - c)))  # fmt: skip
        yield one(f"{chains} sums in turn", chains, 8, 24, result=fills, said=(("arch.py's cycles",), None))
        if a not in ("float16", "int8") or (size == 32) != (target.family == "cdna"):
            continue
        yield one("its result added to, and so on", 1, 8, 24, said=(("matrix_to_valu",), None), MICRO_RESULT=1)
        for beside in (1, 2, 4, 6, 8, 12, 16):
            yield one(f"{beside} instructions behind each", chains, 8, 24, result=fills,
                      said=(("valu", "valu_beside"), None), MICRO_BESIDE=beside)  # fmt: skip
            if a == "float16" and beside in (4, 8):
                simds = 4
                yield one(f"{beside} instructions for each by the SIMD's other wave", chains, 8, 24,
                          said=(("valu", "valu_beside"), None), MICRO_BESIDE=beside, MICRO_LATER=1,
                          waves=2 * simds)  # fmt: skip
            if a == "float16" and beside in (1, 2, 4) and target.family == "cdna" and target.name != "gfx908":
                yield one(f"{beside} packed instructions behind each", chains, 8, 24, result=fills,
                          said=(("packed_behind",), None), MICRO_BESIDE=beside, MICRO_PACKED=1)  # fmt: skip


def _waves(count: int) -> str:
    return f"{count} wave{'s' if count > 1 else ''}"


def floats() -> Iterator[Micro]:
    def one(name, chains, rule, **more):
        defines = {"MICRO_FLOATS": 1, "MICRO_CHAINS": chains, **more}
        return Micro(f"float32, {name}", "floats", defines, (32, 16), (96, 16), (rule,), (rule, lambda time: time),
                     data=lambda micro, machine, generator: [_zeros(torch.float32)])  # fmt: skip

    yield one("fused multiply-add that depends on the one before", 1, "valu_latency")
    yield one("fused multiply-add, 8 in turn", 8, "valu")
    yield one("power of 2, 8 in turn", 8, "transcendental", MICRO_EXPONENTIALS=1)


def shared_memory(target: arch.Target) -> Iterator[Micro]:
    lanes = torch.arange(target.wave, dtype=torch.int32)

    def one(function, name, words, offsets, few, many, waves, rules, says=None):
        return Micro(f"shared memory, {name}", function, {"MICRO_SHARED": 1, "MICRO_WORDS": words}, (few, 16), (many, 16),
                     rules, says, waves, data=lambda micro, machine, generator: [offsets])  # fmt: skip

    reads = ("lds_bytes", "lds_path", "lds_issue", "lds_queue")
    for words, apart in ((4, (16, 32, 64, 128, 256, 0)), (1, (4, 8, 16, 64, 128, 256, 0))):
        for step in apart:
            name = f"{step} bytes apart" if step else "the same ones in all lanes"
            for waves in (1, 4):
                label = f"reads of {4 * words} bytes a lane, {name}, {_waves(waves)}"
                yield one("shared_reads", label, words, lanes * step, 2, 8, waves, reads)
    writes = ("lds_write_address", "lds_write_bytes", "lds_written")
    for words, step in ((4, 16), (1, 4), (1, 64)):
        for waves in (1, 4):
            label = f"writes of {4 * words} bytes a lane, {step} apart, {_waves(waves)}"
            yield one("shared_writes", label, words, lanes * step, 2, 6, waves, writes)
    for words in (1, 4):
        yield one("shared_chase", f"a read of {4 * words} bytes whose address the one before read", words, lanes * 4, 4, 12,
                  1, ("lds_latency",))  # fmt: skip


_LINE = 256  # bytes between the places of a chase


def _chase(size: int, micro: Micro, machine: Machine, generator: torch.Generator) -> list:
    """Each place of `size` bytes leads to another, in one round of all."""
    places = size // _LINE
    order = torch.randperm(places, generator=generator)
    following = torch.zeros(places * _LINE // 4, dtype=torch.int32)
    following[order * (_LINE // 4)] = (order.roll(-1) * (_LINE // 4)).int()
    return [following]


def memory(machine: Machine) -> Iterator[Micro]:
    def chase(name, size, warm, rules):
        defines = {"MICRO_MEMORY": 1, "MICRO_WARM": warm}
        says = (rules[0], lambda time: time) if rules else None
        return Micro(f"memory, a load whose address the one before loaded, {name}", "memory_chase", defines, (4, 8), (12, 8),
                     rules, says, data=functools.partial(_chase, size))  # fmt: skip

    yield chase("within 8 KB", 8192, 8192 // _LINE, ("cache_latency",))
    if machine.is_card:
        yield chase("within 1 MB", 1 << 20, (1 << 20) // _LINE, ("l2_latency",))
        yield chase("within 256 MB", 1 << 28, 0, ())

    def loads(count, waves, footprint, everywhere=False):
        where = ", every unit" if everywhere else ""
        name = (
            f"memory, rounds of {count} loads of 16 bytes a lane, {footprint >> 10} KB a wave, {_waves(waves)}{where}"
        )
        beyond = ("l2_path", "l2_latency", "l2_miss", "l2_miss_latency", "vmem_queue", "vmem_bytes")
        rules = beyond if footprint > 32768 else ("cache_path",)
        return Micro(
            name, "memory_loads", {"MICRO_MEMORY": 1, "MICRO_WARM": 0}, (count, 8), (count, 24), rules, None, waves,
            everywhere,
            data=lambda micro, machine, generator: [
                _zeros(torch.uint8, footprint * waves * (machine.units if everywhere and machine.is_card else 1))
            ],
            things=lambda count, rounds: rounds,
        )  # fmt: skip

    for count in (1, 2, 4, 8, 12):
        yield loads(count, 1, 65536)
        yield loads(count, 4, 65536)
    yield loads(8, 8, 65536, everywhere=True)
    yield loads(8, 1, 8192)


def others() -> Iterator[Micro]:
    for waves in (4, 8):
        yield Micro(f"a barrier, {waves} waves", "barriers", {"MICRO_OTHERS": 1}, (8, 16), (24, 16), ("barrier",),
                    ("barrier", lambda time: time), waves)  # fmt: skip


def all_of(machine: Machine) -> list[Micro]:
    target = machine.row
    found = [*products(target), *floats(), *shared_memory(target), *memory(machine), *others()]
    return found[:: max(len(found) // 8, 1)] if machine.small else found


# ----------------------------------------------------------------------------------------------------------------- running


def _arguments(micro: Micro, machine: Machine, rounds: int, device: str, blocks: int) -> list:
    generator = torch.Generator().manual_seed(0)
    data = [x.to(device) for x in micro.data(micro, machine, generator)]
    cycles = torch.zeros(blocks * micro.waves, dtype=torch.int32, device=device)
    behind: list = {"products": [1.0, 0.0], "floats": [1.0, 0.0], "memory_chase": [0]}.get(micro.function, [])
    if micro.function == "memory_loads":
        behind = [data[0].numel() // (blocks * micro.waves)]
    return [cycles, *data, rounds, *behind]


def measured(micro: Micro, machine: Machine) -> float:
    """Cycles of one thing on the card: of several launches the quickest, of its waves the slowest."""
    blocks = machine.units if micro.everywhere else 1
    times = []
    for count, rounds in (micro.few, micro.many):
        launched = kernel(micro, count)
        given = _arguments(micro, machine, rounds, "cuda", blocks)
        found = []
        for turn in range(_REPEATS):
            if micro.function == "memory_chase":
                given[-1] = turn * 997 % (len(given[1]) * 4 // _LINE) * (_LINE // 4)  # a place that no cache has yet
            launched[blocks, machine.row.wave * micro.waves](*given)
            found.append(int(given[0].max()))
        if micro.result is not None:
            wanted, got = micro.result(count, rounds), given[1][: machine.row.wave].double()
            if not bool((got == wanted).all()):
                raise AssertionError(f"the kernel's own result is {got[0].item()}, and not {wanted}")
        times.append(min(found))
    return (times[1] - times[0]) / micro.apart


def by_the_clock(micro: Micro, machine: Machine) -> tuple[float, dict[str, float]]:
    """Cycles of one thing by the emulator's clock, and which instructions it executes."""
    times, executed = [], []
    for count, rounds in (micro.few, micro.many):
        given = _arguments(micro, machine, rounds, "cpu", 1)
        with wmma_ops.emulate(machine.target, timing=True) as emulation:
            kernel(micro, count)[1, machine.row.wave * micro.waves](*given)
        timing = emulation.launches[-1].timing()
        times.append(timing.cycles)
        counts: dict[str, int] = {}
        for one in timing.instructions:
            name = one.text.split()[0] if one.text else ""
            counts[name] = counts.get(name, 0) + one.executed
        executed.append(counts)
    few, many = executed
    each = {name: (many[name] - few.get(name, 0)) / micro.apart / micro.waves for name in many}
    return (times[1] - times[0]) / micro.apart, {name: round(number, 3) for name, number in each.items() if number}


def run(micro: Micro, machine: Machine) -> dict:
    found: dict = {"verdict": TOLD, "rules": list(micro.rules)}
    clocked = ""
    if machine.no_emulator:
        clocked = machine.no_emulator
    else:
        try:
            known = timing_rules(machine.target)
        except ValueError as error:
            clocked = str(error)
        else:
            found["rules"] = {name: getattr(known, name, None) for name in micro.rules}
            found["clock"], found["instructions"] = by_the_clock(micro, machine)
    if clocked:
        found["no clock"] = clocked
    if not machine.is_card:
        found["not measured"] = "emulated: the emulator's counter of cycles tells nothing"
        return found if not clocked else found | {"verdict": LEFT_OUT, "why": clocked}
    found["measured"] = measured(micro, machine)
    if micro.says is not None and "s_nop" not in found.get("instructions", {}):
        found["says"] = {micro.says[0]: round(micro.says[1](found["measured"]), 1)}
    if not found["measured"] > 0:
        found |= {"verdict": FAILED, "error": "more of it took no longer than less"}
    return found


def _gigahertz(machine: Machine) -> dict:
    if not machine.is_card:
        return {"verdict": LEFT_OUT, "why": "emulated: no clock runs"}
    run = _kernel("clocks", (("MICRO_OTHERS", 1), ("MICRO_COUNT", 64)))
    cycles, ticks = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda")
    for _ in range(_REPEATS):
        run[1, machine.row.wave](cycles, ticks, 1500, 1.0)
    tick = 1 if machine.row.vendor == "nvidia" else 40 if machine.target in ("gfx908", "gfx90a") else 10
    return {"verdict": TOLD, "cycles": int(cycles), "nanoseconds": int(ticks) * tick,
            "gigahertz": int(cycles) / max(int(ticks) * tick, 1)}  # fmt: skip


def items(machine: Machine) -> list[Item]:
    found = [Item(PART, "the card's clock, one wave busy", lambda: _gigahertz(machine))]
    for micro in all_of(machine):

        def prepare(micro=micro):
            for count, _ in (micro.few, micro.many):
                kernel(micro, count).compile(machine.target)

        found.append(Item(PART, micro.name, functools.partial(run, micro, machine), prepare))
    return found
