"""The tiers of the tests: nothing is in both parts or in neither, and within few commits everything has had its turn."""

import ast
import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiers

from wmma_ops.hardware import arch


class _Item:
    def __init__(self, path: str, *parameters, full: bool = False):
        self.path = SimpleNamespace(name=path.split("/")[-1], parent=SimpleNamespace(name=path.split("/")[0]))
        self.name, self.full = "test_x", full
        if parameters:
            names = {f"p{i}": value for i, value in enumerate(parameters)}
            self.callspec = SimpleNamespace(params=names, id="-".join(map(str, parameters)))

    def get_closest_marker(self, name):
        return self.full or None


def test_each_target_meets_each_other():
    pairs = {tiers.targets(turn) for turn in range(16)}
    assert len(pairs) == 16
    assert {name for pair in pairs for name in pair} == set(arch.EMULATED)
    assert all(arch.target(a).family == "cdna" != arch.target(b).family for a, b in pairs)


@pytest.mark.parametrize("turn", [0, 5, 1000])
def test_what_is_quick(turn):
    mine, other = tiers.targets(turn), tiers.targets(turn + 1)
    assert tiers.is_quick(_Item("unit/test_x.py"), turn)
    assert tiers.is_quick(_Item("unit/test_x.py", "float32", 3, "sm_90a", "gfx1250"), turn)
    assert not tiers.is_quick(_Item("unit/test_x.py", full=True), turn)
    assert not tiers.is_quick(_Item("models/test_x.py"), turn)
    for name in mine:
        for given in (name, f"emulated:{name}", arch.target(name)):
            for folder in ("contract", "emulator"):
                items = [_Item(f"{folder}/test_x.py", given, i) for i in (5, 6, 7, 8)]
                assert [tiers.is_quick(item, turn) for item in items].count(True) == 1
        assert tiers.is_quick(_Item("unit/test_x.py", name), turn)
    for name in other:
        assert not tiers.is_quick(_Item("emulator/test_x.py", name), turn)
        assert not tiers.is_quick(_Item("emulator/test_x.py", arch.target(name)), turn)
    assert not tiers.is_quick(_Item("emulator/test_x.py", mine[0], other[1]), turn)


@pytest.mark.parametrize("folder", ["contract", "emulator"])
def test_what_is_only_compiled_takes_turns(folder):
    for name in tiers.COMPILED:
        assert name not in arch.EMULATED
        item = _Item(f"{folder}/test_x.py", "float32", name)
        for tier in ("quick", "rest"):
            assert sum(tiers.runs(item, tier, turn) for turn in range(3)) == 1
        assert not any(all(tiers.runs(item, tier, turn) for tier in ("quick", "rest")) for turn in range(3))


def test_the_wrong_kernels_take_turns():
    named = [_Item(f"contract/{name}", f"wrong_{i}") for name in tiers.WRONG for i in range(30)]
    seen = [[tiers.is_quick(item, turn) for turn in range(4)] for item in named]
    assert all(sum(turns) == 1 for turns in seen)
    assert all(15 <= sum(turns[i] for turns in seen) <= 45 for i in range(4))


@pytest.mark.parametrize("name", [*tiers.DRAWN, "test_is_caught", "test_others_are_caught"])
def test_so_do_those_that_are_caught_or_drawn(name):
    named = [_Item("unit/test_x.py", f"kind {i}", i % 4) for i in range(30)]
    for item in named:
        item.originalname = name
    seen = [[tiers.is_quick(item, turn) for turn in range(4)] for item in named]
    assert all(sum(turns) == 1 for turns in seen)
    assert not any(tiers.runs(item, "rest", turn) for item in named for turn in range(4))


@pytest.mark.parametrize(
    ("name", "parts"), [*((name, 2) for name in tiers.BY_HALVES), *((name, 4) for name in tiers.BY_QUARTERS)]
)
def test_so_do_halves_and_quarters(name, parts):
    items = [_Item("contract/test_x.py", i) for i in range(4)]
    for item in items:
        item.originalname = name
    for turn in range(parts):
        quick, rest = ([tiers.runs(item, tier, turn) for item in items] for tier in ("quick", "rest"))
        assert sum(quick) == 4 // parts
        assert rest == [not one for one in quick]


def test_models_take_turns():
    items = [_Item("models/test_x.py", i) for i in range(4)]
    for item in items:
        assert sum(tiers.runs(item, "rest", turn) for turn in range(2)) == 1
        assert tiers.runs(item, "full", 0)


def values(target: str, part: int) -> _Item:
    item = _Item("contract/test_values.py", f"emulated:{target}", part)
    item.originalname, item.callspec.params = "test_kernels_keep_the_contract", {"emulated": target, "part": part}
    return item


