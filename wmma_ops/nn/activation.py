"""Which activation of ours a module or a function is, and what stands in the way of fusing a module."""

import copy

import torch
import torch.fx
import torch.nn.functional as F
from torch import nn

from wmma_ops.ops import activations
from wmma_ops.torch_internals import has_hooks

_FUNCTIONS = {
    F.relu: "relu",
    torch.relu: "relu",
    F.silu: "silu",
    F.sigmoid: "sigmoid",
    torch.sigmoid: "sigmoid",
    F.tanh: "tanh",
    torch.tanh: "tanh",
}
_METHODS = ("relu", "sigmoid", "tanh")
_MODULES = {nn.ReLU: "relu", nn.SiLU: "silu", nn.Sigmoid: "sigmoid", nn.Tanh: "tanh"}


class Leaves(torch.fx.Tracer):
    """Records which children a forward calls, and looks into none of them."""

    def is_leaf_module(self, m, qualname) -> bool:
        return True


def name_of(target) -> str | None:
    """The activation's name, for torch's own modules and functions as they are; None for anything else."""
    kind = type(target)
    if kind in _MODULES:
        return _MODULES[kind]
    if kind is nn.GELU:
        return activations.GELU.get(target.approximate)
    if kind is nn.LeakyReLU:
        return "leaky_relu" if target.negative_slope == activations.LEAKY_SLOPE else None
    if isinstance(target, nn.Module):
        return None
    return "gelu" if target is F.gelu else _FUNCTIONS.get(target)


def functions() -> dict[object, str]:
    """torch's functions and methods that are activations of ours, whatever their options."""
    methods = {getattr(torch.Tensor, name): name for name in _METHODS}
    return {**_FUNCTIONS, **methods, F.gelu: "gelu", F.leaky_relu: "leaky_relu"}


def call_name(node: torch.fx.Node) -> str | None:
    """The activation that one traced call of a function or a method is."""
    options = dict(node.kwargs)
    options.pop("inplace", None)
    if len(node.args) != 1:
        return None
    if node.op == "call_method":
        return node.target if node.target in _METHODS and not options else None
    if node.op != "call_function":
        return None
    if node.target is F.gelu:
        return activations.GELU.get(options.pop("approximate", "none")) if set(options) <= {"approximate"} else None
    if node.target is F.leaky_relu:
        slope = options.pop("negative_slope", 0.01)
        return "leaky_relu" if slope == activations.LEAKY_SLOPE and not options else None
    return None if options else _FUNCTIONS.get(node.target)


def traced_name_of(module: nn.Module) -> str | None:
    """As `name_of`, for a module of any class: its forward must be one call of an activation."""
    if name := name_of(module):
        return name
    if next(module.children(), None) is not None or next(module.parameters(), None) is not None:
        return None
    names = {_traced_name(module, training) for training in (False, True)}
    return names.pop() if len(names) == 1 else None


def _traced_name(module: nn.Module, training: bool) -> str | None:
    stand_in = copy.copy(module)  # its flag is its own
    stand_in.training = training
    try:
        nodes = list(Leaves().trace(stand_in).nodes)
    except Exception:  # whatever a foreign forward raises when it is given no tensor: it is no single call
        return None
    if [node.op == "placeholder" for node in nodes[:2]] != [True, False] or len(nodes) != 3 or nodes[2].op != "output":
        return None
    same = nodes[1].args[:1] == (nodes[0],) and nodes[2].args[0] is nodes[1]
    return call_name(nodes[1]) if same else None


def apply(name: str | None, x: torch.Tensor) -> torch.Tensor:
    return activations.by_code(activations.code("nn", "activation", name)).forward(x)


def is_plain(module: nn.Module) -> bool:
    """True where calling the module is running its class's forward, so that nobody notices when it is not called."""
    return "forward" not in module.__dict__ and not has_hooks(module)


def is_nested(x) -> bool:
    """What the layers leave to torch. A proxy of torch.fx is none, and cannot be asked."""
    return isinstance(x, torch.Tensor) and x.is_nested


def is_idle(module: nn.Module) -> bool:
    """True where the module gives back its input, as dropout does outside training."""
    kind = type(module)
    if kind is nn.Dropout:
        return (not module.training or module.p == 0) and is_plain(module)
    return kind is nn.Identity and is_plain(module)


def records_gradient(*tensors: torch.Tensor | None) -> bool:
    """Not for torch.jit.trace: its one graph serves with gradients and without, and torch traces it again without."""
    if torch.jit.is_tracing():
        return False
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
