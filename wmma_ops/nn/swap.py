"""Swaps a model's layers for ours in place, and back."""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.parameter import UninitializedTensorMixin
from torch.nn.utils import parametrize

from wmma_ops.nn import adapters, alone, blocks, chain, norm, untaken
from wmma_ops.nn.activation import traced_name_of
from wmma_ops.nn.attention import Attention
from wmma_ops.nn.linear import Linear, LoRALinear
from wmma_ops.nn.mlp import FusedMLP
from wmma_ops.nn.structure import GATED_NAMES, Gating, Structure, Unknown, parts_of, structure_of
from wmma_ops.ops.neighbours import answering
from wmma_ops.ops.types import DIFFERENTIABLE
from wmma_ops.ops.types import name as type_name
from wmma_ops.torch_internals import FeedForward

_LAYERS = (nn.Linear, nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
_OURS = (LoRALinear, FusedMLP, Attention)
_LEFT = "could be fused, was not: "
_APART = "could be fused, is not as it stands: "
_NUMBER = re.compile(r"(?<![^.])\d+(?=\.)|(?<=\.)\d+$")
# What a twin replaces: a subclass that has one of these of its own is left alone.
_METHODS = ("forward", "__call__", *FeedForward.BLOCKS)


class Row(NamedTuple):
    """A module's name in the model, its class, and what became of it or why it stayed."""

    name: str
    kind: str
    note: str = ""


@dataclass(frozen=True)
class Record:
    """What `swap_` swapped, and what it left and why; `print` it."""

    swapped: tuple[Row, ...]
    left: tuple[Row, ...]

    def __str__(self) -> str:
        return "\n".join([*_listed("swapped", self.swapped), *_listed("left", self.left, by_kind=True)])


def _listed(title: str, rows: tuple[Row, ...], *, by_kind: bool = False) -> list[str]:
    """Rows that differ in their names' numbers alone, as one line; `by_kind`, those that differ in their names."""
    merged: dict[tuple, list[str]] = {}
    for row in rows:
        name = _NUMBER.sub("*", row.name) or "(the model)"
        merged.setdefault((row.kind, row.note, None if by_kind else name), []).append(name)
    cells = []
    for (kind, note, _), names in merged.items():
        others = ", …" if len(set(names)) > 1 else ""
        cells.append((f"{names[0]}{others}{f' ×{len(names)}' if len(names) > 1 else ''}", kind, note))
    widths = [max((len(cell[i]) for cell in cells), default=0) for i in (0, 1)]
    lines = [f"  {a:{widths[0]}}  {b:{widths[1]}}  {note}".rstrip() for a, b, note in cells]
    return [f"{title}: {len(rows) or 'nothing'}", *lines]


@answering
def swap_(
    model: nn.Module, filter_fn: Callable[[nn.Module, str], bool] | None = None, *, batch_invariant: bool = False
) -> Record:
    """Puts our layers in the place of torch's, in a model of yours, until ``restore_``.

    Every module stays the object that it is: its parameters, buffers, hooks, name, device and training flag, its place in
    optimizers, in ``state_dict`` and under FSDP (swap before ``fully_shard``). Only its class changes. Swapped are
    ``torch.nn.Linear``, with an adapter of peft's or without; ``torch.nn.Sequential``, and classes of your own, where an
    activation follows a linear layer, and perhaps another layer that, or where the forward has ``act(gate(x))·up(x)`` (of
    two layers, or of the halves of one), which is found out by tracing it; ``torch.nn.MultiheadAttention``; the layers of
    ``torch.nn.Transformer``; and a norm by root mean squares that is spelled call by call, as in transformers' models, for
    torch's one function. A layer with a hook is called by itself, so that the hook runs; so is dropout in training. Where
    gradients are recorded, gates are applied apart, but for torch.jit.trace, whose one graph is the fused one. Nested
    tensors are left to torch. Call it while no other thread runs the model.

    Args:
        model: a module, itself a layer or holding some.
        filter_fn: ``filter_fn(module, fqn)`` says whether to swap a module, as in torchao; by default all.
        batch_invariant: whether each call of the model, itself and not of a part, is within ``wmma_ops.batch_invariant``.

    Returns:
        A record with ``.swapped`` and ``.left``, rows of ``name``, ``kind`` and ``note``: what goes into one op; and, of
        every other module with parameters or attention of its own and of what could be fused, why it was not, and what
        takes it instead, as ``swapped`` and ``wmma_ops.integrations`` do.

    Examples:
        >>> import torch, wmma_ops
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8))
        >>> print(wmma_ops.swap_(model, lambda module, fqn: fqn != "2"))
        swapped: 2
          (the model)  Sequential  0+gelu
          0            Linear
        left: 1
          2  Linear  filter_fn said no
        >>> wmma_ops.restore_(model)
        ['', '0']
    """
    _check_model("swap_", model)
    if filter_fn is not None and not callable(filter_fn):
        raise TypeError(
            f"wmma.swap_: filter_fn is of type {type(filter_fn).__name__}; takes a function of module and name"
        )
    modules = {module: name for name, module in model.named_modules()}
    # Asked of every module before any is touched: a filter that raises leaves the model as it was.
    refused = {module for module, name in modules.items() if filter_fn is not None and not filter_fn(module, name)}
    swapped, left = {}, {}
    # Layers first, then what holds them, from within: it goes by whether they were swapped.
    inward = list(modules)[::-1]
    for module in sorted(inward, key=lambda module: not isinstance(module, _LAYERS)):
        row = Row(modules[module], blocks.original_name(module))
        try:
            note = _swap(module, module in refused)
        except Unknown as reason:
            left[module] = row._replace(note=str(reason))
        else:
            if note is not None:
                swapped[module] = row._replace(note=note)
    if batch_invariant:
        alone.attach(model)
    return Record(*(tuple(rows[module] for module in modules if module in rows) for rows in (swapped, left)))


@answering
def restore_(model: nn.Module) -> list[str]:
    """Gives every module that ``swap_`` swapped its own class back; answers with their names.

    Args:
        model: the model, or a part or a copy of it.

    Examples:
        >>> import torch, wmma_ops
        >>> layer = torch.nn.Linear(8, 8)
        >>> record = wmma_ops.swap_(layer)
        >>> type(layer)
        <class 'wmma_ops.nn.linear.Linear'>
        >>> wmma_ops.restore_(layer), type(layer)
        ([''], <class 'torch.nn.modules.linear.Linear'>)
    """
    _check_model("restore_", model)
    found = {module: name for name, module in model.named_modules() if blocks.original_of(module) is not None}
    for module, name in found.items():
        if not blocks.is_twin(module):
            raise ValueError(
                f"wmma.restore_: {name or 'the model'} is of class {type(module).__name__}, to which something has changed "
                "it since; takes modules of the class that swap_ gave them"
            )
    for module in found:
        blocks.revert(module)
    alone.detach(model)
    return list(found.values())


def _check_model(function: str, model) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"wmma.{function}: model is of type {type(model).__name__}; takes a torch.nn.Module")


