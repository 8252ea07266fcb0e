"""Compiles the kernels of what was rewritten while Inductor goes on with the rest of the graph."""

import dataclasses
import functools
from concurrent.futures import Future, ThreadPoolExecutor

from wmma_ops import arch, emulator
from wmma_ops.inductor import profit
from wmma_ops.inductor.found import Rewrite
from wmma_ops.inductor.nodes import Order, value
from wmma_ops.plan import launching

_THREADS = 2  # Inductor's own compilers want the other cores


def compile_kernels(rewrite: Rewrite, order: Order) -> Future | None:
    """Starts compiling what the op will launch; None where it will launch nothing, or that is not known yet.

    Nobody need wait for it: a call that comes before it is done finds the compilation under way, and waits. Where it fails,
    the call fails alike, and says why.
    """
    emulation = emulator.active()
    if emulation is not None and not emulation.execute:
        return None  # calls are recorded, and nothing runs
    device = value(rewrite.anchor).device
    target = profit.target_of(device)
    problem = None if target is None else profit.problem_of(rewrite, order, target)
    if problem is None:
        return None
    if device.type == "cuda":
        problem = dataclasses.replace(problem, place=device.index or 0)
    return _started(problem, target)


@functools.lru_cache(maxsize=1024)
def _started(problem, target: arch.Target) -> Future:
    """Once for a problem: a model has the same one in every layer."""
    return _pool().submit(launching.compile_kernels, problem, target)


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="wmma_ops")
