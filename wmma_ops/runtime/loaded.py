"""A kernel of one's own on a GPU: loaded, launched, and heard where it prints or asserts."""

import math
import threading
import weakref

import numpy as np
import torch

from wmma_ops import jit
from wmma_ops.hardware import arch
from wmma_ops.jit import metadata
from wmma_ops.plan.model import CARDS
from wmma_ops.runtime import driver, printing, together
from wmma_ops.runtime.arguments import Slot
from wmma_ops.runtime.mentions import uses

_heard: "weakref.WeakSet[Loaded]" = weakref.WeakSet()  # those that may have said something


class Loaded:
    """What a device has of a kernel."""

    def __init__(self, code: jit.CodeObject, name: str, device: int, slots: list[Slot], print_bytes: int):
        self.name, self.target, self.slots, self.device = name, arch.target(code.target), slots, device
        entry = code.entry(name)
        self.static_shared = metadata.static_shared(code.code, entry)
        self._function = driver.load(code.code, entry, device=device)
        self._prints: printing.Buffer | None = None
        self._meets = uses(code, entry, together.SYMBOL)
        self._lock = threading.Lock()
        self._sizes = (1, 1, 1), (1, 1, 1)  # of the last launch
        self._stream: torch.cuda.Stream | None = None  # of the last launch whose blocks met
        if uses(code, entry, printing.SYMBOL):
            words = torch.zeros(print_bytes // 4, dtype=torch.int32, pin_memory=torch.cuda.is_available())
            self._prints = printing.Buffer(words.numpy().view(np.uint32))
            if not driver.write(self._function, printing.SYMBOL, self._prints.state()):
                raise driver.DriverError(
                    f"{name}: the driver finds no {printing.SYMBOL} in its code, which prints by it"
                )

    def launch(self, grid, block, shared: int, arguments: bytes) -> None:
        """On the current stream. A kernel that prints or asserts is waited for, but where a graph is captured."""
        if self._prints is None and not self._meets:
            driver.launch(self._function, grid, block, shared, arguments)
            return
        with self._lock:
            if self._meets:
                self._check_room(grid, block, shared)
                self._follow()
            self._sizes = grid, block
            offsets = [slot.offset for slot in self.slots] if self._meets else None
            driver.launch(self._function, grid, block, shared, arguments, offsets)
            if self._prints is None:
                return
            if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
                _heard.add(self)
            else:
                self._hear()

    def _check_room(self, grid, block, shared: int) -> None:
        if driver.stands_in():
            units = CARDS[self.target.name].units
        else:
            units = torch.cuda.get_device_properties(self.device).multi_processor_count
        room = units * driver.room(self._function, math.prod(block), shared)
        together.check(self.name, self.target, grid, block, room, units)

    def _follow(self) -> None:
        """Two launches at once would share one barrier: this one starts after the last, on whatever stream that is."""
        if torch.cuda.is_available():
            stream = torch.cuda.current_stream(self.device)
            if self._stream not in (None, stream):
                stream.wait_stream(self._stream)
            self._stream = stream

    def flush(self) -> None:
        with self._lock:
            if torch.cuda.is_available():
                torch.cuda.synchronize(self.device)
            self._hear()

    def _hear(self) -> None:
        """Waits, shows what was printed, and raises what was asserted."""
        state = failure = None
        try:
            state = driver.read(self._function, printing.SYMBOL, len(self._prints.state()))
        except driver.DriverError as error:
            failure = error
        heard = self._prints.read(state)
        if failure is None:
            driver.write(self._function, printing.SYMBOL, self._prints.state())
        failed = printing.tell(self.name, *heard, self._prints.words.nbytes, self._place)
        if failed:
            raise driver.DriverError(f"{self.name} on {self.target.name}: {failed}") from failure
        if failure:
            raise failure

    def _place(self, record: printing.Record) -> str:
        return printing.place(record, *self._sizes)


def flush_prints(device: int | None = None) -> None:
    """Shows what kernels printed as parts of CUDA graphs, once all their devices' work is done.

    A kernel that prints or asserts is waited for as it is launched, and what it says comes at once. A graph's replays are
    not: what they say comes with the next launch of the same kernel, or here.

    Args:
        device: the GPU's number; None for all.

    Examples:
        >>> import wmma_ops
        >>> wmma_ops.flush_prints()  # nothing was captured
    """
    for loaded in list(_heard):
        if device in (None, loaded.device):
            loaded.flush()
