"""The documented functions: names for activations, ValueError and TypeError, the raw op where no gradient is asked for."""

from typing import TYPE_CHECKING

import torch

from wmma_ops.ops import activations, score_functions
from wmma_ops.ops.blocks import Blocks
from wmma_ops.ops.dropout import new_seed
from wmma_ops.ops.errors import translate
from wmma_ops.ops.library import overload
from wmma_ops.ops.select import DIFFERENTIABLE, RAW, is_compiling, is_grad_enabled, select, traced
from wmma_ops.torch_internals import is_captured, transforms_active

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

Tensor = torch.Tensor
_raw_matmul = RAW["matmul"]
_matmul = DIFFERENTIABLE["matmul"]
_kv_append = overload("kv_append")

CAUSAL = {False: 0, True: 1, "top_left": 1, "bottom_right": 2}


def _call(name: str, tensors: dict, **scalars):
    scalars = _numbers(name, scalars)
    try:
        return select(name, *tensors.values())(*tensors.values(), **scalars)
    except (RuntimeError, TypeError) as error:
        raise translate(name, error, tensors) from None


def _numbers(op: str, scalars: dict) -> dict:
    """A tensor of one element is taken as a number: it would lose its gradient, and torch.compile is to see it asked for."""
    for argument, value in scalars.items():
        if not isinstance(value, Tensor):
            continue
        if value.requires_grad and is_grad_enabled():
            raise TypeError(
                f"wmma.{op}: {argument} is a tensor that requires grad, but numbers have no gradient; takes a number "
                "(multiply an operand by the tensor instead)"
            )
        scalars = scalars | {argument: value.item()}
    return scalars


def _refuse_captured(input: Tensor) -> None:
    """As torch does for its own ops: a change of a tensor from outside the function would be lost, and its gradient too."""
    if is_captured(input):
        raise ValueError(
            "wmma.addmm_: input comes from outside the function that torch.func differentiates; takes one made inside it, "
            "or an argument of the function"
        )


def matmul(a: Tensor, b: Tensor, *, out_dtype: torch.dtype | None = None) -> Tensor:
    """The matrix product A·B, with the shapes of ``torch.matmul``.

    Args:
        a: ``[..., M, K]``, or ``[K]`` for one row.
        b: ``[..., K, N]``, or ``[K]`` for one column. Batch dimensions broadcast.
        out_dtype: the result's type; for each operand type one of

            | operands | results, the default first |
            |---|---|
            | float16 | float16, float32 |
            | bfloat16 | bfloat16, float32 |
            | float32 | float32 |
            | float64 | float64 |
            | int8 | int32, int8 (saturating), float32, float16, bfloat16 |
            | float8 (any, of one family) | bfloat16, float16, float32 |

    Products are added up in float32 (float64, int32) and rounded once.

    Examples:
        >>> import torch, wmma_ops
        >>> wmma_ops.matmul(torch.eye(2, dtype=torch.bfloat16), torch.ones(2, 3, dtype=torch.bfloat16)).dtype
        torch.bfloat16
    """
    # The hot path stands here unfolded: it is measured against torch.matmul's own call.
    try:
        if traced() or (is_grad_enabled() and (a.requires_grad or b.requires_grad)):
            return _matmul(a, b, out_dtype=out_dtype)
        if out_dtype is None:
            return _raw_matmul(a, b)
        return _raw_matmul(a, b, out_dtype=out_dtype)
    except AttributeError:
        return _call("matmul", {"a": a, "b": b}, out_dtype=out_dtype)
    except (RuntimeError, TypeError) as error:
        raise translate("matmul", error, {"a": a, "b": b}) from None


