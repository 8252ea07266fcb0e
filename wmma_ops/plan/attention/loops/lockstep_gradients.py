"""kernels/wmma/attention/loops/lockstep_gradients.hpp: RDNA's waves, all at the same tile, a tile ahead of their products,
for attention's gradients."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import tile_bytes
from wmma_ops.plan.attention.owners import OwnerConfig, goes_by_chunks
from wmma_ops.plan.problem import AttentionProblem

TERMS = frozenset({"causal", "window", "sinks"})
# (waves, others, groups ahead, kept rows), by head size and by who owns the rows: no register is spilled.
_SHAPES = {
    "rdna3": {64: {False: (8, 32, 1, 2), True: (8, 32, 1, 2)}, 128: {False: (8, 16, 1, 1), True: (4, 16, 1, 0)}},
    "rdna4": {64: {False: (8, 32, 3, 2), True: (8, 32, 3, 2)}, 128: {False: (8, 16, 3, 2), True: (8, 16, 1, 2)}},
}


@dataclass(frozen=True)
class LockstepConfig(OwnerConfig):
    LOOP: ClassVar[str] = "lockstep_gradients"

    ahead: int  # so many groups of products before their own, rows are read
    kept: int  # of the owned rows, that are in registers: of none, of Q or K, of g_out or V too

    def shared_bytes(self, target: arch.Target, element: torch.dtype) -> int:
        size = element.itemsize
        rows = self.waves * self.tiles_m * self.step(target, element).rows
        line = self.depth * size + 16  # lines along the head size are padded
        transposed = (1 + self.owns_keys) * tile_bytes(target, self.depth, self.others, size)
        statistics = 2 * self.others * 4 if self.owns_keys else 0
        return 2 * self.others * line + transposed + statistics + (2 - self.kept) * rows * line

    def kernel(self, problem: AttentionProblem) -> str:
        return "wmma::LockstepGradients<Config>"

    def numbers(self) -> dict[str, int]:
        return {"kAhead": self.ahead, "kKeptRows": self.kept}

    def flags(self, problem: AttentionProblem) -> dict[str, bool]:
        return {"kSumsDelta": self.sums_delta, "kGrouped": problem.group > 1, "kStoresDq": False, "kFixed": False}

    def words(self) -> tuple[str, ...]:
        return ("a tile ahead", *(["delta"] if self.sums_delta else []))


def supports(problem: AttentionProblem, target: arch.Target, owns_keys: bool) -> bool:
    """Rows of keys and of values are alike."""
    shaped = problem.e in _SHAPES.get(target.family, {}) and problem.e == problem.ev
    return shaped and goes_by_chunks(problem, owns_keys, TERMS)


def chosen(problem: AttentionProblem, target: arch.Target, owns_keys: bool) -> LockstepConfig | None:
    if not supports(problem, target, owns_keys):
        return None
    waves, others, ahead, kept = _SHAPES[target.family][problem.e][owns_keys]
    e, least = problem.e, waves // (2 * target.simds)
    return LockstepConfig(owns_keys, waves, 1, others, e, e, e, False, least, ahead, kept)
