"""Calls that plan, compile and load their kernels, and launch nothing."""

import contextlib
import contextvars

from wmma_ops.ops.library import special_mode

_warming: contextvars.ContextVar[bool] = contextvars.ContextVar("wmma_ops_warming", default=False)


def warming() -> contextlib.AbstractContextManager[None]:
    """Within it, the calls of this thread or task are such."""
    return special_mode(_warming, True)


def is_on() -> bool:
    return _warming.get()
