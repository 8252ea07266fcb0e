"""Every case of the value contract. A case is a frozen dataclass, and its printed form makes it again."""

import dataclasses
import itertools
import random
from dataclasses import dataclass

from wmma_ops.ops.types import FP8, FP8_FNUZ, FP8_OCP, OUTPUTS, name
from wmma_ops.testing.functions import MASK_MOD, SCORE_MOD

# How an operand lies in memory. Whatever is not part of it is NaN (integers: 99).
LAYOUTS = ("row", "column", "sliced", "column_sliced", "strided", "offset", "expanded")


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
    score_mod: str | None = None  # of functions.py
    mask_mod: str | None = None
    seed: int = 0


FLOATS = ("float32", "float64", "bfloat16", "float16")
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "leaky_relu")
FACTORS = (0.0, 1.0, -1.0, 0.5)
MASKS = ("bool", "float", "row", "blind", "all_blind", "padding", "plane", "infinite", "least", "far")
RAGGED = ((1, 1, 1), (16, 16, 16), (17, 31, 33), (64, 48, 80), (5, 130, 7), (1, 65, 129), (127, 1, 63))


def _types():
    """Every row of the type table, and every mixture of float8 types that meet."""
    for operand, outputs in OUTPUTS.items():
        for out in (None, *outputs):
            yield name(operand), name(operand), None if out is None else name(out)
    for family in (FP8_OCP, FP8_FNUZ):
        for a, b in itertools.permutations(family, 2):
            yield name(a), name(b), None


def _matmul():
    for shape, dtype in itertools.product(RAGGED, FLOATS):
        m, n, k = shape
        yield GemmCase(op="matmul", m=m, n=n, k=k, dtype=dtype)
    for a, b, out in _types():
        for op in ("matmul", "gemm"):
            yield GemmCase(op=op, m=19, n=24, k=37, dtype=a, dtype_b=b, out_dtype=out)
        if a == "int8":  # sums on both sides of what int8 holds
            yield GemmCase(op="matmul", m=19, n=24, k=3, dtype=a, out_dtype=out)
    for a, b in itertools.product(LAYOUTS, LAYOUTS):
        for dtype in ("float32", "bfloat16"):
            yield GemmCase(op="matmul", m=18, n=21, k=35, dtype=dtype, a_layout=a, b_layout=b)
    for dtype in ("float16", "int8", "float64", "float8_e4m3fn"):
        for a in LAYOUTS:
            yield GemmCase(op="matmul", m=18, n=21, k=35, dtype=dtype, a_layout=a, b_layout="column")
    batches = [
        ((3,), ()),
        ((), (3,)),
        ((3,), (3,)),
        ((2, 1), (3,)),
        ((1,), (4,)),
        ((2, 3), (2, 3)),
        ((2, 1, 2), (3, 1)),
    ]
    for (batch_a, batch_b), dtype in itertools.product(batches, ("float32", "bfloat16", "float16", "int8")):
        yield GemmCase(op="matmul", m=9, n=12, k=20, batch_a=batch_a, batch_b=batch_b, dtype=dtype)
    for batch_a, batch_b in batches:
        yield GemmCase(
            op="matmul", m=9, n=12, k=20, batch_a=batch_a, batch_b=batch_b, a_layout="sliced", b_layout="column"
        )
        yield GemmCase(op="matmul", m=9, n=12, k=20, batch_a=batch_a, batch_b=batch_b, a_layout="expanded")
    for vectors in ((True, False), (False, True), (True, True)):
        for batch in ((), (3,)):
            yield GemmCase(
                op="matmul",
                m=1 if vectors[0] else 7,
                n=1 if vectors[1] else 5,
                k=20,
                batch_a=() if vectors[0] else batch,
                batch_b=() if vectors[1] else batch,
                vector_a=vectors[0],
                vector_b=vectors[1],
            )
    for m, n, k in ((0, 4, 5), (4, 0, 5), (4, 5, 0), (0, 0, 0), (0, 4, 0), (1, 1, 0)):
        for dtype in ("float32", "bfloat16", "float16", "int8", "float8_e5m2"):
            yield GemmCase(op="matmul", m=m, n=n, k=k, dtype=dtype)
        yield GemmCase(op="matmul", m=m, n=n, k=k, batch_a=(3,), batch_b=(3,))
    yield GemmCase(op="matmul", m=4, n=5, k=6, batch_a=(0,), batch_b=(0,))
    yield GemmCase(op="matmul", m=4, n=5, k=6, batch_a=(0, 3), batch_b=(1, 3), dtype="bfloat16")
    for special, dtype in itertools.product(("nan_a", "inf_a", "inf_b", "zeros"), FLOATS):
        yield GemmCase(op="matmul", m=17, n=16, k=33, dtype=dtype, special=special)
    # More than one of the larger tiles; and sizes of which one alone is ragged.
    for dtype in (*FLOATS, "int8", "float8_e4m3fn"):
        yield GemmCase(op="matmul", m=144, n=200, k=136, dtype=dtype)
        yield GemmCase(op="matmul", m=265, n=150, k=70, dtype=dtype, a_layout="column", b_layout="column")
        for m, n, k in ((32, 48, 37), (32, 41, 64), (27, 48, 64)):
            yield GemmCase(op="matmul", m=m, n=n, k=k, dtype=dtype)
    # Long sums: where an accumulator narrower than float32 shows.
    for dtype in ("bfloat16", "float16", "float32", "float8_e4m3fn", "int8"):
        yield GemmCase(op="matmul", m=3, n=4, k=4099, dtype=dtype)


