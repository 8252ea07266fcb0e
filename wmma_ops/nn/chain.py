"""Children called one after another, as in nn.Sequential: which of them go into one op, and that op's call."""

import functools
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import nn

from wmma_ops.nn import adapters
from wmma_ops.nn.activation import apply, is_idle, is_plain, name_of
from wmma_ops.nn.linear import Affine, Linear, linear
from wmma_ops.nn.mlp import Gate, gated, mlp
from wmma_ops.torch_internals import children

Tensor = torch.Tensor


class Link(NamedTuple):
    """A child, a function or two layers whose results are multiplied; the activation that it is, if it is one."""

    call: object
    activation: str | None = None
    name: str = ""


class Gated(NamedTuple):
    """As a `Gate`, of layers."""

    gate: nn.Module
    up: nn.Module | None
    activation: str
    activated: int = 0


class Group(NamedTuple):
    """What is called at once: `links`, whose layers and whose activation these are; without a `first`, one link alone."""

    links: tuple[Link, ...]
    first: Affine | Gate | None = None
    activation: str | None = None
    second: Affine | None = None


class Chained(nn.Module):
    """A module whose forward is a chain."""

    def _wmma_links(self) -> list[Link] | None:  # beside names of the class it is mixed into
        """The chain as it is at this call; None where it is none."""
        raise NotImplementedError


def links(module: nn.Sequential) -> list[Link]:
    return [Link(child, name_of(child), name) for name, child in children(module).items()]


def flat(links: Iterable[Link]) -> list[Link]:
    """The links of chains among them in the place of those."""
    found = []
    for link in links:
        within = link.call._wmma_links() if isinstance(link.call, Chained) and is_plain(link.call) else None
        if within is None:
            found.append(link)
        else:
            found += [one._replace(name=f"{link.name}.{one.name}") for one in flat(within)]
    return found


def operands(target) -> Affine | Gate | None:
    """What one op computes with in the place of layers of ours that nobody watches; others stay calls of their own."""
    if isinstance(target, Gated):
        return _gate(target)
    if not isinstance(target, (Linear, adapters.LoRA)) or not is_plain(target):
        return None
    if isinstance(target, Linear):
        return Affine(target.weight, target.bias) if target.activation is None else None
    return adapters.operands(target)


def _gate(target: Gated) -> Gate | None:
    gate, up = operands(target.gate), None if target.up is None else operands(target.up)
    if gate is None or (target.up is not None and (up is None or up.weight.shape != gate.weight.shape)):
        return None
    if target.up is None and gate.weight.shape[0] % 2:
        return None
    # Dropout would draw for the one layer before the other, or for both at once.
    drawn = [layer for layer in (gate, up) if layer is not None and layer.adapter is not None]
    if target.up is not None and not all(is_idle(layer.adapter.dropout) for layer in drawn):
        return None
    return Gate(gate, up, target.activation, target.activated)


def groups(chain: list[Link]) -> list[Group]:
    found = []
    i = 0
    while i < len(chain):
        start, first = i, operands(chain[i].call)
        i += 1
        activation = None
        if first is not None and not isinstance(first, Gate):
            if i == len(chain) or not _fuses(chain[i]):
                found.append(Group(chain[start:i]))
                continue
            activation, i = chain[i].activation, i + 1
        if first is None:
            found.append(Group(chain[start:i]))
            continue
        j = i
        while j < len(chain) and isinstance(chain[j].call, nn.Module) and is_idle(chain[j].call):
            j += 1
        second = operands(chain[j].call) if j < len(chain) else None
        if isinstance(second, Affine):
            i = j + 1
        else:
            second = None
        found.append(Group(chain[start:i], first, activation, second))
    return found


def _fuses(link: Link) -> bool:
    return link.activation is not None and (not isinstance(link.call, nn.Module) or is_plain(link.call))


def note(links: list[Link]) -> str:
    """What goes into one op, by names; empty where no more does than within the chains among the links."""
    parts, flattened = [], flat(links)
    apart = sum(len(groups(flat([link]))) for link in links)
    if len(groups(flattened)) == apart and not any(isinstance(link.call, Gated) for link in links):
        return ""
    for group in groups(flattened):
        first, second = group.links[0].name, group.links[-1].name if group.second is not None else None
        if isinstance(group.first, Gate):
            parts.append(f"{second}({first})" if second is not None else first)
        elif group.first is not None:
            parts.append("+".join(name for name in (first, group.activation, second) if name is not None))
    return ", ".join(parts)


def run(links: list[Link], x: Tensor) -> Tensor:
    for group in groups(flat(links)):
        if group.first is None:
            x = _call(group.links[0])(x)
        elif group.second is not None:
            x = mlp(x, group.first, group.second, group.activation)
        elif isinstance(group.first, Gate):
            x = gated(x, group.first)
        else:
            x = linear(x, group.first, group.activation)
    return x


def _call(link: Link):
    """What calls the link by itself: a function was traced with its options, which its name holds."""
    is_function = link.activation is not None and not isinstance(link.call, nn.Module)
    return functools.partial(apply, link.activation) if is_function else link.call
