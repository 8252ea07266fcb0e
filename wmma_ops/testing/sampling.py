"""A part of the cases in which everything that a kernel can be asked for still occurs: for backends where a case is slow."""

import functools
import heapq
import random
from collections.abc import Iterator
from math import ceil, prod

from wmma_ops.hardware.arch import EMULATED
from wmma_ops.ops.types import name as type_name
from wmma_ops.testing.cases import cases
from wmma_ops.testing.cases.case import AttentionCase, Case, GemmCase, VarlenAttentionCase
from wmma_ops.testing.cases.ranges import FACTORS
from wmma_ops.testing.results import out_type


def features(case: Case) -> Iterator[tuple]:
    """What occurs in a case, one after the other."""
    yield "op", case.op
    yield "types", case.dtype, getattr(case, "dtype_b", None) or case.dtype, type_name(out_type(case))
    if isinstance(case, VarlenAttentionCase):
        yield from _varlen_features(case)
        return
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
    yield "batch", _many(case.batch_a), _many(case.batch_b)
    yield "vectors", case.vector_a, case.vector_b
    yield "a_activation", case.a_activation
    for name in ("bias", "row_scale", "col_scale", "a_scale", "multiply", "beside", "c_dtype", "gate"):
        yield name, getattr(case, name)
    if case.k2 is not None:
        across = ("column", "column_sliced")
        yield "pair", "type", case.dtype
        yield "pair", "layouts", case.a2_layout in across, case.b2_layout in across
        yield "pair", "batch", prod(case.batch_a2) > 1, prod(case.batch_b2) > 1
        yield "pair", "empty", "k" if case.k == 0 else "k2" if case.k2 == 0 else None
        yield "pair", "long", case.k > 1000, case.k2 > 1000
        yield "pair", "prologue", case.a_scale, case.special == "nan_ab_unread"
    if case.c:
        yield "c_layout", case.c_layout
        yield "factors", _factor(case.alpha), _factor(case.beta)
        yield "unread", case.beta == 0, case.alpha == 0, case.dtype
    else:
        yield "alpha", _factor(case.alpha)


def _many(batch: tuple[int, ...]) -> tuple[int, ...]:
    """3 for every size beyond 1."""
    return tuple(size if size < 2 else 3 for size in batch)


def _factor(x: float) -> float | None:
    """None for one that is like any other."""
    return x if x in FACTORS else None


def _attention_features(case: AttentionCase) -> Iterator[tuple]:
    yield "attention", "type", case.dtype
    yield "attention", "mask", case.mask, case.dtype in ("float32", "float64")
    yield "attention", "causal", case.causal, case.dtype
    yield "attention", "layout", case.layout
    yield "attention", "scale", case.scale
    yield "attention", "e", case.e
    yield "attention", "group", case.heads // (case.kv_heads or case.heads), case.sq < 16
    yield "attention", "empty", *(size == 0 for size in (case.batch, case.sq, case.skv))
    yield "attention", "long", case.skv > 1000, case.dtype
    yield "attention", "blocks", case.sq > 128, case.skv > 128, case.causal
    yield "attention", "window", *(size >= 0 for size in case.window)
    yield "attention", "window beside whole tiles", case.window[0] >= 0 and case.sq > 200
    for name in ("sinks", "slopes"):
        yield "attention", name, getattr(case, name)
    yield "attention", "dropout", case.dropout > 0, case.mask is not None
    yield "attention", "softcap", case.softcap > 0, case.dtype in ("float32", "float64")


def _varlen_features(case: VarlenAttentionCase) -> Iterator[tuple]:
    paged = case.page_size is not None
    yield "varlen", "type", case.dtype, paged
    yield "varlen", "page", case.page_size
    for name in ("layout", "number", "sinks", "slopes", "e"):
        yield "varlen", name, getattr(case, name)
    yield "varlen", "used", case.used is not None, paged
    yield "varlen", "beyond", case.beyond > 0
    yield "varlen", "group", case.heads // (case.kv_heads or case.heads)
    yield "varlen", "lengths", len(case.queries) > 1, 0 in case.queries, 0 in case.keys, max(case.queries) > 128
    yield "varlen", "window", *(size >= 0 for size in case.window)
    yield "varlen", "softcap", case.softcap > 0
    yield "varlen", "dropout", case.dropout > 0


