"""The lane layouts of every matrix instruction, against facts that others publish and among themselves."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from wmma_ops.hardware import arch, layouts
from wmma_ops.hardware.layouts import layout

FACTS = json.loads((Path(__file__).parents[1] / "support/facts" / "matrix_layouts.json").read_text())

FACT_ROWS = [
    pytest.param(target, name, id=f"{target}-{name}") for target, rows in FACTS["instructions"].items() for name in rows
]
WALK = [(lane, 5 * lane) for lane in range(64)]  # a slot of every lane
ROWS = [
    pytest.param(target, row, id=f"{target.name}-{row.name}-{row.a}-{row.b}")
    for target in arch.TARGETS.values()
    for row in target.instructions
]


def indices(found):
    rows, columns = found.shape
    return [(b, r, c) for b in range(found.blocks) for r in range(rows) for c in range(columns)]


# --- AMD's matrix instruction calculator, whose printout tests/support/facts holds


def k_order(found: layouts.Layout, fact: dict) -> list[int]:
    """The k of `fact` that stands where `found` holds k, for every k. Raises where they differ in more than K's order."""
    assert fact["shape"] == [found.blocks, *found.shape]
    axis = {"A": 2, "B": 1}.get(found.operand)
    facts = {}
    for at, place in enumerate(indices(found)):
        slots = tuple((lanes[at], fact["bits"][at]) for lanes in fact["lanes"])
        facts[slots] = place
    order: dict[int, int] = {}
    for block, row, column in indices(found):
        slots = tuple(
            (lane, register * 32 + bit)
            for lane, e in found.owners(row, column, block)
            for register, bit in [found.register(e)]
        )
        assert slots in facts, f"no element is held by {slots}, where {found.operand}[{row}][{column}] was put"
        ours, theirs = [block, row, column], list(facts[slots])
        if axis:
            assert order.setdefault(ours[axis], theirs[axis]) == theirs[axis], f"k {ours[axis]} is in two orders"
            ours[axis] = theirs[axis] = 0
        assert ours == theirs, f"{found.operand}[{row}][{column}] of block {block} sits where {facts[slots]} belongs"
    return [order[k] for k in range(len(order))]


@pytest.mark.parametrize(("target", "name"), FACT_ROWS)
def test_layouts_agree_with_the_calculator(target, name):
    fact = FACTS["instructions"][target][name]
    orders = {op: k_order(layout(target, op, name), FACTS["layouts"][fact[op]]) for op in "ABD"}
    assert orders["A"] == orders["B"], "A and B order K differently: the product would be wrong"
    natural = list(range(fact["K"]))
    if target == "gfx1200" and re.search(r"_b?f16$", name):
        # AMD's calculator interleaves the half-waves in runs of 4, its guide gives each half of K.
        assert orders["A"] == [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15]
    else:
        assert orders["A"] == natural
    c, d = layout(target, "C", name), layout(target, "D", name)
    assert (c.places, c.step) == (d.places, d.step)


@pytest.mark.parametrize(("target", "name"), FACT_ROWS)
def test_the_table_agrees_with_the_calculator(target, name):
    fact, row = FACTS["instructions"][target][name], arch.target(target).instruction(name)
    assert [row.m, row.n, row.k, row.blocks, row.cycles] == [fact[key] for key in ("M", "N", "K", "blocks", "cycles")]


@pytest.mark.parametrize("target", FACTS["instructions"])
def test_the_table_holds_every_dense_instruction_of_the_calculator(target):
    assert {row.name for row in arch.target(target).instructions} == set(FACTS["instructions"][target])


def test_facts_say_how_they_were_made():
    assert re.search(r"version \S+, commit [0-9a-f]{40}$", FACTS["tool"])
    assert all("matrix_calculator.py" in command for command in FACTS["commands"])


