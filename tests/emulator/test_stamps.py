"""Stamps of thread traces beside the clock: bench/stamps.py on a small one."""

import dataclasses
import gzip
import json
import sys
from pathlib import Path

import pytest

from wmma_ops.emulator.assembly import parse_instruction
from wmma_ops.emulator.timing import Executed, operation, rules
from wmma_ops.emulator.timing.unit import Stamped, predicted

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import stamps

CODE = [
    "v_mov_b32_e32 v0, 1.0",
    "v_mov_b32_e32 v1, 2.0",
    "s_delay_alu instid0(VALU_DEP_1)",
    "v_add_f32_e32 v2, v0, v1",
    "s_add_u32 s0, s0, 1",
    "s_cbranch_scc0 65530",
    "s_endpgm",
]
# As a card would: the sum five cycles behind what it adds, a branch ten behind its condition, and back in 14, which is more
# than the rules say.
WAVE = [[0, 100], [1, 101], [3, 106], [4, 107], [5, 117], [0, 131], [1, 132], [3, 137], [4, 138], [5, 148]]


def _record(target="gfx1201", wave=WAVE):
    code = [[8 * i, text] for i, text in enumerate(CODE)]
    waves = [{"se": 0, "cu": 0, "simd": 0, "stamps": [[i, at, "", "", None] for i, at in wave]}]
    return {"target": target, "group": "plus", "code": code, "waves": waves}


def test_gaps_by_kind():
    found = list(stamps.gaps(_record()))
    assert [(gap.kind, gap.measured, gap.by_rules) for gap in found[:4]] == [
        ("VALU → VALU", 1, 1),
        ("VALU → VALU, dependent, s_delay_alu between", 5, 5),
        ("VALU → SALU", 1, 1),
        ("SALU → branch, dependent", 10, 10),
    ]
    assert (found[4].kind, found[4].measured, found[4].by_rules) == ("branch taken → VALU", 14, 10)
    assert [gap.is_near for gap in found] == [True] * 4 + [False] + [True] * 4
    assert all(gap.is_judged for gap in found)


def test_all_before_an_instruction_issued_as_they_did():
    late = [[i, at + (40 if n >= 2 else 0)] for n, (i, at) in enumerate(WAVE)]
    found = list(stamps.gaps(_record(wave=late)))
    assert (found[1].measured, found[1].by_rules) == (45, 5)  # by what it waits for
    assert [gap.by_rules for gap in found[2:]] == [gap.by_rules for gap in list(stamps.gaps(_record()))[2:]]


def test_other_rules_predict_others():
    ops = [operation(parse_instruction(text), "gfx1201") for text in CODE]
    of = [Stamped(Executed(ops[i]), at) for i, at in WAVE[:3]]
    of.insert(2, Stamped(Executed(ops[2]), None))  # s_delay_alu
    slower = dataclasses.replace(rules("gfx1201"), valu_latency=9)
    assert [one and one[0] for one in predicted([(0, of)], rules("gfx1201"), 32)[0]] == [100, 101, None, 106]
    assert predicted([(0, of)], slower, 32)[0][3] == (110, "vector result")


def test_waves_of_a_simd_share_its_port():
    two = [(0, [Stamped(Executed(operation(parse_instruction(CODE[0]), "gfx1201")), 100)]) for _ in range(2)]
    assert [found[0][0] for found in predicted(two, rules("gfx1201"), 32)] == [100, 101]
    apart = [(simd, of) for simd, (_, of) in enumerate(two)]
    assert [found[0][0] for found in predicted(apart, rules("gfx1201"), 32)] == [100, 100]


@pytest.mark.parametrize("packed", [False, True])
def test_the_script_prints_a_table(packed, tmp_path, capsys):
    file = tmp_path / ("stamps.jsonl.gz" if packed else "stamps.jsonl")
    lines = "\n".join(json.dumps(one) for one in (_record(), _record("gfx1100"))) + "\n"
    file.write_bytes(gzip.compress(lines.encode()) if packed else lines.encode())
    stamps.main([str(file), "--target", "gfx1201", "--least", "2"])
    said = capsys.readouterr().out
    assert said.startswith("gfx1201\n")
    assert "gfx1100" not in said
    assert "branch taken" not in said  # one of a kind
    assert said.split("all that are judged")[1].split() == ["9", "89%"]


def test_what_waits_for_memory_is_not_judged():
    code = ["global_load_b32 v0, v1, s[0:1]", "s_wait_loadcnt 0x0", "v_mov_b32_e32 v2, v0"]
    record = _record(wave=[[0, 10], [1, 800], [2, 801]]) | {"code": [[8 * i, text] for i, text in enumerate(code)]}
    found = list(stamps.gaps(record))
    assert [(gap.kind, gap.is_judged) for gap in found] == [("memory → wait", False), ("wait → VALU", True)]
    assert found[1].is_near
