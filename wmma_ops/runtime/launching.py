"""The Python half of a launch: plans for the library's problems, compiled and loaded; and launches of the emulator."""

import contextvars
import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from wmma_ops import jit
from wmma_ops.hardware import arch
from wmma_ops.ops.errors import CaptureError, ConfigError
from wmma_ops.plan.plan import KernelLaunch, Plan
from wmma_ops.plan.problem import GemmProblem
from wmma_ops.runtime import border, driver, emulation, tuned
from wmma_ops.runtime.warming import warming

if TYPE_CHECKING:  # the emulator takes longer to import than a call may: _register does, where it is asked for
    from wmma_ops.runtime.emulated import EmulatedKernel

_TARGETS = list(arch.TARGETS)
_asking: contextvars.ContextVar[list | None] = contextvars.ContextVar("wmma_ops_asking", default=None)

# What plans launch. Neither ever shrinks: the library, and graphs that captured a launch, hold what is in them. They
# grow with the number of different kernels, not of problems.
_guard = threading.Lock()
_emulated: "list[EmulatedKernel]" = []
_emulated_index: dict[tuple, int] = {}
_loaded: dict[tuple, int] = {}


@dataclass(frozen=True)
class Planned:
    """A plan as it was recorded."""

    problem: object
    plan: Plan
    target: arch.Target


@dataclass(frozen=True)
class RecordedLaunch:
    """A launch that was recorded instead of executed."""

    kernel: "EmulatedKernel"
    grid: tuple[int, int, int]
    block: int
    shared: int
    arguments: bytes
    tensors: dict[str, torch.Tensor]


# ------------------------------------------------------------------------------------------------------------ planning


def plan(values: list[int]) -> list[int]:
    """Of a problem as the library sends it, its kind first: the workspace; how many numbers there are for its kernels'
    arguments, and those; and each launch, in full."""
    if not values or not 0 <= values[0] < len(border.KINDS):
        raise ValueError(f"_plan: problem is {values}; takes the number of its kind, and its fields")
    kind = border.KINDS[values[0]]
    if len(values) - 1 != len(fields(kind.problem)) or values[1] < -len(_TARGETS):
        raise ValueError(
            f"_plan: problem is {values}; takes the fields of {kind.problem.__name__}, of a target that there is"
        )
    asked = kind.problem.from_library(values[1:])
    if (asking := _asking.get()) is not None:
        asking.append(asked)
        return [0, 0]  # no workspace, no numbers, no launches
    return _planned(kind.planner, asked)


def _planned(planner: ModuleType, problem) -> list[int]:
    if problem.device < 0:
        target = arch.TARGETS[_TARGETS[-1 - problem.device]]
    else:
        if driver.capturing(problem.device):
            raise CaptureError(
                "this call has no kernel yet, and none can be compiled and loaded while a CUDA graph is captured; call "
                "wmma_ops.warmup with the same arguments before the capture"
            )
        target = arch.target(driver.target_of(problem.device))
    plan = _fastest(planner, problem, target)
    if not jit.available(target.name):
        from wmma_ops.runtime import shipped

        plan = shipped.plan(problem, target, plan)
    answer = [plan.workspace, len(plan.numbers), *plan.numbers]
    for launch, code in zip(plan.launches, _compiled(plan, target), strict=True):
        if problem.device < 0:
            function = _register(code, launch.kernel)
        else:
            function = _load(problem.device, code, launch)
        answer += border.launch_of(function, launch)
    active = emulation.active()
    if active is not None and not active.execute:
        active.recorded.append(Planned(problem, plan, target))
    return answer


def _fastest(planner: ModuleType, problem, target: arch.Target) -> Plan:
    """By what tuning knows, else by the planner's model."""
    if chosen := tuned.chosen(problem):
        config, reason = chosen
        return planner.plan_of(problem, config, target, reason)
    return planner.plan(problem, target)


def plan_for(problem, target: arch.Target) -> Plan:
    """The plan of a call that asks this."""
    return _fastest(border.kind_of(problem).planner, problem, target)


def compile_kernels(problem, target: arch.Target) -> None:
    """Plans a problem and compiles its kernels, into the cache; loads nothing."""
    found = plan_for(problem, target)
    for launch in found.launches:
        launch.compile(target)
    if not found.launches and isinstance(problem, GemmProblem) and problem.gate:  # left to two
        for one in problem.products:
            compile_kernels(one, target)