def _addmm():
    for alpha, beta, dtype in itertools.product(FACTORS, FACTORS, FLOATS):
        yield GemmCase(op="addmm", m=13, n=17, k=19, dtype=dtype, c="full", alpha=alpha, beta=beta)
    for alpha, beta in itertools.product(FACTORS, FACTORS):
        yield GemmCase(op="addmm", m=13, n=17, k=19, dtype="int8", c="full", c_dtype="int32", alpha=alpha, beta=beta)
        yield GemmCase(op="baddbmm", m=5, n=9, k=12, batch_a=(3,), batch_b=(3,), c="full", alpha=alpha, beta=beta)
        yield GemmCase(op="addmm_", m=13, n=17, k=19, c="full", c_layout="sliced", alpha=alpha, beta=beta)
    for c, dtype in itertools.product(("row", "column", "scalar"), FLOATS):
        yield GemmCase(op="addmm", m=13, n=17, k=19, dtype=dtype, c=c, alpha=0.5, beta=-1.0)
        yield GemmCase(op="baddbmm", m=13, n=17, k=19, batch_a=(2,), batch_b=(2,), dtype=dtype, c=c, beta=0.5)
    for layout in LAYOUTS:
        yield GemmCase(op="addmm", m=13, n=17, k=19, c="full", c_layout=layout, beta=0.5)
        if layout != "expanded":  # refused in place
            for dtype in ("float32", "bfloat16", "float16"):
                yield GemmCase(op="addmm_", m=13, n=17, k=19, dtype=dtype, c="full", c_layout=layout, beta=0.5)
    for c_dtype, out in itertools.product(("float16", "bfloat16", "float32"), ("bfloat16", "float32")):
        yield GemmCase(
            op="addmm", m=13, n=17, k=19, dtype="bfloat16", c="full", c_dtype=c_dtype, out_dtype=out, alpha=0.5
        )
    for dtype, alpha in itertools.product(FLOATS, (1.0, 0.5, 0.0)):
        for op in ("addmm", "addmm_", "gemm"):
            yield GemmCase(
                op=op, m=13, n=17, k=19, dtype=dtype, c="full", alpha=alpha, beta=0.0, special="nan_c_unread"
            )
            yield GemmCase(op=op, m=13, n=17, k=19, dtype=dtype, c="full", alpha=alpha, beta=0.5, special="nan_c")
        yield GemmCase(op="addmm", m=13, n=17, k=19, dtype=dtype, c="full", alpha=0.0, special="nan_ab_unread")
    for m, n, k in ((0, 4, 5), (4, 0, 5), (4, 5, 0), (4, 5, 1)):
        for op, beta in itertools.product(("addmm", "addmm_"), (0.0, 1.0, -0.5)):
            yield GemmCase(op=op, m=m, n=n, k=k, c="full", beta=beta)
        yield GemmCase(op="baddbmm", m=m, n=n, k=k, batch_a=(2,), batch_b=(2,), c="full", beta=0.5, dtype="bfloat16")
    yield GemmCase(op="addmm_", m=13, n=17, k=19, dtype="int8", c="full", c_dtype="int8", c_layout="column")
    yield GemmCase(op="addmm_", m=13, n=17, k=19, dtype="bfloat16", c="full", c_dtype="float32", alpha=-1.0)


_EPILOGUE = {  # all of it
    "c": "full",
    "alpha": -0.5,
    "beta": 2.0,
    "bias": True,
    "row_scale": "vector",
    "col_scale": "vector",
    "activation": "gelu",
    "multiply": "full",
}


