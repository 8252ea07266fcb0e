"""Products in turns that are wrong on purpose."""

from dataclasses import dataclass

import pytest
import torch
from test_gemm_in_turns import eight_waves

from wmma_ops.emulator import EmulationError, Race, Uninitialised
from wmma_ops.plan.gemm import planner
from wmma_ops.testing import GemmCase, Mismatch, run

STAGED = "gemm/staged.hpp"


@dataclass(frozen=True)
class Wrong:
    name: str
    old: str
    new: str
    caught: tuple[type[Exception], ...] = (Race, Uninitialised, Mismatch)

    def __str__(self) -> str:
        return self.name


WRONG = [
    Wrong("groups_in_step", "    if (second) arch::shared_barrier();\n", "", (EmulationError,)),
    Wrong(
        "no_barrier_after_memorys_turn",
        "      arch::shared_barrier();\n      arch::schedule_barrier();\n      arch::priority<1>();",
        "      arch::schedule_barrier();\n      arch::priority<1>();",
    ),
    Wrong(
        "into_the_buffer_that_is_read",
        "step_in_turns<true, 0>(wave, a, b, shared, other,",
        "step_in_turns<true, 0>(wave, a, b, shared, shared,",
    ),
    Wrong(
        "operands_of_the_wrong_step",
        "read(next, last ? to : from, reader, last ? 0 : step + 1);",
        "read(next, from, reader, last ? 0 : step + 1);",
    ),
    Wrong(
        "reads_the_next_tile_too_soon",
        "      if (!last) {\n        pass<kFetches>(a, b, to, step);",
        "      if (!last) {\n        read(next, to, reader, step + 1);\n        pass<kFetches>(a, b, to, step);",
    ),
]


def test_what_is_replaced_stands_there(sources):
    text = (sources / "wmma" / STAGED).read_text()
    assert not [of.name for of in WRONG if of.old not in text], "the header has changed; write these anew"


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources, monkeypatch):
    path, case = sources / "wmma" / STAGED, GemmCase(m=256, n=256, k=160, dtype="bfloat16", b_layout="column")
    monkeypatch.setattr(planner, "choose", eight_waves)
    torch.ops.wmma._forget_plans()
    run(case, "emulated:gfx942")  # right as it is
    path.write_text(path.read_text().replace(of.old, of.new))
    torch.ops.wmma._forget_plans()
    with pytest.raises(of.caught):
        run(case, "emulated:gfx942")
