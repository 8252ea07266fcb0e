"""Starts the worker of a bring-up and listens to it.

Where it dies or says nothing any more, notes with which item, and starts another one behind that.
"""

import contextlib
import dataclasses
import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO

from wmma_ops.bringup.item import FAILED, LEFT_OUT
from wmma_ops.bringup.worker import LOST, Order

SILENCE = 300  # seconds without a line: it hangs
_MOST_STARTS = 25  # of workers: a machine on which each item kills one is told enough
_TAIL = 4000  # characters of what a dead worker said last
Result = dict
Tell = Callable[[dict], None]


def command(order: Order) -> list[str]:
    return [sys.executable, "-m", "wmma_ops.bringup.worker", order.text()]


def supervise(
    order: Order, tell: Tell, *, start: Callable[[Order], Sequence[str]] = command, silence: float = SILENCE
) -> list[Result]:
    """The results of all items, in order. `tell` gets each line that a worker says, with "part" and "name"."""
    found: dict[int, Result] = {}
    names: list[tuple[str, str]] = []
    for _ in range(_MOST_STARTS):
        running: int | None = None
        began = time.perf_counter()
        with tempfile.TemporaryFile() as errors, _started(start(order), errors) as (process, lines):
            silent = False
            while True:
                try:
                    line = lines.get(timeout=silence)
                except queue.Empty:
                    silent = True
                    process.kill()
                    break
                if line is None:
                    break
                said = json.loads(line)
                if "items" in said:
                    names = [tuple(name) for name in said["items"]]
                elif "begin" in said:
                    running, began = said["begin"], time.perf_counter()
                elif "end" in said:
                    running, index = None, said.pop("end")
                    found[index] = dict(zip(("part", "name"), names[index], strict=True)) | said
                    tell(found[index])
                    continue
                tell(said)
            status = process.wait()
            why = f"hung: nothing came for {silence:.0f} s" if silent else _died(status)
            errors.seek(0)
            tail = errors.read().decode(errors="replace")[-_TAIL:]
        following = max(found, default=order.first - 1) + 1
        if running is not None:
            part, name = names[running]
            seconds = time.perf_counter() - began
            found[running] = {"part": part, "name": name, "verdict": FAILED, "error": f"the process {why}",
                              "seconds": seconds, "said last": tail}  # fmt: skip
            tell(found[running])
            following = running + 1
        elif status not in (0, LOST) or silent:
            where = names[following] if following < len(names) else ("machine", "the worker")
            result = {"part": where[0], "name": where[1], "verdict": FAILED, "error": f"the process {why} before it began",
                      "said last": tail}  # fmt: skip
            found[following] = result
            tell(result)
            following += 1
        if not names or following >= len(names):
            break
        used: dict[str, float] = {}
        for result in found.values():
            used[result["part"]] = used.get(result["part"], 0.0) + result.get("seconds", 0.0)
        order = dataclasses.replace(order, first=following, used=used)
    for index, (part, name) in enumerate(names):
        if index not in found:
            why = f"{_MOST_STARTS} workers died before it"
            found[index] = {"part": part, "name": name, "verdict": LEFT_OUT, "why": why}
    return [found[index] for index in sorted(found)]


@contextlib.contextmanager
def _started(words: Sequence[str], errors: IO[bytes]):
    """The process, and a queue of its lines, None at their end."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True)
    lines: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put(None)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield process, lines
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        thread.join()


def _died(status: int) -> str:
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"died of {signal.Signals(-status).name}"
    return f"ended with {status}"
