"""Finds out what a module's forward computes, by tracing it; nothing is taken on the word of a name.

A trace with all children as leaves is the whole forward, whatever the weights: one that is a chain of children, or
``down(act(gate(x))·up(x))``, and the same in training and outside, may be computed another way. A forward that looks at its
input's values or sizes, or takes more than one argument, cannot be traced so, and is left alone.
"""

import contextlib
import copy
import itertools
import operator
from dataclasses import dataclass

import torch
import torch.fx
from torch import nn

from wmma_ops.nn.activation import Leaves, call_name, is_plain, traced_name_of
from wmma_ops.nn.chain import Link

GATED_NAMES = ("gate_proj", "up_proj", "down_proj")
_MOST_CHILDREN = 8
_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Chain:
    """Children and functions, called one after another; the names of those that are children."""

    names: tuple[str | None, ...]
    links: tuple[Link, ...]

    def holds(self, module: nn.Module) -> bool:
        """The children are still those that were traced, and nobody watches the module's own parts."""
        return all(
            name is None or module._modules.get(name) is link.call
            for name, link in zip(self.names, self.links, strict=True)
        )


@dataclass(frozen=True)
class Gated:
    """``down(act(gate(x))·up(x))``: the layers' names, the activation and, where it is a child, its name and itself."""

    gate: str
    up: str
    down: str
    activation: str
    child: str | None
    module: nn.Module | None

    def holds(self, module: nn.Module) -> bool:
        same = self.child is None or module._modules.get(self.child) is self.module
        return same and (self.module is None or is_plain(self.module))


class Unknown(Exception):
    """Why a forward is none of these."""


def structure_of(module: nn.Module) -> Chain | Gated | None:
    """What the forward of a module with linear layers is; None where it can be no such block, Unknown where it is not."""
    children = list(module.children())
    linears = [child for child in children if isinstance(child, nn.Linear)]
    own = any(
        next(found, None) is not None for found in (module.parameters(recurse=False), module.buffers(recurse=False))
    )
    deep = any(next(child.children(), None) is not None for child in children)
    if not 1 <= len(linears) <= 3 or len(children) > _MOST_CHILDREN or own or deep:
        return None
    if type(module).forward in (nn.Module.forward, nn.Sequential.forward):
        return None
    graphs = [_graph(module, training, grads) for training in (False, True) for grads in (False, True)]
    found = [_gated(module, graph) or _chain(module, graph) for graph in graphs]
    if any(one != found[0] for one in found):
        raise Unknown("its forward differs in training")
    if found[0] is None:
        raise Unknown("its forward is neither a chain of its children nor down(act(gate(x))·up(x))")
    return found[0]


class _Watchful(Leaves):
    """Refuses a forward that turns gradients or autocast on or off: the graph would not show it."""

    def __init__(self):
        super().__init__()
        self.state = _state()

    def create_node(self, *args, **kwargs):
        if _state() != self.state:
            raise ValueError("it switches gradients, inference mode or autocast")
        return super().create_node(*args, **kwargs)


def _state() -> tuple:
    autocast = [(torch.is_autocast_enabled(one), torch.get_autocast_dtype(one)) for one in _DEVICES]
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), *autocast


def _graph(module: nn.Module, training: bool, grads: bool) -> list[torch.fx.Node]:
    """The trace with gradients and without autocast, or the other way round: either shows what switches the other off."""
    try:
        stand_in = copy.copy(module)  # shares the children; its flag is its own
        stand_in.training = training
        with torch.set_grad_enabled(grads), contextlib.ExitStack() as stack:
            for device in _DEVICES if torch.cuda.is_available() else _DEVICES[:1]:
                stack.enter_context(torch.autocast(device, torch.bfloat16, enabled=not grads))
            return list(_Watchful().trace(stand_in).nodes)
    except Exception as error:  # whatever a foreign forward raises on tracing: then nobody knows what it computes
        raise Unknown(f"its forward cannot be traced ({type(error).__name__}: {_first_line(error)})") from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:80]


def _called(module: nn.Module, node) -> nn.Module | None:
    """The direct child that a node calls with one tensor and nothing else."""
    if not isinstance(node, torch.fx.Node) or node.op != "call_module" or len(node.args) != 1 or node.kwargs:
        return None
    return module._modules.get(node.target)


def _activation(module: nn.Module, node) -> str | None:
    child = _called(module, node)
    return traced_name_of(child) if child is not None else call_name(node)


def _chain(module: nn.Module, nodes: list[torch.fx.Node]) -> Chain | None:
    if [node.op == "placeholder" for node in nodes[:2]] != [True, False] or nodes[-1].op != "output":
        return None
    names, found = [], []
    for before, node in itertools.pairwise(nodes):
        if node.args != (before,):
            return None
        if node.op == "output":
            break
        child, name = _called(module, node), _activation(module, node)
        if child is not None:
            names.append(node.target)
            found.append(Link(child, name))
        elif name is not None:
            names.append(None)
            found.append(Link(node.target if node.op == "call_function" else getattr(torch, node.target), name))
        else:
            return None
    return Chain(tuple(names), tuple(found))


def _gated(module: nn.Module, nodes: list[torch.fx.Node]) -> Gated | None:
    if len(nodes) != 7 or nodes[-1].op != "output":  # x, gate, act, up, ·, down, output
        return None
    x, down = nodes[0], nodes[-1].args[0]
    if x.op != "placeholder" or not isinstance(_called(module, down), nn.Linear):
        return None
    product = down.args[0]
    if product.target not in (operator.mul, torch.mul, "mul") or len(product.args) != 2 or product.kwargs:
        return None
    for act, up in (product.args, product.args[::-1]):
        name = _activation(module, act) if isinstance(act, torch.fx.Node) else None
        gate = act.args[0] if name else None
        layers = [_called(module, node) for node in (gate, up)]
        if name and all(isinstance(layer, nn.Linear) for layer in layers) and gate.args == up.args == (x,):
            child = _called(module, act)
            return Gated(gate.target, up.target, down.target, name, act.target if child is not None else None, child)
    return None
