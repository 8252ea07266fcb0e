"""`python -m wmma_ops bringup`: on the emulator in a card's stead, and with things that go wrong on purpose."""

import dataclasses
import json
import sys

import pytest
import tiers
import torch

from wmma_ops.bringup import bits, microkernels, parts, supervisor, text, times, values, worker
from wmma_ops.bringup.item import FAILED, LEFT_OUT, PARTS, PASSED, TOLD, Item, plain
from wmma_ops.bringup.machine import Machine, here
from wmma_ops.cli.main import main
from wmma_ops.ops.library import OPS

TARGETS = tiers.targets(tiers.turn())  # of CDNA and of RDNA, by turns
RDNA = Machine("gfx1201", False, True)


@pytest.mark.parametrize("family", [0, 1], ids=["CDNA", "RDNA"])
def test_from_end_to_end(family, tmp_path, capsys):
    target, file = TARGETS[family], tmp_path / "found" / "card.json"
    assert main(["bringup", "--target", target, "--small", "--out", str(file)]) == 0
    printed = capsys.readouterr()
    assert f"wrote {file}" in printed.err
    assert f"values: {len(OPS)} of {len(OPS)}" in printed.err  # progress: a case of each op
    data = json.loads(file.read_text())
    assert (data["target"], data["emulated"], data["small"]) == (target, True, True)
    counted = text.counts(data["results"])
    assert list(counted) == list(PARTS)
    assert all(part[FAILED] == 0 for part in counted.values()), file.with_suffix(".md").read_text()
    assert counted["values"][PASSED] == len(OPS)  # one of each
    assert counted["bits"][PASSED] >= 5
    told = {result["name"]: result for result in data["results"] if result["verdict"] == TOLD}
    has_clock = target != "gfx908"
    if has_clock:
        assert told["gradients 64"]["clock"]["microseconds"] > 0
        # Delta, all products, rows of the queries'; or delta in the queries' kernel, and the keys'
        assert len(told["gradients 64"]["clock"]["launches"]) == (3 if family == 0 else 2)
        assert sum(result["part"] == "microkernels" and result["clock"] > 0 for result in told.values()) >= 8
    why = [result["why"] for result in data["results"] if result["verdict"] == LEFT_OUT]
    assert why
    assert all("emulated" in one or "no rules" in one for one in why)
    shown = file.with_suffix(".md").read_text()
    assert shown.startswith(f"# Bring-up of {target} (emulated: nothing here was measured on a card)")
    assert "## Failures: 0" in shown
    assert main(["bringup", "--from", str(file)]) == 0
    assert capsys.readouterr().out.strip() == shown.strip()


def _worked(chosen: list[Item], machine: Machine = RDNA, minutes: float = 10.0) -> tuple[bool, list[dict]]:
    said: list[dict] = []
    whole = worker.work(worker.Order(machine, minutes), chosen, said.append)
    return whole, said


def _ends(said: list[dict]) -> list[dict]:
    return [line for line in said if "end" in line]


def test_a_wrong_kernel_is_told_with_its_case(sources):
    """Beta is applied twice: only a product with a C shows it."""
    header = sources / "wmma/tile/epilogue.hpp"
    before = header.read_text()
    wrong = before.replace("arch::fma(static_cast<E>(p_.beta),", "arch::fma(static_cast<E>(p_.beta * p_.beta),")
    assert wrong != before
    header.write_text(wrong)
    chosen = [item for item in values.items(RDNA) if "addmm" in item.name or "matmul" in item.name]
    more = [
        case for case in values.cases(dataclasses.replace(RDNA, small=False)) if case.op == "addmm" and case.beta == 0.5
    ]
    chosen += [Item("values", repr(case), lambda case=case: values.check(case, RDNA)) for case in more[:2]]
    _, said = _worked(chosen)
    by_name = {item.name: end for item, end in zip(chosen, _ends(said), strict=True)}
    failed = {name: end for name, end in by_name.items() if end["verdict"] == FAILED}
    assert failed
    assert all("c=" in name for name in failed)
    assert any("matmul" in name for name in by_name.keys() - failed.keys())
    told = next(end for end in failed.values() if "elements" in end)
    assert told["case"] in by_name
    assert told["error"].startswith(f"Mismatch: {told['case']}")
    assert "wmma_ops.addmm" in told["plan"]
    assert 0 < told["elements"]["wrong"] <= told["elements"]["of"]
    assert told["elements"]["elements"][0]["got"] != told["elements"]["elements"][0]["expected"]
    shown = text.of(_data([{"part": "values", "name": name, **end} for name, end in by_name.items()]))
    assert told["case"] in shown
    assert f"## Failures: {len(failed)}" in shown


