"""kernels/wmma/attention/loops/gradients.hpp: the gradients of any attention, one tile of the others after the other."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import step_of, tile_bytes, up
from wmma_ops.hardware.occupancy import most_estimated
from wmma_ops.ops.errors import ConfigError
from wmma_ops.plan import model
from wmma_ops.plan.attention.loops.forward import is_lanes
from wmma_ops.plan.attention.owners import OwnerConfig
from wmma_ops.plan.attention.rules import divides_blocks, of_sequences
from wmma_ops.plan.problem import AttentionProblem

_OTHERS = 64  # registers beside sums
_DRAWN_BYTES = 8  # of a query, by which its weights are dropped
# (waves, row tiles, others) of 16-bit types by head size and by who owns the rows: the fastest on an H200.
_MEASURED = {64: {False: (4, 2, 64), True: (4, 2, 32)}, 128: {False: (4, 2, 32), True: (4, 1, 64)}}


@dataclass(frozen=True)
class GradientsConfig(OwnerConfig):
    LOOP: ClassVar[str] = "gradients"

    corrects: bool  # weights, beside a mask of numbers or a score function
    drops: bool  # weights, some of them

    def shared_bytes(self, target: arch.Target, element: torch.dtype) -> int:
        step, size = self.step(target, element), element.itemsize
        rows = self.waves * self.tiles_m * step.rows
        depths = (self.depth, self.value_depth)
        total = sum(tile_bytes(target, rows, depth, size) for depth in depths)
        buffer = sum(tile_bytes(target, self.others, depth, size) for depth in depths)
        if not self.asynchronous:
            buffer += (1 + self.owns_keys) * tile_bytes(target, self.slice, self.others, size)
        if self.owns_keys:
            buffer += (3 if self.corrects else 2) * self.others * (8 if size == 8 else 4)
            buffer += self.others * _DRAWN_BYTES if self.drops else 0
        total += buffer * (2 if self.asynchronous else 1)
        return total + (0 if step.stays else 2 * tile_bytes(target, rows, self.others, size))

    def registers(self, target: arch.Target, element: torch.dtype) -> int:
        """An estimate of what a lane holds."""
        size = element.itemsize
        each = 2 if size == 8 else 1
        rows = self.tiles_m * self.step(target, element).rows
        sums = rows * ((1 + self.owns_keys) * self.slice + 2 * self.others) * each / target.wave
        loads = self.others * (self.depth + self.slice) * size / (self.waves * target.wave) / 4
        return int(sums + (0 if self.asynchronous else loads)) + _OTHERS

    def kernel(self, problem: AttentionProblem) -> str:
        return of_sequences(problem, "wmma::AttentionBackward<Config>")


def candidates(problem: AttentionProblem, target: arch.Target, owns_keys: bool) -> Iterator[GradientsConfig]:
    """Configurations that fit shared memory, the preferred one first."""
    element, size = problem.dtype, problem.dtype.itemsize
    lanes = is_lanes(target, element)
    step = step_of(target, element, lanes, 16)
    depth, value_depth = up(problem.e, step.depth), up(problem.ev, step.depth)
    widest = up(max(problem.e, problem.ev) if owns_keys else problem.e, step.whole)
    slices = dict.fromkeys((widest, *(x for x in (128, 64, 32, 16) if x < widest and x % step.whole == 0)))
    shapes = [(4, 1, 64), (4, 1, 32), (2, 1, 32), (4, 1, 16), (2, 1, 16), (1, 1, 16), (1, 1, 32)]
    if target.vendor == "nvidia" and size == 2:
        shapes = [(8, 1, 64), (8, 1, 32), *shapes]
        if measured := _measured(problem, owns_keys):
            shapes.insert(0, measured)
    for part in slices:
        for waves, tiles_m, others in shapes:
            own = waves * tiles_m * step.rows
            if others % step.whole or not divides_blocks(problem, *((others, own) if owns_keys else (own, others))):
                continue
            whole = part == widest and problem.e == problem.ev and depth == up(depth, step.whole)
            asynchronous = target.vendor == "nvidia" and size == 2 and whole and problem.in_eights
            shape = (waves, tiles_m, others, depth, value_depth, part)
            config = GradientsConfig(owns_keys, *shape, asynchronous, 1, problem.corrects, problem.drops)
            shared = config.shared_bytes(target, element)
            if shared <= target.lds_bytes:
                held = int(config.registers(target, element) * 1.25)
                blocks = model.resident(target, waves, held, shared)
                least = max(waves // target.simds, 1)
                occupancy = (
                    min(blocks, 2) if target.vendor == "nvidia" else min(max(blocks * waves // target.simds, least), 2)
                )
                yield dataclasses.replace(config, occupancy=max(occupancy, 1) if target.family != "rdna3" else least)


def _measured(problem: AttentionProblem, owns_keys: bool) -> tuple[int, int, int] | None:
    widest = max(problem.e, problem.ev)
    return next((shapes[owns_keys] for most, shapes in _MEASURED.items() if most // 2 < widest <= most), None)


def chosen(problem: AttentionProblem, target: arch.Target, owns_keys: bool) -> GradientsConfig:
    # What would spill, or leaves SIMDs without a wave, is taken only where nothing else is left.
    def over(config: GradientsConfig) -> tuple[int, bool]:
        if config.asynchronous and (config.waves, config.tiles_m, config.others) == _measured(problem, owns_keys):
            return 0, False
        excess = config.registers(target, problem.dtype) - most_estimated(target, gradients=True)
        return max(excess, 0), config.waves < 4

    config = min(candidates(problem, target, owns_keys), key=over, default=None)
    if config is None:
        raise ConfigError(f"no configuration of {target.name} fits {problem}")
    return config
