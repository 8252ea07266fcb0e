"""Plans what puts new keys and values into pages: the size of the launch, and the source text of its kernel."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from wmma_ops.hardware import arch
from wmma_ops.plan import model
from wmma_ops.plan.plan import KernelLaunch, Plan
from wmma_ops.plan.problem import KvAppendNumbers, KvAppendProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text

_THREADS = 256
_BLOCKS_OF_A_UNIT = 8  # more go round


@dataclass(frozen=True)
class KvAppendConfig:
    """One kernel."""

    vec: int  # elements that a thread moves at once

    def __str__(self) -> str:
        return f"{_THREADS} threads, by {self.vec} elements"


def plan(problem: KvAppendProblem, target: arch.Target) -> Plan:
    config = KvAppendConfig(problem.vec)
    chunks = problem.tokens * problem.heads * (problem.e + problem.ev) // problem.vec
    units = model.CARDS[target.name].units
    blocks = min(ceil(chunks / _THREADS), units * _BLOCKS_OF_A_UNIT)
    launch = KernelLaunch("kv_append", source(problem), (blocks, 1), _THREADS, 0)
    return Plan(config, f"a thread a chunk, on {units} units", (launch,), 0, KvAppendNumbers(blocks))


def every(problem: KvAppendProblem, target: arch.Target, reason: str) -> Iterator[Plan]:
    """All plans: there is one."""
    yield plan(problem, target)


def source(problem: KvAppendProblem) -> str:
    numbers = {
        "kThreads": _THREADS,
        "kVec": problem.vec,
        "kKeySize": problem.e,
        "kValueSize": problem.ev,
        "kHeads": problem.heads,
        "kPageSize": problem.page_size,
        "kAngles": problem.angles,
    }
    members = [
        *aliases({"Element": CPP[problem.dtype], "Stored": CPP[problem.stored], "Angle": CPP[problem.angle]}),
        *constants("int", numbers),
        *constants("bool", {"kInterleaved": problem.interleaved}),
    ]
    return kernel_text("kv_append.hip", members=members)
