"""`wmma_ops.explain`: what a call would launch, and why. `wmma_ops.warmup`: all of a call but its launches."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from wmma_ops import jit
from wmma_ops.hardware import arch, geometry
from wmma_ops.ops import library
from wmma_ops.ops.neighbours import hint
from wmma_ops.ops.sizes import WIDEST_HEAD
from wmma_ops.plan.problem import AttentionProblem, GemmProblem
from wmma_ops.runtime import driver, emulation
from wmma_ops.runtime.emulated import EmulatedKernel
from wmma_ops.runtime.launching import Planned, RecordedLaunch, recorded
from wmma_ops.runtime.warming import warming

if TYPE_CHECKING:
    from wmma_ops.analysis.figures_record import Figures
    from wmma_ops.emulator.timing import Timing, Trace


@dataclass(frozen=True)
class LaunchRecord:
    """One launch as it would be made."""

    kernel: str
    source: str = field(repr=False)
    code: jit.CodeObject = field(repr=False)
    grid: tuple[int, int, int]
    block: int
    shared_bytes: int  # dynamic
    arguments: bytes = field(repr=False)  # of the argument struct, with the addresses of `tensors`
    tensors: dict[str, torch.Tensor] = field(
        repr=False
    )  # the memory that the kernel may touch, by the arguments' names
    figures: "Figures | None" = field(repr=False)  # None where the compiler gives no assembly
    _kernel: EmulatedKernel = field(repr=False)

    def timing(self, *, instructions: int | None = None, part: bool = False) -> "Timing":
        """How long the blocks take that one compute unit of the target gets, and why, by published rules: they are executed
        by the emulator on the call's own tensors, which must be on the CPU. For AMD's targets.

        Args:
            instructions: how many may be executed by all their waves together; four million by default.
            part: where there are more, time the first of them alone; otherwise that is an error.
        """
        return self.timed(self.traced(instructions=instructions, part=part))

    def timed(self, trace: "Trace") -> "Timing":
        """The timing of what `traced` gave."""
        from wmma_ops.runtime import timing

        found = trace.timing()
        return replace(found, estimate=timing.estimate(trace, found, self.grid, self.tensors))

    def traced(
        self,
        *,
        instructions: int | None = None,
        part: bool = False,
        addresses: bool = False,
        tell: Callable[[int], None] = lambda executed: None,
    ) -> "Trace":
        """What `timing` is of; with the `addresses` of what accesses memory, if they are asked for. `tell` is called now and
        then with how many instructions were executed."""
        from wmma_ops.runtime import timing

        if self._kernel.target.vendor != "amd":
            raise ValueError(f"timing: {self._kernel.target.name} is not AMD's; it has no emulator")
        return timing.traced(
            self._kernel, self.grid, (self.block, 1, 1), self.shared_bytes, self.arguments, self.tensors,
            instructions=instructions, part=part, addresses=addresses, tell=tell,
        )  # fmt: skip

    @property
    def assembly(self) -> str | None:
        """What the code object was assembled from; PTX for NVIDIA's targets."""
        return self.code.assembly

    @property
    def code_object(self) -> bytes:
        return self.code.code


@dataclass(frozen=True)
class Step:
    """One product of a call, and how it is computed."""

    problem: GemmProblem
    config: object
    reason: str
    launches: tuple[LaunchRecord, ...]
    planned: int  # of the launches; the others repeat them where the batch has many uneven dimensions


