"""What each part of the bring-up is made of."""

import functools
import itertools
from collections.abc import Callable

import torch

from wmma_ops.bringup import bits, doctor, microkernels, times, values
from wmma_ops.bringup.item import FAILED, PARTS, PASSED, Item
from wmma_ops.bringup.machine import Machine

MACHINE = "machine"


def items(machine: Machine, only: tuple[str, ...] = ()) -> list[Item]:
    """A part that cannot even say what it is made of is one item, which says why."""

    def of(name: str, make: Callable[[Machine], list[Item]]) -> list[Item]:
        try:
            return make(machine)
        except Exception as error:
            return [Item(name, "its items", functools.partial(_raise, error))]

    return [
        *itertools.chain.from_iterable(of(name, make) for name, make in _MAKERS.items() if not only or name in only)
    ]


def _raise(error: Exception) -> dict:
    raise error


def _of_machine(machine: Machine) -> list[Item]:
    found = [Item(MACHINE, "doctor", _doctor)]
    return found + ([Item(MACHINE, "card", functools.partial(_card, machine))] if machine.is_card else [])


def _doctor() -> dict:
    found = doctor.report()
    return {"verdict": PASSED if found["ok"] else FAILED, "report": found}


def _card(machine: Machine) -> dict:
    properties = torch.cuda.get_device_properties(0)
    names = ("name", "gcnArchName", "major", "minor", "total_memory", "multi_processor_count", "clock_rate",
             "memory_clock_rate", "memory_bus_width", "L2_cache_size", "warp_size", "shared_memory_per_multiprocessor",
             "regs_per_multiprocessor")  # fmt: skip
    found: dict = {name: getattr(properties, name) for name in names if hasattr(properties, name)}
    return found | {"verdict": PASSED, "driver": doctor.driver_version(), "target": machine.target}


_MAKERS: dict[str, Callable[[Machine], list[Item]]] = {
    MACHINE: _of_machine, values.PART: values.items, bits.PART: bits.items, microkernels.PART: microkernels.items,
    times.PART: times.items,
}  # fmt: skip
assert list(_MAKERS) == list(PARTS)
