"""How the documented functions call their ops: the raw one where no gradient is asked for, errors by the callers' names."""

import torch

from wmma_ops.ops.errors import translate
from wmma_ops.ops.select import is_grad_enabled, select

Tensor = torch.Tensor


def call(name: str, tensors: dict, **scalars):
    scalars = numbers(name, scalars)
    try:
        return select(name, *tensors.values())(*tensors.values(), **scalars)
    except (RuntimeError, TypeError) as error:
        raise translate(name, error, tensors) from None


def numbers(op: str, scalars: dict) -> dict:
    """A tensor of one element is taken as a number: it would lose its gradient, and torch.compile is to see it asked for."""
    for argument, value in scalars.items():
        if not isinstance(value, Tensor):
            continue
        if value.requires_grad and is_grad_enabled():
            raise TypeError(
                f"wmma.{op}: {argument} is a tensor that requires grad, but numbers have no gradient; takes a number "
                "(multiply an operand by the tensor instead)"
            )
        scalars = scalars | {argument: value.item()}
    return scalars
