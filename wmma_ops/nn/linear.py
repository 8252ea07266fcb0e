"""Linear layers: with an activation, and with an adapter of low rank."""

import contextlib
from typing import NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from wmma_ops.nn.activation import apply, is_idle, is_nested, records_gradient
from wmma_ops.ops import activations, autocast, nodes
from wmma_ops.ops import functions as ops
from wmma_ops.ops.kept import are_plain
from wmma_ops.ops.select import is_compiling, traced
from wmma_ops.torch_internals import Named

Tensor = torch.Tensor


class Adapter(NamedTuple):
    """What is added to a layer's product: ``factor·(dropout(x)·downᵀ)·upᵀ``."""

    down: Tensor
    up: Tensor
    factor: float
    dropout: nn.Module


class Affine(NamedTuple):
    """What a layer computes with: ``x·weightᵀ + bias``, and an adapter's part where it has one."""

    weight: Tensor
    bias: Tensor | None
    adapter: Adapter | None = None

    def tensors(self) -> tuple[Tensor | None, ...]:  # torch 2.10's compiler takes no property of a tuple apart
        return self.weight, self.bias, *(self.adapter[:2] if self.adapter is not None else ())

    def halves(self) -> "tuple[Affine, Affine]":
        """The layer's first columns and its last, as two."""
        biases = (None, None) if self.bias is None else self.bias.chunk(2)
        ups = (None, None) if self.adapter is None else self.adapter.up.chunk(2)
        one, other = (
            Affine(weight, bias, None if up is None else self.adapter._replace(up=up))
            for weight, bias, up in zip(self.weight.chunk(2), biases, ups, strict=True)
        )
        return one, other


def product(
    x: Tensor,
    layer: Affine,
    activation: str | None = None,
    *,
    multiply: Tensor | None = None,
    low: Tensor | None = None,
) -> Tensor:
    """``act(layer(x))·multiply``: an adapter's second product is a part of the layer's own. `low` is ``low_rank``'s."""
    if layer.adapter is None and multiply is None:
        return ops.linear(x, layer.weight, layer.bias, activation=activation)
    if activation in (None, "none") and multiply is None and low is None and (tensors := _of_one_node(x, layer)):
        return nodes.layer("adapted", *tensors, factor=layer.adapter.factor)
    if x.dim() == 1:
        rows = (None if one is None else one.unsqueeze(0) for one in (multiply, low))
        return product(x.unsqueeze(0), layer, activation, **dict(zip(("multiply", "low"), rows, strict=True))).squeeze(
            0
        )
    added = (
        {} if layer.adapter is None else _added(x, layer.adapter, low_rank(x, layer.adapter) if low is None else low)
    )
    return ops.gemm(x, layer.weight.mT, bias=layer.bias, activation=activation, multiply=multiply, **added)


def _of_one_node(x: Tensor, layer: Affine) -> tuple[Tensor | None, ...]:
    """What a layer with its adapter computes with where autograd sees one node, as it does where nothing happens between
    the products; empty where it does not."""
    adapter = layer.adapter
    if not is_idle(adapter.dropout) or _scales_up(x, adapter):
        return ()
    of_one_type = for_one_node(x, layer.weight, adapter.down, adapter.up)
    return (*of_one_type[:2], layer.bias, *of_one_type[2:]) if of_one_type else ()


def for_one_node(*matrices: Tensor) -> tuple[Tensor, ...]:
    """x and weights for a layer of csrc/nodes/layers.hpp, in the type that autocast gives all; empty where there is none, or
    where somebody looks on or types differ."""
    x = matrices[0]
    if not nodes.are_there or x.dim() < 2 or not are_plain(*matrices) or traced():
        return ()
    dtypes = {one.dtype for one in matrices}
    if autocast.is_on(x) and torch.float64 not in dtypes:
        return tuple(one.to(torch.get_autocast_dtype(x.device.type)) for one in matrices)
    return matrices if len(dtypes) == 1 else ()


def low_rank(x: Tensor, adapter: Adapter) -> Tensor:
    """The adapter's first product."""
    own = x if _is_cast(x, adapter) else x.to(adapter.down.dtype)
    factor = 1.0 if _scales_up(x, adapter) else adapter.factor
    if vector := own.dim() == 1:
        own = own.unsqueeze(0)
    low = ops.gemm(adapter.dropout(own), adapter.down.mT, alpha=factor)
    return low.squeeze(0) if vector else low


def _added(x: Tensor, adapter: Adapter, low: Tensor) -> dict[str, Tensor]:
    """The adapter's part, as arguments of the layer's gemm."""
    up = adapter.up * adapter.factor if _scales_up(x, adapter) else adapter.up
    if adapter.down.dtype == x.dtype or _is_cast(x, adapter):
        return {"a2": low, "b2": up.mT}
    part = ops.matmul(low, up.mT)  # of another type than the layer: added before the one rounding
    return {"c": part if part.dtype == torch.float32 else part.to(x.dtype)}


def _is_cast(x: Tensor, adapter: Adapter) -> bool:
    """Where autocast gives all operands one type."""
    return autocast.is_on(x) and torch.float64 not in (x.dtype, adapter.down.dtype)


def _scales_up(x: Tensor, adapter: Adapter) -> bool:
    """In float16 ``x·downᵀ`` has little room to grow."""
    dtype = torch.get_autocast_dtype(x.device.type) if _is_cast(x, adapter) else adapter.down.dtype
    return abs(adapter.factor) > 1 and dtype == torch.float16


