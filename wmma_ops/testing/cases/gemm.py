"""Products with all that goes with them: `gemm`, `linear` and `scaled_mm`."""

import itertools

from wmma_ops.ops.types import FP8, name
from wmma_ops.testing.cases.case import GemmCase
from wmma_ops.testing.cases.ranges import ACTIVATIONS, FLOATS, LAYOUTS, float_out, types

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


def gemm():
    for activation, dtype in itertools.product(ACTIVATIONS, (*FLOATS, "int8")):
        yield GemmCase(m=20, n=25, k=30, dtype=dtype, activation=activation, bias=True, out_dtype=float_out(dtype))
    for activation, dtype in itertools.product(ACTIVATIONS, ("float32", "bfloat16", "float16")):
        yield GemmCase(m=20, n=25, k=30, dtype=dtype, a_activation=activation, a_scale="vector")
    scales = (("vector", None), (None, "vector"), ("vector", "vector"), ("one", "one"))
    for (row, col), dtype in itertools.product(scales, (*FLOATS, "int8", "float8_e4m3fn")):
        out = float_out(dtype)
        yield GemmCase(m=20, n=25, k=30, dtype=dtype, row_scale=row, col_scale=col, out_dtype=out)
        yield GemmCase(
            m=9, n=11, k=13, dtype=dtype, row_scale=row, col_scale=col, out_dtype=out, c="full", beta=0.5, bias=True
        )
    each = {"batch_a": (2, 1), "batch_b": (3,), "row_scale": "each", "col_scale": "each"}
    for dtype in ("float32", "bfloat16", "int8"):
        yield GemmCase(m=9, n=11, k=13, dtype=dtype, out_dtype=float_out(dtype), **each)
    everything = _EPILOGUE | {"a_scale": "vector", "a_activation": "relu"}
    for dtype in (*FLOATS, "int8", "float8_e5m2"):
        out = float_out(dtype)
        yield GemmCase(m=21, n=22, k=23, dtype=dtype, out_dtype=out, **everything)
        yield GemmCase(m=21, n=22, k=23, batch_a=(2, 1), batch_b=(3,), dtype=dtype, out_dtype=out, **everything)
        yield GemmCase(m=5, n=6, k=0, dtype=dtype, out_dtype=out, **everything)
        yield GemmCase(m=0, n=6, k=3, dtype=dtype, out_dtype=out, **everything)
    for multiply, dtype in itertools.product(("full", "row"), ("float32", "bfloat16", "float16")):
        for activation in (None, "relu", "silu"):
            yield GemmCase(m=14, n=15, k=16, dtype=dtype, multiply=multiply, activation=activation)
    for activation, dtype in itertools.product((None, "relu", "gelu", "silu"), (*FLOATS, "int8", "float8_e4m3fn")):
        of = {"dtype": dtype, "out_dtype": float_out(dtype), "gate": True}
        yield GemmCase(m=40, n=56, k=48, activation=activation, bias=True, b_layout="column", **of)
        yield GemmCase(m=19, n=70, k=33, activation=activation, **of)
    for b_layout, dtype in itertools.product(LAYOUTS, ("float16", "float32")):
        yield GemmCase(m=66, n=72, k=80, batch_a=(2, 1), batch_b=(3,), dtype=dtype, gate=True, b_layout=b_layout)
    for dtype in FLOATS:
        yield GemmCase(m=9, n=10, k=11, dtype=dtype, gate=True, bias=True, c="full", alpha=-0.5, col_scale="vector")
        yield GemmCase(m=9, n=10, k=0, dtype=dtype, gate=True, bias=True, activation="silu")
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


def second_pair():
    for i, (a, b, out) in enumerate(types()):
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
        out = float_out(dtype)
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


def linear():
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


def scaled_mm():
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
