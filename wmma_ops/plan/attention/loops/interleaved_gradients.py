"""kernels/wmma/attention/loops/interleaved_gradients.hpp: CDNA's waves, a SIMD each, which compute weights between the
products of attention's gradients."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import shared_rate, tile_bytes
from wmma_ops.plan.attention.owners import OwnerConfig, goes_by_chunks
from wmma_ops.plan.problem import AttentionProblem

TERMS = frozenset({"causal", "window", "sinks"})
# Keys up to which sums in fixed point are no further off than their rounding to the type is: with more of them results are
# smaller, and more is rounded.
_FIXED_KEYS = {torch.float16: 2**14, torch.bfloat16: 2**17}


@dataclass(frozen=True)
class InterleavedConfig(OwnerConfig):
    side: ClassVar[int] = 32
    LOOP: ClassVar[str] = "interleaved_gradients"

    ahead: int  # so many groups of products before their own, rows are read
    stores_dq: bool = False  # of its keys, partial sums for the queries, so that there is no kernel for these
    fixed: bool = False  # these are whole numbers, whose sums are the same in any order

    def shared_bytes(self, target: arch.Target, element: torch.dtype) -> int:
        size, depths = element.itemsize, (self.depth, self.value_depth)
        rows = self.waves * self.tiles_m * self.step(target, element).rows
        if self.asynchronous:
            tiles = 3 * sum(self.others * depth * size for depth in depths)
        else:
            tiles = sum(tile_bytes(target, self.others, depth, size) for depth in depths)
            transposed = depths if self.owns_keys else depths[:1]
            tiles += sum(tile_bytes(target, depth, self.others, size) for depth in transposed)
        statistics = self.waves * 2 * self.others * 4 if self.owns_keys else 0
        slopes = self._slope_bytes(target, rows * size) if self.stores_dq else 0
        return tiles + statistics + slopes + (self.waves * self.others * 4 if self.fixed else 0)

    def _slope_bytes(self, target: arch.Target, line: int) -> int:
        """Of partial sums on their way through shared memory, a line a query; lines are padded, and where banks are few,
        eights of them."""
        gap = 64 if shared_rate(target) == 128 else 0
        return self.others * (line + 16) + self.others // 8 * gap

    def kernel(self, problem: AttentionProblem) -> str:
        return "wmma::InterleavedGradients<Config>"

    def numbers(self) -> dict[str, int]:
        return {"kAhead": self.ahead}

    def flags(self, problem: AttentionProblem) -> dict[str, bool]:
        grouped = problem.group > 1
        return {"kSumsDelta": self.sums_delta, "kGrouped": grouped, "kStoresDq": self.stores_dq, "kFixed": self.fixed}

    def words(self) -> tuple[str, ...]:
        said = {
            "interleaved": True,
            "delta": self.sums_delta,
            "which store partial sums for their queries": self.stores_dq,
            "sums in fixed point, in any order the same": self.fixed,
        }
        return tuple(word for word, is_so in said.items() if is_so)


def supports(problem: AttentionProblem, target: arch.Target, owns_keys: bool) -> bool:
    return target.family == "cdna" and target.name != "gfx908" and goes_by_chunks(problem, owns_keys, TERMS)


def chosen(problem: AttentionProblem, target: arch.Target, owns_keys: bool) -> InterleavedConfig | None:
    if not supports(problem, target, owns_keys):
        return None
    length = problem.sq if owns_keys else problem.skv
    widest = max(problem.e, problem.ev)
    others = 64 if widest == 64 and length >= 64 else 32
    ahead = 7 if owns_keys and others * (problem.e + problem.ev) >= 64 * 128 else 3
    direct = target.name == "gfx950"  # straight to shared memory, where there is room for three tiles
    return InterleavedConfig(owns_keys, 4, 1, others, problem.e, problem.ev, widest, direct, 1, ahead)


def storing_dq(problem: AttentionProblem, target: arch.Target) -> InterleavedConfig | None:
    """The configuration of keys that store partial sums of the queries' gradients, where each wave has a matrix tile of
    these: in fixed point, unless float32 sums may be in any order."""
    config = chosen(problem, target, True)
    if config is None or config.others * config.depth != config.waves * config.side**2:
        return None
    if not problem.unordered and problem.skv > _FIXED_KEYS[problem.dtype]:
        return None
    # By clang 19, which does not know gfx950, more of them spill.
    ahead = 3 if config.depth == 64 and not config.asynchronous else config.ahead
    return dataclasses.replace(config, stores_dq=True, fixed=not problem.unordered, ahead=ahead)