def _compiled(plan: Plan, target: arch.Target) -> list[jit.CodeObject]:
    """All kernels at once, as somebody waits for them: a compiler takes up to a second for each."""
    for launch in plan.launches:
        _check(launch, target)
    found: list[jit.CodeObject | None] = [None] * len(plan.launches)
    failed: list[BaseException] = []

    def compile(i: int) -> None:
        try:
            found[i] = plan.launches[i].compile(target)
        except BaseException as error:
            failed.append(error)

    others = [threading.Thread(target=compile, args=(i,), daemon=True) for i in range(1, len(found))]
    for thread in others:
        thread.start()
    if found:
        compile(0)
    for thread in others:
        thread.join()
    if failed:
        raise min(failed, key=lambda error: isinstance(error, Exception))  # an interruption before what comes of it
    return [code for code in found if code is not None]


def _check(launch: KernelLaunch, target: arch.Target) -> None:
    if launch.block > target.max_threads or launch.shared > target.lds_bytes:
        raise ConfigError(
            f"{launch.kernel} takes {launch.block} threads and {launch.shared} bytes of shared memory; {target.name} has "
            f"{target.max_threads} and {target.lds_bytes}"
        )


def _register(code: jit.CodeObject, name: str) -> int:
    from wmma_ops.runtime.emulated import EmulatedKernel

    key = (code.target, hashlib.sha256((code.assembly or "").encode() or code.code).digest(), name)
    with _guard:
        if key not in _emulated_index:
            _emulated.append(EmulatedKernel(code, name))
            _emulated_index[key] = len(_emulated) - 1
        return _emulated_index[key]


def _load(device: int, code: jit.CodeObject, launch: KernelLaunch) -> int:
    key = (driver.generation(), device, hashlib.sha256(code.code).digest(), launch.kernel)
    with _guard:
        if key not in _loaded:
            _loaded[key] = driver.load(code.code, launch.kernel, device=device, shared=launch.shared)
        return _loaded[key]


# ------------------------------------------------------------------------------------------------------ what a call asks


def recorded(call: Callable[[], object], target: arch.Target) -> tuple[object, list[Planned | RecordedLaunch]]:
    """What a call of ops returns, allocated and not computed, and what it plans and would launch on `target`, in order."""
    recording = emulation.Emulation(target.name, execute=False)
    with emulation.entered(recording):
        output = call()
    return output, recording.recorded


def plans(call: Callable[[], object], target: arch.Target) -> list[Planned]:
    """What a call of ops plans on `target`. A plan without launches is followed by those of the products it stands for."""
    return [record for record in recorded(call, target)[1] if isinstance(record, Planned)]


def problems(call: Callable[[], object], target: arch.Target) -> list:
    """What a call of ops asks plans for on `target`; nothing is planned or compiled. Two products in one kernel are
    followed by each of them, as if that kernel did not pay. None where nothing is to be computed."""
    found: list = []
    token = _asking.set(found)
    try:
        with warming():
            recorded(call, target)
    finally:
        _asking.reset(token)
    return found


# ----------------------------------------------------------------------------------------------------------- emulating


def emulate(function, grid, block, shared, arguments, tensors, names) -> None:
    """One launch."""
    active = emulation.active()
    if active is None:
        raise ValueError(
            "_emulate: function is launched while nothing is emulated; takes a call within wmma_ops.emulate"
        )
    if not 0 <= function < len(_emulated):
        raise ValueError(f"_emulate: function is {function}; takes one that a plan launches")
    if len(grid) != 3 or min(*grid, block) < 1 or shared < 0:
        raise ValueError(
            f"_emulate: grid is {grid} of {block} threads and {shared} bytes; takes three sizes of 1 or more"
        )
    if arguments is None or (arguments.dtype, arguments.dim(), arguments.device.type) != (torch.uint8, 1, "cpu"):
        raise TypeError("_emulate: arguments is another tensor; takes bytes on the cpu")
    kernel, data = _emulated[function], arguments.numpy().tobytes()
    named = dict(zip(bytes(names).decode().split("\0"), tensors, strict=False))
    if not active.execute:
        active.recorded.append(RecordedLaunch(kernel, tuple(grid), block, shared, data, named))
        return
    (argument,) = kernel.explicit
    if argument.size != len(data):
        raise ConfigError(f"{kernel.name} takes {argument.size} bytes of arguments; the library has {len(data)}")
    kernel.run(active, tuple(grid), (block, 1, 1), data, named, shared)
