"""Rows that do not know their batch (wmma_ops.batch_invariant): the same bits alone and among others, and not where a kernel
or a plan is wrong on purpose."""

import dataclasses
from collections.abc import Iterable

import places
import pytest
import rows_alone
import torch
from planted import Planted, check_is_caught, check_that_each_stands_once

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan.gemm import invariant as products
from wmma_ops.plan.gemm import planner as gemm

PLACES = ("cpu", "gfx942", "gfx1201", "gfx1100")


def _each(names: Iterable[str], on: tuple[str, ...] = PLACES, step: int = 1) -> list:
    """Everywhere; where less is run on the CPU, and every step-th by turns on one of two targets."""
    return [
        pytest.param(
            name,
            place,
            marks=() if place == "cpu" or (i % step == 0 and place == PLACES[1 + i // step % 2]) else pytest.mark.full,
        )
        for i, name in enumerate(names)
        for place in on
    ]


@pytest.fixture
def in_parts(monkeypatch):
    yield from rows_alone.in_parts(monkeypatch, 64)


@pytest.mark.parametrize(("name", "place"), _each(rows_alone.PRODUCTS))
def test_rows_of_a_product(name, place):
    with places.on(place), wmma_ops.batch_invariant():
        rows_alone.check_product(name)


@pytest.mark.parametrize(("name", "place"), _each(rows_alone.ATTENTIONS, step=2))
def test_rows_of_attention(name, place):
    with places.on(place), wmma_ops.batch_invariant():
        rows_alone.check_attention(name)


@pytest.mark.parametrize(("name", "place"), _each(rows_alone.SEQUENCES))
def test_rows_of_sequences(name, place):
    with places.on(place), wmma_ops.batch_invariant():
        rows_alone.check_sequences(name)


@pytest.mark.parametrize(("name", "place"), _each(rows_alone.ATTENTIONS, PLACES[1:], 4))
def test_rows_of_attention_in_parts(name, place, in_parts):
    with places.on(place), wmma_ops.batch_invariant():
        rows_alone.check_attention(name)


@pytest.mark.parametrize(("name", "place"), _each(rows_alone.SEQUENCES, PLACES[1:], 3))
def test_rows_of_sequences_in_parts(name, place, in_parts):
    with places.on(place), wmma_ops.batch_invariant():
        rows_alone.check_sequences(name)


# Each on one of the other targets, and each of these has some of each.
_OTHERS = [name for name in arch.EMULATED if name not in PLACES]
_NAMED = [
    *((rows_alone.check_product, name) for name in rows_alone.PRODUCTS),
    *((rows_alone.check_attention, name) for name in rows_alone.ATTENTIONS),
    *((rows_alone.check_sequences, name) for name in rows_alone.SEQUENCES),
]
_BY_TURNS = [(_OTHERS[i % len(_OTHERS)], *named) for i, named in enumerate(_NAMED)]


@pytest.mark.full
@pytest.mark.parametrize(("target", "check", "name"), _BY_TURNS, ids=lambda x: getattr(x, "__name__", x))
def test_rows_on_other_targets(target, check, name, in_parts):
    with places.on(target), wmma_ops.batch_invariant():
        check(name)


# Wrong on purpose.

FOLDER = "wmma/attention"
ROWS, COMBINE, FORWARD = "softmax/rows.hpp", "passes/combine.hpp", "loops/forward.hpp"
WRONG = (
    Planted("a_part_joins_otherwise", COMBINE, "if constexpr (kStandsAlone<Config>) {", "if constexpr (false) {"),
    Planted("a_product_that_a_sum_takes_in", ROWS, "    if constexpr (kStandsAlone<Config>) {\n      half",
            "    if constexpr (false) {\n      half"),
    Planted("parts_of_another_size", FORWARD, "    int share = p.keys_of_split;",
            "    int share = kFolds ? p.keys_of_split / 2 : p.keys_of_split;"),
    Planted("the_last_part_alone", ROWS, "joints[m][i].of(is_first ? Number(0) : *at,",
            "joints[m][i].of(is_first || is_last ? Number(0) : *at,"),
)  # fmt: skip


def test_each_fault_stands_there_once(sources):
    check_that_each_stands_once(sources / FOLDER, WRONG)


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_a_wrong_kernel_is_caught(of, sources, in_parts):
    def ask():
        with places.on("gfx942"), wmma_ops.batch_invariant():
            for name in ("float32", "bias"):
                rows_alone.check_attention(name)

    check_is_caught(of, sources / FOLDER, ask)


@pytest.mark.parametrize("place", ["cpu", "gfx942"])
def test_without_the_mode_rows_know_each_other(place):
    def ask():
        for name in ("bfloat16", "bias"):
            rows_alone.check_attention(name)

    with places.on(place), pytest.raises(AssertionError):
        ask()


def test_an_order_that_rows_choose_is_caught(monkeypatch):
    """As the planner would without the mode."""

    def by_rows(problem, target):
        usual = dataclasses.replace(problem, invariant=False)
        return products.order_of_sums(next(x for x in gemm.ranked(usual, target) if x.order.last == 1))

    monkeypatch.setattr(products, "order_of", by_rows)
    torch.ops.wmma._forget_plans()
    try:
        with places.on("gfx942"), wmma_ops.batch_invariant(), pytest.raises(AssertionError):
            rows_alone.check_product("bfloat16")
    finally:
        torch.ops.wmma._forget_plans()


def test_it_ends_where_it_is_left():
    assert not torch.ops.wmma._is_batch_invariant()
    with wmma_ops.batch_invariant(), wmma_ops.batch_invariant():
        assert torch.ops.wmma._is_batch_invariant()
    assert not torch.ops.wmma._is_batch_invariant()
    with wmma_ops.batch_invariant(enabled=False):
        assert not torch.ops.wmma._is_batch_invariant()
    with pytest.raises(ValueError, match="of the caller"), wmma_ops.batch_invariant():
        raise ValueError("of the caller")
    assert not torch.ops.wmma._is_batch_invariant()


def test_what_it_costs_is_said():
    x, weight, q, k = (
        torch.empty(*shape).half() for shape in ((3, 4096), (1024, 4096), (1, 8, 1, 64), (1, 2, 3000, 64))
    )
    with wmma_ops.batch_invariant():
        product = wmma_ops.explain("linear", x, weight, target="gfx942")
        attention = wmma_ops.explain("attention", q, k, k, enable_gqa=True, target="gfx942")
    assert product.problem.invariant
    assert attention.problem.invariant
    assert "batch-invariant" in product.reason
    assert "of what it takes otherwise" in product.reason
    assert "batch-invariant: by tiles of 64 keys whatever the queries, in 3 parts of 1024" in attention.reason
    assert "batch-invariant" in str(product)
