"""What a forward pass keeps for gradients that come at once, in one op: who may have them so, and of smooth activations in
compiled graphs what they were given, which the product's own kernel keeps as it does for the nodes of C++."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from wmma_ops import torch_internals
from wmma_ops.ops import activations
from wmma_ops.ops.library import overload
from wmma_ops.ops.select import makes_graph, traced
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


class WithAux(NamedTuple):
    """An op and its twin whose second result is what the activation was given."""

    twin: str
    backward: Callable
    tensors: tuple[str, ...]  # of the twin, in order; the first two are multiplied
    added: str  # and this one, beside the bias, is added
    scalars: tuple[str, ...]

    def takes(self, tensors: dict, scalars: dict) -> bool:
        """Whether a call in a graph goes by the twin."""
        return self.fits(tensors, scalars) and compiles_alone(*(x for x in tensors.values() if x is not None))

    def fits(self, tensors: dict, scalars: dict) -> bool:
        """Whether a call is of that kind: the conditions are those of the nodes."""
        given = {name: x for name, x in tensors.items() if x is not None}
        a, b = (given[name] for name in self.tensors[:2])
        multiply = given.get("multiply")
        if multiply is not None and not is_like_product(multiply, a, b):
            return False
        needs_it = multiply is not None or scalars["activation"] > 1
        is_builtin = scalars["activation"] < len(activations.BUILTIN)
        is_bare = set(given) <= set(self.tensors) and scalars.get("a_activation", 0) == 0
        keeps_type = scalars.get("out_dtype") in (None, a.dtype)
        are_matrices = min(a.dim(), b.dim()) >= 2 and ("bias" not in given or given["bias"].dim() == 1)
        return needs_it and is_builtin and is_bare and keeps_type and are_matrices

    def call(self, tensors: dict, scalars: dict) -> tuple[dict, list]:
        """The twin's arguments."""
        return {name: scalars[name] for name in self.scalars}, [tensors.get(name) for name in self.tensors]

    def recorder(self, title: str, instead: Callable, formulas: Callable) -> Callable:
        """As an op's own. A graph keeps what its backward pass reads, and no more of what is saved here."""

        def remember(ctx, scalars, inputs, output):
            ctx.scalars = scalars
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(output[1])
            ctx.save_for_backward(*inputs, output[1])

        def backward(ctx, grads, asked):
            if grads[0] is None:
                return (None,) * len(asked)
            *inputs, aux = ctx.saved_tensors
            t, needs = (dict(zip(self.tensors, x, strict=True)) for x in (inputs, asked))
            if torch.is_grad_enabled():  # they are differentiated within the graph
                found = formulas(grads[:1], t, needs, (None,), **ctx.scalars)
            else:
                found = self.gradients(grads[0], t, aux, needs, ctx.scalars)
            return tuple(found.get(name) for name in self.tensors)

        def without(*inputs, **scalars):
            return instead(*inputs, **scalars), None  # its first arguments are the twin's

        return torch_internals.recorder(f"{title}Aux", overload(self.twin), without, remember, backward)

    def gradients(self, g, t, aux, needs, scalars) -> dict:
        """By argument name, of one op."""
        first, second = self.tensors[:2]
        asked = {f"of_{first}": needs[first], f"of_{second}": needs[second], "of_s": needs[self.added]}
        options = {name: value for name, value in scalars.items() if name != "beta"} | asked
        if needs["bias"]:
            options["bias_dtype"] = t["bias"].dtype
        beside = ()
        if "multiply" in self.tensors:  # whose gradient needs what is kept as well
            beside, options["of_multiply"] = (t.get("multiply"),), bool(needs.get("multiply"))
        found = iter(self.backward(g, t[first], t[second], aux, *beside, **options))
        grads = {name: next(found) for name in (first, second, "bias") if needs[name]}
        if needs[self.added]:
            grads[self.added] = added_gradient(next(found), scalars.get("beta", 1.0), t[self.added])
        if options.get("of_multiply"):
            grads["multiply"] = next(found)
        return grads


def is_like_product(x, a, b) -> bool:
    """Whether a tensor is of a product's shape, and of its operands' type."""
    return x.dtype == a.dtype and x.dim() == a.dim() and x.shape[-1] == b.shape[-1] and x.shape[:-1] == a.shape[:-1]


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