def _swap(module: nn.Module, refused: bool) -> str | None:
    """Swaps a module and describes it; None where there is nothing to swap, Unknown where something is in the way."""
    if blocks.original_of(module) is not None:
        raise Unknown("swapped already")
    if isinstance(module, _OURS) or any(type(module) is twin for twin in blocks.TWINS.values()):
        return None
    base = next((one for one in _LAYERS if isinstance(module, one)), None)
    if base is not None:
        if type(module) is nn.modules.linear.NonDynamicallyQuantizableLinear:
            return None  # the last projection of MultiheadAttention, which is never called
        if refused:
            raise Unknown("filter_fn said no")
        _check_layer(module, base)
        _become(module, blocks.TWINS[base])
        return ""
    note = _swap_holder(module, refused)
    if note is None and (reason := untaken.why(module)):
        raise Unknown(reason)
    return note


def _swap_holder(module: nn.Module, refused: bool) -> str | None:
    if (peft := adapters.peft_layers()) is not None and isinstance(module, peft[1]):
        return _swap_adapted(module, peft[0], refused)
    if refused:
        return None
    if isinstance(module, nn.TransformerEncoder):
        return _swap_encoder(module)
    if isinstance(module, nn.Sequential):
        return _swap_sequential(module)
    if norm.is_norm(module):
        return _swap_norm(module)
    return _swap_block(module)


def _swap_adapted(module: nn.Module, peft_linear: type, refused: bool) -> str | None:
    base = module.get_base_layer()
    if not isinstance(base, nn.Linear):
        return None
    if refused:
        raise Unknown("filter_fn said no")
    if not isinstance(module, peft_linear):
        raise Unknown(f"{_LEFT}peft has a {type(module).__name__} of its own for it")
    _check_class(module, peft_linear)
    if not isinstance(base, Linear):
        raise Unknown(f"{_LEFT}its base_layer was not swapped")
    _become(module, adapters.LoRA)
    why = adapters.why_apart(module)
    return f"{_APART}{why}" if why else "base_layer+lora_B(lora_A)"


def _swap_encoder(module: nn.TransformerEncoder) -> str | None:
    if not any(isinstance(layer, blocks.TransformerEncoderLayer) for layer in module.layers):
        return None
    _check_class(module, nn.TransformerEncoder)
    _become(module, blocks.TransformerEncoder)
    return ""


