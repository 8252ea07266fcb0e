"""What a configuration costs, in clock cycles: the busiest of a compute unit's pipes, and what nothing hides.

The figures beside arch.py's: how many compute units a usual card of the target has, what its memory gives each clock, and
the rates of plain FMA. The weights below were fitted to 11,000 timings on an H200, those of warpgroups to the last 4,200.
AMD's stand in ways.py, fitted to the emulator's clock: they rank configurations. `wmma_ops.tune` measures.
"""

from dataclasses import dataclass
from math import ceil, log2
from typing import NamedTuple

import torch

from wmma_ops.hardware import arch
from wmma_ops.ops.types import bits
from wmma_ops.ops.types import name as type_name


@dataclass(frozen=True)
class Card:
    units: int  # compute units or SMs
    memory: float  # bytes per clock, all units together
    dies: int = 1  # that blocks are assigned to round-robin


CARDS = {
    "gfx908": Card(120, 820),
    "gfx90a": Card(104, 960),
    "gfx942": Card(304, 2500, 8),
    "gfx950": Card(256, 3300, 8),
    "gfx1100": Card(96, 400),
    "gfx1101": Card(60, 260),
    "gfx1102": Card(32, 115),
    "gfx1103": Card(12, 45),
    "gfx1150": Card(16, 45),
    "gfx1151": Card(40, 90),
    "gfx1200": Card(32, 118),
    "gfx1201": Card(64, 237),
    "gfx1250": Card(256, 3300),
    "sm_80": Card(108, 1300),
    "sm_86": Card(82, 550),
    "sm_89": Card(128, 400),
    "sm_90": Card(132, 2600),
    "sm_90a": Card(132, 2600),
}

# Of mma.sync, which reaches some five eighths of what wgmma does on sm_90.
_NVIDIA_RATES = {"float16": 2048, "bfloat16": 2048, "int8": 4096, "float64": 128}
_WGMMA_RATE = 3850  # of 16-bit products
_SM90_RATES = {"float16": 2900, "bfloat16": 2900, "int8": 5800, "float64": 256}
_FMA_RATES = {torch.float32: 256, torch.float64: 16}  # FLOP per clock and unit

# In cycles, but for those that say otherwise.
LAUNCH = 7200  # a call of one block that does nothing
BLOCK = 2500  # a block's way to its first product and from its last, where waves multiply by themselves
ROUND_TRIP = 1480  # until a load that misses the caches returns
TILE_BYTES = 57  # per cycle, from the L2 cache to a unit
LINE_BYTES = 128
APART = 5  # how little the units and the memory that they read hinder each other
STRADDLE = 0.09  # of a line more, for each run that does not start on one
STRADDLE_COPIED = 1.2  # the same for each line of a run that is copied asynchronously: all straddle (3000³ on an H200)
MAPPED_RESULT = 0.4  # of a result's bytes, where the copy engine takes it away
MAPPED_BESIDE = 1.5  # the same of what is read for each of its elements
RESULT_BYTES = 19  # per cycle, of a unit's results and what is read beside them
ACTIVATIONS = 104  # instructions per cycle
ZERO_BYTES = 55  # per cycle, of rows that are not there (19 rows in tiles of 64 on an H200)
# What shows of both beside another tile's products: they are issued by the same schedulers.
OVERLAPPED_RESULTS, OVERLAPPED_ACTIVATIONS = 0.5, 0.77
CROSSTALK = {"nvidia": 0.17, "amd": 0.3}  # of the other pipes' time that adds to the busiest one's
CLUSTER = 970  # for each doubling of the blocks of a cluster
SUM_BYTES = 15  # per cycle, of sums that waves or the blocks of a cluster add up
UNITS_OF_CLUSTERS = {4: 120, 8: 112}  # that clusters of so many blocks fill at once: each lies in one part of the chip
SPLIT = 10800  # the kernel that adds up the splits of K
SPLIT_EARLY = 2500  # the same where it is launched while the one before it runs
SPLIT_AMD = 4500  # on AMD: what lies between two launches, assumed, and its own way by the emulator's clock
SPLIT_ROUND = 1500  # on AMD, of parts that are on their way together


@dataclass(frozen=True)
class Way:
    """What a main loop costs beside what its pipes move: in cycles, or as a part of a step."""

    block: float  # a block's way to its first product and from its last
    step: float  # a step's barrier and its loop
    crosstalk: float  # of the other pipes' time that adds to the busiest one's
    few: float  # of a step more where four waves have nobody to hide their latencies
    share: float = 0  # of a step more, for each doubling of the blocks that wait for each other's tiles
    tile_bytes: float = TILE_BYTES
    cluster: float = CLUSTER
    last: float = 0  # where a last round is split
    apart: float = APART
    fades: float = 1  # how fast `few` goes with more waves
    round_trip: float = ROUND_TRIP
    result_bytes: float = RESULT_BYTES
    turns: float = 0  # as `crosstalk`, where two groups of waves ping-pong, who hide each other's latencies

    def adds(self, hides_latencies: bool) -> float:
        return self.turns if hides_latencies else self.crosstalk


