"""The table of matrix instructions and the lane layouts, against facts that others publish and against clang."""

import dataclasses
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from wmma_ops import arch, layout_view, layouts
from wmma_ops.layouts import layout

FACTS = json.loads((Path(__file__).parent / "facts" / "matrix_layouts.json").read_text())

FACT_ROWS = [
    pytest.param(target, name, id=f"{target}-{name}") for target, rows in FACTS["instructions"].items() for name in rows
]
ROWS = [
    pytest.param(target, row, id=f"{target.name}-{row.name}-{row.a}-{row.b}")
    for target in arch.TARGETS.values()
    for row in target.instructions
]


def _indices(found):
    rows, columns = found.shape
    return [(b, r, c) for b in range(found.blocks) for r in range(rows) for c in range(columns)]


# --- AMD's matrix instruction calculator, whose printout tests/facts holds


def k_order(found: layouts.Layout, fact: dict) -> list[int]:
    """The k of `fact` that stands where `found` holds k, for every k. Raises where they differ in more than K's order."""
    assert fact["shape"] == [found.blocks, *found.shape]
    axis = {"A": 2, "B": 1}.get(found.operand)
    facts = {}
    for at, place in enumerate(_indices(found)):
        slots = tuple((lanes[at], fact["bits"][at]) for lanes in fact["lanes"])
        facts[slots] = place
    order: dict[int, int] = {}
    for block, row, column in _indices(found):
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
    """The same layout with rows 0 and 1 exchanged: held once each, and wrong."""
    swap = {0: 1, 1: 0}
    return dataclasses.replace(
        found, places=tuple(tuple((b, swap.get(r, r), c) for b, r, c in lane) for lane in found.places)
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
            for block, r, c in _indices(found):
                owners = found.owners(r, c, block)
                assert len(set(owners)) == found.replication
                for slot in owners:
                    assert found.element(*slot) == (r, c)
                    assert found.block(*slot) == block
        for lane in range(plain.lanes):
            for e in range(plain.elements):
                assert plain.element(lane, e) == turned.element(lane, e)[::-1]
                assert (lane, e) in plain.owners(*plain.element(lane, e), plain.block(lane, e))


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


# --- gfx11 and gfx12: every named map, from formulas written out here

CELLS = [(i, j) for i in range(16) for j in range(16)]
GFX11 = ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151")
GFX12 = ("gfx1200", "gfx1201")


def _check_forward(targets, operand, transposed, formula):
    for target in targets:
        for i, j in CELLS:
            assert layouts.forward(target, operand, i, j, transposed) == formula(i, j)
            assert layouts.functions(target, operand, transposed).forward(i, j) == formula(i, j)


def _check_reverse(targets, operand, transposed, elements, formula):
    for target in targets:
        assert layout(target, operand).elements == elements
        for lane in range(32):
            for e in range(elements):
                assert layouts.reverse(target, operand, lane, e, transposed) == formula(lane, e)
                assert layouts.functions(target, operand, transposed).reverse(lane, e) == formula(lane, e)


def test_shared_16x16_to_local_32x8_layout_A_gfx12():
    _check_forward(GFX12, "A", False, lambda i, j: ((j // 8) * 16 + i, j % 8))


def test_thread_id_shared_access_32x8_to_16x16_layout_A_gfx12():
    _check_reverse(GFX12, "A", False, 8, lambda t, e: (t % 16, (t // 16) * 8 + e))


def test_shared_16x16_to_local_32x8_layout_A_colmajor_gfx12():
    _check_forward(GFX12, "A", True, lambda i, j: ((i // 8) * 16 + j, i % 8))


def test_thread_id_shared_access_32x8_to_16x16_layout_A_colmajor_gfx12():
    _check_reverse(GFX12, "A", True, 8, lambda t, e: ((t // 16) * 8 + e, t % 16))


def test_shared_16x16_to_local_32x8_layout_B_gfx12():
    _check_forward(GFX12, "B", False, lambda i, j: ((i // 8) * 16 + j, i % 8))


def test_thread_id_shared_access_32x8_to_16x16_layout_B_gfx12():
    _check_reverse(GFX12, "B", False, 8, lambda t, e: ((t // 16) * 8 + e, t % 16))


def test_shared_16x16_to_local_32x8_layout_B_colmajor_gfx12():
    _check_forward(GFX12, "B", True, lambda i, j: ((j // 8) * 16 + i, j % 8))


def test_thread_id_shared_access_32x8_to_16x16_layout_B_colmajor_gfx12():
    _check_reverse(GFX12, "B", True, 8, lambda t, e: (t % 16, (t // 16) * 8 + e))


def test_shared_16x16_to_local_32x8_layout_C_gfx12():
    for operand in "CD":
        _check_forward(GFX12, operand, False, lambda i, j: ((i // 8) * 16 + j, i % 8))


def test_thread_id_shared_access_32x8_to_16x16_layout_C_gfx12():
    for operand in "CD":
        _check_reverse(GFX12, operand, False, 8, lambda t, e: ((t // 16) * 8 + e, t % 16))


def _check_store_map(targets, formula):
    for target in targets:
        for found in (layouts.store_map(target), layouts.functions(target, "D").store_map):
            assert all(found(t, e) == formula(t, e) for t in range(32) for e in range(8))


def test_wmma_store_index_map_gfx12():
    _check_store_map(GFX12, lambda t, e: ((t // 16) * 8 + e, t % 16))


def test_shared_16x16_to_local_32x16_layout_A_gfx11():
    _check_forward(GFX11, "A", False, lambda i, j: (i, j % 16))


def test_thread_id_shared_access_32x16_to_16x16_layout_A_gfx11():
    _check_reverse(GFX11, "A", False, 16, lambda t, e: (t % 16, e))


def test_shared_16x16_to_local_32x16_layout_A_colmajor_gfx11():
    _check_forward(GFX11, "A", True, lambda i, j: (j, i % 16))


def test_thread_id_shared_access_32x16_to_16x16_layout_A_colmajor_gfx11():
    _check_reverse(GFX11, "A", True, 16, lambda t, e: (e, t % 16))


def test_shared_16x16_to_local_32x16_layout_B_gfx11():
    _check_forward(GFX11, "B", False, lambda i, j: (j, i % 16))


def test_thread_id_shared_access_32x16_to_16x16_layout_B_gfx11():
    _check_reverse(GFX11, "B", False, 16, lambda t, e: (e, t % 16))


def test_shared_16x16_to_local_32x16_layout_B_colmajor_gfx11():
    _check_forward(GFX11, "B", True, lambda i, j: (i, j % 16))


def test_thread_id_shared_access_32x16_to_16x16_layout_B_colmajor_gfx11():
    _check_reverse(GFX11, "B", True, 16, lambda t, e: (t % 16, e))


def test_shared_16x16_to_local_32x8_layout_C_gfx11():
    for operand in "CD":
        _check_forward(GFX11, operand, False, lambda i, j: ((i % 2) * 16 + j, i // 2))


def test_thread_id_shared_access_32x8_to_16x16_layout_C_gfx11():
    for operand in "CD":
        _check_reverse(GFX11, operand, False, 8, lambda t, e: ((t // 16) + e * 2, t % 16))


def test_wmma_store_index_map_gfx11():
    _check_store_map(GFX11, lambda t, e: ((t // 16) + e * 2, t % 16))


def _check_fragment(operand, transposed, formula):
    for target in GFX11:
        found = layouts.functions(target, operand, transposed).fragment_forward
        for i, j in CELLS:
            lane, e = formula(i, j)
            for rep in (0, 1):
                assert layouts.fragment_forward(target, operand, i, j, rep, transposed) == (lane + 16 * rep, e)
                assert found(i, j, rep) == (lane + 16 * rep, e)
        with pytest.raises(IndexError, match="copy 2 of 2"):
            layouts.fragment_forward(target, operand, 0, 0, 2, transposed)


def test_fragment_forward_A_gfx11():
    _check_fragment("A", False, lambda i, j: (i, j))


def test_fragment_forward_A_colmajor_gfx11():
    _check_fragment("A", True, lambda i, j: (j, i))


def test_fragment_forward_B_gfx11():
    _check_fragment("B", False, lambda i, j: (j, i))


def test_fragment_forward_B_colmajor_gfx11():
    _check_fragment("B", True, lambda i, j: (i, j))


@pytest.mark.parametrize("transposed", [False, True])
def test_get_wmma_a_layout_funcs(transposed):
    eleven, twelve = (layouts.functions(target, "A", transposed) for target in ("gfx1151", "gfx1201"))
    at = (3, 12) if transposed else (12, 3)
    assert (eleven.forward(*at), twelve.forward(*at)) == ((12, 3), (12, 3))
    assert eleven.reverse(28, 3) == at
    assert twelve.reverse(28, 3) == ((11, 12) if transposed else (12, 11))


@pytest.mark.parametrize("transposed", [False, True])
def test_get_wmma_b_layout_funcs(transposed):
    eleven, twelve = (layouts.functions(target, "B", transposed) for target in ("gfx1151", "gfx1201"))
    at = (12, 3) if transposed else (3, 12)
    assert (eleven.forward(*at), twelve.forward(*at)) == ((12, 3), (12, 3))
    assert eleven.reverse(28, 3) == at
    assert twelve.reverse(28, 3) == ((12, 11) if transposed else (11, 12))


def test_get_wmma_c_layout_funcs():
    for operand in "CD":
        eleven, twelve = (layouts.functions(target, operand) for target in ("gfx1151", "gfx1201"))
        assert (eleven.forward(7, 2), twelve.forward(7, 2)) == ((18, 3), (2, 7))
        assert (eleven.reverse(18, 3), twelve.reverse(18, 3)) == ((7, 2), (11, 2))


def test_get_wmma_store_index_map_func():
    assert layouts.functions("gfx1151", "A").store_map(18, 3) == (7, 2)
    assert layouts.functions("gfx1201", "A").store_map(18, 3) == (11, 2)


@pytest.mark.parametrize("operand", ["A", "B"])
def test_get_wmma_fragment_forward_func(operand):
    # gfx12 holds one copy: its fragment map is the forward map.
    for transposed in (False, True):
        found = layouts.functions("gfx1201", operand, transposed)
        assert all(found.fragment_forward(i, j, 0) == found.forward(i, j) for i, j in CELLS)
        with pytest.raises(IndexError, match="copy 1 of 1"):
            found.fragment_forward(0, 0, 1)


def test_get_wmma_fragment_replicate_count():
    assert {layouts.replication(target) for target in GFX11} == {2}
    assert {layouts.replication(target) for target in GFX12} == {1}
    assert layouts.replication("gfx1100", "D") == layouts.replication("gfx942") == layouts.replication("sm_90") == 1
    assert layouts.functions("gfx1100", "B").replication == 2


def test_gfx11_leaves_the_upper_halves_of_16_bit_results():
    for name in ("v_wmma_f16_16x16x16_f16", "v_wmma_bf16_16x16x16_bf16"):
        assert [layout("gfx1100", "D", name).register(e) for e in range(8)] == [(e, 0) for e in range(8)]
        assert [layout("gfx1201", "D", name).register(e) for e in range(3)] == [(0, 0), (0, 16), (1, 0)]


# --- the table


def test_targets():
    assert set(arch.EMULATED) < set(arch.TARGETS)
    assert [name for name, row in arch.TARGETS.items() if row.compile_only] == ["gfx1250"]
    for name, row in arch.TARGETS.items():
        assert arch.target(name) is row
        assert arch.target(f"{name}:sramecc+:xnack-") is row
        assert row.wave == (64 if row.family == "cdna" else 32)
        assert (row.default.a, row.default.d) == ("float16", "float32")
        assert bool(row.rates) == (row.vendor == "amd" and not row.compile_only)
    assert (arch.target("gfx950").lds_bytes, arch.target("sm_90").lds_bytes) == (160 * 1024, 227 * 1024)


@pytest.mark.parametrize(
    ("asked", "closest"), [("gfx1202", "gfx1201"), ("gfx940", "gfx942"), ("sm90", "sm_90"), ("GFX942", "gfx942")]
)
def test_an_unknown_target_names_the_closest(asked, closest):
    with pytest.raises(ValueError, match=rf"no target '{asked}' is known; the closest names are .*{closest}"):
        arch.target(asked)


def test_a_wrong_row_asserts():
    row = arch.target("gfx942").instruction("v_mfma_f32_16x16x16_f16")
    for wrong in ({"k": 8}, {"d": "int32"}, {"blocks": 4}, {"cycles": 6}, {"b": "int8"}, {"a": "half"}):
        with pytest.raises(AssertionError):
            dataclasses.replace(row, **wrong)
    target = arch.target("gfx942")
    faster = tuple(dataclasses.replace(i, cycles=8) if i is row else i for i in target.instructions)
    for wrong in (
        {"instructions": faster},
        {"instructions": (*target.instructions, row)},
        {"rates": target.rates | {"float16": 4096}},
        {"rates": {}},
        {"wave": 32},
        {"family": "rdna3"},
    ):
        with pytest.raises(AssertionError):
            dataclasses.replace(target, **wrong)


def test_unknown_instructions_operands_and_indices():
    with pytest.raises(
        ValueError, match=r"gfx1100 has no matrix instruction 'v_mfma.*; it has v_wmma_f32_16x16x16_f16"
    ):
        layout("gfx1100", "A", "v_mfma_f32_16x16x16_f16")
    with pytest.raises(ValueError, match="no operand 'E'"):
        layout("gfx1100", "E")
    found = layout("gfx1201", "A")
    for lane, e in ((-1, 0), (32, 0), (0, 8), (0, -1)):
        with pytest.raises(IndexError, match="32 lanes of 8 elements"):
            found.element(lane, e)
    with pytest.raises(IndexError, match="16x16"):
        found.owners(16, 0)
    by_builtin = layout("gfx1201", "A", "__builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12")
    assert by_builtin is found


# --- clang: every builtin compiles to the mnemonic of its row

_C_TYPES = {"float16": "_Float16", "float32": "float", "xfloat32": "float", "float64": "double", "int32": "int"}


def _argument(target: str, row: arch.MatrixInstruction, operand: str) -> tuple[str, int]:
    """C's element type and count of a builtin's operand."""
    kind, bits = row.type(operand), arch.BITS[row.type(operand)]
    count = row.elements(operand)
    # The newer builtins have clang's own type for bfloat16, the older ones take its bits.
    if kind == "bfloat16" and (target == "gfx1250" or ("mfma" in row.builtin and row.builtin.endswith("_bf16"))):
        return "__bf16", count
    if kind in ("bfloat16", "float16"):
        # gfx11's 16-bit results lie in every second place.
        count *= 2 if row.replicated and operand in "CD" else 1
        return ("short" if kind == "bfloat16" else "_Float16"), count
    if bits <= 8:
        if "f8f6f4" in row.name:
            return "int", 8  # of 8-bit types' size, whatever the type
        words = count * bits // 32
        return ("long", 1) if "mfma" in row.name and words == 2 else ("int", words)
    return _C_TYPES[kind], count


def _call(target: str, row: arch.MatrixInstruction, index: int) -> str:
    def vector(operand):
        kind, count = _argument(target, row, operand)
        return kind if count == 1 else f"{kind} __attribute__((ext_vector_type({count})))"

    if "mfma_scale" in row.builtin:
        code = {"float8_e4m3fn": 0, "float8_e5m2": 1, "float4_e2m1fn": 4}
        arguments = f"*a, *b, *c, {code[row.a]}, {code[row.b]}, 0, 0, 0, 0"
    elif "mfma" in row.builtin:
        arguments = "*a, *b, *c, 0, 0, 0"
    elif target == "gfx1250":
        halves = "false, *a, false, *b, (short)0, *c"
        arguments = {8: "*a, *b, (short)0, *c, false, false"}.get(arch.BITS[row.a], f"{halves}, false, false")
        if row.a == "int8":
            arguments = "true, *a, true, *b, *c, false, false"
    elif row.a.startswith("int"):
        arguments = "true, *a, true, *b, *c, false"
    elif row.replicated and arch.BITS[row.d] == 16:
        arguments = "*a, *b, *c, false"
    else:
        arguments = "*a, *b, *c"
    names = [f"{operand}{index}" for operand in "ABD"]
    lines = [f"typedef {vector(operand)} {name};" for operand, name in zip("ABD", names, strict=True)]
    a, b, d = names
    # One function a row: values of one cannot hide another's instruction.
    lines.append(f'extern "C" __attribute__((global)) void k{index}({a}* a, {b}* b, {d}* c, {d}* d)')
    lines.append(f"{{ *d = {row.builtin}({arguments}); }}")
    return "\n".join(lines)


@pytest.mark.parametrize("target", [name for name in arch.TARGETS if name.startswith("gfx")])
def test_clang_compiles_every_builtin_to_its_mnemonic(target, tmp_path):
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang, which brings the clang that this test compiles with, is not installed")
    rows = arch.target(target).instructions
    (tmp_path / "k.hip").write_text("\n".join(_call(target, row, index) for index, row in enumerate(rows)))
    command = [sys.executable, "-m", "ziglang", "clang", "-x", "hip", f"--offload-arch={target}"]
    command += ["--offload-device-only", "-nogpuinc", "-nogpulib", "-O1", "-S", "k.hip", "-o", "k.s"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    bodies = re.split(r"^k(\d+):", (tmp_path / "k.s").read_text(), flags=re.M)
    found = dict(zip(map(int, bodies[1::2]), bodies[2::2], strict=True))
    for index, row in enumerate(rows):
        lines = re.findall(r"^\s+(v_\w*(?:mfma|wmma)\w*) (.*)$", found[index].split("s_endpgm")[0], flags=re.M)
        assert [name for name, _ in lines] == [row.name], f"{row.builtin} became {lines}"
        _, registers = lines[0]
        # Registers of D, A and B, counted from the assembly: the elements fill them.
        counts = [int(high) - int(low) + 1 for low, high in re.findall(r"[va]\[(\d+):(\d+)\]", registers)]
        for operand, count in zip("DAB", [*counts, 1, 1], strict=False):
            d = layouts._layout(arch.target(target), operand, row, False)
            register, bit = d.register(d.elements - 1)
            if len(counts) >= 3 and "f8f6f4" not in row.name:
                assert register + -(-(bit + d.bits) // 32) == count, f"{row.name}: {operand} of {registers}"


# --- the command line


def _run(*arguments):
    return subprocess.run([sys.executable, "-m", "wmma_ops", "layout", *arguments], capture_output=True, text=True)


def test_layout_prints_the_matrix():
    done = _run("gfx1201", "--operand", "D")
    assert done.returncode == 0, done.stderr
    assert "\x1b[" not in done.stdout
    assert "v_wmma_f32_16x16x16_f16" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r" *\d+ .*:", line)]
    assert rows[11] == ["11", *(f"{16 + column}:3" for column in range(16))]


def test_text_fits_the_width_and_shows_every_element():
    for target, operand, name in (
        ("gfx1100", "A", None),
        ("gfx908", "D", "v_mfma_f32_32x32x4f16"),
        ("sm_90", "B", None),
    ):
        found = layout(target, operand, name)
        for width in (40, 80, 200):
            shown = layout_view.text(found, width)
            assert all(len(line) <= width for line in shown.splitlines()[2:])
            cells = re.findall(r"[\d,]+:\d+", "\n".join(shown.splitlines()[2:]))
            assert sorted(cells) == sorted(layout_view.cell(found, r, c, b) for b, r, c in _indices(found))
    assert "3,19:7" in layout_view.text(layout("gfx1100", "A"))
    assert "block 1" in layout_view.text(layout("gfx908", "D", "v_mfma_f32_32x32x4f16"))


def test_layout_as_json():
    done = _run("gfx942", "--operand", "B", "--instruction", "v_mfma_f32_32x32x8_f16", "--transposed", "--json")
    found = json.loads(done.stdout)
    right = layout("gfx942", "B", "v_mfma_f32_32x32x8_f16", transposed=True)
    assert found["shape"] == [32, 8] == list(right.shape)
    assert found["map"] == [[list(place) for place in lane] for lane in right.places]
    assert found["registers"] == [[0, 0], [0, 16], [1, 0], [1, 16]]


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_layout_draws(suffix, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib draws the layouts and is not installed")
    path = tmp_path / f"layout{suffix}"
    done = _run("gfx1100", "--operand", "A", "--png", str(path), "--json")
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    start = path.read_bytes()[:8]
    assert start == b"\x89PNG\r\n\x1a\n" if suffix == ".png" else start.startswith(b"<?xml")
    assert path.stat().st_size > 10_000
    layout_view.draw(layout("gfx942", "D", "v_mfma_f32_4x4x4_16b_f16"), str(tmp_path / f"blocks{suffix}"))


def test_layout_without_matplotlib_names_the_package(tmp_path, monkeypatch, capsys):
    from wmma_ops.__main__ import main

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["layout", "gfx1201", "--png", str(tmp_path / "x.png")]) == 1
    assert "pip install matplotlib" in capsys.readouterr().err


def test_layout_errors_are_one_line_and_exit_with_2(tmp_path):
    for arguments, message in (
        (["gfx1202"], "no target 'gfx1202' is known; the closest names are gfx120"),
        (["gfx1201", "--instruction", "v_mfma_f32_16x16x16_f16"], "it has v_wmma_f32_16x16x16_f16, "),
        (["gfx1201", "--png", str(tmp_path / "x.jpg")], "pictures end in .png or .svg"),
    ):
        done = _run(*arguments)
        assert done.returncode == 2
        assert message in done.stderr
        assert (done.stderr.count("\n"), done.stdout) == (1, "")
    assert _run("gfx1201", "--operand", "E").returncode == 2
    assert _run().returncode == 2
