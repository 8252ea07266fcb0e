"""Plans an activation's gradient with the sums of its columns: the slabs of rows, and the source text of its kernels."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from wmma_ops.hardware import arch
from wmma_ops.ops.types import bytes_of
from wmma_ops.plan import add_parts, model
from wmma_ops.plan.plan import KernelLaunch, Plan, check_blocks
from wmma_ops.plan.problem import ActivationGradientNumbers, ActivationGradientProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text

_THREADS = add_parts.THREADS
_BLOCKS_OF_A_UNIT = 4
_LEAST_ROWS = 16  # of a thread: what a slab's sums take is little beside
_AHEAD = 4


@dataclass(frozen=True)
class ActivationGradientConfig:
    """One kernel."""

    vec: int  # elements that a thread has of a row
    across: int  # threads of a row
    slabs: int  # of rows

    @property
    def columns(self) -> int:
        """Of a block."""
        return self.across * self.vec

    def __str__(self) -> str:
        return f"{_THREADS} threads, {self.columns} columns by {self.vec}, {self.slabs} slabs of rows"


def choose(problem: ActivationGradientProblem, target: arch.Target) -> ActivationGradientConfig:
    across = 1
    while across < 32 and across * problem.vec < problem.columns:
        across *= 2
    tiles = ceil(problem.columns / (across * problem.vec))
    wanted = ceil(model.CARDS[target.name].units * _BLOCKS_OF_A_UNIT / tiles)
    most = max(problem.rows // (_THREADS // across * _LEAST_ROWS), 1)
    return ActivationGradientConfig(problem.vec, across, min(wanted, most))


def plan(problem: ActivationGradientProblem, target: arch.Target) -> Plan:
    config = choose(problem, target)
    adds = problem.sums is not None
    # For a copy engine alone: other loops read a row's last elements by themselves, wherever rows start.
    aligns = problem.aligns and target.family == "sm90"
    numbers = ActivationGradientNumbers(config.slabs, aligns)
    if not (adds or aligns or problem.activation or problem.gates):
        return Plan(config, "nothing to do: what comes is the result", (), 0, numbers)
    number = bytes_of(problem.accumulator)
    early = target.family == "sm90"
    tiles = ceil(problem.columns / config.columns)
    check_blocks(f"a row of {problem.columns} elements takes", tiles, _THREADS, target)
    text = source(problem, config, copies=aligns)
    shared = _THREADS * config.vec * number if adds else 0
    launches = [KernelLaunch("activation_gradient", text, (tiles, config.slabs), _THREADS, shared, early)]
    workspace = 0
    if adds and config.slabs > 1:
        workspace = config.slabs * problem.columns * number
        text = source(problem, config, adds_up=True)
        launches.append(add_parts.launch("activation_gradient_sums", text, problem.columns, number, early))
    reason = f"a block for {config.columns} columns of each slab, on {model.CARDS[target.name].units} units"
    return Plan(config, reason, tuple(launches), workspace, numbers)


def every(problem: ActivationGradientProblem, target: arch.Target, reason: str) -> Iterator[Plan]:
    """All plans: there is one."""
    yield plan(problem, target)


def source(
    problem: ActivationGradientProblem, config: ActivationGradientConfig, *, adds_up: bool = False, copies: bool = False
) -> str:
    members = [
        *aliases({"Element": CPP[problem.dtype], "Sums": CPP[problem.sums]}),
        *constants(
            "int",
            {
                "kThreads": _THREADS,
                "kVec": config.vec,
                "kAcross": config.across,
                "kAhead": _AHEAD,
                "kActivation": problem.activation,
            },
        ),
        *constants(
            "bool",
            {
                "kIsWhole": config.slabs == 1,
                "kCopies": copies and not problem.activation,
                "kGates": problem.gates and not adds_up,
            },
        ),
    ]
    return kernel_text("activation_gradient.hip", members=members, defines={"WMMA_ADDS_UP": adds_up})
