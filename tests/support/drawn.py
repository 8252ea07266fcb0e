"""Kernels drawn at random, of all that the planner may take: what is computed, by which configuration, in which order its
waves run. A draw is told by its target, its kind and its number, and is the same in every process."""

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator
from unittest import mock

import torch

from wmma_ops.hardware import arch
from wmma_ops.ops.types import FP8, OUTPUTS, name
from wmma_ops.plan.attention import backward, owners
from wmma_ops.plan.attention.loops import forward, gradients, interleaved_gradients, lockstep_gradients, ping_pong
from wmma_ops.plan.gemm import candidates
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.plan.gemm_gemm import planner as gemm_gemm
from wmma_ops.testing import AttentionCase, GemmCase, GemmGemmCase
from wmma_ops.testing.cases.ranges import ACTIVATIONS, LAYOUTS

KINDS = ("product", "two products", "attention", "gradients")
SHARES = (0.4, 0.2, 0.2, 0.2)  # of what is drawn
_HALVES = ("float16", "bfloat16")


def counts(total: int) -> dict[str, int]:
    """How many of each kind, of so many in all."""
    found = {kind: int(total * share) for kind, share in zip(KINDS, SHARES, strict=True)}
    found["product"] += total - sum(found.values())
    return found


def draw_of(target: str, kind: str, number: int) -> random.Random:
    return random.Random(f"{target} {kind} {number}")


