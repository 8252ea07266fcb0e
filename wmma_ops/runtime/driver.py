"""The GPU's driver: what the library's C++ drivers (csrc/driver*.cpp) offer to Python."""

import contextlib
from collections.abc import Iterator, Sequence

import torch

from wmma_ops.ops import errors
from wmma_ops.ops.errors import DriverError as DriverError
from wmma_ops.ops.library import special_mode
from wmma_ops.ops.target import STAND_IN
from wmma_ops.ops.target import target_of as target_of


def capturing(device: int) -> bool:
    """Whether a CUDA graph is captured on a device's current stream."""
    if not torch.cuda.is_available():
        return False
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


def load(code: bytes, name: str, *, device: int, shared: int = 0) -> int:
    """A kernel of a code object or cubin, on a device, for as long as the process lives. `shared` is the dynamic shared
    memory that its launches will ask for."""
    with errors.raised_as(DriverError):
        return torch.ops.wmma._load(device, _bytes(code), _text(name), shared, _argument_bytes(code, name))


def _argument_bytes(code: bytes, name: str) -> int:
    """That a kernel takes, as far as its code says so: AMD's does, and for NVIDIA's the driver is asked."""
    from wmma_ops.jit import metadata  # not where the library is only imported

    found = metadata.arguments(code, name)
    return -1 if found is None else max((one["offset"] + one["size"] for one in found), default=0)


def launch(function: int, grid, block, shared: int, arguments: bytes, offsets: Sequence[int] | None = None) -> None:
    """Launches a loaded kernel on its device's current stream. `arguments` are its parameters as they lie in memory; with
    their offsets all blocks are on the device at once, or the launch fails."""
    given = list(grid), list(block), shared, _bytes(arguments), list(offsets or ()), offsets is not None
    with errors.raised_as(DriverError):
        torch.ops.wmma._launch(function, *given)


def room(function: int, threads: int, shared: int) -> int:
    """How many blocks of a loaded kernel a compute unit (SM) has at once."""
    with errors.raised_as(DriverError):
        return torch.ops.wmma._room(function, threads, shared)


def write(function: int, variable: str, content: bytes) -> bool:
    """Writes a variable of a loaded kernel's code; False where it has none of the name and size."""
    with errors.raised_as(DriverError):
        return torch.ops.wmma._write(function, _text(variable), _bytes(content))


def read(function: int, variable: str, size: int) -> bytes | None:
    """Waits for the device's current stream, and reads a variable of a loaded kernel's code; None where it has none."""
    found = torch.empty(size, dtype=torch.uint8)
    with errors.raised_as(DriverError):
        return bytes(found.numpy()) if torch.ops.wmma._read(function, _text(variable), found) else None


def _bytes(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def _text(text: str) -> torch.Tensor:
    return _bytes(text.encode() + b"\0")  # ends as C's strings do


# ------------------------------------------------------------------------------------------------------- for the tests

_generation = 0


@contextlib.contextmanager
def use(kind: str, library: str, target: str) -> Iterator[None]:
    """Within it, the driver's calls go to another library of its kind ("cuda" or "hip"), CPU tensors count as memory of
    its device 0, and that device as one of `target`. The library is the whole process's, the rest this thread's."""
    _use_driver({"cuda": 1, "hip": 2}[kind], library)
    try:
        with special_mode(STAND_IN, target):
            yield
    finally:
        _use_driver(0, "")


def _use_driver(kind: int, library: str) -> None:
    global _generation
    with errors.raised_as(DriverError):
        torch.ops.wmma._use_driver(kind, _text(library))
    _generation += 1
    torch.ops.wmma._forget_plans()


def stands_in() -> bool:
    return STAND_IN.get() is not None


def generation() -> int:
    """Another number after each change of driver: what one loaded is not another's."""
    return _generation
