"""kernels/wmma/attention/loops/ping_pong.hpp: the forward loop by two groups of waves, of which one is at the matrix unit
while the other computes weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import step_of
from wmma_ops.plan.attention.config import AttentionConfig
from wmma_ops.plan.problem import AttentionProblem

_MOST_REGISTERS = 232  # of the estimate: operands are read no further ahead


@dataclass(frozen=True)
class PingPongConfig(AttentionConfig):
    ping_pong: ClassVar[bool] = True

    def key_value_bytes(self, target: arch.Target) -> int:
        return 2 * super().key_value_bytes(target)

    def shares_memory(self) -> bool:
        return self.keeps_queries and not self.asynchronous

    def loaded(self, target: arch.Target) -> float:
        """A group has one of K and V on its way, and weights beside the next scores."""
        lanes, size = self.waves // 2 * target.wave, self.element.itemsize
        rows = self.tiles_m * step_of(target, self.element, self.lanes, self.side).rows
        tile = 0 if self.asynchronous else self.keys * max(self.depth, self.slice) * size
        return tile / lanes / 4 + rows * self.keys * size / target.wave / 4

    def most_registers(self, target: arch.Target) -> int:
        return _MOST_REGISTERS


def supports(problem: AttentionProblem, target: arch.Target, rows: int) -> bool:
    """Where four units of a block multiply beside other work, K and V come by whole chunks, and the block's 256 rows are
    more than another's."""
    whole_chunks = problem.dtype.itemsize == 2 and problem.k_vec == problem.v_vec == 8 and not problem.wide
    if problem.slopes is not None or problem.modified or problem.drops or problem.block_q:  # registers would spill
        return False
    if problem.is_narrow:
        return False
    return target.family == "cdna" and target.name != "gfx908" and whole_chunks and rows > 128


def candidates(
    problem: AttentionProblem, target: arch.Target, depth: int, part: int, packed: bool
) -> Iterator[PingPongConfig]:
    keys = 128 if max(depth, part) <= 64 and problem.page_size % 128 == 0 else 64
    direct = _goes_as_it_is(problem, target) and problem.page_size % keys == 0
    config = PingPongConfig(problem.dtype, False, 32, 8, 1, keys, depth, part, True, direct, packed, 1, occupancy=2)
    if config.shared_bytes(target) <= target.lds_bytes:
        yield config


def _goes_as_it_is(problem: AttentionProblem, target: arch.Target) -> bool:
    """Whether DirectLoader can bring K and V: lines along the head size, by powers of two, without a remainder."""
    along = problem.k_order == problem.v_order == "e"
    return target.name == "gfx950" and along and {problem.e, problem.ev} <= {32, 64, 128, 256}