@pytest.mark.parametrize("target", arch.EMULATED)
@pytest.mark.parametrize("folder", ["contract", "emulator"])
def test_each_quarter_is_quick_in_some_turns_of_a_target(target, folder):
    items = [_Item(f"{folder}/test_x.py", target, i) for i in range(4)]
    taken = [[tiers.is_quick(item, turn) for turn in range(64)] for item in items]
    assert [sum(turns) for turns in taken] == [4, 4, 4, 4]
    assert all(
        sum(all_four) == (target in tiers.targets(turn)) for turn, all_four in enumerate(zip(*taken, strict=True))
    )


@pytest.mark.parametrize("turn", [0, 5])
@pytest.mark.parametrize("target", arch.EMULATED)
def test_each_part_of_a_target_has_its_turn(target, turn):
    """A quarter of its values and a sixth of its other tests in the rest, and of twins half as many."""
    others = [_Item("contract/test_x.py", target, letter) for letter in "abcdefghijkl"]
    for items, parts in (([values(target, part) for part in range(4)], 4), (others, 6)):
        parts *= 1 + (target in tiers.TWINS)
        for at in range(turn, turn + 4):
            found = [tiers.runs(item, "rest", at) for item in items]
            quick = [tiers.runs(item, "quick", at) for item in items]
            assert not any(map(min, found, quick))
            assert sum(found) <= max(len(items) // parts, 1)
            assert any(quick) == (target in tiers.targets(at))
        turns = range(turn, turn + 48)
        assert all(any(tiers.runs(item, "rest", at) for at in turns) for item in items)
        assert all(tiers.runs(item, "full", turn) for item in items)


@pytest.mark.parametrize("turn", [0, 5])
def test_what_other_compilers_are_held_to(turn):
    """A quarter of the values of half of the targets: within sixteen commits all by both compilers, whose turns have four;
    and half of the device library."""
    for target in arch.EMULATED:
        seen = [
            (part, at // 4 % 2)
            for at in range(turn, turn + 16)
            for part in range(4)
            if tiers.runs(values(target, part), "compilers", at)
        ]
        assert sorted(seen) == list(itertools.product(range(4), range(2)))
        device = [tiers.runs(_Item("emulator/test_math.py", target), "compilers", at) for at in (turn, turn + 1)]
        assert sorted(device) == [False, True]
    assert tiers.runs(_Item("emulator/test_atomics.py", "refused"), "compilers", turn)
    assert not tiers.runs(_Item("emulator/test_atomics.py", "float", "gfx1250"), "compilers", turn)
    assert tiers.runs(_Item("emulator/test_natural_kernels.py", "gfx942", "switch"), "compilers", turn)
    assert not tiers.runs(_Item("emulator/test_kernel.py", "gfx942"), "compilers", turn)
    assert tiers.runs(_Item("emulator/test_kernel.py", "gfx942"), "full", turn)


def test_what_another_nvrtc_is_tried_with_takes_turns():
    named = [_Item("emulator/test_x.py", "sm_90a", i) for i in range(30)]
    seen = [[tiers.runs(item, "torch", turn) for turn in range(3)] for item in named]
    assert all(sum(turns) == 1 for turns in seen)
    assert not tiers.runs(_Item("emulator/test_x.py", "gfx942", 3), "torch", 0)


def test_the_turn_is_the_commits(monkeypatch):
    monkeypatch.setenv("WMMA_OPS_TURN", "7")
    assert tiers.turn() == 7
    monkeypatch.delenv("WMMA_OPS_TURN")
    assert tiers.turn() >= 0
    monkeypatch.setenv("PATH", "")
    assert tiers.turn() == 0


def test_those_for_another_torch_are_there():
    folder = Path(__file__).parents[1]
    files = {path.name: path for path in folder.rglob("test_*.py")}
    for name, tests in tiers.OF_TORCH.items():
        tree = ast.parse(files[name].read_text(encoding="utf-8"))
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert set(tests) <= defined, name
    kinds = {files[name].parent.name for name in tiers.OF_TORCH}
    assert kinds == {"unit", "contract", "emulator", "models"}
    item = SimpleNamespace(path=files["test_swap.py"], originalname="test_jit_trace")
    assert tiers.runs(item, "torch", 0)
    assert not tiers.runs(SimpleNamespace(path=files["test_swap.py"], originalname="test_filter"), "torch", 0)
    assert not tiers.runs(SimpleNamespace(path=files["test_plan.py"], originalname="test_x"), "torch", 0)
