"""Products with everything at once, by turns and at random."""

import itertools
import random

from wmma_ops.ops.types import FP8_FNUZ, FP8_OCP, OUTPUTS, name
from wmma_ops.testing.cases.case import GemmCase
from wmma_ops.testing.cases.ranges import ACTIVATIONS, FACTORS, FLOATS, LAYOUTS, float_out


def crossed():
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


def drawn(count: int, seed: int):
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
            out_dtype=float_out(dtype),
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
