"""Two products, one of the other's result."""

import itertools

from wmma_ops.testing.cases.case import GemmGemmCase
from wmma_ops.testing.cases.ranges import FLOATS


def gemm_gemm():
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
