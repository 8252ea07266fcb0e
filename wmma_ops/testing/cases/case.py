"""A case is a frozen dataclass, and its printed form makes it again."""

import dataclasses
from dataclasses import dataclass


class Case:
    def __repr__(self):
        """The constructor call with what differs from the defaults."""
        parts = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.default is dataclasses.MISSING or value != field.default:
                parts.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, kw_only=True, repr=False)
class GemmCase(Case):
    """One product through `op`: gemm, or one of the ops that are a part of it (matmul, addmm, linear, scaled_mm, …)."""

    op: str = "gemm"
    m: int
    n: int
    k: int
    batch_a: tuple[int, ...] = ()
    batch_b: tuple[int, ...] = ()
    dtype: str = "float32"
    dtype_b: str | None = None
    out_dtype: str | None = None
    a_layout: str = "row"
    b_layout: str = "row"
    c_layout: str = "row"
    c: str | None = None  # full, row, column, scalar
    c_dtype: str | None = None
    alpha: float = 1.0
    beta: float = 1.0
    bias: bool = False
    row_scale: str | None = None  # vector, one, each (a vector for each of the batch); scaled_mm: matrix, matrices too
    col_scale: str | None = None
    a_scale: str | None = None
    a_activation: str | None = None
    activation: str | None = None
    multiply: str | None = None  # full, row
    beside: str | None = None  # the type of bias, scales and multiply; by default float32 (float64)
    special: str | None = None  # nan_a, inf_a, inf_b, nan_c, nan_c_unread, nan_ab_unread, zeros, nan_a2
    gate: bool = False  # gemm, of B's layout; with a bias of its own where there is one
    vector_a: bool = False  # matmul and linear: A is one-dimensional
    vector_b: bool = False
    k2: int | None = None  # gemm: of a second pair of operands
    batch_a2: tuple[int, ...] = ()
    batch_b2: tuple[int, ...] = ()
    a2_layout: str = "row"
    b2_layout: str = "row"
    seed: int = 0


@dataclass(frozen=True, kw_only=True, repr=False)
class GemmGemmCase(Case):
    """(act(alpha0·A·B0 + bias0)·(A·gate))·B1 through `gemm_gemm`."""

    op: str = "gemm_gemm"
    m: int
    k: int
    h: int
    n: int
    batch: tuple[int, ...] = ()
    dtype: str = "float32"
    out_dtype: str | None = None
    layout: str = "row"
    c: str | None = None
    alpha0: float = 1.0
    alpha1: float = 1.0
    beta1: float = 1.0
    bias0: bool = False
    bias1: bool = False
    activation: str | None = None
    gate: bool = False
    special: str | None = None
    seed: int = 0


@dataclass(frozen=True, kw_only=True, repr=False)
class AttentionCase(Case):
    op: str = "attention"
    batch: int = 1
    heads: int = 2
    kv_heads: int | None = None
    sq: int
    skv: int
    e: int = 16
    ev: int | None = None
    dtype: str = "float32"
    layout: str = "bhsd"  # bshd, strided, offset, column
    # bool, float, row, blind (rows with no key), all_blind, padding (by key and batch), plane (by query and key),
    # infinite (both infinities), least (the type's least number, over whole rows and beside others), far (float32, −1e9
    # and its least number, likewise)
    mask: str | None = None
    causal: str | None = None  # top_left, bottom_right
    scale: float | None = None
    window: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    sinks: str | None = None  # heads, each (by batch and head), own (in q's type); slopes likewise
    slopes: str | None = None
    dropout: float = 0.0
    special: str | None = None  # nan_q, inf_k, nan_sink, inf_sink, no_sink (of one head −∞)
    scales: str | None = None  # scaled_attention: one, heads, each (by batch and head)
    out_dtype: str | None = None  # likewise
    seed: int = 0


@dataclass(frozen=True, kw_only=True, repr=False)
class VarlenAttentionCase(Case):
    """Sequences one after the other, of these lengths."""

    op: str = "varlen_attention"
    queries: tuple[int, ...]
    keys: tuple[int, ...]
    used: tuple[int, ...] | None = None  # of the keys; the others are NaN
    page_size: int | None = None  # keys lie in pages, in any order, which the numbers beyond the last one are not of
    stored: str | None = None  # the pages' type, if it is not dtype
    descale: str | None = None  # one, heads, each (by sequence and head)
    beyond: int = 0  # tokens of no sequence, likewise
    heads: int = 2
    kv_heads: int | None = None
    e: int = 16
    ev: int | None = None
    dtype: str = "float32"
    layout: str = "thd"  # htd, strided, offset, column, halves (pages of keys and of values in one tensor)
    number: str = "int32"
    scale: float | None = None
    window: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    sinks: str | None = None  # heads, own (in q's type); slopes likewise
    slopes: str | None = None
    dropout: float = 0.0
    score_mod: str | None = None  # of testing/functions.py
    mask_mod: str | None = None
    seed: int = 0
