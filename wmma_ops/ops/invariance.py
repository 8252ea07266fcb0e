"""Rows that do not know their batch."""

import contextlib

import torch


class batch_invariant(contextlib.ContextDecorator):  # as torch.no_grad
    """Within it a row's results have the same bits whatever else is in the batch: however many rows, sequences or queries
    a call has, and wherever among them the row stands.

    Usually a planner takes the kernel that is fastest for a call's sizes, and kernels differ in the order of their sums.
    Here the columns and K of a weight, and the sizes of attention's heads, choose the order alone: of products of every op,
    and of attention, be it a prefill, a part of one, a single token or a sequence in pages. Gradients with respect to
    weights are sums over a batch and depend on it.

    It holds for the process, all threads and compiled graphs in it, from the next call on, and costs time, which `explain`
    tells. What is not of this package is as it was: layers that `swap_` leaves, what Inductor makes.

    Args:
        enabled: whether it is to be so; False changes nothing.

    Examples:
        >>> import torch, wmma_ops
        >>> x, weight = torch.randn(17, 64), torch.randn(32, 64)
        >>> with wmma_ops.batch_invariant():
        ...     alone, together = wmma_ops.linear(x[3:4], weight), wmma_ops.linear(x, weight)
        >>> torch.equal(alone[0], together[3])
        True
    """

    def __init__(self, enabled: bool = True) -> None:
        self._enabled = enabled

    def __enter__(self) -> "batch_invariant":
        if self._enabled:
            torch.ops.wmma._ask_batch_invariant(True)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._enabled:
            torch.ops.wmma._ask_batch_invariant(False)
