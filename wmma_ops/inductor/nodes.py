"""What the nodes of a graph compute, whichever way they were written, and what stands between them.

The graphs are those that Dynamo hands to a backend: torch's functions as the model calls them, in order, with fake tensors
as ``node.meta["example_value"]``. They may change tensors in place, and switch gradients and autocast on and off.
"""

import contextlib
import operator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from wmma_ops import torch_internals
from wmma_ops.ops.activations import GELU, LEAKY_SLOPE

aten = torch.ops.aten

_FUNCTIONS: dict[str, tuple] = {
    "linear": (F.linear, aten.linear.default),
    "matmul": (torch.matmul, torch.linalg.matmul, operator.matmul, torch.mm, torch.bmm,
               aten.matmul.default, aten.mm.default, aten.bmm.default),
    "addmm": (torch.addmm, aten.addmm.default),
    "baddbmm": (torch.baddbmm, aten.baddbmm.default),
    "attention": (F.scaled_dot_product_attention, aten.scaled_dot_product_attention.default),
    "add": (operator.add, torch.add, aten.add.Tensor),
    "iadd": (operator.iadd,),
    "mul": (operator.mul, torch.mul, torch.multiply, aten.mul.Tensor),
    "imul": (operator.imul,),
    "div": (operator.truediv, torch.div, torch.true_divide, aten.div.Tensor),
    "relu": (F.relu, torch.relu, aten.relu.default),
    "gelu": (F.gelu, aten.gelu.default),
    "silu": (F.silu, aten.silu.default),
    "sigmoid": (F.sigmoid, torch.sigmoid, aten.sigmoid.default),
    "tanh": (F.tanh, torch.tanh, aten.tanh.default),
    "leaky_relu": (F.leaky_relu, aten.leaky_relu.default),
    "dropout": (F.dropout, torch.dropout, aten.dropout.default),
}  # fmt: skip
# Products of torch's that no pattern reads, and its layers that hide some.
_UNREAD = (
    F.multi_head_attention_forward, torch_internals.native_multi_head_attention,
    torch_internals.transformer_encoder_layer,
    torch.einsum, torch.tensordot, torch.inner, torch.mv, torch.dot, torch.addbmm, torch.addmv, F.bilinear,
    torch.chain_matmul, torch.linalg.multi_dot,
)  # fmt: skip
_UNREAD_METHODS = ("__rmatmul__", "inner", "mv", "dot", "addbmm", "addmv", "addmm_", "baddbmm_", "addbmm_", "addmv_")
_METHODS = {
    "matmul": ("matmul", "mm", "bmm", "__matmul__"),
    "addmm": ("addmm",),
    "baddbmm": ("baddbmm",),
    "add": ("add",),
    "iadd": ("add_",),
    "mul": ("mul", "multiply"),
    "imul": ("mul_",),
    "div": ("div", "true_divide"),
    "relu": ("relu", "relu_"),
    "sigmoid": ("sigmoid", "sigmoid_"),
    "tanh": ("tanh", "tanh_"),
    "same": ("to", "float", "half", "bfloat16", "double", "type_as", "contiguous"),
}
_KINDS: dict[object, str] = {function: kind for kind, functions in _FUNCTIONS.items() for function in functions}
_METHOD_KINDS: dict[str, str] = {method: kind for kind, methods in _METHODS.items() for method in methods}

ELEMENTWISE = frozenset(_FUNCTIONS) - {"linear", "matmul", "addmm", "baddbmm", "attention"}

# What Inductor makes no kernel for.
_VIEWS = frozenset(
    "view reshape transpose permute unflatten flatten chunk split unbind getitem unsqueeze squeeze t expand detach".split()
)

# The arguments that are read of each kind, in their order, with their defaults.
_REQUIRED = object()
_SIGNATURES: dict[str, dict[str, object]] = {
    "linear": {"input": _REQUIRED, "weight": _REQUIRED, "bias": None},
    "matmul": {"input": _REQUIRED, "other": _REQUIRED},
    "addmm": {"input": _REQUIRED, "a": _REQUIRED, "b": _REQUIRED, "beta": 1, "alpha": 1},
    "baddbmm": {"input": _REQUIRED, "a": _REQUIRED, "b": _REQUIRED, "beta": 1, "alpha": 1},
    "attention": {"query": _REQUIRED, "key": _REQUIRED, "value": _REQUIRED, "attn_mask": None, "dropout_p": 0.0,
                  "is_causal": False, "scale": None, "enable_gqa": False},
    "add": {"input": _REQUIRED, "other": _REQUIRED, "alpha": 1},
    "iadd": {"input": _REQUIRED, "other": _REQUIRED, "alpha": 1},
    "mul": {"input": _REQUIRED, "other": _REQUIRED},
    "imul": {"input": _REQUIRED, "other": _REQUIRED},
    "div": {"input": _REQUIRED, "other": _REQUIRED},
    "relu": {"input": _REQUIRED, "inplace": False},
    "silu": {"input": _REQUIRED, "inplace": False},
    "gelu": {"input": _REQUIRED, "approximate": "none"},
    "sigmoid": {"input": _REQUIRED},
    "tanh": {"input": _REQUIRED},
    "leaky_relu": {"input": _REQUIRED, "negative_slope": LEAKY_SLOPE, "inplace": False},
    "dropout": {"input": _REQUIRED, "p": 0.5, "training": True, "inplace": False},
}  # fmt: skip
# What torch calls the operands of the products in other places than the first.
_ALIASES = {
    "self": "input",
    "mat2": "other",
    "tensor2": "other",
    "vec2": "other",
    "mat1": "a",
    "batch1": "a",
    "batch2": "b",
}

