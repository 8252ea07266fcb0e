"""What crosses the border to the C++ library: each kind of problem and who plans it, held against what the library knows.

The library says its fields in csrc/launch/border.hpp. They are compared by name when this is loaded.
"""

import dataclasses
import importlib
from types import ModuleType
from typing import NamedTuple

import torch

from wmma_ops.ops.types import ELEMENTS, name
from wmma_ops.plan import problem
from wmma_ops.plan.plan import KernelLaunch


class Kind(NamedTuple):
    name: str
    planner_name: str  # loaded when first needed

    @property
    def problem(self) -> type:
        return getattr(problem, f"{self.name}Problem")

    @property
    def numbers(self) -> type:
        return getattr(problem, f"{self.name}Numbers")

    @property
    def planner(self) -> ModuleType:
        return importlib.import_module(self.planner_name)


# By the number that stands before a problem's fields.
KINDS = {
    0: Kind("Gemm", "wmma_ops.plan.gemm.planner"),
    1: Kind("GemmGemm", "wmma_ops.plan.gemm_gemm.planner"),
    2: Kind("Attention", "wmma_ops.plan.attention.planner"),
    3: Kind("KvAppend", "wmma_ops.plan.kv_append"),
    4: Kind("ActivationGradient", "wmma_ops.plan.activation_gradient"),
}


class Launch(NamedTuple):
    """A launch of a plan as the library takes it."""

    function: int
    grid_x: int
    grid_y: int
    block: int
    shared: int
    early: bool
    cooperative: bool


def launch_of(function: int, launch: KernelLaunch) -> Launch:
    return Launch(function, *launch.grid, launch.block, launch.shared, launch.early, launch.cooperative)


def kind_of(found: object) -> Kind:
    """Of a problem."""
    return next(kind for kind in KINDS.values() if kind.problem is type(found))


def _ours() -> dict[str, list[str]]:
    said = {"Launch 0": list(Launch._fields)}
    for number, kind in KINDS.items():
        said[f"{kind.name}Problem {number}"] = [field.name for field in dataclasses.fields(kind.problem)]
        said[f"{kind.name}Numbers {number}"] = list(kind.numbers._fields)
    for code, row in enumerate(ELEMENTS):
        said[f"Element {code}"] = [name(row.dtype), str(row.bits), *map(name, row.outputs)]
    return said


def differences(text: str, ours: dict[str, list[str]]) -> list[str]:
    """Between the library's text and what stands here, a line for each struct."""
    rows = (line.split() for line in text.splitlines())
    theirs = {f"{what} {number}": fields for what, number, *fields in rows}
    return [
        f"{what}: the library has {theirs.get(what)}, this package {ours.get(what)}"
        for what in dict.fromkeys((*theirs, *ours))
        if theirs.get(what) != ours.get(what)
    ]


if _found := differences(bytes(torch.ops.wmma._border()).decode(), _ours()):
    raise ImportError("the library was built from other sources than these; build it again:\n" + "\n".join(_found))
