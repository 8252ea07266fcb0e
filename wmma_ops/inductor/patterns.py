"""The patterns: a product with what follows it, two products, attention. What is found is a Rewrite, yet to be judged.

A pattern grows node by node from its product, as long as each result has one user: where something else uses an
intermediate, the pattern ends before it.
"""

import dataclasses
from collections.abc import Iterator

from torch.fx import Node

from wmma_ops.inductor import attention, gates, halves, nodes, sums
from wmma_ops.inductor.found import Found, Fused, Rewrite, Transposed, given, refused, vanishes
from wmma_ops.inductor.nodes import Order, value
from wmma_ops.ops import activations

_ZERO = "a factor is 0, with which ours reads no operand and torch multiplies"


def find(order: Order) -> list[Found]:
    """Everything in the graph that our ops could compute."""
    chains: dict[Node, list[Fused]] = {}
    ends: dict[Node, Fused] = {}
    found = []
    for node in order.places:
        product = _product(node, order)
        if isinstance(product, str):
            found.append(Found(node, reason=product))
        elif product is not None:
            chains[node] = list(_grown(product, order))
            for fused in chains[node]:
                if fused.last not in ends or len(fused.nodes) > len(ends[fused.last].nodes):
                    ends[fused.last] = fused
        elif nodes.kind(node) == "attention":
            rewrite = attention.read(node, order)
            found.append(Found(node, reason=rewrite) if isinstance(rewrite, str) else Found(node, (rewrite,)))
        elif nodes.is_unread(node):
            found.append(Found(node, reason="no pattern looks into it"))
    for node, chain in chains.items():
        pairs = (
            pair for fused in chain for both in (sums.rewrites, gates.rewrites, _pairs) for pair in both(fused, ends)
        )
        cut = (gate for fused in chain for gate in halves.rewrites(fused))
        rewrites = (*pairs, *cut, *map(_single, chain))
        found.append(Found(node, tuple(sorted(rewrites, key=lambda rewrite: -len(rewrite.nodes)))))
    return sorted(found, key=lambda one: order.places[one.start].index)


# --------------------------------------------------------------------------------------------------------- one product


def _product(node: Node, order: Order) -> Fused | str | None:
    """The product that the node is, without anything after it; a text where our ops cannot compute it."""
    kind, given = nodes.kind(node), nodes.arguments(node)
    if kind not in ("linear", "matmul", "addmm", "baddbmm"):
        return None
    if given is None:
        return f"{kind} has arguments that no op of ours takes"
    is_weight = kind == "linear"
    added, alpha, beta = given.get("bias"), 1.0, 1.0
    a, b = given["input"], given["weight" if is_weight else "other"] if kind in ("linear", "matmul") else None
    if b is None:
        a, b, added = given["a"], given["b"], given["input"]
        alpha, beta = nodes.number(given["alpha"]), nodes.number(given["beta"])
        if alpha is None or beta is None:
            return "its factors are not known when the graph is made"
        if vanishes(alpha) or (beta != 0 and vanishes(beta)):
            return _ZERO
        if beta == 0 and value(added).requires_grad:
            return "what it adds nothing of has a gradient, of zeros"
        added = added if beta != 0 else None
    if why := refused(node, (a, b), order, added):
        return why
    fused = Fused((node,), a, b, is_weight, ("linear" if is_weight else "product",), alpha)
    return fused if added is None else _add(fused, added, beta) or f"what is added has shape {list(value(added).shape)}"


def _add(fused: Fused, added: Node, beta: float = 1.0) -> Fused | None:
    """The product with one thing more added; None where it has no place for that."""
    x, result = value(added), fused.result
    if fused.bias is None and beta == 1 and x.dim() == 1 and nodes.same(x.shape[0], result.shape[-1]):
        return dataclasses.replace(fused, bias=added)
    if fused.c is None and nodes.broadcasts(x, result):
        return dataclasses.replace(fused, c=added, beta=beta)
    return None


def _grown(fused: Fused, order: Order) -> Iterator[Fused]:
    """The product, and each time it with one node more."""
    can_grow = fused.is_weight or min(value(fused.a).dim(), value(fused.b).dim()) >= 2
    while True:
        user = nodes.sole_user(fused.last)
        if not can_grow:
            after = "a product of vectors is taken by itself"
        elif user is None:
            after = "its result is used more than once" if fused.last.users else ""
        else:
            after = _next(fused, user)
        if isinstance(after, Fused) and (why := order.between(after.nodes)):
            after = why
        if not isinstance(after, Fused):
            yield dataclasses.replace(fused, stops=after)
            return
        yield fused
        fused = after