def addmm(
    input: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """``alpha·A·B + beta·input`` for matrices.

    Args:
        input: any shape that broadcasts to ``[M, N]``; not read where beta is 0. Its type may differ from A's.
        a: ``[M, K]``.
        b: ``[K, N]``.
        beta, alpha: real factors. With alpha 0, A and B are not read.
        out_dtype: as for ``matmul``.

    Examples:
        >>> import torch, wmma_ops
        >>> wmma_ops.addmm(torch.ones(2), torch.ones(2, 3), torch.ones(3, 2), beta=10, alpha=2)
        tensor([[16., 16.],
                [16., 16.]])
    """
    return _call("addmm", {"input": input, "a": a, "b": b}, beta=beta, alpha=alpha, out_dtype=out_dtype)


def addmm_(input: Tensor, a: Tensor, b: Tensor, *, beta: float = 1.0, alpha: float = 1.0) -> Tensor:
    """``input = alpha·A·B + beta·input`` in place; returns `input`.

    Args:
        input: ``[M, N]``, of a type that ``matmul`` gives for A's; any strides, sharing no memory with A or B.
        a: ``[M, K]``.
        b: ``[K, N]``.
        beta, alpha: as for ``addmm``.

    Examples:
        >>> import torch, wmma_ops
        >>> total = torch.zeros(2, 2)
        >>> wmma_ops.addmm_(total, torch.ones(2, 3), torch.ones(3, 2))
        tensor([[3., 3.],
                [3., 3.]])
    """
    factors = _numbers("addmm_", {"beta": beta, "alpha": alpha})
    if not is_compiling() and transforms_active():
        _refuse_captured(input)
    try:
        DIFFERENTIABLE["addmm_"](input, a, b, **factors)
    except (RuntimeError, TypeError) as error:
        raise translate("addmm_", error, {"input": input, "a": a, "b": b}) from None
    return input


def baddbmm(
    input: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """``alpha·A·B + beta·input`` for batches of matrices.

    Args:
        input: any shape that broadcasts to ``[batch, M, N]``; not read where beta is 0.
        a: ``[batch, M, K]``.
        b: ``[batch, K, N]``.
        beta, alpha, out_dtype: as for ``addmm``.

    Examples:
        >>> import torch, wmma_ops
        >>> wmma_ops.baddbmm(torch.zeros(1), torch.ones(4, 2, 3), torch.ones(4, 3, 5)).shape
        torch.Size([4, 2, 5])
    """
    return _call("baddbmm", {"input": input, "a": a, "b": b}, beta=beta, alpha=alpha, out_dtype=out_dtype)


def gemm(
    a: Tensor,
    b: Tensor,
    *,
    c: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    bias: Tensor | None = None,
    row_scale: Tensor | None = None,
    col_scale: Tensor | None = None,
    a_scale: Tensor | None = None,
    a_activation: str | None = None,
    activation: str | None = None,
    multiply: Tensor | None = None,
    a2: Tensor | None = None,
    b2: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """One product with every prologue and epilogue: ``D = act(alpha·(P·B)·row_scale·col_scale + beta·C + bias)·multiply``.

    P is ``a_activation(A·a_scale)``, computed in float32 and rounded to A's type; without either, P is A. Everything after
    the product is computed in the accumulator's type and rounded once, to the result's.

    With a second pair of operands, ``P·B + A2·B2`` takes the place of ``P·B``: one sum in one kernel, as of an adapter of
    low rank beside its layer, of a recurrent cell's input and state, or of columns that would have to be concatenated.

    Args:
        a: ``[..., M, K]``.
        b: ``[..., K, N]``. Batch dimensions broadcast.
        c: any shape that broadcasts to ``[..., M, N]``; not read where beta is 0.
        alpha, beta: real factors. With alpha 0, A, B, A2, B2 and the scales are not read.
        bias, col_scale: ``[N]``, optionally after batch dimensions.
        row_scale: ``[M]``, likewise. A scale may also be a single element.
        a_scale: ``[K]``, likewise.
        a_activation, activation: one of none, relu, gelu, gelu_tanh, silu, sigmoid, tanh, leaky_relu (slope 0.01), or the
            name of a registered activation.
        multiply: any shape that broadcasts to ``[..., M, N]``.
        a2, b2: ``[..., M, K2]`` and ``[..., K2, N]``, of A's and of B's type, both or neither. Their batch dimensions
            broadcast with those of A and B; a_scale and a_activation leave A2 as it is.
        out_dtype: as for ``matmul``.

    Examples:
        >>> import torch, wmma_ops
        >>> a, b = torch.tensor([[1.0, -2.0]]), torch.eye(2)
        >>> wmma_ops.gemm(a, b, bias=torch.tensor([1.0, 1.0]), activation="relu", multiply=torch.full((2,), 3.0))
        tensor([[6., 0.]])
        >>> wmma_ops.gemm(a, b, a2=torch.tensor([[10.0]]), b2=torch.tensor([[1.0, 2.0]]))
        tensor([[11., 18.]])
    """
    tensors = {
        "a": a,
        "b": b,
        "c": c,
        "bias": bias,
        "row_scale": row_scale,
        "col_scale": col_scale,
        "a_scale": a_scale,
        "multiply": multiply,
    }
    if a2 is not None or b2 is not None:
        tensors |= {"a2": a2, "b2": b2}
    return _call(
        "gemm",
        tensors,
        alpha=alpha,
        beta=beta,
        a_activation=activations.code("gemm", "a_activation", a_activation),
        activation=activations.code("gemm", "activation", activation),
        out_dtype=out_dtype,
    )


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """``act(x·weightᵀ + bias + residual)`` with the weight as ``torch.nn.Linear`` keeps it.

    Args:
        x: ``[..., K]``.
        weight: ``[N, K]``.
        bias: ``[N]``.
        activation: as for ``gemm``.
        residual: any shape that broadcasts to ``[..., N]``; added before the activation.

    Examples:
        >>> import torch, wmma_ops
        >>> layer = torch.nn.Linear(64, 16)
        >>> wmma_ops.linear(torch.randn(8, 64), layer.weight, layer.bias, activation="gelu").shape
        torch.Size([8, 16])
    """
    return _call(
        "linear",
        {"x": x, "weight": weight, "bias": bias, "residual": residual},
        activation=activations.code("linear", "activation", activation),
    )


def gemm_gemm(
    a: Tensor,
    b0: Tensor,
    b1: Tensor,
    *,
    c: Tensor | None = None,
    alpha0: float = 1.0,
    alpha1: float = 1.0,
    beta1: float = 1.0,
    bias0: Tensor | None = None,
    bias1: Tensor | None = None,
    activation: str | None = None,
    gate: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Two products in one: ``D1 = alpha1·D0·B1 + beta1·C + bias1``, ``D0 = act(alpha0·A·B0 + bias0)·(A·gate)``.

    D0 is rounded to A's type, as the second product takes it (int8 saturates); without `gate`, D0 is the activation alone.

    Args:
        a: ``[..., M, K]`` of float16, bfloat16, float32, float64 or int8.
        b0: ``[..., K, H]``.
        b1: ``[..., H, N]``.
        c: any shape that broadcasts to ``[..., M, N]``; not read where beta1 is 0.
        alpha0, alpha1, beta1: real factors.
        bias0, bias1: ``[H]`` and ``[N]``.
        activation: as for ``gemm``.
        gate: the shape of b0.
        out_dtype: D1's type, as for ``matmul``.

    Examples:
        >>> import torch, wmma_ops
        >>> x, up, down = torch.randn(4, 8), torch.randn(8, 16), torch.randn(16, 8)
        >>> wmma_ops.gemm_gemm(x, up, down, activation="silu", gate=torch.randn(8, 16)).shape
        torch.Size([4, 8])
    """
    return _call(
        "gemm_gemm",
        {"a": a, "b0": b0, "b1": b1, "c": c, "bias0": bias0, "bias1": bias1, "gate": gate},
        alpha0=alpha0,
        alpha1=alpha1,
        beta1=beta1,
        activation=activations.code("gemm_gemm", "activation", activation),
        out_dtype=out_dtype,
    )


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool | str = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    dropout_p: float = 0.0,
    dropout_seed: Tensor | None = None,
    score_mod: str | None = None,
    mask_mod: str | None = None,
    mod_operands: tuple[Tensor, ...] = (),
    block_mask: "BlockMask | Blocks | None" = None,
) -> tuple[Tensor, Tensor]:
    """``softmax(scale·Q·Kᵀ + mask)·V`` and, for each row, the logarithm of the sum under the softmax.

    Args:
        q: ``[..., heads, Sq, E]`` of float16, bfloat16, float32 or float64.
        k: ``[..., heads, Skv, E]``.
        v: ``[..., heads, Skv, Ev]``.
        mask: any shape that broadcasts to ``[..., heads, Sq, Skv]``; bool (True: may look) or floating (added).
        is_causal: True or "top_left" aligns the first query with the first key, "bottom_right" the last with the last.
        scale: by default ``1/√E``.
        enable_gqa: k and v may have fewer heads, each serving a group of query heads.
        window: a query sees so many keys to the left and to the right of where it stands, beside the one there; −1: all on
            that side (the op has window_left and window_right). Query i stands at key ``i + Skv − Sq``, as the last query at
            the last key, or, where is_causal is "top_left", at key i. is_causal is a window that ends there: the right size
            counts only without it.
        softcap: scores are ``softcap·tanh(scale·Q·Kᵀ/softcap)`` before anything is added to them; 0: as they are.
        sinks: one more score for every row of a head, that takes weight and gives nothing; of any shape that broadcasts to
            ``[..., heads]``, in float32 or q's type. It counts in ``lse``.
        alibi_slopes: from a score the head's slope times the key's distance from where the query stands is subtracted;
            likewise.
        dropout_p: each weight is 0 with this probability, and multiplied by ``1/(1 − dropout_p)`` otherwise; ``lse`` is that
            of all. The gradients drop the same ones.
        dropout_seed: one int64, on q's device, that decides which: ``dropout_mask`` says how. Drawn by torch's generator
            where there is none.
        score_mod: the name of a function of scores that :func:`register_score_mod` made known. It is given what scores are
            after a soft cap and slopes, before masks.
        mask_mod: the name of a function that :func:`register_mask_mod` made known: a query sees the keys for which it is
            true, of those that it sees without it.
        mod_operands: the tensors that both functions read, up to four: ``a``, ``b``, ``c`` and ``d`` of their expressions
            (the op's ``mod_a``, ``mod_b``, ``mod_c`` and ``mod_d``). They have no gradients.
        block_mask: FlexAttention's, or :class:`Blocks`: keys of blocks that are not there are neither seen nor read; in
            blocks that are there in part a query sees what mask_mod shows it. FlexAttention's own mask_mod is to be one that
            :func:`register_mask_mod` was given, or mask_mod names its like. Without one, of blocks 128 queries high, a
            kernel finds out what mask_mod shows before, where many heads or batches share it. (The op has a Blocks as
            ``block_mask``, ``block_q`` and ``block_k``.)

    Returns:
        ``out`` as q, with V's head size, and ``lse`` ``[..., heads, Sq]`` in float32 (float64). A row that may look at no
        key gives zeros and −inf, or its sink. Keys that a window hides from all of a tile's queries are not read. All
        tensors but those that functions read have gradients; slopes, as masks, by way of scores in memory.

    Examples:
        >>> import torch, wmma_ops
        >>> q, k = torch.randn(2, 8, 16, 64), torch.randn(2, 2, 32, 64)
        >>> out, lse = wmma_ops.attention(q, k, k, is_causal="bottom_right", enable_gqa=True)
        >>> out.shape, lse.shape
        (torch.Size([2, 8, 16, 64]), torch.Size([2, 8, 16]))
    """
    causal = _causal("attention", is_causal)
    scalars = _rules("attention", "window", window, softcap, dropout_p)
    mods = _mods("attention", mod_operands)
    if block_mask is not None:
        blocks, mask_mod = score_functions.blocks_of("attention", block_mask, mask_mod)
        scalars |= {"block_q": blocks.queries, "block_k": blocks.keys}
        mods = dict.fromkeys(score_functions.ARGUMENTS) | mods | {"block_mask": blocks.states}
    scalars |= score_functions.codes("attention", score_mod, mask_mod)
    seed = _seed("attention", q, dropout_p, dropout_seed)
    tensors = {"q": q, "k": k, "v": v, "mask": mask, "sinks": sinks, "alibi_slopes": alibi_slopes, "dropout_seed": seed}
    return _call(
        "attention",
        {**tensors, **mods},
        is_causal=causal,
        scale=scale,
        enable_gqa=enable_gqa,
        **scalars,
    )


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int | None,
    *,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    dropout_p: float = 0.0,
    dropout_seed: Tensor | None = None,
    score_mod: str | None = None,
    mask_mod: str | None = None,
    mod_operands: tuple[Tensor, ...] = (),
    block_mask: "BlockMask | Blocks | None" = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """``attention`` of sequences that lie one after the other, without padding, by the names of torch's ``varlen_attn``.

    The queries ``cu_seq_q[i]`` to ``cu_seq_q[i + 1]`` see the keys ``cu_seq_k[i]`` to ``cu_seq_k[i + 1]``, and no others.

    Args:
        query: ``[queries, heads, E]`` of float16, bfloat16, float32 or float64.
        key: ``[keys, heads, E]``; with block_table pages of keys, ``[pages, page size, heads, E]``, which beside float16 and
            bfloat16 may be of float8_e4m3fn.
        value: ``[keys, heads, Ev]``, or ``[pages, page size, heads, Ev]``.
        cu_seq_q, cu_seq_k: ``[sequences + 1]`` of int32 or int64: 0, and where each sequence ends. On a GPU they stay there:
            numbers that decrease or lie beyond the tensors give some result, from within these; on the CPU, and with
            ``WMMA_OPS_CHECK=1``, they are refused.
        max_q, max_k: the lengths of the longest sequences, or more; of longer ones the rest does not count.
        scale: by default ``1/√E``.
        window_size: a query sees so many keys to the left and to the right of where it stands, beside the one there; −1: all
            on that side (the op has window_left and window_right). The last query of a sequence stands at its last key:
            ``(-1, 0)`` is causal.
        enable_gqa: key and value may have fewer heads, each serving a group of query heads.
        seqused_k: ``[sequences]`` of int32 or int64: only so many of a sequence's keys, the first ones, are there.
        block_table: ``[sequences, pages of a sequence]`` of int32: key j of sequence i lies in page
            ``block_table[i, j // page size]``, and there are ``seqused_k[i]`` of them. The page size is a multiple of 16.
            cu_seq_k does not count and may be None, max_k too. Numbers behind a sequence's last page are not looked at; on a
            GPU those of no page give some result, on the CPU they are refused. Without gradients.
        softcap: as for ``attention``.
        sinks, alibi_slopes: as for ``attention``, of any shape that broadcasts to ``[heads]``.
        dropout_p, dropout_seed: as for ``attention``, where a sequence is as one of a batch.
        score_mod, mask_mod, mod_operands: likewise (the op's ``mod_a``, ``mod_b``, ``mod_c`` and ``mod_d``): ``batch`` is
            the sequence's number, and ``query`` and ``key`` count from its first query and its first key.
        block_mask: as for ``attention``, where the batch are the sequences, blocks of each count from its first query and
            its first key, and there are as many for each as for ``max_q`` and ``max_k``. Without one no kernel looks what
            mask_mod shows. (The op's ``block_mask``, ``block_q`` and ``block_k``.)
        k_descale, v_descale: what keys and values in pages of float8_e4m3fn are multiplied by, in float32 and by
            FlashAttention-3's names: of any shape that broadcasts to ``[sequences, heads of key]``, so one element, or one
            a head; by default 1.

    Returns:
        ``out`` ``[queries, heads, Ev]`` and ``lse`` ``[heads, queries]`` in float32 (float64). A row that may look at no key
        gives zeros and −inf, or its sink; a token of no sequence zeros and −inf. Gradients as ``attention`` has them; keys
        that no query sees have zeros.

    Examples:
        >>> import torch, wmma_ops
        >>> x, ends = torch.randn(5, 2, 16), torch.tensor([0, 2, 5], dtype=torch.int32)
        >>> out, lse = wmma_ops.varlen_attention(x, x, x, ends, ends, 3, 3, window_size=(-1, 0))
        >>> alone, _ = wmma_ops.attention(*[x[2:].transpose(0, 1)] * 3, is_causal=True)
        >>> out.shape, lse.shape, torch.allclose(out[2:], alone.transpose(0, 1), atol=1e-6)
        (torch.Size([5, 2, 16]), torch.Size([2, 5]), True)
    """
    tensors = {"query": query, "key": key, "value": value, "cu_seq_q": cu_seq_q, "cu_seq_k": cu_seq_k}
    tensors |= {"sinks": sinks, "alibi_slopes": alibi_slopes, "seqused_k": seqused_k, "block_table": block_table}
    tensors["dropout_seed"] = _seed("varlen_attention", query, dropout_p, dropout_seed)
    tensors |= dict.fromkeys(score_functions.ARGUMENTS) | _mods("varlen_attention", mod_operands)
    tensors |= {"k_descale": k_descale, "v_descale": v_descale}
    scalars = _rules("varlen_attention", "window_size", window_size, softcap, dropout_p)
    if block_mask is not None:
        blocks, mask_mod = score_functions.blocks_of("varlen_attention", block_mask, mask_mod)
        tensors["block_mask"] = blocks.states
        scalars |= {"block_q": blocks.queries, "block_k": blocks.keys}
    scalars |= score_functions.codes("varlen_attention", score_mod, mask_mod)
    return _call("varlen_attention", tensors, max_q=max_q, max_k=max_k, scale=scale, enable_gqa=enable_gqa, **scalars)


def kv_append(
    key: Tensor,
    value: Tensor,
    key_pages: Tensor,
    value_pages: Tensor,
    block_table: Tensor,
    cu_seq: Tensor,
    seqused_k: Tensor,
    *,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    interleaved: bool = False,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
) -> None:
    """Writes the new keys and values of sequences into their pages, in place, as ``varlen_attention`` reads them after.

    The tokens ``cu_seq[i]`` to ``cu_seq[i + 1]`` become the last of the ``seqused_k[i]`` keys of sequence i: that number has
    them already, so that attention is given the same, and key j lies in page ``block_table[i, j // page size]``.

    Args:
        key: ``[tokens, heads, E]`` of float16, bfloat16, float32 or float64.
        value: ``[tokens, heads, Ev]``.
        key_pages: ``[pages, page size, heads, E]``, of any strides and page size; of key's type, or, beside float16 and
            bfloat16, of float8_e4m3fn.
        value_pages: ``[pages, page size, heads, Ev]``.
        block_table: ``[sequences, pages of a sequence]`` of int32.
        cu_seq: ``[sequences + 1]`` of int32 or int64: 0, and where each sequence's tokens end.
        seqused_k: ``[sequences]`` of int32 or int64.
        cos, sin: ``[places, angles]`` in float32 or key's type: the first ``2·angles`` elements of a key are turned by
            the angles of its place, element c with element ``c + angles``, in float32 (float64) and rounded once, as a
            rotary embedding. Values are as they come.
        interleaved: neighbours are turned with each other instead.
        k_descale, v_descale: as ``varlen_attention`` is given them, of any shape that broadcasts to ``[sequences, heads]``.
            Pages of float8_e4m3fn have what is divided by them in float32, clamped to ±448 and rounded once; a NaN stays
            one.

    What numbers leave no place for, or no angles, is not written on a GPU; on the CPU they are refused, before anything is
    written. Without gradients. Under autocast key and value take the type of the pages, for those of float8_e4m3fn the
    region's. Under vmap one is appended
    after the other, each to pages of its own. Of DTensors pages are whole on every device or sharded by heads, key and value
    as they are, and all else is replicated: nothing is redistributed.

    Examples:
        >>> import torch, wmma_ops
        >>> pages, table = torch.zeros(2, 4, 1, 2), torch.tensor([[1]], dtype=torch.int32)
        >>> new, ends, used = torch.ones(2, 1, 2), torch.tensor([0, 2]), torch.tensor([3])
        >>> wmma_ops.kv_append(new, new, pages, pages.clone(), table, ends, used)
        >>> pages.sum((2, 3))
        tensor([[0., 0., 0., 0.],
                [0., 2., 2., 0.]])
    """
    tensors = {
        "key": key,
        "value": value,
        "key_pages": key_pages,
        "value_pages": value_pages,
        "block_table": block_table,
    }
    tensors |= {"cu_seq": cu_seq, "seqused_k": seqused_k, "cos": cos, "sin": sin}
    tensors |= {"k_descale": k_descale, "v_descale": v_descale}
    try:
        _kv_append(*tensors.values(), interleaved=interleaved)
    except (RuntimeError, TypeError) as error:
        raise translate("kv_append", error, tensors) from None


def _causal(op: str, is_causal: bool | str) -> int:
    """As the op has it."""
    taken = "takes a bool, 'top_left' or 'bottom_right'"
    if not isinstance(is_causal, (bool, str)):
        raise TypeError(f"wmma.{op}: is_causal is of type {type(is_causal).__name__}; {taken}")
    if is_causal not in CAUSAL:
        raise ValueError(f"wmma.{op}: is_causal is {is_causal!r}; {taken}")
    return CAUSAL[is_causal]


def _mods(op: str, tensors: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """By the names that the op gives them."""
    if not isinstance(tensors, (tuple, list)) or not all(isinstance(x, Tensor) for x in tensors):
        raise TypeError(f"wmma.{op}: mod_operands is {tensors!r}; takes a tuple of tensors")
    if len(tensors) > len(score_functions.ARGUMENTS):
        raise ValueError(f"wmma.{op}: mod_operands has {len(tensors)} tensors; takes up to 4")
    return dict(zip(score_functions.ARGUMENTS, tensors, strict=False))


def _seed(op: str, q: Tensor, p: float, seed: Tensor | None) -> Tensor | None:
    """What the op is given: none where nothing is dropped."""
    if seed is not None and not isinstance(seed, Tensor):
        raise TypeError(f"wmma.{op}: dropout_seed is of type {type(seed).__name__}; takes a tensor of one int64")
    if isinstance(p, (int, float)) and not p > 0:  # what is no probability the op itself refuses
        return None
    return new_seed(q.device) if seed is None else seed


def _rules(op: str, name: str, window: tuple[int, int], softcap: float, dropout_p: float) -> dict:
    """As the op has them. What has its default is left out, so that graphs name what is asked for alone."""
    is_pair = isinstance(window, (tuple, list)) and len(window) == 2
    if not is_pair or not all(isinstance(size, int) and not isinstance(size, bool) for size in window):
        raise TypeError(f"wmma.{op}: {name} is {window!r}; takes two integers, of keys to the left and to the right")
    given = {"window_left": (window[0], -1), "window_right": (window[1], -1), "softcap": (softcap, 0.0)}
    given["dropout_p"] = (dropout_p, 0.0)
    return {name: x for name, (x, default) in given.items() if isinstance(x, Tensor) or x != default}


def scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    *,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """``(A·B)·scale_a·scale_b + bias`` for quantised operands. Not differentiable.

    Args:
        a: ``[..., M, K]`` of int8 or a float8 type.
        b: ``[..., K, N]`` of the same (or, for float8, of its family).
        scale_a: float32; one element, or one a row: ``[M]`` or ``[M, 1]``, after all batch dimensions of A or none.
        scale_b: float32; one element, or one a column: ``[N]`` or ``[1, N]``, after all batch dimensions of B or none.
        bias: ``[N]``.
        out_dtype: bfloat16 by default; otherwise as for ``matmul``.

    Examples:
        >>> import torch, wmma_ops
        >>> a = torch.full((2, 4), 100, dtype=torch.int8)
        >>> wmma_ops.scaled_mm(a, a.T, torch.tensor(0.01), torch.tensor(0.01))
        tensor([[4., 4.],
                [4., 4.]], dtype=torch.bfloat16)
    """
    tensors = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "bias": bias}
    return _call("scaled_mm", tensors, out_dtype=out_dtype)


def scaled_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale_q: Tensor | None = None,
    scale_k: Tensor | None = None,
    scale_v: Tensor | None = None,
    *,
    is_causal: bool | str = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """``attention`` of quantised queries, keys and values: of ``q·scale_q``, ``k·scale_k`` and ``v·scale_v``. Not
    differentiable.

    Args:
        q: ``[..., heads, Sq, E]`` of float8_e4m3fn.
        k: ``[..., heads, Skv, E]``, likewise.
        v: ``[..., heads, Skv, Ev]``, likewise.
        scale_q: float32, of any shape that broadcasts to ``[..., heads]``; none is 1.
        scale_k: likewise, to the batch and heads of k.
        scale_v: likewise.
        is_causal: as for ``attention``.
        scale: likewise.
        enable_gqa: likewise.
        out_dtype: bfloat16 by default, or float16.

    Returns:
        ``out`` of out_dtype and ``lse`` as for ``attention``.

    On sm_90a heads of up to 128 (q and k 256) are multiplied as they are: weights, of which a row's largest is 256 or a bit
    less, are rounded to float8_e4m3fn for the product with the values, each by up to 1/16 of itself, or by 2^-18 of the
    largest where they are small; sums are of float32, but those of 128 keys, or of a head's columns, the unit sums up by
    itself with 13 bits or so behind the point. Elsewhere operands become numbers of out_dtype, times their scale, and go to
    ``attention``'s kernels; on the CPU float32. :func:`explain` tells which.

    Examples:
        >>> import torch, wmma_ops
        >>> x = torch.randn(2, 8, 16, 64)
        >>> scale = x.abs().amax((-2, -1)) / 448
        >>> narrow = (x / scale[..., None, None]).to(torch.float8_e4m3fn)
        >>> out, lse = wmma_ops.scaled_attention(narrow, narrow, narrow, scale, scale, scale)
        >>> out.dtype, out.shape
        (torch.bfloat16, torch.Size([2, 8, 16, 64]))
    """
    causal = _causal("scaled_attention", is_causal)
    tensors = {"q": q, "k": k, "v": v, "scale_q": scale_q, "scale_k": scale_k, "scale_v": scale_v}
    options = {"is_causal": causal, "scale": scale, "enable_gqa": enable_gqa, "out_dtype": out_dtype}
    return _call("scaled_attention", tensors, **options)