def _swap_sequential(module: nn.Sequential) -> str | None:
    note = chain.note(chain.links(module))
    if not note:
        return None
    _check_class(module, nn.Sequential)
    _become(module, blocks.Sequential)
    return note


def _swap_norm(module: nn.Module) -> str:
    _check_class(module, type(module))
    _become(module, norm.RMSNorm)
    return "torch's rms_norm"


def _swap_block(module: nn.Module) -> str | None:
    parts = parts_of(module)
    if not any(isinstance(part, (Linear, adapters.LoRA, chain.Chained)) for part in parts.values()):
        return None
    try:
        _check_class(module, type(module))
        structure = structure_of(module)
    except Unknown as reason:
        near = reason.near
        if near is None:
            near = any(map(traced_name_of, parts.values())) and not any(
                isinstance(x, untaken.CONVOLUTIONS) for x in parts.values()
            )
        if near or set(GATED_NAMES) <= set(parts):
            raise Unknown(f"{_LEFT}{reason}") from None
        return None
    if structure is None:
        return None
    links = structure.links(module)
    note = f"{_APART}{_why_apart(module, structure)}" if links is None else chain.note(links)
    if note:
        _become(module, blocks.Block, structure)
    return note or None


def _why_apart(module: nn.Module, structure: Structure) -> str:
    """What keeps a block's layers apart as it stands; Unknown where they stay so."""
    for step in structure.steps:
        if not isinstance(step, Gating) or step.link(module) is not None:
            continue
        layers = {name: module.get_submodule(name) for name in (step.gate, step.up) if name is not None}
        for name, layer in layers.items():
            if not isinstance(layer, (Linear, adapters.LoRA)):
                raise Unknown(f"{_LEFT}{name} was not swapped")
            if isinstance(layer, adapters.LoRA) and (why := adapters.why_apart(layer)):
                return f"{name}: {why}"
        if len({layer.weight.shape for layer in layers.values()}) > 1:
            raise Unknown(f"{_LEFT}its gate and what it multiplies differ in size")
    return "a part of it has a hook, or dropout before its adapter"


def _become(module: nn.Module, twin: type, block=None) -> None:
    try:
        blocks.become(module, twin, block)
    except Exception as error:  # __slots__, a metaclass or an __init_subclass__ of the user's
        raise Unknown(f"its class takes no other beside it ({type(error).__name__}: {error})") from None


def _check_class(module: nn.Module, base: type) -> None:
    kind = type(module)
    if "forward" in module.__dict__:
        raise Unknown("its forward was replaced on the instance")
    if parametrize.is_parametrized(module):
        raise Unknown(untaken.PARAMETRIZED)
    sharded = sys.modules.get("torch.distributed.fsdp")
    if sharded is not None and hasattr(sharded, "FSDPModule") and isinstance(module, sharded.FSDPModule):
        raise Unknown("it is sharded already; swap before fully_shard")
    own = [name for name in _METHODS if getattr(kind, name, None) is not getattr(base, name, None)]
    if own:
        raise Unknown(f"its class has a {own[0]} of its own")


def _check_layer(module: nn.Module, base: type) -> None:
    _check_class(module, base)
    if base is nn.MultiheadAttention and (module.bias_k is not None or module.add_zero_attn):
        raise Unknown("add_bias_kv and add_zero_attn are torch's alone")
    own = [name for name in ("activation", "recompute") if base is nn.Linear and hasattr(module, name)]
    if own:
        raise Unknown(f"it has an attribute {own[0]} of its own, which means something to ours")
    for name, parameter in module.named_parameters(recurse=False):
        if isinstance(parameter, UninitializedTensorMixin):
            raise Unknown(f"its {name} is not initialised yet; call it once first")
        if type(parameter) is not nn.Parameter and not _is_dtensor(parameter):
            raise Unknown(f"its {name} is a {type(parameter).__name__}; taken are plain tensors")
        if parameter.dtype not in DIFFERENTIABLE:
            raise Unknown(f"its {name} is {type_name(parameter.dtype)}; taken are float16, bfloat16, float32, float64")
        if parameter.device.type not in ("cpu", "cuda", "meta"):
            raise Unknown(f"its {name} is on {parameter.device}; taken are the cpu and cuda")
    if base is nn.Linear and module.bias is not None and module.bias.shape != module.weight.shape[:1]:
        raise Unknown("its bias has not one element for each column")


def _is_dtensor(x: torch.Tensor) -> bool:
    tensors = sys.modules.get("torch.distributed.tensor")
    return tensors is not None and isinstance(x, tensors.DTensor)