def _swap_rows(found: layouts.Layout) -> layouts.Layout:
    """The same layout with rows 1 and 2 of every four exchanged: held once each, and wrong."""
    swap = (0, 2, 1, 3)
    return dataclasses.replace(
        found, places=tuple(tuple((b, r // 4 * 4 + swap[r % 4], c) for b, r, c in lane) for lane in found.places)
    )


@pytest.mark.parametrize("operand", ["A", "B", "D"])
@pytest.mark.parametrize("target", FACTS["instructions"])
def test_a_wrong_layout_is_caught(target, operand):
    right = layout(target, operand)
    fact = FACTS["layouts"][FACTS["instructions"][target][right.instruction.name][operand]]
    k_order(right, fact)
    wrong = _swap_rows(right)
    if operand == "B":  # exchanging rows of B is an order of K of its own: A's tells it apart
        a = FACTS["layouts"][FACTS["instructions"][target][right.instruction.name]["A"]]
        assert k_order(wrong, fact) != k_order(layout(target, "A"), a)
    else:
        with pytest.raises(AssertionError):
            k_order(wrong, fact)


def test_a_layout_that_misses_elements_is_refused():
    right = layout("gfx942", "A")
    with pytest.raises(ValueError, match="held by 1 lanes"):
        dataclasses.replace(right, places=(right.places[1], *right.places[1:]))
    half = layout("gfx1100", "B")
    with pytest.raises(ValueError, match="held by 2 lanes"):
        dataclasses.replace(half, places=half.places[:17] + half.places[16:31])


# --- every target × operand × instruction × transposed


@pytest.mark.parametrize(("target", "row"), ROWS)
def test_element_and_owners_are_inverse(target, row):
    for operand in layouts.OPERANDS:
        plain = layouts._layout(target, operand, row, False)
        turned = layouts._layout(target, operand, row, True)
        assert turned.shape == plain.shape[::-1]
        for found in (plain, turned):
            lane, e = np.arange(found.lanes)[:, None], np.arange(found.elements)
            at = found.element(lane, e)
            block = found.block(lane, e)
            # Arrays give what the table has, and what its numbers give one by one.
            assert np.array_equal(np.stack([block, *at], axis=2), found.places)
            assert [found.element(lane, e % found.elements) for lane, e in WALK[: found.lanes]] == [
                found.places[lane][e % found.elements][1:] for lane, e in WALK[: found.lanes]
            ]
            owners = found.owners(*at, block)
            assert len(owners) == found.replication
            lanes, elements = (np.stack(of) for of in zip(*owners, strict=True))
            assert np.array_equal(np.sort(lanes, axis=0), lanes)
            assert (np.diff(lanes, axis=0) > 0).all()  # no lane twice
            assert ((lanes == lane) & (elements == e)).any(axis=0).all()
            for owner in owners:
                assert all(map(np.array_equal, found.element(*owner), at))
                assert np.array_equal(found.block(*owner), block)
        assert [*map(np.ndarray.tolist, plain.element(lane, e))] == [*map(np.ndarray.tolist, turned.element(lane, e))][
            ::-1
        ]


@pytest.mark.parametrize(("target", "row"), [row for row in ROWS if row.values[0].vendor == "amd"])
def test_a_and_b_agree_in_k(target, row):
    """AMD's units multiply what equal lane groups hold in equal elements: A and B must put the same k there."""
    a, b = (layouts._layout(target, operand, row, False) for operand in "AB")
    for lane in range(a.lanes):
        for e in range(a.elements):
            assert a.block(lane, e) == b.block(lane, e)
            (m, k), (b_k, n) = a.element(lane, e), b.element(lane, e)
            assert (m, k, n) == (lane % row.m, b_k, lane % row.n)


def test_facts_of_cdna():
    for lane in range(64):
        for e in range(4):
            assert layout("gfx942", "A").element(lane, e) == (lane % 16, 4 * (lane // 16) + e)
            assert layout("gfx942", "B").element(lane, e) == (4 * (lane // 16) + e, lane % 16)
            assert layout("gfx942", "D").element(lane, e) == (4 * (lane // 16) + e, lane % 16)
            wide = layout("gfx942", "A", "v_mfma_f32_32x32x8_f16")
            assert wide.element(lane, e) == (lane % 32, 4 * (lane // 32) + e)
        for e in range(16):
            wide = layout("gfx942", "D", "v_mfma_f32_32x32x8_f16")
            assert wide.element(lane, e) == (8 * (e // 4) + 4 * (lane // 32) + e % 4, lane % 32)


def test_gfx950_keeps_the_forms_of_gfx942():
    old, new = arch.target("gfx942"), arch.target("gfx950")
    shared = {row.name for row in old.instructions} & {row.name for row in new.instructions}
    assert {row.name for row in old.instructions} - shared == {"v_mfma_f32_16x16x8_xf32", "v_mfma_f32_32x32x4_xf32"}
    for name in shared:
        for operand in "ABD":
            assert layout("gfx942", operand, name).places == layout("gfx950", operand, name).places
    # The doubled forms go on as the others do: contiguous in k, D by its shape alone.
    for name in ("v_mfma_f32_16x16x32_f16", "v_mfma_i32_16x16x64_i8", "v_mfma_f32_16x16x128_f8f6f4"):
        k = new.instruction(name).k // 4
        assert layout("gfx950", "A", name).element(37, 3) == (5, 2 * k + 3)
        assert layout("gfx950", "D", name).places == layout("gfx942", "D").places


def test_facts_of_ptx():
    # The sentences of the PTX ISA's "Matrix Fragments for mma" sections, with g = lane >> 2 and t = lane % 4.
    half, byte, tf32, double = (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
    )
    for lane in range(32):
        g, t = lane >> 2, lane % 4
        for i in range(8):
            row = g if i < 2 or 4 <= i < 6 else g + 8
            assert layout("sm_80", "A", half).element(lane, i) == (row, t * 2 + (i & 1) + (8 if i >= 4 else 0))
        for i in range(4):
            assert layout("sm_80", "B", half).element(lane, i) == (t * 2 + (i & 1) + (8 if i >= 2 else 0), g)
            assert layout("sm_80", "D", half).element(lane, i) == (g if i < 2 else g + 8, t * 2 + (i & 1))
            assert layout("sm_80", "A", tf32).element(lane, i) == (g if i in (0, 2) else g + 8, t if i < 2 else t + 4)
        for i in range(16):
            row = g if i < 4 or 8 <= i < 12 else g + 8
            assert layout("sm_80", "A", byte).element(lane, i) == (row, t * 4 + (i & 3) + (16 if i >= 8 else 0))
        for i in range(8):
            assert layout("sm_80", "B", byte).element(lane, i) == (t * 4 + (i & 3) + (16 if i >= 4 else 0), g)
        for i in range(2):
            assert layout("sm_80", "B", tf32).element(lane, i) == (t + 4 * i, g)
            assert layout("sm_80", "D", double).element(lane, i) == (g, t * 2 + i)
        assert layout("sm_80", "A", double).element(lane, 0) == (g, t)
        assert layout("sm_80", "B", double).element(lane, 0) == (t, g)