def rate(target: arch.Target, element: torch.dtype, lanes: bool, *, wgmma: bool = False) -> float:
    """FLOP per clock and unit."""
    if wgmma:
        return _WGMMA_RATE * 16 // bits(element)
    if lanes:
        return 128 if element == torch.float64 and target.family == "cdna" else _FMA_RATES[element]
    name = type_name(element)
    rates = target.rates or (_SM90_RATES if target.family == "sm90" else _NVIDIA_RATES)
    # fp8 on NVIDIA: as int8, but sm_90's mma.sync converts it first.
    return rates.get(name) or rates["float16" if target.family == "sm90" else "int8"]


def resident(target: arch.Target, waves: int, registers: int, shared: int) -> int:
    """Blocks of `waves` waves, each lane with so many registers, that share a unit."""
    if target.vendor == "nvidia":
        by_registers = 65536 // (waves * 32 * min(registers, 255))
    else:
        file = 1536 if target.wave == 32 else 512  # registers of a SIMD that one lane's waves share
        by_registers = file // min(registers, file) * target.simds // waves
    return max(1, min(by_registers, target.lds_bytes // max(shared, 1), 8))


class Work(NamedTuple):  # of which a plan makes hundreds: a dataclass takes five times as long to make
    """A launch of blocks of `steps` steps each; what a step keeps each pipe of a unit busy."""

    way: Way
    load: float  # blocks of the busiest unit
    steps: int
    matrix: float
    shared: float
    tile_bytes: float
    result_bytes: float  # of a block
    activations: float  # instructions of a block
    resident: int  # blocks that share a unit
    waves: int  # of a block
    in_flight: int  # steps whose loads are under way
    cluster: int
    share: int  # blocks that bring tiles for each other
    shared_sums: float  # bytes of a block's sums that others add up
    splits: int
    split_bytes: float  # partial sums written and read
    last: int  # blocks that share each tile of the last round
    persistent: bool  # blocks go from tile to tile
    hides_latencies: bool  # its groups of waves do
    overlaps: bool  # what finishes a tile goes on beside the next one's products
    traffic: float  # bytes that memory moves, for the whole launch
    zeros: float = 0  # bytes that the copy engine would write in a step for rows that are not there


def beside_memory(target: arch.Target, units: float, traffic: float, apart: float = APART) -> float:
    """What the units and the memory take together, that moves so many bytes."""
    return (units**apart + (traffic / CARDS[target.name].memory) ** apart) ** (1 / apart)


def units_of(device: int, target: arch.Target) -> int:
    """Of the GPU that a problem is on; of a usual card where it is on none (GemmProblem.device)."""
    if device >= 0 and torch.cuda.is_available():
        return torch.cuda.get_device_properties(device).multi_processor_count
    return CARDS[target.name].units


def wholes(target: arch.Target) -> int:
    """What blocks run on: SMs, compute units, on RDNA pairs of them."""
    units = CARDS[target.name].units
    return max(units // 2, 1) if target.family.startswith("rdna") else units


def load(target: arch.Target, tiles: int, neighbours: int, last: int) -> float:
    """Blocks of the busiest unit, of which so many neighbours start together; on RDNA, of a pair's half."""
    at_once = wholes(target)
    rounds = ceil(tiles / (at_once if neighbours <= 2 else UNITS_OF_CLUSTERS[neighbours]))
    in_last = ceil(tiles % at_once * last / at_once) / last - 1 if last > 1 else 0
    return (rounds + in_last) * (at_once / CARDS[target.name].units)


def parts_in_flight(target: arch.Target) -> int:
    """Parts of a sum that a lane has on their way at once."""
    return 8 if target.vendor == "amd" else 1


def adding_up(target: arch.Target, parts: int) -> float:
    """The kernel that adds up parts of K, but for the bytes that it moves."""
    if target.vendor == "amd":
        return SPLIT_AMD + SPLIT_ROUND * ceil(parts / parts_in_flight(target))
    return SPLIT_EARLY if target.family == "sm90" else SPLIT


def cycles(target: arch.Target, work: Work) -> float:
    resident = min(work.load, work.resident)
    memory = work.tile_bytes / work.way.tile_bytes
    # The pipes are not quite independent, and few waves do not hide each other's latencies.
    step = max(work.matrix, work.shared, memory) + work.way.adds(work.hides_latencies) * (work.shared + memory)
    if not work.hides_latencies:
        step *= 1 + work.way.few / (resident * work.waves / 4) ** work.way.fades
    step *= 1 + work.way.share * log2(work.share)
    step += work.way.step + work.zeros / ZERO_BYTES
    waiting = work.way.round_trip / work.in_flight / resident
    units = work.load * work.steps * (step**5 + waiting**5) ** 0.2
    total = LAUNCH + beside_memory(target, units, work.traffic, work.way.apart)
    rounds = ceil(work.load / work.resident)
    total += (1 if work.persistent else rounds) * work.way.block
    results, activations = work.result_bytes / work.way.result_bytes, work.activations / ACTIVATIONS
    of_results, of_activations = (OVERLAPPED_RESULTS, OVERLAPPED_ACTIVATIONS) if work.overlaps else (1, 1)
    total += (rounds - 1) * (of_results * results + of_activations * activations) + results + activations
    if work.last > 1:
        total += work.way.last
    total += work.way.cluster * log2(work.cluster) + work.shared_sums / SUM_BYTES
    if work.splits > 1:
        total += adding_up(target, work.splits) + work.split_bytes / CARDS[target.name].memory
    return total
