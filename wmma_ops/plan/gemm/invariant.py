"""Products whose rows do not know how many they are: of one weight all have their sums in one order, which its columns and
its K choose."""

import dataclasses
import functools
from collections.abc import Iterator
from math import prod

from wmma_ops.hardware import arch
from wmma_ops.ops.errors import ConfigError
from wmma_ops.ops.types import FP8
from wmma_ops.plan.gemm.candidates import candidates, splits_of
from wmma_ops.plan.gemm.config import GemmConfig
from wmma_ops.plan.gemm.cost import cost
from wmma_ops.plan.gemm.loops import loop_of
from wmma_ops.plan.problem import GemmProblem

ROWS = (1, 32, 512, 8192)  # for which an order is to be good: a token, some sequences, a chunk, a prefill
_MANY = 1 << 20  # for which it has to be there
_BY_STEPS = frozenset(
    ("staged", "direct_copy", "async_copy")
)  # whose waves multiply alike, wherever operands lie before

Order = tuple


def order_of_sums(config: GemmConfig) -> Order:
    """What decides a result's bits: what multiplies, and how K is dealt out."""
    order = config.order
    dealt = config.waves_k * order.cluster * order.splits > 1 or config.element in FP8
    step = config.block_k if dealt else 0  # else steps follow each other, however long
    loop = "by steps" if config.loop in _BY_STEPS else config.loop
    return (
        loop, str(config.element), config.lanes, config.side, config.parts, config.waves_k, step, order.cluster,
        order.splits,
    )  # fmt: skip


def every(problem: GemmProblem, target: arch.Target) -> Iterator[GemmConfig]:
    """All configurations but those that split some tiles and not others."""
    for config in candidates(problem, target):
        for split in splits_of(problem, config, target):
            if split.order.last == 1:
                yield split


def ranked(problem: GemmProblem, target: arch.Target) -> list[GemmConfig]:
    """Those of the weight's order, the cheapest first; what spills comes last."""
    kept = order_of(problem, target)
    found = [config for config in every(problem, target) if order_of_sums(config) == kept]
    if not found:
        raise ConfigError(f"no configuration of {target.name} has the sums of other rows in the order of {problem}")
    return sorted(found, key=lambda x: (loop_of(x).lacking(problem, x, target), cost(problem, x, target)))


def order_of(problem: GemmProblem, target: arch.Target) -> Order:
    return _order_of(dataclasses.replace(problem, m=1, batch=1, batch_dims=0), target)


@functools.lru_cache(maxsize=4096)
def _order_of(problem: GemmProblem, target: arch.Target) -> Order:
    """Of those that there are for each number of rows, that which takes least beside the best."""
    of_rows: list[dict[Order, float]] = []
    for rows in ROWS:
        one, least = dataclasses.replace(problem, m=rows), {}
        for config in every(one, target):
            spills = loop_of(config).lacking(one, config, target) > 0
            price = cost(one, config, target) * (100 if spills else 1)
            key = order_of_sums(config)
            least[key] = min(price, least.get(key, price))
        of_rows.append(least)
    many = {order_of_sums(config) for config in every(dataclasses.replace(problem, m=_MANY), target)}
    shared = [key for key in of_rows[0] if key in many and all(key in least for least in of_rows)]
    if not shared:
        raise ConfigError(f"no order of sums of {target.name} is there for one row and for many of {problem}")
    return min(shared, key=lambda key: prod(least[key] / min(least.values()) for least in of_rows))
