"""What a pattern finds, and what our ops take."""

import dataclasses
from dataclasses import dataclass, field

import torch
from torch.fx import Node

from wmma_ops.inductor.nodes import Order, value
from wmma_ops.ops.types import DIFFERENTIABLE
from wmma_ops.ops.types import name as type_name


@dataclass(frozen=True)
class Half:
    """The first or the second half of an operand's rows: of a linear layer's columns."""

    node: Node
    which: int


@dataclass(frozen=True)
class Transposed:
    """An operand that the op takes with its last two dimensions exchanged: a linear layer's weight."""

    node: Node | Half


@dataclass(frozen=True)
class Fused:
    """One product and what follows it: act(alpha·A·B + beta·C + bias)·multiply."""

    nodes: tuple[Node, ...]
    a: Node
    b: Node
    is_weight: bool  # B is [N, K], as a linear layer keeps it
    steps: tuple[str, ...]  # what the nodes are called
    alpha: float = 1.0
    beta: float = 1.0
    c: Node | None = None
    bias: Node | None = None
    activation: str | None = None
    multiply: Node | None = None
    stops: str = ""  # why the next node is not taken

    @property
    def last(self) -> Node:
        return self.nodes[-1]

    @property
    def right(self) -> Node | Transposed:
        """B, as gemm takes it."""
        return Transposed(self.b) if self.is_weight else self.b

    @property
    def result(self) -> torch.Tensor:
        return value(self.last)

    @property
    def is_plain(self) -> bool:
        return len(self.steps) == 1

    def and_then(self, node: Node, step: str = "", **changes) -> "Fused":
        steps = (*self.steps, step) if step else self.steps
        return dataclasses.replace(self, nodes=(*self.nodes, node), steps=steps, **changes)


@dataclass(frozen=True, eq=False)
class Rewrite:
    """Nodes that one op can replace: torch.ops.wmma.`op`(**tensors, **scalars) in the place of the last of them."""

    pattern: str
    op: str
    nodes: tuple[Node, ...]
    tensors: (
        "dict[str, Node | Half | Transposed | Rewrite]"  # a Rewrite: another op's result, whose nodes are among these
    )
    scalars: dict[str, object] = field(default_factory=dict)
    has_epilogue: bool = False  # beyond the bias, which torch's product adds too
    note: str = ""  # why it does not take more
    whole: "Rewrite | None" = None  # torch's one product, where the op and its parts multiply a piece of it each
    settled: tuple[torch.SymFloat, ...] = ()  # factors which the graph has as numbers then: others make it anew

    @property
    def parts(self) -> "tuple[Rewrite, ...]":
        """The ops whose results it takes."""
        return tuple(x for x in self.tensors.values() if isinstance(x, Rewrite))

    @property
    def anchor(self) -> Node:
        return self.nodes[-1]


def operand_value(x: Node | Half | Transposed | Rewrite) -> torch.Tensor:
    """What an operand is when the graph is made."""
    if isinstance(x, Transposed):
        return operand_value(x.node).transpose(-2, -1)
    if isinstance(x, Half):
        return value(x.node).chunk(2)[x.which]
    return value(x.anchor if isinstance(x, Rewrite) else x)


@dataclass(frozen=True)
class Found:
    """What begins at one product or attention: the rewrites, the largest first, or why there is none."""

    start: Node
    rewrites: tuple[Rewrite, ...] = ()
    reason: str = ""


def given(**scalars) -> dict[str, object]:
    """Without those that say nothing: a graph is read by people too."""
    return {name: x for name, x in scalars.items() if x != (0 if name == "activation" else 1)}


def vanishes(factor: float) -> bool:
    """Whether the op takes the factor for 0."""
    return abs(factor) < torch.finfo(torch.float32).smallest_normal


def refused(node: Node, operands: tuple[Node, ...], order: Order, *beside: Node | None) -> str:
    """Why our ops do not take these tensors; empty where they do."""
    everything = [value(x) for x in (node, *operands, *(x for x in beside if x is not None))]
    if any(x is None for x in everything):
        return "what it computes with is not known, or no plain tensor"
    result = everything[0]
    devices = {x.device for x in everything}
    if len(devices) > 1 or result.device.type not in ("cpu", "cuda"):
        return f"its tensors are on {', '.join(sorted(map(str, devices)))}; our ops run on the CPU or on one GPU"
    computed = order.computes_in(node, operands)
    if computed is None or computed != result.dtype or computed not in DIFFERENTIABLE:
        names = dict.fromkeys(type_name(x.dtype) for x in (*everything[1 : len(operands) + 1], result))
        return f"its types are {', '.join(names)}; our ops take two operands of one floating type"
    others = {x.dtype for x in everything[len(operands) + 1 :]} - {computed, torch.float32}
    if others:
        return f"what is added is {', '.join(map(type_name, others))} beside {type_name(computed)}"
    return ""
