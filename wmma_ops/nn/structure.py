"""Finds out what a module's forward computes, by tracing it; nothing is taken on the word of a name.

A trace with all children as leaves is the whole forward, whatever the weights: one that is a chain of children, of which
some may be multiplied as in ``act(gate(x))·up(x)``, and the same in training and outside, may be computed another way. A
forward that looks at its input's values or sizes cannot be traced so, and is left alone; one that asks on which device it
runs is traced for each.
"""

import contextlib
import copy
import operator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.fx
from torch import nn

from wmma_ops.nn import adapters, chain
from wmma_ops.nn.activation import Leaves, call_name, is_plain, traced_name_of
from wmma_ops.torch_internals import children

GATED_NAMES = ("gate_proj", "up_proj", "down_proj")
_MOST_PARTS = 8
_DEVICES = ("cpu", "cuda")
_OF_INPUT = ("cpu", "cuda", "meta")


class Step(NamedTuple):
    """A child, or a function, called with what the step before it gave; and the activation that it is, if it is one."""

    name: str | None
    call: object
    activation: str | None = None

    def link(self, module: nn.Module) -> chain.Link | None:
        """As it is now; None where it is another thing than the one that was traced."""
        if self.name is None:
            return chain.Link(self.call, self.activation)
        found = _part(module, self.name)
        if found is self.call or (is_layer(found) and is_layer(self.call)):
            return chain.Link(found, self.activation, self.name)
        return None


class Gating(NamedTuple):
    """``act(gate(x))·up(x)`` by names; without `up`, of the halves of one layer's result."""

    gate: str
    up: str | None
    activation: str
    activated: int = 0
    child: Step | None = None  # the activation, where it is a child

    def formula(self) -> str:
        if self.up is not None:
            return f"{self.activation}({self.gate})·{self.up}"
        return f"{self.activation}({self.gate}[{self.activated}])·{self.gate}[{1 - self.activated}]"

    def link(self, module: nn.Module) -> chain.Link | None:
        gate, up = _part(module, self.gate), None if self.up is None else _part(module, self.up)
        if self.up is not None and up is None:  # it is gone
            return None
        if self.child is not None and (self.child.link(module) is None or not is_plain(self.child.call)):
            return None
        gated = chain.Gated(gate, up, self.activation, self.activated)
        return None if chain.operands(gated) is None else chain.Link(gated, name=self.formula())


@dataclass(frozen=True)
class Structure:
    """What a forward does with its one argument, step by step."""

    steps: tuple[Step | Gating, ...]

    def links(self, module: nn.Module) -> list[chain.Link] | None:
        """The chain that the module is as it stands; None where its own forward has to run."""
        links = [step.link(module) for step in self.steps]
        return None if None in links else links


class Unknown(Exception):
    """Why a forward is none of these; `near` where an activation follows a layer, None where nobody saw the forward."""

    def __init__(self, reason: str, *, near: bool | None = None):
        super().__init__(reason)
        self.near = near


def is_layer(module) -> bool:
    """A linear layer, with an adapter or without, swapped or not."""
    found = adapters.peft_layers()
    return isinstance(module, nn.Linear) or (found is not None and isinstance(module, found[0]))


def parts_of(module: nn.Module) -> dict[str, nn.Module]:
    """The children, and those in its lists, by their names in the forward."""
    found = {}
    for name, child in module.named_children():
        is_list = type(child) in (nn.ModuleList, nn.ModuleDict)
        found |= {f"{name}.{one}": part for one, part in child.named_children()} if is_list else {name: child}
    return found


def _part(module: nn.Module | None, name: str) -> nn.Module | None:
    for one in name.split("."):
        module = None if module is None else children(module).get(one)
    return module


def structure_of(module: nn.Module) -> Structure | None:
    """What the forward of a module with linear layers is; None where it can be no such block, Unknown where it is not."""
    parts = parts_of(module).values()
    products = [part for part in parts if is_layer(part) or isinstance(part, chain.Chained)]
    own = any(
        next(found, None) is not None for found in (module.parameters(recurse=False), module.buffers(recurse=False))
    )
    deep = any(next(part.children(), None) is not None for part in parts if part not in products)
    if not 1 <= len(products) <= 3 or len(parts) > _MOST_PARTS or own or deep:
        return None
    if type(module).forward in (nn.Module.forward, nn.Sequential.forward):
        return None
    graphs = [
        graph for training in (False, True) for grads in (False, True) for graph in _graphs(module, training, grads)
    ]
    found = [_steps(module, graph) for graph in graphs]
    near = any(_activation(module, node) and _follows_a_layer(module, node) for node in graphs[0])
    if any(one != found[0] for one in found):
        raise Unknown("its forward differs in training, or by device", near=near)
    if found[0] is None:
        raise Unknown("its forward is neither a chain of its children nor down(act(gate(x))·up(x))", near=near)
    return Structure(found[0])


class _OnDevice(torch.fx.Proxy):
    """A value that knows on which device it is."""

    @property
    def device(self) -> torch.device:
        self.tracer.was_asked = True
        return torch.device(self.tracer.device)