def _next(fused: Fused, user: Node) -> Fused | str:
    """The product with its result's user; a text where gemm cannot compute that."""
    name, kind = getattr(user.target, "__name__", str(user.target)), nodes.kind(user)
    given, result = nodes.arguments(user), value(user)
    if result is None or result.dtype != fused.result.dtype or not nodes.same_shape(result, fused.result):
        return f"{name} gives another type or shape" if kind in nodes.ELEMENTWISE else halves.why_apart(fused)
    if nodes.passes_on(user):
        return fused.and_then(user)
    if kind == "dropout":
        return "dropout is on"
    if fused.multiply is not None:
        return ""
    if (activation := nodes.activation(user)) is not None:
        if fused.activation is not None:
            return f"{name} is a second activation"
        return fused.and_then(user, activation, activation=activation)
    if given is None or kind not in ("add", "iadd", "mul", "imul", "div"):
        return ""
    is_first = given["input"] is fused.last
    other = given["other"] if is_first else given["input"]
    if not is_first and kind in ("iadd", "imul"):
        return f"{name} changes its other operand"
    if (factor := nodes.number(other)) is not None:
        return _scaled(fused, user, kind, factor, is_first)
    x = value(other)
    if x is None or x.dtype != fused.result.dtype or x.device != fused.result.device:
        return f"{name} takes an operand of another type"
    if kind in ("add", "iadd"):
        if fused.activation is not None:
            return f"{name} comes after the activation"
        beta = nodes.number(given["alpha"])
        if beta is not None and vanishes(beta):
            return _ZERO
        summed = _add(fused, other, beta) if beta == 1 or (beta is not None and is_first) else None
        return summed.and_then(user, "bias" if summed.c is fused.c else "sum") if summed else f"{name} has no place"
    if kind in ("mul", "imul") and nodes.broadcasts(x, fused.result) and value(fused.a).dim() >= 2:
        return fused.and_then(user, "multiply", multiply=other)
    return f"{name} has no place"


def _scaled(fused: Fused, user: Node, kind: str, factor: float, is_first: bool) -> Fused | str:
    before_sum = fused.bias is None and fused.c is None and fused.activation is None
    is_quotient = kind == "div" and is_first and factor != 0
    if before_sum and (is_quotient or kind in ("mul", "imul")):
        alpha = fused.alpha / factor if is_quotient else fused.alpha * factor
        return _ZERO if vanishes(alpha) else fused.and_then(user, "scale", alpha=alpha)
    return "a factor comes after the sum" if kind != "add" else "a number is added"


def _single(fused: Fused) -> Rewrite:
    """One product as matmul, linear or gemm."""
    tensors: dict[str, Node | Transposed | None] = {"a": fused.a, "b": fused.b, "c": fused.c, "bias": fused.bias}
    scalars = given(activation=activations.code("gemm", "activation", fused.activation))
    extra = fused.activation or fused.c is not None or fused.multiply is not None or fused.alpha != 1
    if fused.is_weight and fused.multiply is None and fused.alpha == 1 and fused.beta == 1:
        op = "linear"
        tensors = {"x": fused.a, "weight": fused.b, "bias": fused.bias, "residual": fused.c}
    elif min(value(fused.a).dim(), value(fused.b).dim()) < 2 or (not extra and fused.bias is None):
        op, tensors = "matmul", {"a": fused.a, "b": fused.b}
    else:
        op = "gemm"
        tensors |= {"b": fused.right, "multiply": fused.multiply}
        scalars |= given(alpha=fused.alpha, beta=fused.beta)
    present = {name: x for name, x in tensors.items() if x is not None}
    pattern = " + ".join(fused.steps)
    return Rewrite(pattern, op, fused.nodes, present, scalars, has_epilogue=bool(extra), note=fused.stops)


# -------------------------------------------------------------------------------------------------------- two products


def _pairs(second: Fused, ends: dict[Node, Fused]) -> Iterator[Rewrite]:
    """Two products as gemm_gemm, where the first's result is the second's A and nothing else."""
    first = ends.get(second.a)
    if first is None or nodes.sole_user(second.a) is not second.nodes[0]:
        return
    if second.activation or second.multiply is not None or first.c is not None:
        return
    if min(value(x).dim() for x in (first.a, first.b, second.a, second.b)) < 2:
        return
    gate, covered = None, (*first.nodes, *second.nodes)
    if first.multiply is not None:
        gate = ends.get(first.multiply)
        if gate is None or gate.bias is not None or not gates.are_beside(gate, first):
            return
        covered = (*gate.nodes, *covered)

    tensors = {
        "a": first.a,
        "b0": first.right,
        "b1": second.right,
        "c": second.c,
        "bias0": first.bias,
        "bias1": second.bias,
        "gate": gate and gate.right,
    }
    scalars = given(
        alpha0=first.alpha,
        alpha1=second.alpha,
        beta1=second.beta,
        activation=activations.code("gemm_gemm", "activation", first.activation),
    )
    yield Rewrite(
        " → ".join(" + ".join(product.steps) for product in (first, second)),
        "gemm_gemm",
        covered,
        {name: x for name, x in tensors.items() if x is not None},
        scalars,
        has_epilogue=second.c is not None or second.alpha != 1,
        note=second.stops,
    )
