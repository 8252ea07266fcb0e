"""The lane layouts of gfx11 and gfx12: every map that kernel generators name, from formulas written out here."""

import pytest

from wmma_ops.hardware import layouts
from wmma_ops.hardware.layouts import layout

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