def product(draw: random.Random) -> GemmCase:
    """Half of them of whole chunks, as the fastest loops want them."""
    dtype = name(draw.choice(list(OUTPUTS)))
    whole = draw.random() < 0.5
    slow = dtype in ("float32", "float64")

    def size(most: int) -> int:
        return draw.randint(1, most // 16) * 16 if whole else draw.randint(1, most)

    layouts = ("row", "column") if whole else LAYOUTS
    plain = draw.random() < 0.4
    narrow = getattr(torch, dtype) in FP8
    batch = draw.choice(((), (), (), (2,), (3,)))
    more = {} if plain else {
        "c": draw.choice((None, "full", "row", "column")), "beta": draw.choice((1.0, 0.5)),
        "bias": draw.random() < 0.5, "activation": draw.choice((None, None, *ACTIVATIONS)),
        "row_scale": draw.choice((None, None, "vector")), "multiply": draw.choice((None, None, "full", "row")),
        "a_activation": None if narrow or dtype == "int8" else draw.choice((None, None, None, "relu", "silu")),
    }  # fmt: skip
    pair = {} if draw.random() < 0.8 or dtype == "int8" else {
        "k2": size(100), "a2_layout": draw.choice(layouts), "b2_layout": draw.choice(layouts)
    }  # fmt: skip
    return GemmCase(
        m=size(120 if slow else 280), n=size(120 if slow else 280), k=size(200 if slow else 400), dtype=dtype,
        out_dtype=name(draw.choice(OUTPUTS[getattr(torch, dtype)])), a_layout=draw.choice(layouts),
        b_layout=draw.choice(layouts), batch_a=batch, batch_b=draw.choice(((), batch)), alpha=draw.choice((1.0, 0.25)),
        **more, **pair,
    )  # fmt: skip


def two_products(draw: random.Random) -> GemmGemmCase:
    dtype = draw.choice((*_HALVES, "int8"))
    whole = draw.random() < 0.5

    def size(most: int) -> int:
        return draw.randint(1, most // 16) * 16 if whole else draw.randint(1, most)

    gate = draw.random() < 0.3
    return GemmGemmCase(
        m=size(200), k=size(200), h=size(160), n=size(160), dtype=dtype, alpha0=0.01 if dtype == "int8" else 0.1,
        layout=draw.choice(("row", "column") if whole else ("row", "column", "sliced", "offset")),
        batch=draw.choice(((), (), (2,))), bias0=draw.random() < 0.4, bias1=draw.random() < 0.4,
        c=draw.choice((None, "full")), activation=draw.choice((None, "relu", "silu")), gate=gate,
    )  # fmt: skip


def _heads(draw: random.Random, widths: tuple[int, ...]) -> dict:
    heads, kv_heads = draw.choice(((1, 1), (2, 2), (4, 2), (3, 1)))
    e = draw.choice(widths) if draw.random() < 0.7 else draw.randint(1, 130)
    return {"heads": heads, "kv_heads": kv_heads, "batch": draw.choice((1, 1, 1, 2)), "e": e,
            "ev": e if draw.random() < 0.7 else draw.choice(widths)}  # fmt: skip


def attention_case(draw: random.Random) -> AttentionCase:
    causal = draw.choice((None, None, "top_left", "bottom_right"))
    return AttentionCase(
        **_heads(draw, (32, 64, 128, 256)), sq=draw.choice((draw.randint(1, 20), draw.randint(20, 150))),
        skv=draw.choice((draw.randint(1, 70), draw.randint(70, 300))),
        dtype=draw.choice((*_HALVES, *_HALVES, "float32")), causal=causal,
        layout=draw.choice(("bhsd", "bhsd", "bshd", "offset", "column")), scale=draw.choice((None, None, 1.0, -0.3)),
        mask=None if causal else draw.choice((None, None, "bool", "float", "blind")),
    )  # fmt: skip


def gradients_case(draw: random.Random) -> dict:
    """By the names of test_attention_backward.Case."""
    causal = draw.choice((False, False, "top_left", "bottom_right"))
    return {
        **_heads(draw, (32, 64, 64, 128, 128)), "sq": draw.randint(1, 100), "skv": draw.randint(1, 100),
        "dtype": draw.choice((*_HALVES, *_HALVES, "float32")), "causal": causal, "scale": draw.choice((None, 0.5, -0.3)),
        "mask": None if causal else draw.choice((None, None, "bool", "float")), "lse": draw.random() < 0.3,
        "layout": draw.choice(("bhsd", "bhsd", "bshd", "column")),
    }  # fmt: skip


@contextlib.contextmanager
def configurations(draw: random.Random) -> Iterator[list]:
    """Within it, whatever is planned is drawn of all that fits; the list gets the configurations."""
    planned: list = []

    def drawn(found: list):
        planned.append(draw.choice(found))
        return planned[-1]

    def of_product(problem, target: arch.Target):
        found = [
            split
            for config in candidates.candidates(problem, target)
            for split in candidates.splits_of(problem, config, target)
        ]
        return gemm.plan_of(problem, drawn(found), target, "drawn")

    two = gemm_gemm.plan

    def of_two_products(problem, target: arch.Target):
        found = list(gemm_gemm.candidates(problem, target))
        return gemm_gemm.plan_of(problem, drawn(found), target, "drawn") if found else two(problem, target)

    def forward_config(problem, target: arch.Target):
        config = draw.choice(list(forward.candidates(problem, target)))
        most = problem.skv // (4 * config.keys)
        return drawn([config, *(dataclasses.replace(config, splits=splits) for splits in range(2, min(most, 8) + 1))])

    storing_dq = interleaved_gradients.storing_dq

    def gradients_config(problem, target: arch.Target):
        share = draw.random()
        if share < 1 / 3:
            return None
        of_all = storing_dq(dataclasses.replace(problem, unordered=share < 2 / 3), target)
        return of_all and drawn([of_all])

    def backward_config(problem, target: arch.Target, owns_keys: bool):
        loops = (interleaved_gradients, lockstep_gradients)
        between = next(filter(None, (loop.chosen(problem, target, owns_keys) for loop in loops)), None)
        if between and draw.random() < 0.5:
            return drawn([between])
        return drawn(list(gradients.candidates(problem, target, owns_keys)))

    replaced: list[tuple[object, str, Callable | int]] = [
        (gemm, "plan", of_product), (gemm_gemm, "plan", of_two_products), (forward, "choose", forward_config),
        (interleaved_gradients, "storing_dq", gradients_config), (backward, "choose", backward_config),
        (owners, "_LEAST_ROWS", 1),
        (ping_pong, "supports", _always(ping_pong.supports)),
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        for where, what, by in replaced:
            stack.enter_context(mock.patch.object(where, what, by))
        torch.ops.wmma._forget_plans()
        stack.callback(torch.ops.wmma._forget_plans)
        yield planned


def _always(takes: Callable) -> Callable:
    """However few rows there are."""
    return lambda problem, target, rows: takes(problem, target, 1000)