def _gemm():
    for activation, dtype in itertools.product(ACTIVATIONS, (*FLOATS, "int8")):
        yield GemmCase(m=20, n=25, k=30, dtype=dtype, activation=activation, bias=True, out_dtype=_float_out(dtype))
    for activation, dtype in itertools.product(ACTIVATIONS, ("float32", "bfloat16", "float16")):
        yield GemmCase(m=20, n=25, k=30, dtype=dtype, a_activation=activation, a_scale="vector")
    scales = (("vector", None), (None, "vector"), ("vector", "vector"), ("one", "one"))
    for (row, col), dtype in itertools.product(scales, (*FLOATS, "int8", "float8_e4m3fn")):
        out = _float_out(dtype)
        yield GemmCase(m=20, n=25, k=30, dtype=dtype, row_scale=row, col_scale=col, out_dtype=out)
        yield GemmCase(
            m=9, n=11, k=13, dtype=dtype, row_scale=row, col_scale=col, out_dtype=out, c="full", beta=0.5, bias=True
        )
    each = {"batch_a": (2, 1), "batch_b": (3,), "row_scale": "each", "col_scale": "each"}
    for dtype in ("float32", "bfloat16", "int8"):
        yield GemmCase(m=9, n=11, k=13, dtype=dtype, out_dtype=_float_out(dtype), **each)
    everything = _EPILOGUE | {"a_scale": "vector", "a_activation": "relu"}
    for dtype in (*FLOATS, "int8", "float8_e5m2"):
        out = _float_out(dtype)
        yield GemmCase(m=21, n=22, k=23, dtype=dtype, out_dtype=out, **everything)
        yield GemmCase(m=21, n=22, k=23, batch_a=(2, 1), batch_b=(3,), dtype=dtype, out_dtype=out, **everything)
        yield GemmCase(m=5, n=6, k=0, dtype=dtype, out_dtype=out, **everything)
        yield GemmCase(m=0, n=6, k=3, dtype=dtype, out_dtype=out, **everything)
    for multiply, dtype in itertools.product(("full", "row"), ("float32", "bfloat16", "float16")):
        for activation in (None, "relu", "silu"):
            yield GemmCase(m=14, n=15, k=16, dtype=dtype, multiply=multiply, activation=activation)
    for beside in ("float16", "bfloat16", "float32"):
        yield GemmCase(m=14, n=15, k=16, dtype="bfloat16", beside=beside, bias=True, multiply="row", row_scale="vector")
    for out in ("int8", "int32"):
        for alpha in (1.0, 0.5, 0.013, -1.0):
            yield GemmCase(m=14, n=15, k=16, dtype="int8", out_dtype=out, alpha=alpha, bias=True)
            yield GemmCase(m=14, n=15, k=200, dtype="int8", out_dtype=out, alpha=alpha, c="full", c_dtype="int32")
        yield GemmCase(m=14, n=15, k=40, dtype="int8", out_dtype=out, activation="relu", row_scale="vector")
    for special in ("nan_a", "inf_a", "nan_c"):
        yield GemmCase(m=14, n=15, k=16, c="full", special=special, activation="relu", dtype="bfloat16")
    for a, b, c in itertools.product(("row", "column"), repeat=3):
        for dtype in ("float32", "float16"):
            yield GemmCase(m=33, n=34, k=35, dtype=dtype, a_layout=a, b_layout=b, c_layout=c, c="full", beta=0.5)


