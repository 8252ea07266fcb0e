"""A kernel of sm_90a's warpgroups of each kind compiles here, where no GPU runs it: what kinds share has other members in
each."""

import packed_scored
import pytest
import scored
import torch
import warpgroup_cases as cases

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan.attention.loops import warpgroup
from wmma_ops.runtime import launching
from wmma_ops.testing.calls import call
from wmma_ops.testing.operands import operands

TARGET = arch.target("sm_90a")


def _scaled():
    q = torch.empty(2, 4, 256, 64, dtype=torch.float8_e4m3fn)
    return wmma_ops.scaled_attention(q, q, q)


def _asked(case):
    if isinstance(case, scored.Case):
        return scored.results(case, scored.ours)
    if isinstance(case, packed_scored.PackedCase):
        return packed_scored.results(case, packed_scored.ours)
    return call(case, operands(case), {})


KINDS = {
    "plain": cases.CASES[0],
    "masked": cases.RULED[0],
    "dropped": cases.DROPPED[0],
    "functions": cases.MODIFIED[0],
    "packed": cases.SEQUENCES[1],
    "one query of many": cases.SEQUENCES[9],
    "one query of few": cases.SEQUENCES[10],
    "functions of sequences": cases.OF_SEQUENCES[0],
    "pages": cases.PAGES[1],
    "one query of many, in pages": cases.PAGES[5],
    "pages of 8 bits": cases.NARROW_PAGES[1],
}


@pytest.mark.full
@pytest.mark.parametrize("kind", [*KINDS, "of 8 bits"])
def test_compiles(kind):
    make = _scaled if kind == "of 8 bits" else lambda: _asked(KINDS[kind])
    problem = next(x for x in launching.problems(make, TARGET) if not x.backward)
    config = warpgroup.candidates(problem, TARGET)[0]
    launches = warpgroup.plan_of(problem, config, TARGET, "compiled").launches
    assert all(launch.compile(TARGET).code for launch in launches)
