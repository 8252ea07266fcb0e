"""What fakes ask alike of types, devices and sizes. A fake only finds that a call is refused: why, the library says."""

import functools
from collections.abc import Callable
from typing import NoReturn

import torch

from wmma_ops import torch_internals
from wmma_ops.ops.errors import tagged
from wmma_ops.ops.library import OPS, WRITERS, overload
from wmma_ops.ops.sizes import known
from wmma_ops.ops.types import FP8_FNUZ, FP8_OCP, OUTPUTS

_ANY_SIZE = 2  # of a dimension that only the run knows


class _RefusedError(Exception):
    pass


def refuse() -> NoReturn:
    raise _RefusedError


def check(holds):
    torch_internals.check(holds, refuse)


def refused_by_library(fake: Callable) -> Callable:
    """The fake, whose refusals are those of the library's checks of the same call."""
    op = fake.__name__

    @functools.wraps(fake)
    def call(*inputs, **scalars):
        try:
            return fake(*inputs, **scalars)
        except _RefusedError:
            with torch_internals.modes_off():
                if torch_internals.is_tracing_tensor(type(torch.empty(()))):  # a torch whose modes stay on
                    raise tagged(op, "an argument", "is of a type or sizes that it does not take", ValueError) from None
                asked = {argument: _stand_in(x) for argument, x in scalars.items()}
                overload(op, raw=op in (*OPS, *WRITERS))(*map(_stand_in, inputs), **asked)
            raise AssertionError(f"wmma.{op}: the library takes what its fake refuses") from None

    return call


def _stand_in(x):
    """A tensor on the cpu of the same sizes and type, of one element's memory."""
    if not isinstance(x, torch.Tensor):
        return x
    return torch.empty((), dtype=x.dtype, device="cpu").expand([_size(size) for size in x.shape])


def _size(size) -> int:
    try:
        return int(size)
    except RuntimeError:
        return _ANY_SIZE


def require(*tensors):
    """A schema's Tensor may be None."""
    if any(x is None for x in tensors):
        refuse()


def factor_of_c(value, c):
    if c is None and value != 1:
        refuse()


def same_device(op, first, **others):
    """In words of its own: the library sees no place of a fake's tensors."""
    for argument, x in others.items():
        if x is not None and x.device != first.device:
            raise tagged(op, argument, f"is on {x.device}; takes tensors on {first.device}, all of them", TypeError)


def output_type(a, b, out_dtype):
    if a.dtype not in OUTPUTS:
        refuse()
    family = next((family for family in (FP8_OCP, FP8_FNUZ) if a.dtype in family), (a.dtype,))
    if b.dtype not in family or out_dtype not in (None, *OUTPUTS[a.dtype]):
        refuse()
    return out_dtype or OUTPUTS[a.dtype][0]


def product_shape(a, b):
    """The shape of a matrix product with broadcast batch dimensions."""
    if a.dim() < 2 or b.dim() < 2:
        refuse()
    check(a.shape[-1] == b.shape[-2])
    return (*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])


def broadcast(*shapes):
    try:
        return torch.broadcast_shapes(*shapes)
    except RuntimeError:
        refuse()


def same_sizes(shape, taken):
    check(len(shape) == len(taken))
    for size, target in zip(shape, taken, strict=True):
        check(size == target)


def fits(shape, *others):
    for x in others:
        if x is None:
            continue
        if x.dim() > len(shape):
            refuse()
        for size, target in zip(reversed(x.shape), reversed(shape), strict=False):
            if not known(size == 1):
                check(size == target)


def vector(names, *others):
    """A bias: its last dimension does not repeat, as a scale's may."""
    fits(names, *others)
    for x in others:
        if x is not None:
            check(x.dim() > 0 and x.shape[-1] == names[-1])
