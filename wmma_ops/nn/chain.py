"""Children called one after another, as in nn.Sequential: which of them go into one op, and that op's call."""

import functools
from typing import NamedTuple

import torch
from torch import nn

from wmma_ops.nn.activation import apply, is_idle, is_plain, name_of
from wmma_ops.nn.linear import Linear, linear
from wmma_ops.nn.mlp import mlp

Tensor = torch.Tensor


class Link(NamedTuple):
    """A child (or a function) and the activation that it is, if it is one."""

    call: object
    activation: str | None = None


class Group(NamedTuple):
    """What is called at once: `first` alone, with the activation after it, or with both that and a second layer."""

    first: object
    activation: Link | None = None
    second: nn.Linear | None = None


def links(modules) -> list[Link]:
    return [Link(module, name_of(module)) for module in modules]


def is_linear(target) -> bool:
    """A layer of ours that nobody watches: one that was not swapped stays a call of its own."""
    return isinstance(target, Linear) and target.activation is None and is_plain(target)


def groups(chain: list[Link]) -> list[Group]:
    found = []
    i = 0
    while i < len(chain):
        first, i = _call(chain[i]), i + 1
        if not is_linear(first) or i == len(chain) or not _fuses(chain[i]):
            found.append(Group(first))
            continue
        activation, i = chain[i], i + 1
        j = i
        while j < len(chain) and isinstance(chain[j].call, nn.Module) and is_idle(chain[j].call):
            j += 1
        if j < len(chain) and is_linear(chain[j].call):
            found.append(Group(first, activation, chain[j].call))
            i = j + 1
        else:
            found.append(Group(first, activation))
    return found


def _call(link: Link):
    """What calls the link by itself: a function was traced with its options, which its name holds."""
    is_function = link.activation is not None and not isinstance(link.call, nn.Module)
    return functools.partial(apply, link.activation) if is_function else link.call


def _fuses(link: Link) -> bool:
    return link.activation is not None and (not isinstance(link.call, nn.Module) or is_plain(link.call))


def run(chain: list[Link], x: Tensor) -> Tensor:
    for first, activation, second in groups(chain):
        if activation is None:
            x = first(x)
        elif second is not None:
            x = mlp(x, first, second, activation.activation)
        else:
            x = linear(x, first.weight, first.bias, activation.activation)
    return x
