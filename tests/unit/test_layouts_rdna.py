"""The lane layouts of gfx11 and gfx12: every map that tilelang's kernel generators name, by the call that the page for its
users puts beside it, against the formula that its own page gives, on numbers, arrays and symbols."""

import re
from pathlib import Path

import numpy as np
import pytest
import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from wmma_ops import layouts
from wmma_ops.hardware import arch, cards
from wmma_ops.layouts import layout

PAGE = Path(__file__).parents[2] / "docs/pages/porting/tilelang.md"
CALLS = dict(re.findall(r"^\| `(\w+)(?:\(.*?\))` \| `(.*)` \|$", PAGE.read_text(), re.M))
GFX11 = ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151")
GFX12 = ("gfx1200", "gfx1201")
SELECTORS = {11: (11, "11", "gfx11", "rdna3", "RDNA3", *GFX11), 12: (12, "12", "gfx12", "rdna4", *GFX12)}

CELL = {"i": 16, "j": 16}
EIGHT, SIXTEEN = {"thread_id": 32, "local_id": 8}, {"thread_id": 32, "local_id": 16}
COPY = {**CELL, "rep": 2}

# By tilelang's names: what each index lies below, and the formula, in the names of that page.
FORMULAS = {
    "shared_16x16_to_local_32x8_layout_A_gfx12": (CELL, lambda i, j: (j // 8 * 16 + i, j % 8)),
    "thread_id_shared_access_32x8_to_16x16_layout_A_gfx12": (EIGHT, lambda t, e: (t % 16, t // 16 * 8 + e)),
    "shared_16x16_to_local_32x8_layout_A_colmajor_gfx12": (CELL, lambda i, j: (i // 8 * 16 + j, i % 8)),
    "thread_id_shared_access_32x8_to_16x16_layout_A_colmajor_gfx12": (EIGHT, lambda t, e: (t // 16 * 8 + e, t % 16)),
    "shared_16x16_to_local_32x8_layout_B_gfx12": (CELL, lambda i, j: (i // 8 * 16 + j, i % 8)),
    "thread_id_shared_access_32x8_to_16x16_layout_B_gfx12": (EIGHT, lambda t, e: (t // 16 * 8 + e, t % 16)),
    "shared_16x16_to_local_32x8_layout_B_colmajor_gfx12": (CELL, lambda i, j: (j // 8 * 16 + i, j % 8)),
    "thread_id_shared_access_32x8_to_16x16_layout_B_colmajor_gfx12": (EIGHT, lambda t, e: (t % 16, t // 16 * 8 + e)),
    "shared_16x16_to_local_32x8_layout_C_gfx12": (CELL, lambda i, j: (i // 8 * 16 + j, i % 8)),
    "thread_id_shared_access_32x8_to_16x16_layout_C_gfx12": (EIGHT, lambda t, e: (t // 16 * 8 + e, t % 16)),
    "wmma_store_index_map_gfx12": (EIGHT, lambda t, e: (t // 16 * 8 + e, t % 16)),
    "shared_16x16_to_local_32x16_layout_A_gfx11": (CELL, lambda i, j: (i, j % 16)),
    "thread_id_shared_access_32x16_to_16x16_layout_A_gfx11": (SIXTEEN, lambda t, e: (t % 16, e)),
    "shared_16x16_to_local_32x16_layout_A_colmajor_gfx11": (CELL, lambda i, j: (j, i % 16)),
    "thread_id_shared_access_32x16_to_16x16_layout_A_colmajor_gfx11": (SIXTEEN, lambda t, e: (e, t % 16)),
    "shared_16x16_to_local_32x16_layout_B_gfx11": (CELL, lambda i, j: (j, i % 16)),
    "thread_id_shared_access_32x16_to_16x16_layout_B_gfx11": (SIXTEEN, lambda t, e: (e, t % 16)),
    "shared_16x16_to_local_32x16_layout_B_colmajor_gfx11": (CELL, lambda i, j: (i, j % 16)),
    "thread_id_shared_access_32x16_to_16x16_layout_B_colmajor_gfx11": (SIXTEEN, lambda t, e: (t % 16, e)),
    "shared_16x16_to_local_32x8_layout_C_gfx11": (CELL, lambda i, j: (i % 2 * 16 + j, i // 2)),
    "thread_id_shared_access_32x8_to_16x16_layout_C_gfx11": (EIGHT, lambda t, e: (t // 16 + e * 2, t % 16)),
    "wmma_store_index_map_gfx11": (EIGHT, lambda t, e: (t // 16 + e * 2, t % 16)),
    "fragment_forward_A_gfx11": (COPY, lambda i, j, rep: (i + 16 * rep, j % 16)),
    "fragment_forward_A_colmajor_gfx11": (COPY, lambda i, j, rep: (j + 16 * rep, i % 16)),
    "fragment_forward_B_gfx11": (COPY, lambda i, j, rep: (j + 16 * rep, i % 16)),
    "fragment_forward_B_colmajor_gfx11": (COPY, lambda i, j, rep: (i + 16 * rep, j % 16)),
}
# Those that give functions: for each generation and order, the names of the functions.
FAMILIES = {
    "get_wmma_a_layout_funcs": ("A", True),
    "get_wmma_b_layout_funcs": ("B", True),
    "get_wmma_c_layout_funcs": ("C", False),
    "get_wmma_a_fragment_forward_func": ("A", True),
    "get_wmma_b_fragment_forward_func": ("B", True),
}


class Symbol:
    """Has + * // and %, and nothing else; keeps what was done to it."""

    def __init__(self, text):
        self.text = text

    def _with(self, sign, other):
        return Symbol(f"({self.text} {sign} {getattr(other, 'text', other)})")

    def __add__(self, other):
        return self._with("+", other)

    def __mul__(self, other):
        return self._with("*", other)

    def __floordiv__(self, other):
        return self._with("//", other)

    def __mod__(self, other):
        return self._with("%", other)


def _call(text: str, selectors: dict | None = None, **indices):
    """What the page's call gives; with `selectors` its generation is named in another way."""
    for generation, other in (selectors or {}).items():
        text = re.sub(rf"\({generation}\b", f"({other!r}", text)
    return eval(text, {"layouts": layouts}, indices)


def _grid(sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """All indices, as arrays that broadcast."""
    return dict(zip(sizes, np.ix_(*(np.arange(size) for size in sizes.values())), strict=True))


def _same(found, wanted, shape):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert np.array_equal(np.broadcast_to(one, shape), np.broadcast_to(other, shape))


def _check(call, sizes, formula):
    """A map (by its keyword arguments) against a formula: on arrays, on some numbers, on symbols of three kinds."""
    grid, shape = _grid(sizes), tuple(sizes.values())
    wanted = formula(*grid.values())
    found = call(**grid)
    assert all(value.shape == shape and value.dtype == np.int64 for value in found)
    _same(found, wanted, shape)
    for at in np.random.default_rng(0).integers(0, shape, (20, len(shape))):
        numbers = dict(zip(sizes, map(int, at), strict=True))
        got = call(**numbers)
        assert got == formula(*numbers.values())
        assert all(type(value) is int for value in got)

    symbols = {name: sympy.Symbol(name, integer=True) for name in sizes}
    _same([sympy.lambdify([*symbols.values()], x)(*grid.values()) for x in call(**symbols)], wanted, shape)
    bare = call(**{name: Symbol(name) for name in sizes})
    _same([eval(x.text, {}, grid) for x in bare], wanted, shape)
    environment = ShapeEnv()
    torch_symbols = {name: environment.create_unbacked_symint() for name in sizes}
    inner = [value.node.expr for value in torch_symbols.values()]
    traced = call(**torch_symbols)
    assert all(isinstance(value, torch.SymInt) for value in traced)
    for at in (tuple(size - 1 for size in shape), tuple(size // 3 for size in shape)):
        got = [int(value.node.expr.subs(dict(zip(inner, at, strict=True)))) for value in traced]
        assert tuple(got) == formula(*at)


@pytest.mark.parametrize("name", FORMULAS)
def test_map(name):
    sizes, formula = FORMULAS[name]
    _check(lambda **indices: _call(CALLS[name], **indices), sizes, formula)
    generation = 12 if name.endswith("12") else 11
    for other in SELECTORS[generation]:
        grid = _grid(sizes)
        _same(_call(CALLS[name], {generation: other}, **grid), formula(*grid.values()), tuple(sizes.values()))


def _wanted(what, operand, generation, transposed):
    """The formula of a function that the other table gives: of the lanes, of the elements, or of a copy."""
    order = "_colmajor" if transposed else ""
    if what == "fragment":
        return FORMULAS[f"fragment_forward_{operand}{order}_gfx11"]
    wide = 16 if generation == 11 and operand != "C" else 8
    way = f"shared_16x16_to_local_32x{wide}" if what == "forward" else f"thread_id_shared_access_32x{wide}_to_16x16"
    return FORMULAS[f"{way}_layout_{operand}{order}_gfx{generation}"]


@pytest.mark.parametrize("generation", [11, 12])
@pytest.mark.parametrize("name", FAMILIES)
def test_functions(name, generation):
    operand, ordered = FAMILIES[name]
    for transposed in (False, True) if ordered else (False,):
        for selector in SELECTORS[generation]:
            given = _call(CALLS[name], rdna_gen=selector, transposed=transposed)
            if not name.endswith("layout_funcs"):
                if generation == 11:
                    wanted = [_wanted("fragment", operand, 11, transposed)]
                else:  # one copy: the fragment's map is the forward map
                    sizes, plain = _wanted("forward", operand, 12, transposed)
                    wanted = [({**sizes, "rep": 1}, lambda i, j, rep, plain=plain: plain(i, j))]
                given = (given,)
            else:
                wanted = [_wanted(way, operand, generation, transposed) for way in ("forward", "reverse")]
            for function, (sizes, formula) in zip(given, wanted, strict=True):
                grid = _grid(sizes)
                _same(function(*grid.values()), formula(*grid.values()), tuple(sizes.values()))


@pytest.mark.parametrize("generation", [11, 12])
def test_store_map(generation):
    name = "get_wmma_store_index_map_func"
    sizes, formula = FORMULAS[f"wmma_store_index_map_gfx{generation}"]
    for selector in SELECTORS[generation]:
        store_map, grid = _call(CALLS[name], rdna_gen=selector), _grid(sizes)
        _same(store_map(*grid.values()), formula(*grid.values()), tuple(sizes.values()))
        assert store_map(3, 4) == layouts.functions(selector, "A").store_map(3, 4) == formula(3, 4)


def test_copies():
    count = CALLS["get_wmma_fragment_replicate_count"]
    assert {_call(count, rdna_gen=selector) for selector in SELECTORS[11]} == {2}
    assert {_call(count, rdna_gen=selector) for selector in SELECTORS[12]} == {1}
    assert layouts.replication("gfx1100", "D") == layouts.replication("gfx942") == layouts.replication("sm_90") == 1
    assert layouts.functions("gfx1100", "B").replication == 2
    for selector, copies in ((11, 2), (12, 1)):
        for function in (layouts.functions(selector, "A").fragment_forward, layout(selector, "A").owner):
            with pytest.raises(IndexError, match=f"copy {copies}; takes 0 to {copies - 1}"):
                function(0, 0, copies)
    lanes, elements = zip(*layout(11, "A").owners(np.arange(16), 5), strict=True)
    assert [lane.tolist() for lane in lanes] == [[*range(16)], [*range(16, 32)]]
    assert all((e == 5).all() for e in elements)


def test_the_page_has_a_call_for_every_function():
    # The 33 that tilelang's page lists.
    known = {*FORMULAS, *FAMILIES, "get_wmma_store_index_map_func", "get_wmma_fragment_replicate_count"}
    assert set(CALLS) == known
    assert len(CALLS) == 33


@pytest.mark.parametrize("generation", sorted({*cards.GENERATIONS.values()}))
def test_layouts_are_alike_within_a_generation(generation):
    """So that its name says enough."""
    one = arch.target(generation)
    alike = [t for t in arch.TARGETS.values() if t.family == one.family != "cdna"] or [one]
    for row in one.instructions:
        for operand in "ABD":
            assert len({layout(t.name, operand, row.name).places for t in alike}) == 1


BAD = [
    (lambda: layouts.forward(12, "A", 16, 0), IndexError, "row 16; takes 0 to 15"),
    (lambda: layouts.forward(12, "A", np.arange(17), 0), IndexError, "row .*; takes 0 to 15"),
    (lambda: layouts.reverse(12, "A", 0, np.array([-1])), IndexError, r"element \[-1\]; takes 0 to 7"),
    (lambda: layouts.reverse(12, "A", np.zeros(3), 0), TypeError, "lane is an array of float64; takes whole numbers"),
    (
        lambda: layouts.reverse(12, "A", 1.5, 0),
        TypeError,
        r"lane is of type float; takes a whole number, a NumPy array",
    ),
    (lambda: layouts.reverse(12, "A", "1", 0), TypeError, r"lane is of type str; .* symbol that has \+ \* // and %"),
    (lambda: layouts.layout(13, "A"), ValueError, "no target '13' is known"),
    (lambda: layouts.layout("gfx9", "A"), ValueError, "no target 'gfx9' is known; the closest names are gfx9"),
    (lambda: layouts.layout(12, "a"), ValueError, "no operand 'a'; the operands are A, B, C, D"),
]


@pytest.mark.parametrize(("call", "kind", "text"), BAD, ids=[text for _, _, text in BAD])
def test_bad_input_is_refused(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


def test_gfx11_leaves_the_upper_halves_of_16_bit_results():
    for name in ("v_wmma_f16_16x16x16_f16", "v_wmma_bf16_16x16x16_bf16"):
        assert [layout("gfx1100", "D", name).register(e) for e in range(8)] == [(e, 0) for e in range(8)]
        assert [layout("gfx1201", "D", name).register(e) for e in range(3)] == [(0, 0), (0, 16), (1, 0)]
        registers, lows = layout("gfx1201", "D", name).register(np.arange(3))
        assert (registers.tolist(), lows.tolist()) == ([0, 0, 1], [0, 16, 0])
