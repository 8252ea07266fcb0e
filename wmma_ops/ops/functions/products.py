"""The documented functions of products."""

from typing import NoReturn

import torch

from wmma_ops.ops import activations
from wmma_ops.ops.errors import translate
from wmma_ops.ops.functions.calling import call, numbers
from wmma_ops.ops.neighbours import answering, unknown_keyword
from wmma_ops.ops.select import DIFFERENTIABLE, RAW, is_compiling, is_grad_enabled, traced
from wmma_ops.torch_internals import is_captured, transforms_active

Tensor = torch.Tensor
_raw_matmul = RAW["matmul"]
_matmul = DIFFERENTIABLE["matmul"]


def matmul(a: Tensor, b: Tensor, *, out_dtype: torch.dtype | None = None, **unknown: NoReturn) -> Tensor:
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
    # The hot path stands here unfolded, without `answering`'s frame: it is measured against torch.matmul's own call.
    if unknown:
        raise unknown_keyword(matmul, unknown)
    try:
        if traced() or (is_grad_enabled() and (a.requires_grad or b.requires_grad)):
            return _matmul(a, b, out_dtype=out_dtype)
        if out_dtype is None:
            return _raw_matmul(a, b)
        return _raw_matmul(a, b, out_dtype=out_dtype)
    except AttributeError:
        return call("matmul", {"a": a, "b": b}, out_dtype=out_dtype)
    except (RuntimeError, TypeError) as error:
        raise translate("matmul", error, {"a": a, "b": b}) from None


@answering
def addmm(
    input: Tensor, a: Tensor, b: Tensor, *, beta: float = 1.0, alpha: float = 1.0, out_dtype: torch.dtype | None = None
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
    return call("addmm", {"input": input, "a": a, "b": b}, beta=beta, alpha=alpha, out_dtype=out_dtype)


@answering
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
    factors = numbers("addmm_", {"beta": beta, "alpha": alpha})
    if not is_compiling() and transforms_active():
        _refuse_captured(input)
    try:
        DIFFERENTIABLE["addmm_"](input, a, b, **factors)
    except (RuntimeError, TypeError) as error:
        raise translate("addmm_", error, {"input": input, "a": a, "b": b}) from None
    return input


@answering
def baddbmm(
    input: Tensor, a: Tensor, b: Tensor, *, beta: float = 1.0, alpha: float = 1.0, out_dtype: torch.dtype | None = None
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
    return call("baddbmm", {"input": input, "a": a, "b": b}, beta=beta, alpha=alpha, out_dtype=out_dtype)


@answering
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
    gate: Tensor | None = None,
    gate_bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """One product with every prologue and epilogue: ``D = act(alpha·(P·B)·row_scale·col_scale + beta·C + bias)·multiply``.

    P is ``a_activation(A·a_scale)``, computed in float32 and rounded to A's type; without either, P is A. Everything after
    the product is computed in the accumulator's type and rounded once, to the result's.

    With a second pair of operands, ``P·B + A2·B2`` takes the place of ``P·B``: one sum in one kernel, as of an adapter of
    low rank beside its layer, of a recurrent cell's input and state, or of columns that would have to be concatenated.

    With a gate, ``A·gate + gate_bias`` takes the place of `multiply`: gated MLPs' first half (SwiGLU, GEGLU). Both products
    are one kernel where there is no more than an activation and biases beside them, and the planner finds it faster.

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
        gate: of B's shape and type; not beside `multiply`, a_scale or a_activation.
        gate_bias: as `bias`.
        out_dtype: as for ``matmul``.

    Examples:
        >>> import torch, wmma_ops
        >>> a, b = torch.tensor([[1.0, -2.0]]), torch.eye(2)
        >>> wmma_ops.gemm(a, b, bias=torch.tensor([1.0, 1.0]), activation="relu", multiply=torch.full((2,), 3.0))
        tensor([[6., 0.]])
        >>> wmma_ops.gemm(a, b, a2=torch.tensor([[10.0]]), b2=torch.tensor([[1.0, 2.0]]))
        tensor([[11., 18.]])
        >>> wmma_ops.gemm(a, b, activation="relu", gate=2 * torch.eye(2), gate_bias=torch.ones(2))
        tensor([[3., -0.]])
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
    if gate is not None or gate_bias is not None:
        tensors |= {"a2": a2, "b2": b2, "gate": gate, "gate_bias": gate_bias}
    return call(
        "gemm",
        tensors,
        alpha=alpha,
        beta=beta,
        a_activation=activations.code("gemm", "a_activation", a_activation),
        activation=activations.code("gemm", "activation", activation),
        out_dtype=out_dtype,
    )


@answering
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
    return call(
        "linear",
        {"x": x, "weight": weight, "bias": bias, "residual": residual},
        activation=activations.code("linear", "activation", activation),
    )


@answering
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
    return call(
        "gemm_gemm",
        {"a": a, "b0": b0, "b1": b1, "c": c, "bias0": bias0, "bias1": bias1, "gate": gate},
        alpha0=alpha0,
        alpha1=alpha1,
        beta1=beta1,
        activation=activations.code("gemm_gemm", "activation", activation),
        out_dtype=out_dtype,
    )


@answering
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
    return call("scaled_mm", tensors, out_dtype=out_dtype)


def _refuse_captured(input: Tensor) -> None:
    """As torch does for its own ops: a change of a tensor from outside the function would be lost, and its gradient too."""
    if is_captured(input):
        raise ValueError(
            "wmma.addmm_: input comes from outside the function that torch.func differentiates; takes one made inside it, "
            "or an argument of the function"
        )
