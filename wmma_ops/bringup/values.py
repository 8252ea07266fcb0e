"""The value suite's sample on the machine; of what fails, all that is known."""

import functools

import torch

from wmma_ops.bringup.item import FAILED, PASSED, Item
from wmma_ops.bringup.machine import Machine
from wmma_ops.hardware import arch
from wmma_ops.runtime import launching
from wmma_ops.runtime.explain import explained
from wmma_ops.testing import Mismatch, run, sampling
from wmma_ops.testing.calls import call
from wmma_ops.testing.cases.case import Case
from wmma_ops.testing.operands import operands
from wmma_ops.testing.results import expected

PART = "values"
_SHOWN = 8  # wrong elements, rows and columns
_FEW = 1  # cases of each op, where sizes are small


def cases(machine: Machine) -> list[Case]:
    """In which everything occurs that the suite has; of small ones the smallest of each op."""
    chosen = sampling.of_everything()
    if not machine.small:
        return chosen
    few: dict[str, list[Case]] = {}
    for case in sorted(chosen, key=lambda case: (sampling.work(case), repr(case))):
        if not sampling.is_empty(case):
            few.setdefault(case.op, []).append(case)
    return [case for found in few.values() for case in found[:_FEW]]


def _call(case: Case) -> tuple[torch.Tensor, ...]:
    return call(case, operands(case), {})


def _wrong(case: Case, machine: Machine) -> dict:
    """Which elements are wrong: how many, and where."""
    t = operands(case)
    given = {name: None if x is None else x.to(machine.device) for name, x in t.items()}
    with machine.active():
        got = call(case, given, {})[0]
    want = expected(case, t, machine.backend)[0]
    x = got.double().cpu()
    right = ((x - want.x).abs() <= want.error) | (x == want.x) | (x.isnan() & want.x.isnan())
    where = (~right).nonzero()
    found: dict = {"wrong": len(where), "of": x.numel(), "NaN": int(x.isnan().sum())}
    if len(where) and x.dim() > 1:
        for name, axis in (("rows", -2), ("columns", -1)):
            hit = where[:, axis].unique().tolist()
            found[name] = {"count": len(hit), "of": x.shape[axis], "first": hit[:_SHOWN], "last": hit[-1]}
    found["elements"] = [
        {"at": at, "got": float(x[tuple(at)]), "expected": float(want.x[tuple(at)])} for at in where[:_SHOWN].tolist()
    ]
    return found


def in_full(case: Case, machine: Machine, failure: Exception) -> dict:
    """All that is known of a failure."""
    found: dict = {"verdict": FAILED, "case": repr(case), "error": f"{type(failure).__name__}: {failure}"}

    def also(what: str, of) -> None:
        try:
            found[what] = of()
        except Exception as error:  # it belongs into the file as well
            found[what] = f"{type(error).__name__}: {error}"

    also("plan", lambda: str(explained(case.op, lambda: _call(case), machine.target)))
    if isinstance(failure, Mismatch):
        also("elements", lambda: _wrong(case, machine))
    if machine.is_card:
        also("emulated", lambda: machine.no_emulator or run(case, f"emulated:{machine.target}") or "right")
    return found


def check(case: Case, machine: Machine) -> dict:
    try:
        run(case, machine.backend)
        if machine.is_card:
            torch.cuda.synchronize()
    except Exception as failure:
        return in_full(case, machine, failure)
    return {"verdict": PASSED}


def items(machine: Machine) -> list[Item]:
    target = arch.target(machine.target)
    return [
        Item(
            PART,
            repr(case),
            functools.partial(check, case, machine),
            functools.partial(launching.plans, functools.partial(_call, case), target),
        )
        for case in cases(machine)
    ]