_IN_PLACE = {
    getattr(operator, name) for name in dir(operator) if name.startswith("i") and hasattr(operator, f"__{name}__")
}
_IN_PLACE -= {operator.index, operator.inv, operator.invert}
_IN_PLACE |= {operator.setitem, operator.delitem, F.batch_norm, F.instance_norm, torch.batch_norm}
# Whose names end as those of what changes its operand do, to be no words of Python's.
_WORDS = {operator.and_, operator.or_, operator.not_, operator.is_}


def kind(node: Node) -> str | None:
    """What the node computes, as far as any pattern asks."""
    if node.op == "call_function":
        return _KINDS.get(node.target)
    return _METHOD_KINDS.get(node.target) if node.op == "call_method" else None


def is_unread(node: Node) -> bool:
    """Whether the node multiplies, in a way that no pattern reads."""
    if node.op == "call_function":
        return node.target in _UNREAD
    return node.op == "call_method" and node.target in _UNREAD_METHODS


def arguments(node: Node) -> dict[str, object] | None:
    """The node's arguments by name; None where it has others than those that are read here."""
    signature = _SIGNATURES.get(kind(node))
    if signature is None or len(node.args) > len(signature):
        return None
    aliases = _ALIASES | ({"mat2": "b"} if "a" in signature else {})
    given = dict(zip(signature, node.args, strict=False))
    given |= {aliases.get(name, name): value for name, value in node.kwargs.items()}
    found = {**signature, **given}
    if found.keys() != signature.keys() or any(value is _REQUIRED for value in found.values()):
        return None
    return found


def value(node: object) -> torch.Tensor | None:
    """The fake tensor that stands for the node's result; None where it is none, or no plain one."""
    if not isinstance(node, Node):
        return None
    found = node.meta.get("example_value", node.meta.get("val"))
    if not isinstance(found, torch.Tensor) or torch_internals.is_traceable_wrapper_subclass(found):
        return None
    return found if found.layout == torch.strided and not found.is_nested and not found.is_quantized else None


def without_modes() -> contextlib.AbstractContextManager:
    """Within it tensors are real ones, whatever traces around it."""
    return torch_internals.modes_off()


def same(x, y) -> bool:
    """Whether two sizes are equal, whatever their symbols will stand for."""
    return statically_known_true(x == y)


