"""Self-attention, and torch.nn.MultiheadAttention, on ``wmma_ops.linear`` and ``wmma_ops.attention``."""

import torch
import torch.nn.functional as F
from torch import nn

from wmma_ops.nn.linear import Linear
from wmma_ops.ops import functions as ops

Tensor = torch.Tensor


def attend(q, k, v, *, mask=None, is_causal=False, dropout=0.0, enable_gqa=False) -> Tensor:
    """Attention's output."""
    return ops.attention(q, k, v, mask=mask, is_causal=is_causal, enable_gqa=enable_gqa, dropout_p=dropout)[0]


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[..., length, heads·size] as [..., heads, length, size], without a copy."""
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def join_heads(x: Tensor) -> Tensor:
    return x.transpose(-3, -2).flatten(-2)


class Attention(nn.Module):
    """Self-attention with its projections: ``out_proj(attention(q, k, v))`` with q, k and v from one product.

    The state_dict is that of ``torch.nn.MultiheadAttention``. With fewer key heads, ``in_proj_weight`` has fewer rows.

    Args:
        embed_dim: the size of input and output.
        num_heads: query heads; divides embed_dim.
        num_kv_heads: key heads, num_heads by default; divides num_heads.
        bias: of every projection.
        is_causal: no position sees a later one.
        dropout: of the weights, in training.
        device, dtype: as for ``torch.nn.Linear``.

    Examples:
        >>> import torch, wmma_ops
        >>> layer = wmma_ops.nn.Attention(64, 8, is_causal=True)
        >>> layer.load_state_dict(torch.nn.MultiheadAttention(64, 8).state_dict())
        <All keys matched successfully>
        >>> layer(torch.randn(2, 16, 64)).shape
        torch.Size([2, 16, 64])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        bias: bool = True,
        is_causal: bool = False,
        dropout: float = 0.0,
        device=None,
        dtype=None,
    ):
        super().__init__()
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"wmma.nn.Attention: num_heads is {num_heads}; takes a divisor of embed_dim, {embed_dim}")
        if kv_heads < 1 or num_heads % kv_heads:
            raise ValueError(
                f"wmma.nn.Attention: num_kv_heads is {kv_heads}; takes a divisor of num_heads, {num_heads}"
            )
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, kv_heads
        self.is_causal, self.dropout = is_causal, dropout
        rows = (num_heads + 2 * kv_heads) * (embed_dim // num_heads)
        self.in_proj_weight = nn.Parameter(torch.empty(rows, embed_dim, device=device, dtype=dtype))
        self.in_proj_bias = nn.Parameter(torch.empty(rows, device=device, dtype=dtype)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As torch.nn.MultiheadAttention begins."""
        nn.init.xavier_uniform_(self.in_proj_weight)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
            nn.init.zeros_(self.out_proj.bias)

    def forward(self, input: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attends within ``[..., length, embed_dim]``; `mask` as for ``wmma_ops.attention`` (True: may look)."""
        if input.dim() < 2:
            raise ValueError(
                f"wmma.nn.Attention: input has shape {list(input.shape)}; takes [..., length, {self.embed_dim}]"
            )
        if mask is not None and self.is_causal:
            raise ValueError("wmma.nn.Attention: mask is given to a causal layer; takes None there, or is_causal=False")
        packed = split_heads(ops.linear(input, self.in_proj_weight, self.in_proj_bias), self._heads())
        q, k, v = packed.split((self.num_heads, self.num_kv_heads, self.num_kv_heads), -3)
        dropout = self.dropout if self.training else 0.0
        grouped = self.num_heads != self.num_kv_heads
        out = attend(q, k, v, mask=mask, is_causal=self.is_causal, dropout=dropout, enable_gqa=grouped)
        return self.out_proj(join_heads(out))

    def _heads(self) -> int:
        return self.num_heads + 2 * self.num_kv_heads

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}"


def project(query: Tensor, key: Tensor, value: Tensor, weights, bias: Tensor | None) -> tuple[Tensor, ...]:
    """q, k and v, in as few products as the inputs allow. `weights` is one packed matrix, or three."""
    if not isinstance(weights, torch.Tensor):
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        return tuple(ops.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    if query is key and key is value:
        return ops.linear(query, weights, bias).chunk(3, -1)
    (w_q, w_k, w_v), (b_q, b_k, b_v) = weights.chunk(3), (None,) * 3 if bias is None else bias.chunk(3)
    if key is value:
        size = w_q.shape[0]
        pair = ops.linear(key, weights[size:], None if bias is None else bias[size:])
        return ops.linear(query, w_q, b_q), *pair.chunk(2, -1)
    return ops.linear(query, w_q, b_q), ops.linear(key, w_k, b_k), ops.linear(value, w_v, b_v)


def merged_mask(attn_mask, key_padding_mask, batch: int, heads: int, lengths: tuple[int, int], dtype) -> Tensor | None:
    """One mask for ``[batch, heads, L, S]``: bool (True: may look) where both were bool (True: may not), else added."""
    masks = []
    if attn_mask is not None:
        if attn_mask.shape == lengths:
            masks.append(attn_mask)
        elif attn_mask.shape == (batch * heads, *lengths):
            masks.append(attn_mask.unflatten(0, (batch, heads)))
        else:
            taken = f"{list(lengths)} or {[batch * heads, *lengths]}"
            raise ValueError(f"wmma.nn.MultiheadAttention: attn_mask has shape {list(attn_mask.shape)}; takes {taken}")
    if key_padding_mask is not None:
        if key_padding_mask.shape != (batch, lengths[1]):
            raise ValueError(
                f"wmma.nn.MultiheadAttention: key_padding_mask has shape {list(key_padding_mask.shape)}; "
                f"takes {[batch, lengths[1]]}"
            )
        masks.append(key_padding_mask[:, None, None])
    for mask in masks:
        if mask.dtype != torch.bool and not mask.dtype.is_floating_point:
            raise TypeError(f"wmma.nn.MultiheadAttention: a mask is {mask.dtype}; takes bool or a floating type")
    if not masks:
        return None
    if all(mask.dtype == torch.bool for mask in masks):
        return ~(masks[0] | masks[-1])
    added = [_additive(mask, dtype) for mask in masks]
    return added[0] if len(added) == 1 else added[0] + added[1]


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(mask, -torch.inf)


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    heads: int,
    weights,
    bias: Tensor | None,
    out_weight: Tensor,
    out_bias: Tensor | None,
    *,
    dropout: float = 0.0,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What torch.nn.functional.multi_head_attention_forward gives, for ``[batch, length, size]``."""
    if is_causal and attn_mask is None:
        raise ValueError("wmma.nn.MultiheadAttention: is_causal is a hint about attn_mask, which is None; takes both")
    if not query.shape[0] == key.shape[0] == value.shape[0]:
        raise ValueError(
            f"wmma.nn.MultiheadAttention: query, key and value are batches of {query.shape[0]}, {key.shape[0]} and "
            f"{value.shape[0]}; takes one size of all"
        )
    by_hint = is_causal and key_padding_mask is None and not need_weights
    lengths = (query.shape[1], key.shape[1])
    mask = merged_mask(None if by_hint else attn_mask, key_padding_mask, query.shape[0], heads, lengths, query.dtype)
    q, k, v = (split_heads(x, heads) for x in project(query, key, value, weights, bias))
    if not need_weights:
        out = attend(q, k, v, mask=mask, is_causal=by_hint, dropout=dropout)
        return ops.linear(join_heads(out), out_weight, out_bias), None
    if mask is not None and mask.dtype == torch.bool:
        mask = _additive(~mask, query.dtype)
    shares = ops.gemm(q, k.mT, alpha=q.shape[-1] ** -0.5, c=mask).softmax(-1)
    if dropout > 0:
        shares = F.dropout(shares, dropout)
    out = ops.linear(join_heads(ops.matmul(shares, v)), out_weight, out_bias)
    return out, shares.mean(1) if average_attn_weights else shares


class MultiheadAttention(nn.MultiheadAttention):
    """``torch.nn.MultiheadAttention``: the same arguments, masks, results and state_dict.

    With ``add_bias_kv`` or ``add_zero_attn``, and for nested tensors, it is torch's own. Ask for ``need_weights=False``
    where the weights are not used: only so are they never in memory.

    Args:
        embed_dim, num_heads, …: as for ``torch.nn.MultiheadAttention``.

    Examples:
        >>> import torch, wmma_ops
        >>> layer = wmma_ops.nn.MultiheadAttention(64, 8, batch_first=True)
        >>> x = torch.randn(2, 16, 64)
        >>> out, weights = layer(x, x, x, need_weights=False)
        >>> out.shape, weights
        (torch.Size([2, 16, 64]), None)
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        options = {
            "need_weights": need_weights,
            "attn_mask": attn_mask,
            "average_attn_weights": average_attn_weights,
            "is_causal": is_causal,
        }
        if self.bias_k is not None or self.add_zero_attn or query.is_nested:
            return super().forward(query, key, value, key_padding_mask, **options)
        if len({x.dim() for x in (query, key, value)}) > 1:
            raise ValueError(
                f"wmma.nn.MultiheadAttention: query, key and value have {query.dim()}, {key.dim()} and {value.dim()} "
                "dimensions; takes 2 of all, or 3 with a batch"
            )
        inputs = same_order((query, key, value), self._arranged)
        if query.dim() == 2 and key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
        separate = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        out, shares = multi_head_attention(
            *inputs,
            self.num_heads,
            self.in_proj_weight if self.in_proj_weight is not None else separate,
            self.in_proj_bias,
            self.out_proj.weight,
            self.out_proj.bias,
            dropout=self.dropout if self.training else 0.0,
            key_padding_mask=key_padding_mask,
            **options,
        )
        if query.dim() == 2:
            return out.squeeze(0), None if shares is None else shares.squeeze(0)
        return out if self.batch_first else out.transpose(0, 1), shares

    def _arranged(self, x: Tensor) -> Tensor:
        """As [batch, length, size]."""
        if x.dim() not in (2, 3):
            raise ValueError(
                f"wmma.nn.MultiheadAttention: an input has shape {list(x.shape)}; takes 2 dimensions, or 3 with a batch"
            )
        if x.dim() == 2:
            return x.unsqueeze(0)
        return x if self.batch_first else x.transpose(0, 1)


def same_order(inputs: tuple[Tensor, Tensor, Tensor], arranged) -> tuple[Tensor, Tensor, Tensor]:
    """Each input arranged, and one tensor where one tensor came in: then fewer products do."""
    query, key, value = inputs
    q = arranged(query)
    k = q if key is query else arranged(key)
    return q, k, k if value is key else q if value is query else arranged(value)
