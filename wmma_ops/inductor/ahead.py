"""Compiles the kernels of what was rewritten while Inductor goes on with the rest of the graph."""

import dataclasses
import functools
import logging
import threading

import torch

from wmma_ops.hardware import arch
from wmma_ops.runtime import emulation, launching

logger = logging.getLogger("wmma_ops.inductor")
_slots = threading.Semaphore(2)  # Inductor's own compilers want the other cores


def compile_kernels(problem, target: arch.Target, device: torch.device) -> threading.Thread | None:
    """Starts compiling what an op on `device` will launch for its problem; None where calls are recorded, and nothing runs.

    Nobody need wait for it: where there is a cache folder, a call that comes before it is done waits for its result.
    """
    active = emulation.active()
    if active is not None and not active.execute:
        return None
    if device.type == "cuda":
        problem = dataclasses.replace(problem, device=device.index or 0)
    return _started(problem, target)


@functools.lru_cache(maxsize=1024)
def _started(problem, target: arch.Target) -> threading.Thread:
    """Once for a problem: a model has the same one in every layer."""
    thread = threading.Thread(target=_compile, args=(problem, target), daemon=True)  # no process waits for it to end
    thread.start()
    return thread


def _compile(problem, target: arch.Target) -> None:
    with _slots:
        try:
            launching.compile_kernels(problem, target)
        except Exception as error:  # the call fails alike, and says why
            logger.info("not compiled ahead: %s", error)
