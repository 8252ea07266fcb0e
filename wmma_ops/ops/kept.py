"""What a forward pass keeps for gradients that come at once, in one op: who may have them so, and of smooth activations in
compiled graphs what they were given, which the product's own kernel keeps as it does for the nodes of C++."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from wmma_ops import torch_internals
from wmma_ops.ops import activations
from wmma_ops.ops.library import overload
from wmma_ops.ops.select import is_compiling, makes_graph, traced
from wmma_ops.ops.types import accumulator
from wmma_ops.torch_internals import any_dispatch_mode, direct, is_one_of_many, transforms_active

_PLAIN = {torch.Tensor, torch.nn.Parameter, type(None)}


class Shape(NamedTuple):
    """What the backward pass needs of a tensor that is only added: its values are neither kept nor watched for changes."""

    shape: torch.Size
    dtype: torch.dtype


def reduced(g, like):
    """The gradient of a tensor that was broadcast."""
    if like is None:
        return None
    return g.to(torch.promote_types(g.dtype, like.dtype)).sum_to_size(like.shape).to(like.dtype)


def added_gradient(g_s, beta, like):
    """Of `like`, which times beta is a part of S."""
    return reduced(g_s if beta == 1 else g_s.to(accumulator(g_s.dtype)) * beta, like)


def once(g, *tensors) -> bool:
    """Whether one op may answer with several gradients: nobody differentiates them again, or looks on."""
    if torch.is_grad_enabled() or is_one_of_many(g):
        return False
    if compiles_alone(g, *tensors):
        return True
    return are_plain(g, *tensors) and not traced() and not any_dispatch_mode()


def are_plain(*tensors) -> bool:
    """Whether all are torch's own, or none."""
    return _PLAIN.issuperset(map(type, tensors))


def compiles_alone(*tensors) -> bool:
    """Whether the compiler alone looks on, whose graph differentiates once; not at tensors that are made of others."""
    return makes_graph() and not transforms_active() and not any(hasattr(x, "__tensor_flatten__") for x in tensors)


def keeps_in_graphs(*tensors) -> bool:
    """The same of a layer's tensors, while its code is traced."""
    return is_compiling() and not any(hasattr(x, "__tensor_flatten__") for x in tensors)


class Twin:
    """Of an op, that gives beside its result what its gradients need."""

    twin: str
    tensors: tuple[str, ...]  # of the twin, in order; the first two are multiplied
    scalars: tuple[str, ...]

    def fits(self, tensors: dict, scalars: dict) -> bool:
        """Whether a call is of the twin's kind."""
        raise NotImplementedError

    def gradients(self, g, t, kept, needs, scalars) -> dict:
        """By argument name."""
        raise NotImplementedError

    def takes(self, tensors: dict, scalars: dict) -> bool:
        """Whether a call in a graph goes by the twin."""
        return self.fits(tensors, scalars) and compiles_alone(*(x for x in tensors.values() if x is not None))

    def is_bare(self, given: dict, scalars: dict) -> bool:
        """Whether nothing is there but what the twin takes, of one type."""
        a, b = (given[name] for name in self.tensors[:2])
        keeps_type = scalars.get("out_dtype") in (None, a.dtype)
        are_matrices = min(a.dim(), b.dim()) >= 2 and all(
            given[x].dim() == 1 for x in ("bias", "gate_bias") if x in given
        )
        is_plain = set(given) <= set(self.tensors) and scalars.get("a_activation", 0) == 0
        return is_plain and scalars["activation"] < len(activations.BUILTIN) and keeps_type and are_matrices

    def call(self, tensors: dict, scalars: dict) -> tuple[dict, list]:
        """The twin's arguments."""
        return {name: scalars[name] for name in self.scalars}, [tensors.get(name) for name in self.tensors]

    def recorder(self, title: str, names: Sequence[str], instead: Callable, formulas: Callable) -> Callable:
        """As an op's own, whose tensors have these names. A graph keeps what its backward pass reads, and no more of what
        is saved here."""

        def remember(ctx, scalars, inputs, output):
            ctx.scalars = scalars
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(*output[1:])
            ctx.save_for_backward(*inputs, *output[1:])

        def backward(ctx, grads, asked):
            if grads[0] is None:
                return (None,) * len(asked)
            saved = ctx.saved_tensors
            inputs, kept = saved[: len(self.tensors)], saved[len(self.tensors) :]
            t, needs = (dict(zip(self.tensors, x, strict=True)) for x in (inputs, asked))
            if torch.is_grad_enabled():  # they are differentiated within the graph
                found = formulas(grads[:1], t, needs, (None,), **ctx.scalars)
            else:
                found = self.gradients(grads[0], t, kept, needs, ctx.scalars)
            return tuple(found.get(name) for name in self.tensors)

        def without(*inputs, **scalars):
            given = dict(zip(self.tensors, inputs, strict=True))
            return instead(*map(given.get, names), **scalars), *(None,) * self.kept

        return torch_internals.recorder(f"{title}{self.name}", overload(self.twin), without, remember, backward)