@dataclass(frozen=True)
class Explanation:
    """What a call would do. `problem`, `config` and `reason` are those of its first product; most calls are one."""

    op: str
    target: str
    output: object = field(repr=False)  # allocated, not computed
    steps: tuple[Step, ...]

    @property
    def problem(self) -> GemmProblem | None:
        """None where there is nothing to compute."""
        return self.steps[0].problem if self.steps else None

    @property
    def config(self) -> object | None:
        return self.steps[0].config if self.steps else None

    @property
    def reason(self) -> str:
        return self.steps[0].reason if self.steps else "the result is empty"

    @property
    def launches(self) -> tuple[LaunchRecord, ...]:
        return tuple(launch for step in self.steps for launch in step.launches)

    def timing(self, *, instructions: int | None = None, part: bool = False) -> "Timing":
        """That of the launch which takes longest: see LaunchRecord.timing."""
        if not self.launches:
            raise ValueError("timing: the call launches nothing, as its result is empty")
        timings = [launch.timing(instructions=instructions, part=part) for launch in self.launches]
        # By the whole GPU's time: a unit's cycles are of as many blocks as it holds, and there may be more rounds of few.
        estimates = [timing.estimate.microseconds for timing in timings if timing.estimate]
        times = estimates if len(estimates) == len(timings) else [timing.cycles for timing in timings]
        return timings[times.index(max(times))]

    def __str__(self) -> str:
        lines = [f"wmma_ops.{self.op} on {self.target}: {_count(len(self.launches), 'launch')}"]
        if not self.steps:
            lines.append(f"  {self.reason}")
        for step in self.steps:
            lines += (f"  {label:<8} {text}" for label, text in _rows(step, self.target))
        return "\n".join(lines)


def _rows(step: Step, target: str) -> Iterator[tuple[str, str]]:
    yield from step.problem.summary()
    if isinstance(step.problem, AttentionProblem):
        yield "limits", _head_sizes(step.problem, target)
    yield "config", str(step.config)
    yield "reason", step.reason
    shown = step.launches[: step.planned]
    for launch in shown:
        x, y, _ = launch.grid
        yield "launch", f"{launch.kernel}: {x} × {y} blocks of {launch.block}, {launch.shared_bytes} bytes shared"
        yield "code", f"{len(launch.code_object):,} bytes by {launch.code.compiler}"
        if launch.figures is not None:
            yield "figures", str(launch.figures).partition(": ")[2]  # its kernel and target stand above
    if len(step.launches) > len(shown):
        yield "", f"and {_count(len(step.launches) - len(shown), 'launch')} more, at other places of the batch"


def _head_sizes(problem: AttentionProblem, target: str) -> str:
    forward = f"head sizes to {WIDEST_HEAD}"
    if problem.page_size or problem.is_scaled:  # without gradients
        return forward
    widest = geometry.widest_gradients(problem.dtype, target)
    return f"{forward}; gradients to {widest}, those of wider heads by way of scores in memory"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 'es'}"


def _named(asked: str | Callable, what: str) -> str:
    name = asked if isinstance(asked, str) else getattr(asked, "__name__", None)
    known = (*library.OPS, *library.WRITERS)
    if name not in known:
        near = hint(name, known) if isinstance(name, str) else ""
        raise ValueError(f"{what}: op is {asked!r}{near}; takes one of {', '.join(known)}")
    return name


def _call(name: str, arguments: tuple, keywords: dict):
    from wmma_ops.ops import functions as ops

    def bare(x):  # shares the memory but no history: an op that writes in place must not count as a write
        return x.data if isinstance(x, torch.Tensor) else x

    with torch.no_grad():
        return getattr(ops, name)(*map(bare, arguments), **{key: bare(x) for key, x in keywords.items()})


def _device(arguments: tuple, keywords: dict) -> torch.device | None:
    tensors = (x for x in (*arguments, *keywords.values()) if isinstance(x, torch.Tensor))
    return next((x.device for x in tensors), None)


def _default_target(device: torch.device | None) -> str:
    if device is not None and device.type == "cuda":
        return driver.target_of(device.index)
    if (active := emulation.active()) is not None:
        return active.target
    raise ValueError("explain: the tensors are on the cpu; pass target=, such as target='gfx942' or target='sm_90a'")