def _data(results: list[dict]) -> dict:
    about = {"wmma_ops": "1", "torch": "2", "date": "today", "seconds": 1.0, "target": "gfx1201", "emulated": False}
    return about | {"device": "a card", "results": results}


def test_other_bits_are_told(monkeypatch):
    kind = next(kind for kind in bits.kinds(RDNA) if "product" in kind.name)
    assert bits.check(kind, RDNA)["verdict"] == PASSED
    on = bits._on

    def one_rounding_off(machine, kind, given):
        (found,) = on(machine, kind, given)
        found[3, 5] = torch.nextafter(found[3, 5].float(), torch.tensor(1e9)).to(found.dtype)
        found.view(torch.int16)[3, 5] += 1
        return (found,)

    monkeypatch.setattr(bits, "_on", one_rounding_off)
    found = bits.check(kind, RDNA)
    assert found["verdict"] == FAILED
    assert "whole numbers" in found["error"]
    assert found["whole numbers"]["differing"] == found["random"]["differing"] == 1
    assert found["whole numbers"]["worst"]["at"] == (3, 5)
    inexact = dataclasses.replace(kind, exact=False)
    assert bits.check(inexact, RDNA)["verdict"] == TOLD  # of random numbers alone
    turn = iter(range(100))

    def another_each_time(machine, kind, given):
        return tuple(x + next(turn) for x in on(machine, kind, given))

    monkeypatch.setattr(bits, "_on", another_each_time)
    assert "another run" in bits.check(kind, RDNA)["error"]


def test_without_an_emulator_whole_numbers_are_held_against_the_cpu(monkeypatch):
    """As on NVIDIA's cards."""
    monkeypatch.setattr(Machine, "no_emulator", property(lambda self: "not AMD's"))
    every = [kind for kind in bits.kinds(RDNA) if "product" in kind.name or kind.op == "attention"]
    assert {kind.op for kind in every if kind.exact} == {"gemm", "attention"}
    for kind in every:
        found = bits.check(kind, RDNA)
        assert found["verdict"] == PASSED, found
        assert found["emulated"] == "not applicable: not AMD's; equal bits in 2 runs"
        assert ("whole numbers" in found) == kind.exact
    on = bits._on
    monkeypatch.setattr(bits, "_on", lambda *given: tuple(x + 1 for x in on(*given)))
    assert "the CPU's bits" in bits.check(every[0], RDNA)["error"]


def test_bits_are_ordered_as_numbers_are():
    x = torch.tensor([-1.0, -0.0, 0.0, 1.0, float("nan")], dtype=torch.bfloat16)
    y = torch.tensor([-1.0, 0.0, -0.0, 1.0, float("nan")], dtype=torch.bfloat16)
    assert bits.compare((x,), (y,))["differing"] == 0
    y[0] = -1.0078125
    found = bits.compare((x,), (y,))
    assert (found["differing"], found["roundings"], found["worst"]["at"]) == (1, 1, (0,))
    assert bits.compare((x,), (torch.full_like(x, float("inf")),))["relative"] == float("inf")


def _fails() -> dict:
    raise RuntimeError("the driver says no")


def test_one_failing_item_stops_no_other():
    passes = Item("bits", "passes", lambda: {"verdict": PASSED})
    whole, said = _worked([Item("values", "fails", _fails, _fails), passes])
    first, second = _ends(said)
    assert whole
    assert (first["verdict"], first["error"]) == (FAILED, "RuntimeError: the driver says no")
    assert "_fails" in first["traceback"]
    assert second["verdict"] == PASSED


