"""What the loops of attention's gradients share whose blocks own rows, of keys or of queries, and go through tiles of the
others (kernels/attention_backward.hip)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar

import torch

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import Step, step_of
from wmma_ops.plan.attention.loops.forward import is_lanes
from wmma_ops.plan.attention.rules import rules_header, rules_type
from wmma_ops.plan.plan import KernelLaunch, check_blocks
from wmma_ops.plan.problem import AttentionProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text, occupancy_constants, order_of

_LEAST_ROWS = 65  # that loops whose waves go by tiles are for


@dataclass(frozen=True)
class OwnerConfig(ABC):
    """One of the two kernels, by who owns the rows of a block. Sizes are in elements."""

    side: ClassVar[int] = 16  # of the matrix unit's tiles
    LOOP: ClassVar[str]  # the stem of its header
    STARTS_EARLY: ClassVar[bool] = False  # before the kernel before it is done

    owns_keys: bool
    waves: int
    tiles_m: int  # of the matrix unit's rows, that a wave owns
    others: int  # rows of a tile of those that are not owned
    depth: int  # of Q and K
    value_depth: int  # of V and g_out
    slice: int  # of the results' columns, that a block computes
    asynchronous: bool
    occupancy: int
    sums_delta: bool = field(default=False, kw_only=True)  # of its queries, for the kernel behind it

    def step(self, target: arch.Target, element: torch.dtype) -> Step:
        return step_of(target, element, is_lanes(target, element), self.side)

    def threads(self, target: arch.Target) -> int:
        return self.waves * target.wave

    @abstractmethod
    def shared_bytes(self, target: arch.Target, element: torch.dtype) -> int: ...

    @abstractmethod
    def kernel(self, problem: AttentionProblem) -> str:
        """Its type in the kernel's source."""

    def numbers(self) -> dict[str, int]:
        """Of the loop alone, in the kernel's configuration."""
        return {}

    def flags(self, problem: AttentionProblem) -> dict[str, bool]:
        """Likewise."""
        return {}

    def words(self) -> tuple[str, ...]:
        """Of the loop alone, in a plan's text."""
        return ()

    def __str__(self) -> str:
        own, others = ("keys", "queries") if self.owns_keys else ("queries", "keys")
        text = f"{self.waves} waves of {self.tiles_m} row tiles of {own}, {self.others} {others}, {self.slice} columns"
        return ", ".join((text, *(["asynchronous copies"] if self.asynchronous else []), *self.words()))


def goes_by_chunks(problem: AttentionProblem, owns_keys: bool, terms: frozenset[str]) -> bool:
    """Whether rows are 16-bit, by whole chunks and of whole tiles, nothing but `terms` bears on scores, and there is a tile
    of the others at least."""
    rows, length = (problem.skv, problem.sq) if owns_keys else (problem.sq, problem.skv)
    return (
        problem.dtype.itemsize == 2
        and problem.terms <= terms
        and not problem.wide
        and {problem.e, problem.ev} <= {64, 128}
        and problem.in_eights
        and length >= 32
        and rows >= _LEAST_ROWS
    )


def source(problem: AttentionProblem, config: OwnerConfig, target: arch.Target) -> str:
    def along(order: str, vec: int) -> int:
        return vec if order == "e" else 1

    q, k = (problem.q_order, problem.q_vec), (problem.k_order, problem.k_vec)
    v, g = (problem.v_order, problem.v_vec), (problem.g_order, problem.g_vec)
    (row, second_row), (first, second) = ((k, v), (q, g)) if config.owns_keys else ((q, g), (k, v))
    shared = config.shared_bytes(target, problem.dtype)
    numbers = {
        "kSide": config.side,
        "kWaves": config.waves,
        "kTilesM": config.tiles_m,
        "kOthers": config.others,
        "kColumns": problem.e,
        "kValueColumns": problem.ev,
        "kDepth": config.depth,
        "kValueDepth": config.value_depth,
        "kSlice": config.slice,
        "kRowVec": along(*row),
        "kSecondRowVec": along(*second_row),
        "kFirstVec": first[1],
        "kSecondVec": second[1],
        "kOutVec": problem.out_vec,
        **occupancy_constants(target, config.occupancy, config.threads(target) // target.wave, shared),
        "kThreads": config.threads(target),
        "kSharedBytes": shared,
        **config.numbers(),
    }
    flags = {
        "kLanes": is_lanes(target, problem.dtype),
        "kOwnsKeys": config.owns_keys,
        "kAsync": config.asynchronous,
        "kCausal": problem.causal,
        "kWide": problem.wide,
        **config.flags(problem),
    }
    orders = {"kFirstOrder": order_of(first[0] == "e"), "kSecondOrder": order_of(second[0] == "e")}
    members = [
        *aliases({"Element": CPP[problem.dtype], "Mask": CPP[problem.mask], "Rules": rules_type(problem)}),
        *constants("wmma::Order", orders),
        *constants("int", numbers),
        *constants("bool", flags),
    ]
    files = (f"wmma/attention/loops/{config.LOOP}.hpp", "attention_backward.hip")
    return kernel_text(*files, members=members, before=rules_header(problem), kernel=config.kernel(problem))


def launch(problem: AttentionProblem, config: OwnerConfig, target: arch.Target) -> KernelLaunch:
    length, heads = (problem.skv, problem.heads // problem.group) if config.owns_keys else (problem.sq, problem.heads)
    columns = max(problem.e, problem.ev) if config.owns_keys else problem.e
    tiles = ceil(length / (config.waves * config.tiles_m * config.step(target, problem.dtype).rows))
    blocks = tiles * ceil(columns / config.slice) * heads * problem.batch
    threads = config.threads(target)
    check_blocks("attention takes", blocks, threads, target)
    shared = config.shared_bytes(target, problem.dtype)
    text, early = source(problem, config, target), config.STARTS_EARLY
    return KernelLaunch("attention_backward", text, (blocks, 1), threads, shared, early)
