"""kernels/wmma/attention/loops/warpgroup_owners.hpp: sm_90a's warpgroups of 64 rows that each own, for attention's gradients
of any head size to 256 and by any rules."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import BARRIER_BYTES, up
from wmma_ops.ops.errors import ConfigError
from wmma_ops.plan.attention import owners
from wmma_ops.plan.attention.backward import BackwardConfig
from wmma_ops.plan.attention.owners import OwnerConfig
from wmma_ops.plan.attention.passes import delta, fill
from wmma_ops.plan.attention.rules import divides_blocks
from wmma_ops.plan.plan import Plan
from wmma_ops.plan.problem import AttentionNumbers, AttentionProblem

_LINES = 64  # of a warpgroup, of a tile, and of a box
_GROUPS = 2  # of a block
_NARROW = 64  # columns with which two blocks of one warpgroup share a unit: where tiles are few, one begins as one ends
_WIDEST = 256  # columns whose sums registers hold, of all results
_STAGES = (4, 4), (2, 2), (2, 1)  # places for tiles of both: numbers by which little is to be divided
_DRAWN_BYTES = 8  # of a query, by which its weights are dropped


@dataclass(frozen=True)
class WarpgroupOwnersConfig(OwnerConfig):
    LOOP: ClassVar[str] = "warpgroup_owners"
    STARTS_EARLY: ClassVar[bool] = True

    gives_first: bool  # g_Q or g_K
    gives_second: bool  # g_V
    first_stages: int  # places for tiles of K or Q
    second_stages: int  # for those of V or g_out
    passed: int  # bytes that are passed beside a tile of queries
    follows: bool  # another of these, without waiting for it

    @property
    def groups(self) -> int:
        return self.waves // 4

    def threads(self, target: arch.Target) -> int:
        return super().threads(target) + 4 * target.wave  # one brings tiles, a wave passes what is beside them

    def shared_bytes(self, target: arch.Target, element: torch.dtype) -> int:
        return self.rows_bytes(element.itemsize) + self.tiles_bytes(element.itemsize) + self.beside_bytes()

    def rows_bytes(self, size: int) -> int:
        """Of the owned rows."""
        return self.groups * _LINES * (self.depth + (self.value_depth if self.gives_first else 0)) * size

    def tiles_bytes(self, size: int) -> int:
        return _LINES * (self.first_stages * self.depth + self.second_stages * self.value_depth) * size

    def beside_bytes(self) -> int:
        return self.first_stages * self.passed + 2 * (1 + 2 * self.first_stages + self.second_stages) * BARRIER_BYTES

    def kernel(self, problem: AttentionProblem) -> str:
        return "wmma::WarpgroupOwners<Config>"

    def numbers(self) -> dict[str, int]:
        return {"kFirstStages": self.first_stages, "kSecondStages": self.second_stages}

    def flags(self, problem: AttentionProblem) -> dict[str, bool]:
        return {"kGivesFirst": self.gives_first, "kGivesSecond": self.gives_second, "kFollows": self.follows}

    def __str__(self) -> str:
        own, others = ("keys", "queries") if self.owns_keys else ("queries", "keys")
        first, second = ("g_K", "g_V") if self.owns_keys else ("g_Q", "")
        gives = " and ".join(name for name, gives in ((first, self.gives_first), (second, self.gives_second)) if gives)
        return (
            f"{gives} by {self.groups} warpgroup{'s' * (self.groups > 1)} of {_LINES} {own}, {self.others} {others}, "
            f"{self.first_stages} and {self.second_stages} stages"
        )


def supports(problem: AttentionProblem, target: arch.Target) -> bool:
    """Whether the copy engine can fill the tiles, and a warpgroup's registers hold one of its sums."""
    fits = max(problem.e, problem.ev) <= _WIDEST and min(problem.sq, problem.skv) >= _LINES
    own = _groups(problem) * _LINES
    divided = all(divides_blocks(problem, *both) for both in ((own, _LINES), (_LINES, own)))
    return target.name == "sm_90a" and problem.dtype.itemsize == 2 and fits and divided and problem.in_eights


def _groups(problem: AttentionProblem) -> int:
    return 1 if (problem.sequences or problem.block_q) and max(problem.e, problem.ev) <= _NARROW else _GROUPS


def configs(problem: AttentionProblem, target: arch.Target) -> Iterator[WarpgroupOwnersConfig]:
    """One for each launch."""
    depth, value_depth = up(problem.e, _LINES), up(problem.ev, _LINES)
    gives = [(False, True, False)]
    if depth + value_depth <= _WIDEST:
        gives += [(True, True, True)]
    else:
        gives += [(True, True, False), (True, False, True)]
    groups = _groups(problem)
    for number, (owns_keys, first, second) in enumerate(gives):
        passed = 0
        follows = number > 0 and not problem.corrects  # or it reads what the one of queries finds
        if owns_keys:
            passed = _LINES * ((3 if problem.corrects else 2) * 4 + (_DRAWN_BYTES if problem.drops else 0))
        occupancy = _GROUPS // groups
        shape = (owns_keys, groups * 4, 1, _LINES, depth, value_depth, max(depth, value_depth), True, occupancy)
        made = (WarpgroupOwnersConfig(*shape, first, second, *stages, passed, follows) for stages in _STAGES)
        yield next(config for config in made if config.shared_bytes(target, problem.dtype) <= target.lds_bytes)


def plan(problem: AttentionProblem, target: arch.Target) -> Plan | None:
    """None where waves by themselves are to do it."""
    if not supports(problem, target):
        return None
    found = tuple(configs(problem, target))
    try:
        launches = (
            delta.launch(problem, target),
            *(owners.launch(problem, config, target) for config in found),
            *fill.launches(problem),
        )
    except ConfigError:  # more threads than a launch counts: waves by themselves have fewer for as many rows
        return None
    numbers = AttentionNumbers(1, 0, 0, 1, queries=_LINES, packed=1, lines_k=_LINES)
    return Plan(BackwardConfig(problem.dtype, False, found), "the first that fits", launches, 0, numbers)
