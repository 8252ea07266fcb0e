"""What fakes check alike: types, devices, sizes, in the words of the library's checks."""

from functools import partial

import torch

from wmma_ops import torch_internals
from wmma_ops.ops.errors import tagged
from wmma_ops.ops.sizes import known
from wmma_ops.ops.types import FP8_FNUZ, FP8_OCP, OUTPUTS, listed, name


def fail(op, argument, text, kind=ValueError):
    raise tagged(op, argument, text, kind)


def check(holds, op, argument, text):
    """`text` is a function: a message is rarely asked for."""
    torch_internals.check(holds, lambda: str(tagged(op, argument, text(), ValueError)))


def require(op, **tensors):
    """A schema's Tensor may be None."""
    for argument, x in tensors.items():
        if x is None:
            fail(op, argument, "is None; takes a tensor", TypeError)


def factor_of_c(op, argument, value, c):
    if c is None and value != 1:
        fail(op, argument, f"is {value:g}; takes 1, its default, without c")


def same_device(op, first, **others):
    for argument, x in others.items():
        if x is not None and x.device != first.device:
            fail(op, argument, f"is on {x.device}; takes tensors on {first.device}, all of them", TypeError)


def output_type(op, a_name, a, b_name, b, out_dtype):
    if a.dtype not in OUTPUTS:
        fail(op, a_name, f"is {name(a.dtype)}; takes {', '.join(map(name, OUTPUTS))}", TypeError)
    family = next((family for family in (FP8_OCP, FP8_FNUZ) if a.dtype in family), (a.dtype,))
    if b.dtype not in family:
        fail(op, b_name, f"is {name(b.dtype)}; takes {name(a.dtype)}, as {a_name} has", TypeError)
    if out_dtype is None:
        return OUTPUTS[a.dtype][0]
    if out_dtype not in OUTPUTS[a.dtype]:
        fail(
            op,
            "out_dtype",
            f"is {name(out_dtype)}; takes {listed(*OUTPUTS[a.dtype])} for {name(a.dtype)} operands",
            TypeError,
        )
    return out_dtype


def product_shape(op, a_name, a, b_name, b):
    """The shape of a matrix product with broadcast batch dimensions."""
    for argument, x in ((a_name, a), (b_name, b)):
        if x.dim() < 2:
            fail(op, argument, f"has shape {list(x.shape)}; takes 2 dimensions or more")
    check(
        a.shape[-1] == b.shape[-2],
        op,
        b_name,
        lambda: f"has shape {list(b.shape)}; takes K as {a_name}, {list(a.shape)}, has it",
    )
    try:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError:
        fail(op, b_name, f"has shape {list(b.shape)}; takes batch dimensions that broadcast with those of {a_name}")
    return (*batch, a.shape[-2], b.shape[-1])


def same_sizes(shape, taken, op, argument, text):
    check(len(shape) == len(taken), op, argument, text)
    for size, target in zip(shape, taken, strict=True):
        check(size == target, op, argument, text)


def fits(op, shape, **others):
    for argument, x in others.items():
        if x is None:
            continue
        text = partial("has shape {}; takes a shape that broadcasts to {}".format, list(x.shape), list(shape))
        if x.dim() > len(shape):
            fail(op, argument, text())
        for size, target in zip(reversed(x.shape), reversed(shape), strict=False):
            if not known(size == 1):
                check(size == target, op, argument, text)


def vector(op, names, **others):
    """A bias: its last dimension does not repeat, as a scale's may."""
    fits(op, names, **others)
    for argument, x in others.items():
        if x is not None:
            text = partial("has shape {}; takes [{}], after batch dimensions".format, list(x.shape), names[-1])
            check(x.dim() > 0 and x.shape[-1] == names[-1], op, argument, text)