def linear(x: Tensor, layer: Affine, activation: str | None = None, *, recompute: bool = False) -> Tensor:
    """``act(layer(x))``. Where a gradient is recorded, the argument of an activation whose derivative needs it is kept,
    unless `recompute`: then the backward pass multiplies again."""
    if activation in (None, "none", "relu") or not records_gradient(x, *layer.tensors()):
        return product(x, layer, activation)
    if recompute and is_compiling():  # the graph would keep it
        return checkpoint(product, x, layer, activation, use_reentrant=False)
    if recompute:
        with contextlib.nullcontext() if traced() else nodes.recomputing():
            return product(x, layer, activation)
    if nodes.are_there and layer.adapter is None and activations.is_builtin(activation) and not traced():
        return product(x, layer, activation)
    return apply(activation, product(x, layer))


class Linear(Named, nn.Linear):
    """``torch.nn.Linear`` on ``wmma_ops.linear``, with an activation if you like; the same state_dict.

    Args:
        in_features, out_features, bias, device, dtype: as for ``torch.nn.Linear``.
        activation: as for ``wmma_ops.gemm``.
        recompute: do not keep what the activation is given in training: the backward pass multiplies again.

    Examples:
        >>> import torch, wmma_ops
        >>> layer = wmma_ops.nn.Linear(64, 16, activation="gelu")
        >>> layer.load_state_dict(torch.nn.Linear(64, 16).state_dict())
        <All keys matched successfully>
        >>> layer(torch.randn(8, 64)).shape
        torch.Size([8, 16])
    """

    # Of the class too: a torch.nn.Linear that is swapped has no such attributes of its own.
    activation: str | None = None
    recompute: bool = False

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device=None,
        dtype=None,
        *,
        activation: str | None = None,
        recompute: bool = False,
    ):
        activations.code("nn.Linear", "activation", activation)
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation
        self.recompute = recompute

    def forward(self, input: Tensor) -> Tensor:
        if is_nested(input):
            return apply(self.activation, super().forward(input))
        if self.activation is None:
            return ops.linear(input, self.weight, self.bias)
        return linear(input, Affine(self.weight, self.bias), self.activation, recompute=self.recompute)

    def extra_repr(self) -> str:
        return super().extra_repr() + (f", activation={self.activation!r}" if self.activation else "")


def _under_our_names(layer: nn.Linear, state_dict: dict, prefix: str, *_) -> None:
    """A LoRALinear's state_dict out of that of a Linear, or of a PEFT layer with one adapter."""
    for ours, theirs in (("weight", "base_layer.weight"), ("bias", "base_layer.bias")):
        if prefix + theirs in state_dict:
            state_dict[prefix + ours] = state_dict.pop(prefix + theirs)
    found = {
        name: [key for key in state_dict if key.startswith(f"{prefix}{theirs}.")]
        for name, theirs in (("lora_a.weight", "lora_A"), ("lora_b.weight", "lora_B"))
    }
    for name, keys in found.items():
        if len(keys) == 1:  # several adapters stay unexpected keys
            state_dict[prefix + name] = state_dict.pop(keys[0])
    adapter = [prefix + name for name in found]
    if prefix + "weight" in state_dict and not any(key in state_dict for key in adapter):
        state_dict.update(zip(adapter, (layer.lora_a.weight, layer.lora_b.weight), strict=True))


class LoRALinear(nn.Linear):
    """A frozen linear layer and an adapter of low rank: ``x·weightᵀ + bias + (alpha / rank)·(x·Aᵀ)·Bᵀ``.

    The adapter's second product is a part of the layer's own: it takes no kernel, and no pass over the result. The
    state_dict has ``weight``, ``bias``, ``lora_a.weight`` and ``lora_b.weight``. It also loads that of a
    ``torch.nn.Linear``, which leaves the adapter as it is, and that of a PEFT layer with one adapter.

    Args:
        in_features, out_features, bias, device, dtype: as for ``torch.nn.Linear``.
        rank: the adapter's rank, 1 or more.
        alpha: the adapter's factor times its rank.
        dropout: of the adapter's input, in training.

    Examples:
        >>> import torch, wmma_ops
        >>> layer = wmma_ops.nn.LoRALinear(64, 32, rank=8, alpha=16)
        >>> layer.load_state_dict(torch.nn.Linear(64, 32).state_dict())
        <All keys matched successfully>
        >>> [name for name, x in layer.named_parameters() if x.requires_grad]
        ['lora_a.weight', 'lora_b.weight']
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device=None,
        dtype=None,
        *,
        rank: int = 16,
        alpha: float = 16.0,
        dropout: float = 0.0,
    ):
        if not isinstance(rank, int) or rank < 1:
            raise ValueError(f"wmma.nn.LoRALinear: rank is {rank!r}; takes an int of 1 or more")
        super().__init__(in_features, out_features, bias, device, dtype)
        self.rank, self.alpha = rank, alpha
        self.dropout = nn.Dropout(dropout)
        self.lora_a = Linear(in_features, rank, bias=False, device=device, dtype=dtype)
        self.lora_b = Linear(rank, out_features, bias=False, device=device, dtype=dtype)
        nn.init.zeros_(self.lora_b.weight)
        for parameter in (self.weight, self.bias):
            if parameter is not None:
                parameter.requires_grad_(False)
        self.register_load_state_dict_pre_hook(_under_our_names)

    def forward(self, input: Tensor) -> Tensor:
        adapter = Adapter(self.lora_a.weight, self.lora_b.weight, self.alpha / self.rank, self.dropout)
        return product(input, Affine(self.weight, self.bias, adapter))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rank={self.rank}, alpha={self.alpha}"