def test_a_part_that_cannot_begin_is_told(monkeypatch):
    def broken(machine):
        raise ValueError("no such thing")

    monkeypatch.setitem(parts._MAKERS, "bits", broken)
    chosen = parts.items(RDNA, ("bits", "machine"))
    assert [item.part for item in chosen] == ["machine", "bits"]
    _, said = _worked(chosen[1:])
    assert _ends(said)[0]["error"] == "ValueError: no such thing"


def test_what_no_time_is_left_for_is_left_out():
    _, said = _worked([Item("values", str(i), lambda: {"verdict": PASSED}) for i in range(3)], minutes=-1.0)
    assert [end["verdict"] for end in _ends(said)] == [LEFT_OUT] * 3


def test_a_part_has_its_share_and_what_those_before_it_left():
    order = worker.Order(RDNA, 10.0)
    total = 600.0
    assert worker.left(order, "times", {}) == pytest.approx(total)
    assert worker.left(order, "values", {"machine": 20.0}) == pytest.approx(
        (PARTS["machine"] + PARTS["values"]) * total - 20
    )
    assert worker.left(order, "microkernels", {"bits": 900.0}) == pytest.approx(PARTS["microkernels"] * total)
    assert worker.left(order, "microkernels", {"bits": 900.0, "microkernels": 100.0}) <= 0


PRETENDS = """
import json, os, sys, time
first = int(sys.argv[1])
names = [["values", "right"], ["values", "kills"], ["bits", "hangs"], ["times", "right"]]
print(json.dumps({"items": names}), flush=True)
for index in range(first, 4):
    print(json.dumps({"begin": index}), flush=True)
    if names[index][1] == "kills":
        print("Memory access fault by GPU", file=sys.stderr, flush=True)
        os.abort()
    if names[index][1] == "hangs":
        time.sleep(60)
    print(json.dumps({"end": index, "verdict": "passed", "seconds": 0.5}), flush=True)
"""


def test_a_process_that_dies_or_hangs_is_followed_by_another():
    orders: list[worker.Order] = []

    def start(order):
        orders.append(order)
        return [sys.executable, "-c", PRETENDS, str(order.first)]

    told: list[dict] = []
    found = supervisor.supervise(worker.Order(RDNA, 10.0), told.append, start=start, silence=2.0)
    assert [(one["name"], one["verdict"]) for one in found] == [
        ("right", PASSED), ("kills", FAILED), ("hangs", FAILED), ("right", PASSED),
    ]  # fmt: skip
    assert found[1]["error"] == "the process died of SIGABRT"
    assert "Memory access fault by GPU" in found[1]["said last"]
    assert found[2]["error"] == "the process hung: nothing came for 2 s"
    assert [order.first for order in orders] == [0, 2, 3]
    assert orders[1].used["values"] >= 0.5
    assert [one for one in told if "verdict" in one] == found


def test_a_process_that_never_begins_is_told():
    start = lambda order: [sys.executable, "-c", "raise SystemExit('no torch')"]  # noqa: E731
    (found,) = supervisor.supervise(worker.Order(RDNA, 10.0), lambda line: None, start=start)
    assert found["verdict"] == FAILED
    assert "ended with 1 before it began" in found["error"]
    assert "no torch" in found["said last"]


def test_a_failure_is_the_exit_status(tmp_path, monkeypatch, capsys):
    results = [{"part": "values", "name": "a case", "verdict": FAILED, "error": "wrong\nat (0, 0)"}]
    monkeypatch.setattr("wmma_ops.cli.bringup.supervise", lambda order, tell: results)
    file = tmp_path / "card.json"
    asked = ["bringup", "--target", "gfx942", "--out", str(file)]
    assert main(asked) == 1
    assert "FAILED values: a case" in capsys.readouterr().out
    assert json.loads(file.read_text())["results"] == results
    results[:] = [{"part": "values", "name": "a case", "verdict": LEFT_OUT, "why": "no time"}]
    assert main(asked) == 1  # nothing was shown
    results.append({"part": "values", "name": "another", "verdict": PASSED})
    capsys.readouterr()
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"] == results


