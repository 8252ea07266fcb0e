"""Attention whose rows do not know each other: each has its sums in one order, whatever else is in a tile of queries.

Keys are in parts that begin at fixed places, and of a part come by tiles of as many keys, the last first; the sizes of heads
alone choose how many. A part joins those before it, by another kernel where blocks have parts, or as the block goes on.
"""

import dataclasses
from collections.abc import Callable
from math import ceil
from typing import Any

from wmma_ops.hardware import arch
from wmma_ops.ops.errors import ConfigError
from wmma_ops.plan.attention.config import AttentionConfig
from wmma_ops.plan.problem import AttentionProblem

Ranked = Callable[[AttentionProblem, arch.Target], list[AttentionConfig]]

_FEW, _MANY = 1, 2048  # queries, for which an order has to be there
_WIDE = 128  # columns, above which warpgroups' tiles have fewer keys
PART = 1024  # keys: more, and few queries leave units idle; fewer, and what parts leave in memory is felt


def keys_of_warpgroups(width: int) -> int:
    return 64 if width > _WIDE else 128


def chosen(problem: AttentionProblem, target: arch.Target, ranked: Ranked) -> AttentionConfig:
    """The first configuration of the first order that there is for few queries and for many."""
    few, many = (ranked(dataclasses.replace(problem, sq=sq), target) for sq in (_FEW, _MANY))
    shared = {_order_of_sums(config) for config in few}
    kept = next((_order_of_sums(x) for x in many if not x.ping_pong and _order_of_sums(x) in shared), None)
    for config in ranked(problem, target):
        if _order_of_sums(config) == kept:
            return config
    raise ConfigError(f"no configuration of {target.name} has the sums of other rows in the order of {problem}")


def _order_of_sums(config: AttentionConfig) -> tuple:
    return config.ping_pong, config.keys, config.depth, config.slice, config.side, config.lanes


def parts(problem: AttentionProblem) -> int:
    """How many the keys have. A window's are one: how large it is, a plan does not know."""
    return 1 if problem.windowed else max(ceil(problem.skv / PART), 1)


def in_parts(problem: AttentionProblem, blocks: int, units: int) -> dict[str, Any]:
    """What a configuration says of it: a block for each part where units would be idle otherwise, and else one for all."""
    count = parts(problem)
    if count == 1:
        return {}
    return {"splits": count} if leave_idle(blocks, units) else {"folds": True}


def leave_idle(blocks: int, units: int) -> bool:
    return 2 * blocks <= units


def reason(problem: AttentionProblem, keys: int) -> str:
    count = parts(problem)
    whole = f", in {count} parts of {PART}" if count > 1 else ""
    return f"batch-invariant: by tiles of {keys} keys whatever the queries{whole}"