class _Watchful(Leaves):
    """Refuses a forward that turns gradients or autocast on or off: the graph would not show it."""

    def __init__(self, device: str):
        super().__init__()
        self.state = _state()
        self.device, self.was_asked = device, False

    def create_args_for_root(self, root_fn, is_module, concrete_args=None):
        """One tensor: a call with more runs the forward itself."""
        return root_fn, [self.root, self.create_proxy("placeholder", "x", (), {})]

    def proxy(self, node):
        return _OnDevice(node, self)

    def create_node(self, *args, **kwargs):
        if _state() != self.state:
            raise ValueError("it switches gradients, inference mode or autocast")
        return super().create_node(*args, **kwargs)


def _state() -> tuple:
    autocast = [(torch.is_autocast_enabled(one), torch.get_autocast_dtype(one)) for one in _DEVICES]
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), *autocast


def _graphs(module: nn.Module, training: bool, grads: bool) -> list[list[torch.fx.Node]]:
    """The trace with gradients and without autocast, or the other way round: either shows what switches the other off.

    One for each device, where the forward asks for it.
    """
    found = []
    try:
        stand_in = copy.copy(module)  # shares the children; its flag is its own
        stand_in.training = training
        with torch.set_grad_enabled(grads), contextlib.ExitStack() as stack:
            for device in _DEVICES if torch.cuda.is_available() else _DEVICES[:1]:
                stack.enter_context(torch.autocast(device, torch.bfloat16, enabled=not grads))
            for device in _OF_INPUT:
                tracer = _Watchful(device)
                found.append(list(tracer.trace(stand_in).nodes))
                if not tracer.was_asked:
                    break
    except Exception as error:  # whatever a foreign forward raises on tracing: then nobody knows what it computes
        raise Unknown(f"its forward cannot be traced ({type(error).__name__}: {_first_line(error)})") from None
    return found


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:80]


def _called(module: nn.Module, node) -> nn.Module | None:
    """The part that a node calls with one tensor and nothing else."""
    if not isinstance(node, torch.fx.Node) or node.op != "call_module" or len(node.args) != 1 or node.kwargs:
        return None
    return _part(module, node.target)


def _activation(module: nn.Module, node) -> str | None:
    child = _called(module, node)
    return traced_name_of(child) if child is not None else call_name(node)


def _follows_a_layer(module: nn.Module, node: torch.fx.Node) -> bool:
    """Whether a node's input was a linear layer's result, with nothing but functions and idle children between them."""
    for one in node.all_input_nodes:
        child = _part(module, one.target) if one.op == "call_module" else None
        if is_layer(child):
            return True
        if (child is None or next(child.parameters(), None) is None) and _follows_a_layer(module, one):
            return True
    return False


def _steps(module: nn.Module, nodes: list[torch.fx.Node]) -> tuple[Step | Gating, ...] | None:
    """The graph from its end to its one input; None where a node does not belong to a step."""
    if nodes[-1].op != "output":
        return None
    found, (node,), seen = [], nodes[-1].args, 2  # with the input and the output
    while isinstance(node, torch.fx.Node) and node.op != "placeholder":
        step, within = _gating(module, node) or (_step(module, node), (node,))
        if step is None:
            return None
        found.append(step)
        seen += len(within)
        node = within[-1].args[0]
    return tuple(reversed(found)) if seen == len(nodes) and isinstance(node, torch.fx.Node) else None


def _step(module: nn.Module, node: torch.fx.Node) -> Step | None:
    child, name = _called(module, node), _activation(module, node)
    if child is not None:
        return Step(node.target, child, name)
    if name is None:
        return None
    return Step(None, node.target if node.op == "call_function" else getattr(torch, node.target), name)


def _gating(module: nn.Module, node: torch.fx.Node) -> tuple[Gating, tuple[torch.fx.Node, ...]] | None:
    """A product of an activated layer and another, and the nodes of it, of which the last takes its input."""
    if node.target not in (operator.mul, torch.mul, "mul") or len(node.args) != 2 or node.kwargs:
        return None
    for act, up in (node.args, node.args[::-1]):
        name = _activation(module, act) if isinstance(act, torch.fx.Node) else None
        if name is None:
            continue
        gate, child = act.args[0], _called(module, act)
        step = None if child is None else Step(act.target, child, name)
        if all(is_layer(_called(module, layer)) for layer in (gate, up)) and gate.args == up.args:
            nodes = dict.fromkeys((node, act, up, gate))
            return Gating(gate.target, up.target, name, child=step), tuple(nodes)
        if (packed := _halves(gate, up)) is not None and is_layer(_called(module, packed.args[0])):
            return Gating(packed.args[0].target, None, name, gate.args[1], step), (
                node,
                act,
                gate,
                up,
                packed,
                packed.args[0],
            )
    return None


def _halves(one, other) -> torch.fx.Node | None:
    """The node that both are the halves of, by columns."""
    if not all(isinstance(x, torch.fx.Node) and x.target is operator.getitem for x in (one, other)):
        return None
    (packed, i), (same, j) = one.args, other.args
    if packed is not same or {i, j} != {0, 1} or packed.target not in ("chunk", torch.chunk):
        return None
    given = dict(zip(("input", "chunks", "dim"), packed.args, strict=False)) | packed.kwargs
    return packed if given.get("chunks") == 2 and given.get("dim") == -1 and packed.args else None
