"""What products, attention and its gradients take on the card, beside the clock's estimates and beside torch's."""

import functools
import statistics

import torch

from wmma_ops.bringup.item import FAILED, LEFT_OUT, TOLD, Item
from wmma_ops.bringup.machine import Machine
from wmma_ops.emulator.timing import rules
from wmma_ops.runtime.clock import Clock
from wmma_ops.testing import clock
from wmma_ops.testing.results import relative

PART = "times"
_ROUNDS = 25
_MOST_ERROR = 2e-2  # relative, of one rounding beside another's: as `bench` has it
_SMALL = clock.Sizes(256, 128, 2, 128)
_FEW = ("product NT", "attention 64", "gradients 64")


def estimated(label: str, machine: Machine) -> dict:
    """By the clock: microseconds of all launches, and the share of the matrix pipes of the one that takes longest."""
    work = clock.work(label, _SMALL if machine.small else clock.Sizes())
    timings = [launch.timing() for launch in work.explained(machine.target).launches]
    longest = max(timings, key=lambda timing: timing.cycles)
    found = {
        "share": longest.share,
        "bound": longest.bound,
        "launches": [{"cycles": timing.cycles, "share": timing.share} for timing in timings],
    }
    estimates = [timing.estimate for timing in timings if timing.estimate is not None]
    if len(estimates) == len(timings):
        found |= {"microseconds": sum(one.microseconds for one in estimates), "gigahertz": estimates[0].gigahertz}
    return found


def _no_clock(machine: Machine) -> str:
    if machine.no_emulator:
        return machine.no_emulator
    try:
        rules(machine.target)
    except ValueError as error:
        return str(error)
    return ""


def _error(got: object, want: object) -> float:
    """Of each result that both have, the largest: attention's lse is ours alone."""
    both = zip(*(x if isinstance(x, (tuple, list)) else (x,) for x in (got, want)), strict=False)
    return max(relative(x, y) for x, y in both)


def check(label: str, machine: Machine) -> dict:
    found: dict = {"verdict": TOLD}
    if machine.is_card:
        work = clock.work(label, _SMALL if machine.small else clock.Sizes(), "cuda")
        try:
            want = work.torchs()
        except RuntimeError as error:
            found["torch"] = f"not applicable: {str(error).strip().splitlines()[0]}"
        got = work.ours()
        calls = [work.ours] if "torch" in found else [work.ours, work.torchs]
        samples = Clock("cuda", _ROUNDS).samples(calls)
        found["microseconds"] = statistics.median(samples[0])
        found["least"] = min(samples[0])
        found["tflops"] = work.flops / found["microseconds"] / 1e6
        if len(samples) > 1:
            found["torch"] = statistics.median(samples[1])
            found["error"] = _error(got, want)
            if not found["error"] < _MOST_ERROR:
                found |= {"verdict": FAILED, "error": f"{found['error']:.1e} from torch's result"}
        torch.cuda.synchronize()
    else:
        found["not measured"] = "emulated: what it takes here tells nothing"
    if why := _no_clock(machine):
        found["clock"] = f"not applicable: {why}"
        return found if machine.is_card else found | {"verdict": LEFT_OUT, "why": why}
    found["clock"] = estimated(label, machine)
    return found


def _bandwidth(machine: Machine) -> dict:
    if not machine.is_card:
        return {"verdict": LEFT_OUT, "why": "emulated: memory is this machine's"}
    return {"verdict": TOLD, "gigabytes a second": Clock("cuda", 9).copy_bandwidth() / 1e3}


def items(machine: Machine) -> list[Item]:
    def prepare(label: str) -> None:
        clock.work(label, _SMALL if machine.small else clock.Sizes()).explained(machine.target)

    labels = _FEW if machine.small else clock.labels(machine.target)
    return [
        Item(PART, "a copy within the device", functools.partial(_bandwidth, machine)),
        *(
            Item(PART, label, functools.partial(check, label, machine), functools.partial(prepare, label))
            for label in labels
        ),
    ]
