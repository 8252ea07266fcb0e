"""The target whose kernels an op runs, by the device of its tensors and by what the thread or task is in."""

import contextvars
import functools

import torch

# Set by runtime/emulation.py, an Emulation; and by runtime/driver.py, the target that another library stands in for.
EMULATION: contextvars.ContextVar = contextvars.ContextVar("wmma_ops_emulation", default=None)
STAND_IN: contextvars.ContextVar[str | None] = contextvars.ContextVar("wmma_ops_stand_in", default=None)


def is_amd() -> bool:
    return torch.version.hip is not None


@functools.cache
def _target_of(index: int) -> str:
    properties = torch.cuda.get_device_properties(index)
    if is_amd():
        return properties.gcnArchName.partition(":")[0]
    major, minor = properties.major, properties.minor
    return "sm_90a" if (major, minor) == (9, 0) else f"sm_{major}{minor}"


def target_of(index: int) -> str:
    """The target that code for a GPU is compiled for."""
    return STAND_IN.get() or _target_of(index)