def same_shape(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.dim() == y.dim() and all(same(*sizes) for sizes in zip(x.shape, y.shape, strict=True))


def broadcasts(x: torch.Tensor, to: torch.Tensor) -> bool:
    """Whether `x` broadcasts to the other's shape."""
    sizes = zip(reversed(x.shape), reversed(to.shape), strict=False)
    return x.dim() <= to.dim() and all(same(size, 1) or same(size, target) for size, target in sizes)


def number(x: object) -> float | None:
    """A factor that is known when the graph is made."""
    return float(x) if isinstance(x, (int, float)) and not isinstance(x, bool) else None


def symbolic(x: object) -> torch.SymFloat | None:
    """A factor that follows from sizes which may change."""
    found = x.meta.get("example_value") if isinstance(x, Node) else None
    return found if isinstance(found, torch.SymFloat) else None


def activation(node: Node) -> str | None:
    """The name of the activation that the node applies to its input."""
    name, given = kind(node), arguments(node)
    if given is None:
        return None
    if name == "gelu":
        return GELU.get(given["approximate"])
    if name == "leaky_relu":
        return name if given["negative_slope"] == LEAKY_SLOPE else None
    return name if name in ("relu", "silu", "sigmoid", "tanh") else None


def passes_on(node: Node) -> bool:
    """Whether the node's result is its first argument: dropout that drops nothing, a conversion to what it is already."""
    if kind(node) == "dropout":
        given = arguments(node)
        return given is not None and (given["training"] is False or given["p"] == 0)
    if kind(node) != "same" or node.kwargs.get("copy") or len(node.args) > 2:
        return False
    before, after = value(node.args[0]), value(node)
    if before is None or after is None or before.dtype != after.dtype or before.device != after.device:
        return False
    return node.target != "contiguous" or before.is_contiguous()


def name_of(node: Node) -> str:
    """The name of the function or method that the node calls."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def is_view(node: Node) -> bool:
    """Whether the node's result, or what it takes apart, lies in its operand's memory."""
    return name_of(node) in _VIEWS or passes_on(node)


def operand(node: Node, *names: str) -> Node | None:
    """What the node is applied to first, where it calls one of these functions or methods."""
    found = node.op.startswith("call") and name_of(node) in names and next(iter(node.args), None)
    return found if isinstance(found, Node) else None


def unsqueezed(node: Node) -> Node | None:
    """What the node gives one dimension of 1 more, if that is all it does."""
    indexed = operand(node, "getitem")
    if indexed is None:
        return operand(node, "unsqueeze")
    index = node.args[1]
    is_whole = isinstance(index, tuple) and all(x in (None, Ellipsis, slice(None)) for x in index)
    return indexed if is_whole and index.count(None) == 1 else None


def goes_into_a_kernel(node: Node) -> bool:
    """Whether what follows the node is a kernel of Inductor's, which could compute what stands before it as well."""
    for user in node.users:
        if user.op == "output" or kind(user) in ("linear", "matmul", "addmm", "baddbmm", "attention"):
            continue
        if not is_view(user) or goes_into_a_kernel(user):
            return True
    return False


def in_place(node: Node) -> bool:
    """Whether the node may change a tensor that it did not make."""
    if node.op == "call_method":
        name = node.target
        return name.startswith(("__i", "__set")) or (name.endswith("_") and not name.endswith("__"))
    if node.op != "call_function":
        return node.op == "call_module"
    if node.kwargs.get("out") is not None or torch_internals.is_higher_order(node.target):
        return True
    if isinstance(node.target, torch_internals.OpOverload):
        return torch_internals.schema(node.target).is_mutable
    given = arguments(node) or node.kwargs
    name = getattr(node.target, "__name__", "")
    changes = name.endswith("_") and not name.endswith("__") and node.target not in _WORDS
    return changes or node.target in _IN_PLACE or given.get("inplace") is True


@dataclass(frozen=True)
class Place:
    """Where a node stands. Nodes of two regions see other states of torch: gradients, autocast, inference."""

    index: int
    region: int
    changes: int  # nodes before it that changed a tensor in place
    autocast: dict[str, torch.dtype]  # the types of the regions that it is in, by device type


class Order:
    """The nodes of a graph, and what happens between them."""

    def __init__(self, graph: Graph):
        self.places: dict[Node, Place] = {}
        self.under_transform = False
        self.rules: dict[tuple, dict[str, int] | None] = {}  # what masks were found to be: layers share them
        region = changes = 0
        autocast = {
            device: torch.get_autocast_dtype(device) for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)
        }
        entered: dict[Node, dict[str, torch.dtype]] = {}
        for index, node in enumerate(graph.nodes):
            if node.op.startswith("call"):
                self.under_transform |= "functorch" in (getattr(node.target, "__module__", None) or "")
                if node.meta.get("example_value", node.meta.get("val")) is None and not in_place(node):
                    region += 1  # it computes nothing: it is there for its effect
                if node.target is torch_internals.enter_autocast:
                    entered[node] = autocast
                    autocast = _entered_autocast(autocast, *node.args)
                elif node.target is torch_internals.exit_autocast and node.args[0] in entered:
                    autocast = entered[node.args[0]]
            self.places[node] = Place(index, region, changes, autocast)
            changes += node.op.startswith("call") and in_place(node)

    def between(self, nodes: tuple[Node, ...]) -> str:
        """Why the nodes cannot be computed all at once where the last of them stands; empty where they can."""
        first = min(nodes, key=lambda node: self.places[node].index)
        start, end = self.places[first], self.places[nodes[-1]]
        if any(self.places[node].region != start.region for node in nodes):
            return "gradients or autocast are switched on the way"
        own = sum(in_place(node) for node in nodes if node is not nodes[-1])
        return "a tensor is changed in place on the way" if end.changes - start.changes != own else ""

    def computes_in(self, node: Node, operands: tuple[Node, ...]) -> torch.dtype | None:
        """The type that the operands of a product have when it is computed; None where they differ."""
        types = {value(operand).dtype for operand in operands}
        cast = self.places[node].autocast.get(value(node).device.type)
        if cast is not None and types <= {torch.float32, torch.float16, torch.bfloat16}:
            return cast
        return types.pop() if len(types) == 1 else None


def _entered_autocast(before: dict, device: str, dtype: torch.dtype | None, enabled: bool, *_) -> dict:
    after = {name: kept for name, kept in before.items() if name != device}
    return {**after, device: dtype or torch.get_autocast_dtype(device)} if enabled else after


def sole_user(node: Node) -> Node | None:
    """The one node that takes this one's result, once."""
    users = list(node.users)
    return users[0] if len(users) == 1 and _times(users[0], node) == 1 else None


def _times(user: Node, node: Node) -> int:
    found = 0

    def count(argument: Node) -> Node:
        nonlocal found
        found += argument is node
        return argument

    torch.fx.map_arg((user.args, user.kwargs), count)
    return found
