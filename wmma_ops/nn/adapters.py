"""Layers with adapters of low rank, as the package `peft` makes them."""

import sys

from torch import nn

from wmma_ops.nn.activation import is_nested, is_plain
from wmma_ops.nn.linear import Adapter, Affine, Linear, product
from wmma_ops.torch_internals import Named


def peft_layers() -> tuple[type, type] | None:
    """peft's linear layer with adapters, and what all its layers with adapters are; None where nobody imported it."""
    found = sys.modules.get("peft.tuners.lora.layer")
    return None if found is None else (found.Linear, found.LoraLayer)


class LoRA(Named):
    """Mixed into peft's class: the layer's product and its adapter's in one sum, where one adapter is active.

    Which one is, whether it is merged or disabled and whether dropout is on is asked at every call.
    """

    def forward(self, *args, **kwargs):
        layer = operands(self) if len(args) == 1 and not kwargs and not is_nested(args[0]) else None
        return super().forward(*args, **kwargs) if layer is None else product(args[0], layer)


def operands(layer: LoRA) -> Affine | None:
    """What the layer computes with; None where it is for peft's forward."""
    return _read(layer)[0]


def why_apart(layer: LoRA) -> str:
    """Why the layer and its adapter are called one after the other, as they stand; empty where they are not."""
    return _read(layer)[1]


def _read(layer) -> tuple[Affine | None, str]:
    base = layer.base_layer
    if not isinstance(base, Linear) or base.activation is not None:
        return None, "its base_layer was not swapped"
    if not is_plain(base):
        return None, "its base_layer has a hook"
    plain = Affine(base.weight, base.bias)
    if layer.merged:  # which peft undoes where adapters are disabled
        return (None, "its adapters are merged and disabled") if layer.disable_adapters else (plain, "")
    names = [] if layer.disable_adapters else [name for name in layer.active_adapters if name in layer.lora_A]
    if not names:
        return plain, ""
    if len(names) > 1:
        return None, "several adapters are active"
    name = names[0]
    if name in getattr(layer, "lora_variant", ()) or layer.use_dora.get(name):
        return None, "its adapter is a variant of LoRA"
    down, up = layer.lora_A[name], layer.lora_B[name]
    if down.bias is not None or up.bias is not None:
        return None, "its adapter has a bias"
    if not all(type(one) in (nn.Linear, Linear) and is_plain(one) for one in (down, up)):
        return None, "its adapter has a hook, or is of a class of its own"
    if down.weight.dtype != base.weight.dtype and not getattr(layer, "cast_input_dtype_enabled", True):
        return None, "its adapter is of another type, and peft is told not to cast"
    adapter = Adapter(down.weight, up.weight, layer.scaling[name], layer.lora_dropout[name])
    return Affine(base.weight, base.bias, adapter), ""
