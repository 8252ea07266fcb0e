"""`wmma_ops.tune`: times the configurations of a call on the GPU at hand and keeps the best for the planner.

What was found lies in the cache folder, a file for each kind of GPU, and is taken from then on by every process.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from wmma_ops import jit, torch_internals
from wmma_ops.hardware import arch
from wmma_ops.ops import library
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.plan.gemm.config import GemmConfig
from wmma_ops.plan.gemm.cost import cost
from wmma_ops.plan.problem import GemmProblem
from wmma_ops.runtime import driver, launching, tuned
from wmma_ops.runtime.clock import Clock

_REPEATS = 9


@dataclass(frozen=True)
class Timing:
    """One configuration's median time, or why it has none."""

    config: GemmConfig
    microseconds: float | None
    failure: str = ""
    modelled_cycles: float = float("nan")  # what the planner guessed


def tune(
    op: str | Callable, *arguments, limit: int = 40, progress: Callable[[int, int], None] | None = None, **keywords
) -> list[Timing]:
    """Times a call's configurations on its GPU, with cold caches, and keeps the fastest for calls of the same kind.

    Args:
        op: an op's name, or its function. It must be a single product on CUDA tensors.
        arguments, keywords: those of the call. In-place ops write to their operand.
        limit: how many configurations to try, those first that the model thinks cheapest.
        progress: called with how many steps are done, and of how many; each configuration is two, compiled, then timed.

    Returns:
        the timings, the fastest first: each with its ``.config``, ``.microseconds`` (None where it failed), ``.failure`` and
        the planner's guess, ``.modelled_cycles``. The fastest is used from now on by every process on this machine.

    Examples:
        >>> import torch, wmma_ops
        >>> if torch.cuda.is_available():
        ...     a = torch.randn(1024, 1024, dtype=torch.bfloat16, device="cuda")
        ...     timings = wmma_ops.tune("matmul", a, a, limit=4)
        ...     assert timings[0].microseconds > 0
    """
    from wmma_ops.runtime.explain import _call, _device, _named

    name = _named(op, "tune")
    device = _device(arguments, keywords)
    if device is None or device.type != "cuda":
        raise ValueError(f"tune: the tensors are on {device or 'no device'}; takes tensors on a GPU")
    target = arch.target(driver.target_of(device.index))
    problem = _problem_of(lambda: _call(name, arguments, keywords), target)
    configs = gemm.ranked(problem, target)[:limit]
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, 2 * len(configs))

    failures = []
    # All are compiled first: compilers would take the cores from the calls that are timed.
    for failure in compiled([(problem, config) for config in configs], target):
        failures.append(failure)
        advance()
    clock = Clock(device, _REPEATS)
    timings = []
    for config, failure in zip(configs, failures, strict=True):
        if failure:
            timing = Timing(config, None, failure)
        else:
            with tuned.forced(problem, config):
                timing = _timed(config, lambda: _call(name, arguments, keywords), clock)
        timings.append(dataclasses.replace(timing, modelled_cycles=cost(problem, config, target)))
        advance()
    timings.sort(key=lambda timing: float("inf") if timing.microseconds is None else timing.microseconds)
    if timings and timings[0].microseconds is not None:
        library_time = _library_time(name, arguments, keywords, clock)
        tuned.keep(device, problem, timings[0].config, tuned.Measured(timings[0].microseconds, library_time))
    return timings


def _problem_of(call: Callable[[], object], target: arch.Target) -> GemmProblem:
    problems = launching.problems(call, target)
    if not all(isinstance(problem, GemmProblem) for problem in problems):
        raise ValueError("tune: the call is two products in one kernel; takes one product")
    if any(problem.gate for problem in problems):
        raise ValueError(
            "tune: the call has a gate, of which one kernel or two products is decided by the model; takes none"
        )
    if len(problems) != 1:
        raise ValueError(f"tune: the call is {len(problems)} products; takes one")
    return problems[0]


def compiled(calls: Sequence[tuple[GemmProblem, GemmConfig]], target: arch.Target) -> Iterator[str]:
    """Compiles each with all cores; why it failed, or nothing, in their order."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(lambda call: _compile(call[0], call[1], target), calls)


def _compile(problem: GemmProblem, config: GemmConfig, target: arch.Target) -> str:
    try:
        for launch in gemm.plan_of(problem, config, target, "tuned").launches:
            launch.compile(target)
    except (jit.CompileError, ValueError) as error:
        return str(error)
    return ""


def _library_time(name: str, arguments: tuple, keywords: dict, clock: Clock) -> float | None:
    """Microseconds of torch's own product of the same operands, of each pair, and of nothing else; None where torch has
    none."""
    names = (argument.name for argument in torch_internals.schema(library.overload(name)).arguments)
    named = dict(zip(names, arguments, strict=False)) | keywords
    a, b = (named["x"], named["weight"].mT) if name == "linear" else (named["a"], named["b"])
    pairs = [(a, b)] if named.get("a2") is None else [(a, b), (named["a2"], named["b2"])]
    with torch.no_grad():
        return _timed(None, lambda: [torch.matmul(*pair) for pair in pairs], clock).microseconds


def _timed(config: GemmConfig | None, call: Callable[[], object], clock: Clock) -> Timing:
    try:
        call()
        torch.cuda.synchronize(clock.device)
    except (RuntimeError, ValueError) as error:
        return Timing(config, None, str(error))
    (microseconds,) = clock.times([call], warm=0)
    return Timing(config, microseconds)
