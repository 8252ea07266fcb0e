"""The tiers of the tests: nothing is in both parts or in neither, and within few commits everything has had its turn."""

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiers

from wmma_ops.hardware import arch


class _Item:
    def __init__(self, path: str, *parameters, full: bool = False):
        self.path, self.full = (
            SimpleNamespace(name=path.split("/")[-1], parent=SimpleNamespace(name=path.split("/")[0])),
            full,
        )
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
        assert [tiers.is_quick(_Item("emulator/test_x.py", name, i), turn) for i in (7, 8)].count(True) == 1
        assert tiers.is_quick(_Item("contract/test_x.py", f"emulated:{name}"), turn)
    for name in other:
        assert not tiers.is_quick(_Item("emulator/test_x.py", name), turn)
        assert not tiers.is_quick(_Item("emulator/test_x.py", arch.target(name)), turn)
    assert not tiers.is_quick(_Item("emulator/test_x.py", mine[0], other[1]), turn)


def test_what_is_only_compiled_takes_turns():
    for name in tiers.COMPILED:
        assert name not in arch.EMULATED
        turns = [tiers.is_quick(_Item("emulator/test_x.py", "float32", name), turn) for turn in range(3)]
        assert sum(turns) == 1


def test_the_wrong_kernels_take_turns():
    named = [_Item(f"contract/{name}", f"wrong_{i}") for name in tiers.WRONG for i in range(30)]
    seen = [[tiers.is_quick(item, turn) for turn in range(3)] for item in named]
    assert all(sum(turns) == 1 for turns in seen)
    assert all(20 <= sum(turns[i] for turns in seen) <= 40 for i in range(3))


@pytest.mark.parametrize("name", tiers.BY_THIRDS)
def test_so_do_those_that_are_caught_or_drawn(name):
    named = [_Item("unit/test_x.py", f"kind {i}", i % 3) for i in range(30)]
    for item in named:
        item.originalname = name
    seen = [[tiers.is_quick(item, turn) for turn in range(3)] for item in named]
    assert all(sum(turns) == 1 for turns in seen)


def values(target: str, part: int) -> _Item:
    item = _Item("contract/test_values.py", f"emulated:{target}", part)
    item.originalname, item.callspec.params = "test_kernels_keep_the_contract", {"emulated": target, "part": part}
    return item


@pytest.mark.parametrize("target", arch.EMULATED)
def test_each_half_is_quick_in_some_turns_of_a_target(target):
    halves, emulated = (
        [_Item(f"{folder}/test_x.py", target, i) for i in range(2)] for folder in ("contract", "emulator")
    )
    for item in halves:
        item.originalname = "test_half_of_the_values"
    for items in (halves, emulated, [values(target, i) for i in range(2)]):
        taken = [[tiers.is_quick(item, turn) for turn in range(16)] for item in items]
        assert [sum(turns) for turns in taken] == [2, 2]
        assert all(sum(both) == (target in tiers.targets(turn)) for turn, both in enumerate(zip(*taken, strict=True)))


@pytest.mark.parametrize("turn", [0, 5])
def test_the_rest_has_half_of_a_targets_values_and_a_quarter_of_a_twins(turn):
    for target in arch.EMULATED:
        parts, alike = range(4), 4 if target in tiers.TWINS else 2
        quick = [part for part in parts if tiers.runs(values(target, part), "quick", turn)]
        assert len(quick) == 2 * (target in tiers.targets(turn))
        rest = [[part for part in parts if tiers.runs(values(target, part), "rest", turn + i)] for i in range(alike)]
        whole = [target in tiers.targets(turn + i) for i in range(alike)]
        assert [len(found) for found in rest] == [0 if is_quick else 4 // alike for is_quick in whole]
        assert len({part for found in rest for part in found}) == 4 // alike * whole.count(False)
        assert all(tiers.runs(values(target, part), "full", turn) for part in parts)
        within = [part for i in range(16) for part in parts if tiers.runs(values(target, part), "quick", turn + i)]
        within += [part for i in range(16) for part in parts if tiers.runs(values(target, part), "rest", turn + i)]
        assert set(within) == set(parts)
    assert tiers.runs(_Item("unit/test_x.py"), "rest", turn) is False  # of no target: quick
    assert tiers.runs(_Item("models/test_x.py"), "rest", turn)


@pytest.mark.parametrize("turn", [0, 5])
def test_what_other_compilers_are_held_to(turn):
    """A quarter of each target's values, the others with the next commits, and half of the device library."""
    for target in arch.EMULATED:
        quarters = [
            [part for part in range(4) if tiers.runs(values(target, part), "compilers", turn + i)] for i in range(4)
        ]
        assert sorted(quarters) == [[0], [1], [2], [3]]
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
