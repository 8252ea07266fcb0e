"""The same bits in whatever order waves run, each until it has to wait."""

from collections.abc import Callable, Iterable

import torch


def check_any_order(compute: Callable[..., Iterable[torch.Tensor]], seeds: Iterable[int] = (3,)) -> None:
    """`compute` is given what emulate() is to be: nothing, then a random order by each of the seeds."""
    first = [*compute()]
    for seed in seeds:
        again = compute(order="random", seed=seed)
        assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