def explain(op: str | Callable, *arguments, target: str | None = None, **keywords) -> Explanation:
    """What a call of an op launches on a target, and why: planned and compiled, not executed.

    Args:
        op: an op's name, or its function.
        arguments, keywords: those of the call. In-place ops write nothing.
        target: an AMD or NVIDIA target, such as gfx942 or sm_90a, or a card's name, such as "RX 7900 XTX", wherever the
            tensors are. By default that of the tensors' device; for CPU tensors that of the emulation they are in.

    Returns:
        an Explanation: ``.problem``, ``.config`` and the ``.reason`` for it, ``.output`` (allocated, not computed) and
        ``.launches``, each with ``.kernel``, ``.source``, ``.assembly``, ``.code_object``, ``.grid``, ``.block``,
        ``.shared_bytes``, ``.arguments``, ``.tensors`` and ``.figures``. An op that is several products has one of
        ``.steps`` for each. Printed, it is a summary.

    Examples:
        >>> import torch, wmma_ops
        >>> x, weight = torch.randn(32, 64), torch.randn(256, 64)
        >>> plan = wmma_ops.explain("linear", x, weight, activation="gelu", target="gfx1201")
        >>> plan.problem.m, plan.problem.n, plan.problem.b_order, plan.launches[0].kernel
        (32, 256, 'k', 'gemm')
    """
    name = _named(op, "explain")
    device = _device(arguments, keywords)
    if device is not None and device.type not in ("cpu", "cuda"):
        raise ValueError(f"explain: the tensors are on {device}; takes tensors on the cpu or on a GPU")
    return explained(name, lambda: _call(name, arguments, keywords), target or _default_target(device))


def explained(name: str, call: Callable[[], object], target: str) -> Explanation:
    """`explain` of a call that is there already."""
    found = arch.target(target)
    output, records = recorded(call, found)
    steps: list[tuple[Planned, list[LaunchRecord]]] = []
    for record in records:
        if isinstance(record, Planned):
            steps.append((record, []))
        else:
            planned, launches = steps[-1]
            launches.append(_record(planned, record, len(launches)))
    return Explanation(
        op=name,
        target=found.name,
        output=output,
        steps=tuple(
            Step(one.problem, one.plan.config, one.plan.reason, tuple(launches), len(one.plan.launches))
            for one, launches in steps
        ),
    )


def _record(planned: Planned, launch: RecordedLaunch, index: int) -> LaunchRecord:
    code = launch.kernel.code
    return LaunchRecord(
        kernel=launch.kernel.name,
        source=planned.plan.launches[index % len(planned.plan.launches)].source,
        code=code,
        grid=launch.grid,
        block=launch.block,
        shared_bytes=launch.shared,
        arguments=launch.arguments,
        tensors=launch.tensors,
        figures=_figures(launch, planned.target),
        _kernel=launch.kernel,
    )


def _figures(launch: RecordedLaunch, target: arch.Target) -> "Figures | None":
    from wmma_ops.analysis.figures import figures  # the regular expressions there would be felt at each import

    code = launch.kernel.code
    return None if code.assembly is None else figures(code, target, launch.block, launch.shared, launch.kernel.name)


def warmup(op: str | Callable, *arguments, **keywords) -> None:
    """Plans, compiles and loads what a call of an op launches, and launches nothing: before a CUDA graph is captured, or to
    keep the first call quick. Does nothing for tensors on the CPU that no emulation runs.

    Args:
        op: an op's name, or its function.
        arguments, keywords: those of the call, of the same types, shapes, strides and alignment. Nothing is written.

    Examples:
        >>> import torch, wmma_ops
        >>> a = torch.randn(64, 64)
        >>> with wmma_ops.emulate("gfx942"):
        ...     wmma_ops.warmup("matmul", a, a)
    """
    name = _named(op, "warmup")
    device = _device(arguments, keywords)
    on_cpu = device is None or device.type == "cpu"
    if on_cpu and emulation.active() is None and not driver.stands_in():
        return
    with warming():
        _call(name, arguments, keywords)