def work(case: Case) -> int:
    """How many products of 16x16x16 a case is, about; those of wide types take longer on most targets."""

    def blocks(*sizes):
        return prod(ceil(size / 16) for size in sizes)

    if isinstance(case, AttentionCase):
        count = 2 * case.batch * case.heads * blocks(case.sq, case.skv, case.e)
    elif isinstance(case, VarlenAttentionCase):
        each = zip(case.queries, case.keys, strict=True)
        count = 2 * case.heads * sum(blocks(queries, keys, case.e) for queries, keys in each)
    elif isinstance(case, GemmCase):
        count = prod(case.batch_a or case.batch_b) * (
            blocks(case.m, case.n, case.k) + blocks(case.m, case.n, case.k2 or 0)
        )
    else:
        count = prod(case.batch) * (blocks(case.m, case.k, case.h) + blocks(case.m, case.h, case.n))
    return count * (4 if case.dtype in ("float32", "float64") else 1)


def _cost(case: Case) -> int:
    """Compiling its kernel, and running it, in products as `work` counts them."""
    converts = case.dtype.startswith("float8") and getattr(case, "a_activation", None) is not None
    compiling = 900 if converts else 500 if isinstance(case, (AttentionCase, VarlenAttentionCase)) else 300
    return compiling + work(case)


def sampled() -> list[Case]:
    """Of which each emulated target has a part: all but packed sequences, whose kernels have tests of their own."""
    return [case for case in cases() if not isinstance(case, VarlenAttentionCase)]


@functools.cache
def _everything() -> dict[Case, frozenset[tuple]]:
    return {case: frozenset(features(case)) for case in cases()}


def _shown(chosen: list[Case]) -> set[tuple]:
    return set().union(*(_everything()[case] for case in chosen))


def everywhere() -> set[tuple]:
    """What every target must meet: all of single products, and every op and type of the others."""
    every = sampled()
    single = _shown([case for case in every if isinstance(case, GemmCase)])
    others = _shown(every) - single
    return single | {feature for feature in others if feature[0] == "op" or feature[:2] == ("attention", "type")}


def demanded(target: str) -> set[tuple]:
    """What must occur on a target: of attention and of two products, what is left of `everywhere` goes by turns. One half
    falls to the first and third target of a family in EMULATED's order, the other to the second and fourth, so that each
    generation of a family has one of both."""
    common = everywhere()
    by_turns = sorted(_shown(sampled()) - common, key=repr)  # in the same order in every process
    random.Random(0).shuffle(by_turns)
    return common | set(by_turns[EMULATED.index(target) % 2 :: 2])


def sample(count: int, target: str) -> list[Case]:
    """At least `count` cases for an emulated target, the same in every run, in which all that is `demanded` of it occurs;
    rather few and small ones."""
    everything = sampled()
    random.Random(target).shuffle(everything)
    wanted = demanded(target)
    chosen = _without_the_covered(_cover(everything, wanted), wanted)
    taken = set(chosen)
    rest = sorted((case for case in everything if case not in taken), key=lambda case: work(case).bit_length())
    return chosen + rest[: max(count - len(chosen), 0)]


def of_everything() -> list[Case]:
    """Few and small cases in which all occurs that occurs in the suite: for a card, where a case is quick."""
    every = cases()
    wanted = _shown(every)
    return _without_the_covered(_cover(every, wanted), wanted)


def is_empty(case: Case) -> bool:
    """Whether it has no element to compute."""
    return work(case) == 0


def _cover(everything: list[Case], wanted: set[tuple]) -> list[Case]:
    """Cases in which all that is wanted occurs: again and again the one that shows most of what is left for its cost."""
    found = {case: wanted & shown for case, shown in _everything().items()}
    left, chosen = set(wanted), []

    def entry(place: int) -> tuple[float, int]:
        case = everything[place]
        return -len(found[case] & left) / _cost(case), place

    queue = [entry(place) for place in range(len(everything))]
    heapq.heapify(queue)
    while left:
        # What a case shows of the rest only shrinks: the first in the queue is the best if it still stands there.
        best = entry(queue[0][1])
        if heapq.heapreplace(queue, best) == best:
            case = everything[best[1]]
            chosen.append(case)
            left -= found[case]
    return chosen


def _without_the_covered(chosen: list[Case], wanted: set[tuple]) -> list[Case]:
    times: dict[tuple, int] = {}
    for case in chosen:
        for feature in wanted.intersection(features(case)):
            times[feature] = times.get(feature, 0) + 1
    kept = []
    for case in chosen:
        found = wanted.intersection(features(case))
        if all(times[feature] > 1 for feature in found):
            for feature in found:
                times[feature] -= 1
        else:
            kept.append(case)
    return kept