def _second_pair():
    for i, (a, b, out) in enumerate(_types()):
        yield GemmCase(
            m=19,
            n=24,
            k=(37, 32)[i // 3 % 2],
            k2=(8, 13)[i // 3 % 2],
            dtype=a,
            dtype_b=b,
            out_dtype=out,
            a_scale="vector" if i % 3 == 2 and a != "int8" else None,
            a2_layout=("row", "column")[i % 2],
            b2_layout=("row", "column")[i // 2 % 2],
            batch_a2=((), (3,))[i // 4 % 2],
            batch_b2=((), (3,))[i // 8 % 2],
        )
    for dtype in (*FLOATS, "int8", "float8_e4m3fn"):
        out = _float_out(dtype)
        # Lengths of one and of many tiles, even and odd; whole and ragged ones.
        for k, k2 in ((16, 16), (33, 1), (1, 129), (80, 64), (7, 300)):
            yield GemmCase(m=17, n=31, k=k, k2=k2, dtype=dtype, out_dtype=out, bias=True)
        yield GemmCase(m=21, n=22, k=23, k2=12, dtype=dtype, out_dtype=out, **_EPILOGUE)
        yield GemmCase(m=21, n=22, k=23, k2=12, dtype=dtype, out_dtype=out, a_scale="vector", a_activation="relu")
        for k, k2 in ((0, 5), (5, 0), (0, 0)):  # a prologue only of what is there
            before = {"a_scale": "vector", "a_activation": "relu"}
            yield GemmCase(m=5, n=6, k=k, k2=k2, dtype=dtype, out_dtype=out, **before, **_EPILOGUE)
        for k, k2 in ((4099, 70), (70, 4099), (2050, 2070)):  # where they are split
            yield GemmCase(m=3, n=4, k=k, k2=k2, dtype=dtype, out_dtype=out)
        yield GemmCase(m=144, n=200, k=136, k2=72, dtype=dtype, out_dtype=out, b_layout="column", b2_layout="column")
    for layouts in itertools.product(("row", "column"), repeat=4):
        a, b, a2, b2 = layouts
        for dtype in ("float32", "float16"):
            yield GemmCase(
                m=33, n=34, k=35, k2=21, dtype=dtype, a_layout=a, b_layout=b, a2_layout=a2, b2_layout=b2, c_layout=b2
            )
    for layout in LAYOUTS:
        yield GemmCase(m=18, n=21, k=35, k2=20, dtype="bfloat16", a2_layout=layout, b2_layout=layout)
    batches = (
        ((3,), (), (), ()),
        ((), (), (3,), ()),
        ((), (), (), (3,)),
        ((3,), (3,), (3,), (3,)),
        ((2, 1), (3,), (), (2, 3)),
        ((1,), (), (2, 3), (1, 1)),
    )
    for batch_a, batch_b, batch_a2, batch_b2 in batches:
        for dtype in ("float32", "bfloat16", "int8"):
            yield GemmCase(
                m=9,
                n=12,
                k=20,
                k2=5,
                dtype=dtype,
                batch_a=batch_a,
                batch_b=batch_b,
                batch_a2=batch_a2,
                batch_b2=batch_b2,
            )
    for dtype, special in itertools.product(FLOATS, ("nan_a", "nan_a2", "inf_b")):
        yield GemmCase(m=17, n=16, k=33, k2=18, dtype=dtype, special=special)
    for dtype in FLOATS:
        yield GemmCase(m=13, n=17, k=19, k2=6, dtype=dtype, c="full", alpha=0.0, special="nan_ab_unread")
    yield GemmCase(m=0, n=6, k=3, k2=2)
    yield GemmCase(m=5, n=6, k=3, k2=2, batch_a2=(0,))


def _linear():
    for activation, dtype in itertools.product((None, *ACTIVATIONS), ("float32", "bfloat16", "float16")):
        yield GemmCase(op="linear", m=11, n=18, k=32, batch_a=(2,), dtype=dtype, bias=True, activation=activation)
    for dtype in FLOATS:
        yield GemmCase(op="linear", m=11, n=18, k=32, dtype=dtype)
        yield GemmCase(op="linear", m=11, n=18, k=32, dtype=dtype, c="full", bias=True, activation="relu")
        yield GemmCase(op="linear", m=1, n=18, k=32, dtype=dtype, bias=True, vector_a=True)
        yield GemmCase(op="linear", m=11, n=18, k=32, dtype=dtype, bias=True, a_layout="sliced", b_layout="sliced")
        yield GemmCase(op="linear", m=11, n=18, k=32, dtype=dtype, bias=True, beside=dtype, activation="gelu")
        yield GemmCase(op="linear", m=11, n=18, k=0, dtype=dtype, bias=True, beside=dtype, activation="gelu")
        yield GemmCase(op="linear", m=0, n=18, k=4, batch_a=(3,), dtype=dtype, bias=True)


def _scaled_mm():
    for dtype in ("int8", *map(name, FP8)):
        for row, col in (("one", "one"), ("vector", "vector"), ("vector", "one"), ("one", "vector")):
            for out in ("bfloat16", "float16", "float32"):
                yield GemmCase(
                    op="scaled_mm", m=17, n=23, k=40, dtype=dtype, row_scale=row, col_scale=col, out_dtype=out
                )
        yield GemmCase(op="scaled_mm", m=17, n=23, k=40, dtype=dtype, row_scale="vector", col_scale="one", bias=True)
        yield GemmCase(
            op="scaled_mm",
            m=7,
            n=5,
            k=40,
            batch_a=(2,),
            dtype=dtype,
            row_scale="one",
            col_scale="vector",
            b_layout="column",
        )
        # As many rows as products, and one row: where one form looks like another.
        many = {"batch_a": (3,), "batch_b": (3,), "dtype": dtype, "out_dtype": "float32"}
        for m, n, row, col in ((3, 3, "matrix", "matrix"), (1, 5, "each", "each"), (3, 5, "matrices", "matrices")):
            yield GemmCase(op="scaled_mm", m=m, n=n, k=40, row_scale=row, col_scale=col, **many)
        yield GemmCase(op="scaled_mm", m=3, n=5, k=40, row_scale="matrix", col_scale="vector", **many | {"batch_b": ()})


def _gemm_gemm():
    shapes = ((16, 16, 16, 16), (17, 5, 33, 9), (64, 32, 16, 48), (1, 40, 3, 7))
    for (m, k, h, n), dtype in itertools.product(shapes, (*FLOATS, "int8")):
        # int8: a factor that brings D0 into int8's range
        alpha0 = 0.01 if dtype == "int8" else 1.0
        yield GemmGemmCase(m=m, k=k, h=h, n=n, dtype=dtype, activation="relu", alpha0=alpha0)
        yield GemmGemmCase(
            m=m,
            k=k,
            h=h,
            n=n,
            dtype=dtype,
            alpha0=0.5 * alpha0,
            alpha1=-1.0,
            beta1=0.5,
            c="full",
            bias0=True,
            bias1=True,
            activation="silu",
        )
    for dtype in FLOATS:
        yield GemmGemmCase(m=18, k=20, h=22, n=24, dtype=dtype, gate=True, activation="silu")
        yield GemmGemmCase(m=18, k=20, h=22, n=24, dtype=dtype, gate=True, batch=(2,), bias0=True, layout="column")
        yield GemmGemmCase(m=18, k=20, h=22, n=24, dtype=dtype, c="row", beta1=0.0, special="nan_c_unread")
        yield GemmGemmCase(m=18, k=0, h=22, n=24, dtype=dtype, c="full", bias1=True, activation="gelu")
        yield GemmGemmCase(m=18, k=20, h=0, n=24, dtype=dtype, c="full", bias1=True, beta1=-1.0)
        yield GemmGemmCase(m=0, k=20, h=3, n=24, dtype=dtype)
        yield GemmGemmCase(m=9, k=10, h=11, n=12, dtype=dtype, batch=(2, 3), layout="sliced", activation="relu")
        yield GemmGemmCase(m=9, k=10, h=11, n=12, dtype=dtype, special="nan_a", activation="relu")
    for dtype in ("float16", "bfloat16"):
        yield GemmGemmCase(m=18, k=20, h=22, n=24, dtype=dtype, out_dtype="float32", activation="gelu_tanh")
        # Whole chunks of memory, and edges inside tiles.
        yield GemmGemmCase(m=70, k=72, h=40, n=88, dtype=dtype, activation="relu", bias0=True, bias1=True)
        yield GemmGemmCase(m=40, k=72, h=72, n=24, dtype=dtype, batch=(2,), gate=True, activation="silu")
        yield GemmGemmCase(m=72, k=16, h=136, n=8, dtype=dtype, c="full", beta1=0.5, layout="column")
    yield GemmGemmCase(m=18, k=20, h=22, n=24, dtype="int8", out_dtype="int8", alpha0=0.02, alpha1=0.01)


def _attention():
    for sq, skv, e in ((1, 1, 1), (16, 16, 16), (5, 33, 40), (33, 5, 72), (1, 130, 64), (20, 20, 17)):
        for dtype in FLOATS:
            yield AttentionCase(sq=sq, skv=skv, e=e, dtype=dtype)
            for causal in ("top_left", "bottom_right"):
                yield AttentionCase(sq=sq, skv=skv, e=e, dtype=dtype, causal=causal)
    for mask, dtype in itertools.product(MASKS, FLOATS):
        yield AttentionCase(batch=2, sq=9, skv=12, dtype=dtype, mask=mask)
        yield AttentionCase(batch=2, heads=6, kv_heads=2, sq=9, skv=12, dtype=dtype, mask=mask)
    for layout, dtype in itertools.product(("bshd", "strided", "offset"), FLOATS):
        yield AttentionCase(batch=2, heads=4, kv_heads=2, sq=7, skv=10, e=24, ev=32, dtype=dtype, layout=layout)
    for scale in (0.0, -0.5, 2.0):
        yield AttentionCase(sq=8, skv=9, scale=scale)
    for dtype in FLOATS:
        yield AttentionCase(sq=4, skv=0, dtype=dtype)
        yield AttentionCase(sq=0, skv=4, dtype=dtype)
        yield AttentionCase(batch=0, sq=3, skv=4, dtype=dtype)
        yield AttentionCase(heads=8, kv_heads=1, sq=3, skv=70, e=32, ev=5, dtype=dtype, causal="bottom_right")
        yield AttentionCase(sq=6, skv=7, dtype=dtype, special="nan_q")
        yield AttentionCase(sq=6, skv=7, dtype=dtype, special="inf_k")
    yield AttentionCase(heads=1, sq=300, skv=4100, e=8)  # more than one block of rows
    # Head sizes that fill no tile, and those that take several.
    for e, dtype in itertools.product((40, 72, 80, 96, 112, 128, 192, 256, 512), ("float16", "bfloat16")):
        yield AttentionCase(heads=1, sq=19, skv=67, e=e, dtype=dtype, causal="bottom_right")
    for e, ev in ((80, 24), (16, 160), (300, 7), (129, 257), (512, 512)):
        for dtype in FLOATS:
            yield AttentionCase(heads=1, sq=9, skv=21, e=e, ev=ev, dtype=dtype)
    # Lengths with ragged ends: whole tiles between those that are masked, and keys that are split.
    for dtype, causal in itertools.product(("float16", "bfloat16"), (None, "top_left", "bottom_right")):
        yield AttentionCase(heads=1, sq=140, skv=140, dtype=dtype, causal=causal)
        yield AttentionCase(heads=1, sq=150, skv=333, e=64, dtype=dtype, causal=causal)
        yield AttentionCase(heads=8, kv_heads=2, sq=3, skv=1100, e=64, dtype=dtype, causal=causal)
    for dtype in FLOATS:
        yield AttentionCase(heads=4, kv_heads=1, sq=2, skv=1100, e=8, dtype=dtype, causal="bottom_right")
    # Scores that grow by much from tile to tile.
    for dtype in ("float16", "bfloat16"):
        yield AttentionCase(heads=1, sq=150, skv=333, e=64, dtype=dtype, scale=2.0)
    yield AttentionCase(batch=2, heads=1, sq=40, skv=200, e=32, dtype="float16", mask="padding")
    yield AttentionCase(heads=1, sq=2, skv=1500, e=16, dtype="float64", mask="blind")
    # Rows that the least number hides whole, over more than a tile of keys, and where these are split.
    for dtype in ("float16", "bfloat16", "float32"):
        yield AttentionCase(heads=1, sq=150, skv=333, e=64, dtype=dtype, mask="far")
        yield AttentionCase(batch=2, heads=1, sq=2, skv=1100, e=16, dtype=dtype, mask="least")
    # Memory that runs along the sequence.
    for dtype in FLOATS:
        yield AttentionCase(heads=3, sq=24, skv=40, e=16, ev=24, dtype=dtype, layout="column")


WINDOWS = ((-1, 0), (0, 0), (3, -1), (-1, 5), (7, 2), (40, -1), (100, 30))
OF_HEADS = ("heads", "each", "own")


def _rules():
    """Windows, soft caps, sinks and slopes."""
    lengths = ((9, 12), (33, 20), (5, 70), (140, 150))  # of more queries than keys, some see none
    sizes = (16, 40, 64, 17, 8)
    for i, (window, causal) in enumerate(itertools.product(WINDOWS, (None, "top_left", "bottom_right"))):
        for j, (sq, skv) in enumerate(lengths):
            yield AttentionCase(
                heads=(2, 4)[i % 2],
                kv_heads=(1, None)[(i + j) % 2],
                sq=sq,
                skv=skv,
                e=sizes[(i + 2 * j) % 5],
                dtype=FLOATS[(i + j) % 4],
                layout=("bhsd", "bshd", "column")[(i + j) % 3],
                causal=causal,
                window=window,
            )
    for cap, dtype in itertools.product((0.5, 2.0, 50.0, 1e-42), FLOATS):
        yield AttentionCase(sq=9, skv=33, e=24, dtype=dtype, softcap=cap)
        yield AttentionCase(
            heads=4, kv_heads=2, sq=20, skv=33, e=40, dtype=dtype, softcap=cap, window=(7, 2), scale=-0.5
        )
    for i, (kind, dtype) in enumerate(itertools.product(OF_HEADS, FLOATS)):
        window, causal = WINDOWS[i % 7], (None, "top_left", "bottom_right")[i % 3]
        for mask in (None, "blind", "all_blind", "least"):
            masked = {"mask": mask} if mask else {"causal": causal}
            yield AttentionCase(batch=2, sq=33, skv=20, dtype=dtype, sinks=kind, window=window, **masked)
        for causal in (None, "top_left", "bottom_right"):
            yield AttentionCase(batch=2, heads=4, kv_heads=2, sq=12, skv=33, dtype=dtype, slopes=kind, causal=causal)
        yield AttentionCase(batch=2, sq=12, skv=33, dtype=dtype, slopes=kind, mask=("bool", "float", "far")[i % 3])
    for i, dtype in enumerate(FLOATS):
        every = {"softcap": 3.0, "sinks": OF_HEADS[i % 3], "slopes": OF_HEADS[i % 2], "dtype": dtype}
        yield AttentionCase(
            batch=2, heads=4, kv_heads=2, sq=20, skv=33, window=(12, -1), causal="bottom_right", **every
        )
        yield AttentionCase(
            batch=2, heads=4, kv_heads=1, sq=7, skv=70, e=40, ev=24, window=(20, 3), mask="padding", **every
        )
        yield AttentionCase(batch=2, sq=20, skv=9, window=(4, 4), mask="least", scale=0.0, **every)
        for sq, skv in ((4, 0), (0, 4)):
            yield AttentionCase(sq=sq, skv=skv, window=(1, 1), **every)
        for special in ("nan_sink", "inf_sink", "no_sink", "nan_q", "inf_k"):
            yield AttentionCase(sq=6, skv=7, dtype=dtype, sinks="heads", window=(2, 2), special=special)
        # Keys that are split, few of which a window leaves.
        yield AttentionCase(heads=4, kv_heads=1, sq=2, skv=1500, e=16, window=(200, 0), **every)
        yield AttentionCase(heads=2, sq=3, skv=1500, e=16, window=(900, -1), dtype=dtype, sinks="heads")
    yield from _dropped()
    # Whole tiles between those that a window ends in.
    for dtype, window in itertools.product(("float16", "bfloat16"), ((70, 20), (150, -1), (-1, 100), (200, 0))):
        yield AttentionCase(heads=1, sq=300, skv=333, e=64, dtype=dtype, window=window, scale=2.0, sinks="heads")
        yield AttentionCase(heads=2, kv_heads=1, sq=150, skv=333, e=128, dtype=dtype, window=window, softcap=20.0)


def _dropped():
    """Dropout, beside every other rule and in every way through the scores."""
    lengths = ((9, 12), (33, 20), (1, 70), (140, 150))
    beside = ({}, {"causal": "bottom_right"}, {"mask": "blind"}, {"mask": "float", "sinks": "heads"})
    beside = (*beside, {"softcap": 2.0, "slopes": "own", "window": (7, 2)})
    for i, (dtype, (sq, skv), rules) in enumerate(itertools.product(FLOATS, lengths, beside)):
        yield AttentionCase(
            batch=1 + i % 2,
            heads=4,
            kv_heads=(None, 2, 1)[i % 3],
            sq=sq,
            skv=skv,
            e=(16, 40, 64, 17)[i % 4],
            ev=(None, 24)[i % 7 == 0],
            dtype=dtype,
            layout=("bhsd", "bshd", "column")[i % 3],
            dropout=(0.1, 0.5, 0.9)[i % 3],
            **rules,
        )
    for dtype in FLOATS:  # split keys, and nothing at all
        yield AttentionCase(heads=4, kv_heads=1, sq=2, skv=1500, dtype=dtype, dropout=0.3)
        yield AttentionCase(sq=4, skv=0, dtype=dtype, dropout=0.3)


def _packed():
    """Packed sequences, with keys in one piece and in pages: every rule, type and layout with lengths of every kind."""
    lengths = (
        ((5, 9), (12, 3)),
        ((1,), (1,)),
        ((0, 7, 0), (3, 7, 0)),  # some have no query, some no key
        ((1, 3, 1, 2), (40, 150, 5, 70)),
        ((33, 1, 20), (20, 60, 33)),
        ((140, 2), (150, 90)),
    )
    sizes = (16, 40, 64, 17, 8, 128)
    windows = ((-1, -1), (-1, 0), *WINDOWS[2:])
    for i, (window, (queries, keys)) in enumerate(itertools.product(windows, lengths)):
        for paged in (False, True):
            yield VarlenAttentionCase(
                queries=queries,
                keys=keys,
                used=tuple(max(length - 2, 0) for length in keys) if i % 3 == 0 else None,
                page_size=(16, 32, 48, 64)[i % 4] if paged else None,
                beyond=(0, 5)[i % 2],
                heads=(2, 4)[i % 2],
                kv_heads=(None, 1, 2)[i % 3],
                e=sizes[(i + paged) % 6],
                ev=(None, 24)[i % 5 == 0],
                dtype=FLOATS[(i + paged) % 4],
                layout=("thd", "htd", "strided", "offset", "column", "halves" if paged else "thd")[(i + i // 6) % 6],
                number=("int32", "int64")[i % 2],
                window=window,
            )
    functions = (
        {"score_mod": SCORE_MOD},
        {"mask_mod": MASK_MOD, "softcap": 2.0},
        {"score_mod": SCORE_MOD, "mask_mod": MASK_MOD, "sinks": "heads"},
    )
    for i, (dtype, (queries, keys)) in enumerate(itertools.product(FLOATS, lengths[2:])):
        for j, rule in enumerate(
            (
                {"softcap": 2.0},
                {"sinks": "heads"},
                {"slopes": "own"},
                {"softcap": 50.0, "sinks": "own", "slopes": "heads"},
                {"dropout": 0.4, "sinks": "heads"},
                functions[(i + i // 4) % 3],
            )
        ):
            yield VarlenAttentionCase(
                queries=queries,
                keys=keys,
                page_size=(None, 16, None, 64)[(i + j) % 4],
                heads=4,
                kv_heads=(2, None)[j % 2],
                e=sizes[(i + j) % 6],
                dtype=dtype,
                scale=(None, 2.0, -0.5)[(i + j) % 3],
                window=windows[(i + j) % len(windows)],
                **rule,
            )


def _narrow_pages():
    """Packed sequences whose keys lie in pages as numbers of 8 bits."""
    narrow = {"heads": 4, "stored": "float8_e4m3fn"}
    # A token of each, some of each, and prompts.
    one, few, many = ((1, 1, 0), (40, 0, 3)), ((4, 1, 4), (90, 33, 4)), ((20, 33), (20, 150))
    for (queries, keys), options in (
        (one, {"page_size": 16, "kv_heads": 2, "e": 64, "dtype": "bfloat16", "descale": "heads"}),
        (few, {"page_size": 64, "kv_heads": 1, "e": 128, "dtype": "float16", "window": (-1, 0), "descale": "one"}),
        (many, {"page_size": 48, "e": 40, "ev": 24, "dtype": "bfloat16", "window": (17, 3), "descale": "each"}),
        (many, {"page_size": 16, "kv_heads": 2, "e": 17, "dtype": "float16", "layout": "strided", "descale": "heads"}),
        (few, {"page_size": 16, "e": 32, "dtype": "bfloat16", "layout": "column", "softcap": 2.0, "descale": "heads"}),
        (few, {"page_size": 32, "e": 64, "dtype": "float16", "layout": "halves", "sinks": "own", "slopes": "own"}),
        (many, {"page_size": 16, "kv_heads": 2, "e": 300, "dtype": "float16", "scale": -0.1, "descale": "each"}),
    ):
        yield VarlenAttentionCase(queries=queries, keys=keys, **narrow | options)


def _random(count: int, seed: int):
    """Ragged everything, by a seeded generator."""
    rng = random.Random(seed)
    for index in range(count):
        dtype = rng.choice((*FLOATS, "int8", "float8_e4m3fn", "float8_e5m2fnuz"))
        batch = tuple(rng.choice((1, 2, 3)) for _ in range(rng.choice((0, 0, 1, 2))))
        yield GemmCase(
            m=rng.randint(1, 70),
            n=rng.randint(1, 70),
            k=rng.randint(1, 150),
            batch_a=batch,
            batch_b=rng.choice(((), batch)),
            dtype=dtype,
            out_dtype=_float_out(dtype),
            a_layout=rng.choice(LAYOUTS),
            b_layout=rng.choice(LAYOUTS),
            c_layout=rng.choice(LAYOUTS),
            c=rng.choice((None, "full", "row", "column", "scalar")),
            alpha=rng.choice((1.0, 0.25, -1.5)),
            beta=rng.choice(FACTORS),
            bias=rng.random() < 0.5,
            row_scale=rng.choice((None, None, "vector", "one")),
            col_scale=rng.choice((None, None, "vector", "one")),
            a_scale=rng.choice((None, None, "vector", "one")),
            a_activation=rng.choice((None, None, *ACTIVATIONS)),
            activation=rng.choice((None, None, *ACTIVATIONS)),
            multiply=rng.choice((None, None, "full", "row")),
            seed=index,
        )


def _crossed():
    """Every operand type in every order of A and B, and beside it, by turns, as much as one call takes: so that a few
    products meet what single ones show of everything else."""
    along, across = ("row", "sliced", "strided", "offset", "expanded"), ("column", "column_sliced")
    orders = ((along, along), (along, across), (across, along), (across, across))
    batches = [((), ()), ((3,), (3,)), ((), (3,)), ((1,), (3,)), ((1,), ()), ((3, 1), (3,)), ((2, 1, 2), (3, 1))]
    batches += [((1, 3), ()), ((3,), ()), ((1, 3), (1, 3)), ((3, 1), ()), ((2, 3), (2, 3)), ((1, 1), (1, 1))]
    batches += [((1,), (1,)), ((3, 1), (3, 1))]
    other = {name(a): name(b) for family in (FP8_OCP, FP8_FNUZ) for a, b in itertools.permutations(family, 2)}
    beside = ("float32", "bfloat16", "float16", None)
    for row, (operand, outs) in enumerate(OUTPUTS.items()):
        dtype = name(operand)
        for turn, (a, b) in enumerate(orders):
            i = 4 * row + turn
            batch_a, batch_b = batches[i % len(batches)]
            wide, narrow = dtype == "float64", dtype in other
            before, after = (None, *ACTIVATIONS)[(3 * i + row) % 8], (*ACTIVATIONS, None)[i % 8]
            yield GemmCase(
                m=(17, 16, 9, 32)[i // 2 % 4],
                n=(24, 21, 16)[i % 3],
                k=(35, 20, 32)[i // 3 % 3],
                batch_a=batch_a,
                batch_b=batch_b,
                dtype=dtype,
                dtype_b=other.get(dtype) if turn == 3 else None,
                out_dtype=name(outs[turn % len(outs)]),
                a_layout=a[i // 2 % len(a)],
                b_layout=b[i // 3 % len(b)],
                c_layout=LAYOUTS[i % len(LAYOUTS)],
                c=None if turn == 1 and row % 2 else ("full", "full", "row", "full", "column", "full", "scalar")[i % 7],
                c_dtype=None if wide else beside[i % 4],
                alpha=(0.5, 1.0, -1.0, 0.25)[(turn + row // 2) % 4],
                beta=(1.0, 0.5, 0.0, -1.0)[turn],
                bias=i % 3 != 1,
                row_scale=("vector", None, "one")[i % 3],
                col_scale=(None, "one", "vector", "vector")[(i + row) % 4],
                # Kernels that convert all of a float8 A, or finish in long expressions, take long to compile.
                a_scale=None if narrow else ("vector", "one", None, None)[i // 2 % 4],
                a_activation=None if narrow else before,
                activation=None if narrow else after,
                multiply=("full", "row", None)[(i + row) % 3],
                beside=dtype if wide else beside[(i + row) % 4],
                special=None if dtype == "int8" else (None, None, "nan_a", None, "inf_b", None, "inf_a", None)[i % 8],
            )


def _crossed_attention():
    """Every mask in wide and in narrow types, each with another head size, layout and group."""
    sizes = (129, 17, 300, 40, 112, 24, 72, 96, 80, 32, 8, 1)
    layouts = ("bshd", "strided", "offset", "column", "bhsd")
    for i, mask in enumerate((*MASKS, None)):
        for j, dtype in enumerate((("float16", "float32"), ("bfloat16", "float64"))[i % 2]):
            yield AttentionCase(
                batch=2,
                heads=(3, 4, 8)[i % 3],
                kv_heads=(1, 2)[i % 3 == 1],
                sq=(9, 20)[(i + j) % 2],
                skv=(40, 17)[i // 2 % 2],
                e=sizes[(2 * i + j) % len(sizes)],
                dtype=dtype,
                mask=mask,
                scale=(None, 2.0, -0.5, 0.0)[(i + j) % 4],
                layout=layouts[(i + j) % len(layouts)],
            )


def _float_out(dtype: str) -> str | None:
    return "float32" if dtype == "int8" else None


_GROUPS = {
    "matmul": _matmul,
    "addmm": _addmm,
    "gemm": _gemm,
    "second pair": _second_pair,
    "linear": _linear,
    "scaled_mm": _scaled_mm,
    "gemm_gemm": _gemm_gemm,
    "attention": _attention,
    "rules": _rules,
    "packed": _packed,
    "narrow pages": _narrow_pages,
    "crossed": lambda: (*_crossed(), *_crossed_attention()),
    "random": lambda: _random(100, seed=2026),
}


def groups() -> list[str]:
    return list(_GROUPS)


def cases(group: str | None = None) -> list[Case]:
    """The cases of one group (see `groups`), or all; each once."""
    chosen = _GROUPS.values() if group is None else (_GROUPS[group],)
    return list(dict.fromkeys(itertools.chain.from_iterable(make() for make in chosen)))