@dataclass(frozen=True)
class WithAux(Twin):
    """Whose second result is what the activation was given."""

    twin: str
    backward: Callable
    tensors: tuple[str, ...]  # of the twin, in order; the first two are multiplied
    added: str  # and this one, beside the bias, is added
    scalars: tuple[str, ...]
    name = "Aux"
    kept = 1

    def fits(self, tensors: dict, scalars: dict) -> bool:
        """Whether a call is of that kind: the conditions are those of the nodes."""
        given = {name: x for name, x in tensors.items() if x is not None}
        a, b = (given[name] for name in self.tensors[:2])
        multiply = given.get("multiply")
        if multiply is not None and not is_like_product(multiply, a, b):
            return False
        needs_it = multiply is not None or scalars["activation"] > 1
        return needs_it and self.is_bare(given, scalars)

    def gradients(self, g, t, kept, needs, scalars) -> dict:
        """Of one op."""
        first, second = self.tensors[:2]
        asked = {f"of_{first}": needs[first], f"of_{second}": needs[second], "of_s": needs[self.added]}
        options = {name: value for name, value in scalars.items() if name != "beta"} | asked
        if needs["bias"]:
            options["bias_dtype"] = t["bias"].dtype
        beside = ()
        if "multiply" in self.tensors:  # whose gradient needs what is kept as well
            beside, options["of_multiply"] = (t.get("multiply"),), bool(needs.get("multiply"))
        found = iter(self.backward(g, t[first], t[second], *kept, *beside, **options))
        grads = {name: next(found) for name in (first, second, "bias") if needs[name]}
        if needs[self.added]:
            grads[self.added] = added_gradient(next(found), scalars.get("beta", 1.0), t[self.added])
        if options.get("of_multiply"):
            grads["multiply"] = next(found)
        return grads


class WithGate(Twin):
    """Whose other results are both factors before the activation."""

    twin = "_gated_aux"
    tensors = ("a", "b", "gate", "bias", "gate_bias")
    scalars = ("activation",)
    name = "Gated"
    kept = 2

    def fits(self, tensors: dict, scalars: dict) -> bool:
        given = {name: x for name, x in tensors.items() if x is not None}
        alone = "gate" in given and scalars.get("alpha", 1.0) == 1
        return alone and given["b"].dim() == 2 and self.is_bare(given, scalars)

    def gradients(self, g, t, kept, needs, scalars) -> dict:
        """Both factors' in one pass over memory; then of each what is asked for."""
        backward, gemm = direct(overload("_gemm_backward")), direct(overload("gemm"))
        a, b, gate = t["a"], t["b"], t["gate"]
        wanted = {"of_a": False, "of_b": False, "of_s": True, "of_multiply": True}
        bias_dtype = t["bias"].dtype if needs["bias"] else None
        *of_bias, g_s, g_u = backward(g, a, b, *kept, activation=scalars["activation"], **wanted, bias_dtype=bias_dtype)
        grads = {"bias": of_bias[0] if of_bias else None}
        if needs["a"]:
            grads["a"] = gemm(g_s, b.mT, a2=g_u, b2=gate.mT)
        if needs["b"]:
            grads["b"] = backward(g_s, a, b, of_a=False)[0]
        bias_dtype = t["gate_bias"].dtype if needs["gate_bias"] else None
        if needs["gate"] or bias_dtype is not None:
            found = iter(backward(g_u, a, gate, of_a=False, of_b=needs["gate"], bias_dtype=bias_dtype))
            grads |= {name: next(found) for name in ("gate", "gate_bias") if needs[name]}
        return grads


def is_like_product(x, a, b) -> bool:
    """Whether a tensor is of a product's shape, and of its operands' type."""
    return x.dtype == a.dtype and x.dim() == a.dim() and x.shape[-1] == b.shape[-1] and x.shape[:-1] == a.shape[:-1]


GATED_WITH_AUX = WithGate()
GEMM_WITH_AUX = WithAux(
    "_gemm_aux",
    direct(overload("_gemm_backward")),
    ("a", "b", "c", "bias", "multiply"),
    "c",
    ("alpha", "beta", "activation"),
)
LINEAR_WITH_AUX = WithAux(
    "_linear_aux",
    direct(overload("_linear_backward")),
    ("x", "weight", "bias", "residual"),
    "residual",
    ("activation",),
)
