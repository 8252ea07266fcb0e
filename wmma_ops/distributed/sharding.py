"""Tells DTensor of the rules: after `register()` every op takes DTensors."""

from functools import partial

from torch.distributed.tensor.experimental import register_sharding

from wmma_ops.distributed.rules import Operand, offers
from wmma_ops.ops.library import NAMESPACES, OPS, overload, tensor_names


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
    return [(list(offer.outputs), list(offer.inputs[: len(specs)])) for offer in found]


def register() -> None:
    """Registers the sharding rule of every op, in both namespaces."""
    calls = [(name, overload(name, raw=namespace == "wmma_raw")) for namespace in NAMESPACES for name in OPS]
    backward = [(name, overload(name)) for name in ("_attention_backward", "_varlen_attention_backward")]
    for name, call in (*calls, *backward):
        register_sharding(call)(partial(_acceptable, call, name))
