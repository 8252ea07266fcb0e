"""A kernel of one's own on a GPU: loaded, launched, and heard where it prints or asserts."""

import contextlib
import math
import threading

import numpy as np
import torch

from wmma_ops import jit
from wmma_ops.hardware import arch
from wmma_ops.jit import metadata
from wmma_ops.ops.errors import CaptureError
from wmma_ops.ops.neighbours import answering
from wmma_ops.plan.model import CARDS
from wmma_ops.runtime import cooperative, driver, printing
from wmma_ops.runtime.arguments import Slot
from wmma_ops.runtime.mentions import uses

_heard: "set[Loaded]" = set()  # parts of graphs, which write to their buffers for as long as the graphs live


class Loaded:
    """What a device has of a kernel."""

    def __init__(self, code: jit.CodeObject, name: str, device: int, slots: list[Slot], print_bytes: int):
        self.name, self.target, self.slots, self.device = name, arch.target(code.target), slots, device
        entry = code.entry(name)
        self.static_shared = metadata.static_shared(code.code, entry)
        self._function = driver.load(code.code, entry, device=device)
        self._prints: printing.Buffer | None = None
        self._meets = uses(code, entry, cooperative.SYMBOL)
        self._lock = threading.Lock()
        self._sizes = (1, 1, 1), (1, 1, 1)  # of the last launch
        self._met: torch.cuda.Event | None = None  # after the last launch whose blocks met
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
            self._sizes = grid, block
            if self._meets:
                self._check_room(grid, block, shared)
                self._launch_after_the_last(grid, block, shared, arguments)
            else:
                driver.launch(self._function, grid, block, shared, arguments)
            if self._prints is None:
                return
            if driver.capturing(self.device):
                _heard.add(self)
            else:
                self._hear()

    def _check_room(self, grid, block, shared: int) -> None:
        if driver.stands_in():
            units = CARDS[self.target.name].units
        else:
            units = torch.cuda.get_device_properties(self.device).multi_processor_count
        room = units * driver.room(self._function, math.prod(block), shared)
        cooperative.check(self.name, self.target, grid, block, room, units)

    def _launch_after_the_last(self, grid, block, shared: int, arguments: bytes) -> None:
        """On whatever stream that was: two at once would share one barrier. Nothing orders the replays of two graphs."""
        if driver.capturing(self.device):
            raise CaptureError(
                f"{self.name}: blocks that meet at a barrier (sync_grid) are not captured in a CUDA graph"
            )
        if self._met is not None:
            torch.cuda.current_stream(self.device).wait_event(self._met)
        driver.launch(self._function, grid, block, shared, arguments, [slot.offset for slot in self.slots])
        if torch.cuda.is_available():
            self._met = torch.cuda.current_stream(self.device).record_event()

    def flush(self) -> None:
        with self._lock:
            if torch.cuda.is_available():
                with contextlib.suppress(RuntimeError):  # of an assertion, which is told below
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


@answering
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
