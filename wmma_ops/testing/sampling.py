"""A part of the cases in which everything that a kernel can be asked for still occurs: for backends where a case is slow."""

import random
from collections.abc import Iterator
from math import ceil, prod

from wmma_ops.testing.cases import AttentionCase, Case, GemmCase, cases
from wmma_ops.testing.suite import out_type
from wmma_ops.types import name as type_name


def features(case: Case) -> Iterator[tuple]:
    """What occurs in a case, one after the other."""
    yield "op", case.op
    yield "types", case.dtype, getattr(case, "dtype_b", None) or case.dtype, type_name(out_type(case))
    kind = type(case).__name__
    yield kind, "special", case.special
    if isinstance(case, AttentionCase):
        yield from _attention_features(case)
        return
    yield kind, "activation", case.activation
    yield kind, "c", case.c
    yield "empty", *(getattr(case, size) == 0 for size in "mnk")
    if not isinstance(case, GemmCase):
        yield "h", case.h == 0
        yield "layout", case.layout
        yield "batch", case.batch
        yield "gate", case.gate
        yield "factors", "gemm_gemm", case.alpha0, case.alpha1, case.beta1 if case.c else None
        yield "biases", case.bias0, case.bias1
        return
    yield "shape", case.m % 16 == 0, case.n % 16 == 0, case.k % 16 == 0
    yield "long", case.k > 1000, case.dtype
    yield "a_layout", case.a_layout
    yield "b_layout", case.b_layout
    yield "layouts", *(x in ("column", "column_sliced") for x in (case.a_layout, case.b_layout)), case.dtype
    yield "batch", case.batch_a, case.batch_b
    yield "vectors", case.vector_a, case.vector_b
    yield "a_activation", case.a_activation
    for name in ("bias", "row_scale", "col_scale", "a_scale", "multiply", "beside", "c_dtype"):
        yield name, getattr(case, name)
    if case.c:
        yield "c_layout", case.c_layout
        yield "factors", case.alpha, case.beta
        yield "unread", case.beta == 0, case.alpha == 0, case.dtype
    else:
        yield "alpha", case.alpha


def _attention_features(case: AttentionCase) -> Iterator[tuple]:
    yield "attention", "mask", case.mask, case.dtype in ("float32", "float64")
    yield "attention", "causal", case.causal, case.dtype
    yield "attention", "layout", case.layout
    yield "attention", "scale", case.scale
    yield "attention", "e", case.e
    yield "attention", "group", case.heads // (case.kv_heads or case.heads), case.sq < 16
    yield "attention", "empty", *(size == 0 for size in (case.batch, case.sq, case.skv))
    yield "attention", "long", case.skv > 1000, case.dtype
    yield "attention", "blocks", case.sq > 128, case.skv > 128, case.causal


def _work(case: Case) -> int:
    """How many products of 16x16x16 a case is, about; those of wide types take longer on most targets."""

    def blocks(*sizes):
        return prod(ceil(size / 16) for size in sizes)

    if isinstance(case, AttentionCase):
        count = 2 * case.batch * case.heads * blocks(case.sq, case.skv, case.e)
    elif isinstance(case, GemmCase):
        count = prod(case.batch_a or case.batch_b) * blocks(case.m, case.n, case.k)
    else:
        count = prod(case.batch) * (blocks(case.m, case.k, case.h) + blocks(case.m, case.h, case.n))
    return count * (4 if case.dtype in ("float32", "float64") else 1)


def sample(count: int, seed: int | str) -> list[Case]:
    """At least `count` cases by a seeded generator, in which every feature of every case occurs; of those that show the
    same, rather a small one."""
    everything = cases()
    random.Random(seed).shuffle(everything)
    everything.sort(key=lambda case: _work(case).bit_length())
    left = {feature for case in everything for feature in features(case)}
    chosen, others = [], []
    for case in everything:
        found = left.intersection(features(case))
        left -= found
        (chosen if found else others).append(case)
    # What came first may be covered by what came later.
    chosen = _without_the_covered(chosen)
    rest = others + [case for case in everything if case not in set(chosen).union(others)]
    return chosen + rest[: max(count - len(chosen), 0)]


def _without_the_covered(chosen: list[Case]) -> list[Case]:
    times: dict[tuple, int] = {}
    for case in chosen:
        for feature in set(features(case)):
            times[feature] = times.get(feature, 0) + 1
    kept = []
    for case in chosen:
        found = set(features(case))
        if all(times[feature] > 1 for feature in found):
            for feature in found:
                times[feature] -= 1
        else:
            kept.append(case)
    return kept
