"""Products alone, and beside what is added to them."""

import itertools

from wmma_ops.testing.cases.case import GemmCase
from wmma_ops.testing.cases.ranges import FACTORS, FLOATS, LAYOUTS, types

RAGGED = ((1, 1, 1), (16, 16, 16), (17, 31, 33), (64, 48, 80), (5, 130, 7), (1, 65, 129), (127, 1, 63))


def matmul():
    for shape, dtype in itertools.product(RAGGED, FLOATS):
        m, n, k = shape
        yield GemmCase(op="matmul", m=m, n=n, k=k, dtype=dtype)
    for a, b, out in types():
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


def addmm():
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
