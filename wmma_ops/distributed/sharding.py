"""Tells DTensor of the rules: after `register()` every op takes DTensors."""

import math
from functools import partial

from torch.distributed.tensor.experimental import register_sharding

from wmma_ops.distributed.rules import Offer, Operand, offers
from wmma_ops.ops.errors import tagged
from wmma_ops.ops.library import NAMESPACES, OPS, WRITERS, overload, tensor_names


def operands_of(call, tensors) -> dict[str, Operand | None]:
    """An overload's tensors by name, from those of a call (anything with a shape), the trailing ones missing."""
    names = tensor_names(call)
    found = dict.fromkeys(names)
    for name, x in zip(names, tensors, strict=False):
        if x is not None:
            dtype = x.dtype if hasattr(x, "dtype") else x.tensor_meta.dtype
            found[name] = Operand(tuple(x.shape), dtype)
    return found


def _acceptable(call, name: str, *specs, **scalars) -> list[tuple[list, list]]:
    mesh = next(spec.mesh for spec in specs if spec is not None)
    found = offers(name, operands_of(call, specs), scalars, tuple(mesh.shape))
    if name in WRITERS:
        found = _as_they_lie(call, name, found, specs, mesh)
    return [(list(offer.outputs), list(offer.inputs[: len(specs)])) for offer in found]


def _as_they_lie(call, name: str, found: list[Offer], specs, mesh) -> list[Offer]:
    """The offers that tensors come by. What a redistributed copy of pages is given is lost, and torch 2.10 redistributes
    nothing at all for an op without results."""
    names = tensor_names(call)
    at = names.index("key_pages")
    taken = []
    for dimension in range(mesh.ndim):
        where = "" if mesh.ndim == 1 else f" along dimension {dimension} of the mesh"
        pages = specs[at].placements[dimension]
        offer = next((one for one in found if one.inputs[at] == pages), None)
        if offer is None:
            choice = " or ".join(dict.fromkeys(repr(one.inputs[at]) for one in found))
            raise tagged(name, "key_pages", f"is spread as {pages!r}{where}; takes {choice}", ValueError)
        for argument, spec, wanted in zip(names, specs, offer.inputs, strict=False):
            if spec is not None and spec.placements[dimension] != wanted:
                came = f"is spread as {spec.placements[dimension]!r}{where}"
                text = f"{came}; takes {wanted!r} beside key_pages as {pages!r} (redistribute it)"
                raise tagged(name, argument, text, ValueError)
        taken.append(offer)
    ways = math.prod(size for size, offer in zip(mesh.shape, taken, strict=True) if offer.name == "heads")
    heads = specs[at].shape[2]
    if ways > heads:
        raise tagged(name, "key_pages", f"has {heads} heads on {ways} devices; takes one or more on each", ValueError)
    return [offer for offer in found if offer in taken]


def register() -> None:
    """Registers the sharding rule of every op, in both namespaces."""
    ops = (*OPS, *WRITERS)
    calls = [(name, overload(name, raw=namespace == "wmma_raw")) for namespace in NAMESPACES for name in ops]
    backward = [(name, overload(name)) for name in ("_attention_backward", "_varlen_attention_backward")]
    for name, call in (*calls, *backward):
        register_sharding(call)(partial(_acceptable, call, name))
