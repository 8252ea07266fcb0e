"""What the fields of cases range over."""

import itertools

from wmma_ops.ops.types import FP8_FNUZ, FP8_OCP, OUTPUTS, name

# How an operand lies in memory. Whatever is not part of it is NaN (integers: 99).
LAYOUTS = ("row", "column", "sliced", "column_sliced", "strided", "offset", "expanded")
FLOATS = ("float32", "float64", "bfloat16", "float16")
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "leaky_relu")
FACTORS = (0.0, 1.0, -1.0, 0.5)


def types():
    """Every row of the type table, and every mixture of float8 types that meet."""
    for operand, outputs in OUTPUTS.items():
        for out in (None, *outputs):
            yield name(operand), name(operand), None if out is None else name(out)
    for family in (FP8_OCP, FP8_FNUZ):
        for a, b in itertools.permutations(family, 2):
            yield name(a), name(b), None


def float_out(dtype: str) -> str | None:
    return "float32" if dtype == "int8" else None