def test_what_cannot_be_is_said_before_anything_runs(tmp_path, capsys):
    assert main(["bringup", "--target", "gfx1250"]) == 2
    assert "takes one that is emulated" in capsys.readouterr().err
    assert main(["bringup", "--target", "gfx942", "--out", str(tmp_path)]) == 2
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="--target gfx1201"):
            here(None, False)


def test_an_order_travels_as_text():
    order = worker.Order(RDNA, 3.5, ("values", "bits"), 7, {"values": 2.0})
    assert worker.Order.of(order.text()) == order
    assert plain({"a": float("nan"), "b": (1, float("inf")), "c": torch.float16}) == {
        "a": "nan", "b": [1, "inf"], "c": "torch.float16",
    }  # fmt: skip


def test_the_text_points_at_rules_that_are_off():
    def micro(name, measured, clock, **more):
        return {"part": "microkernels", "name": name, "verdict": TOLD, "measured": measured, "clock": clock, **more}

    results = [
        micro("as it should", 16.2, 16.0, rules={"matrix_latency": 0}),
        micro("off", 24.0, 16.0, rules={"lds_path": 64}, says={"lds_path": 43.0}),
        {"part": "microkernels", "name": "clock", "verdict": TOLD, "gigahertz": 2.05},
        {"part": "times", "name": "product NN", "verdict": TOLD, "microseconds": 50.0, "torch": 40.0, "tflops": 687.0,
         "clock": {"microseconds": 38.9, "gigahertz": 2.1, "share": 0.8}},
        {"part": "times", "name": "a copy within the device", "verdict": TOLD, "gigabytes a second": 4000.0},
    ]  # fmt: skip
    shown = text.of(_data(results))
    assert "| as it should | 16.2 | 16.0 | +1% | matrix_latency 0 |  |" in shown
    assert "| off | 24.0 | 16.0 | +50% * | lds_path 64 | lds_path 43 |" in shown
    assert "| product NN | 50 µs | 687.0 | 40 µs | 0.80 | 38.9 µs | 2.1 GHz | 1.29 | 0.80 |" in shown
    assert "2.05 GHz" in shown
    assert "moves 4000 GB/s" in shown


EXECUTED = ("shared_reads", "shared_writes", "shared_chase")


@pytest.mark.parametrize("family", [0, 1], ids=["CDNA", "RDNA"])
def test_microkernels_do_what_they_say(family):
    """So many of the one instruction, and none of its kind beside them."""
    machine = Machine(TARGETS[family] if TARGETS[family] != "gfx908" else "gfx90a", False, False)
    every = microkernels.all_of(machine)
    seen = set()
    for micro in every[tiers.turn() % 6 :: 6]:
        time, executed = microkernels.by_the_clock(micro, machine)
        assert time > 0, micro.name
        matrix = sum(number for name, number in executed.items() if name.startswith(("v_mfma", "v_wmma")))
        vector = sum(number for name, number in executed.items() if name.startswith(("v_fma_f32", "v_pk_add_f32")))
        seen.add(micro.function)
        if micro.function == "products":
            part = 0.5 if "MICRO_LATER" in micro.defines else 1.0  # on the average of waves
            assert matrix == part, (micro.name, executed)
            assert vector == part * micro.defines["MICRO_BESIDE"], (micro.name, executed)
        elif micro.function == "floats" and "MICRO_EXPONENTIALS" not in micro.defines:
            assert (vector, matrix) == (1.0, 0), (micro.name, executed)
        elif micro.function in EXECUTED:
            shared = {name: number for name, number in executed.items() if name.startswith("ds_")}
            width = 32 * micro.defines["MICRO_WORDS"]
            assert [*shared.values()] == [1.0], (micro.name, executed)
            assert next(iter(shared)).endswith(f"_b{width}"), (micro.name, executed)
    assert {"products", "shared_reads"} <= seen


def test_estimates_are_of_all_launches_together():
    """And the share is that of the one which takes longest."""
    found = times.estimated("attention 64", Machine("gfx942", False, True))
    assert 0 < found["share"] <= 1
    assert found["microseconds"] > max(one["cycles"] for one in found["launches"]) / found["gigahertz"] / 1e3 * 0.99
