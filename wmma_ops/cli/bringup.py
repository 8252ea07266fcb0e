"""`python -m wmma_ops bringup`: all that the first person with a card can tell us, in one file."""

import datetime
import json
import os
import sys
import time
from pathlib import Path

import torch
from rich.markup import escape

import wmma_ops
from wmma_ops.bringup import text
from wmma_ops.bringup.item import FAILED, PARTS, PASSED
from wmma_ops.bringup.machine import Machine, here
from wmma_ops.bringup.supervisor import supervise
from wmma_ops.bringup.worker import Order
from wmma_ops.cli.terminal import bars, output


def show(options) -> int:
    try:
        if options.saved:
            data = json.loads(Path(options.saved).read_text())
            print(json.dumps(data, indent=1, ensure_ascii=False) if options.json else text.of(data))
            return int(_failed(data["results"]))
        machine = here(options.target, options.small)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"bringup: {error}", file=sys.stderr)
        return 2
    path = Path(options.out or f"bringup-{machine.target}{'' if machine.is_card else '-emulated'}.json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()  # before what takes long
    except OSError as error:
        print(f"bringup: {error}", file=sys.stderr)
        return 2
    order = Order(machine, options.minutes, tuple(options.part or ()))
    start = time.perf_counter()
    results: list[dict] = []

    def keep() -> dict:
        data = _data(machine, results, time.perf_counter() - start)
        path.write_text(_anonymous(json.dumps(data, indent=1, ensure_ascii=False)))
        path.with_suffix(".md").write_text(_anonymous(text.of(data)))
        return data

    try:
        with _progress(order) as tell:

            def told(line: dict) -> None:
                if "verdict" in line:
                    results.append(line)
                    if len(results) % 20 == 0:
                        keep()  # should this process end as well
                tell(line)

            results[:] = supervise(order, told)
    except KeyboardInterrupt:
        print("bringup: interrupted; what came so far is kept", file=sys.stderr)
    data = keep()
    if options.json:
        print(json.dumps(data, indent=1, ensure_ascii=False))
    else:
        console = output()
        for part, counted in text.counts(results).items():
            said = ", ".join(f"{number} {verdict}" for verdict, number in counted.items() if number)
            console.print(f"{part:<14}{said}", highlight=False)
        for one in results:
            if one["verdict"] == FAILED:
                why = str(one.get("error", "")).splitlines() or [""]
                console.print(
                    escape(f"FAILED {one['part']}: {one['name']}\n       {why[0]}"), highlight=False, soft_wrap=True
                )
    print(
        f"wrote {path} and {path.with_suffix('.md')}; docs/pages/amd.md says where to send {path.name}", file=sys.stderr
    )
    return int(_failed(results))


def _failed(results: list[dict]) -> bool:
    """A run in which nothing passed has shown nothing."""
    verdicts = [result["verdict"] for result in results]
    return FAILED in verdicts or PASSED not in verdicts


def _data(machine: Machine, results: list[dict], seconds: float) -> dict:
    return {
        "wmma_ops": wmma_ops.__version__,
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "target": machine.target,
        "emulated": not machine.is_card,
        "small": machine.small,
        "device": torch.cuda.get_device_name(0) if machine.is_card else "",
        "seconds": round(seconds, 1),
        "results": results,
    }


def _anonymous(written: str) -> str:
    """Without the name of who ran it, which paths have."""
    home = os.path.expanduser("~")
    return written if home in ("/", "~") else written.replace(home, "~")


class _progress:
    """A bar a part on a terminal; elsewhere a line for each twentieth item and for each failure."""

    def __init__(self, order: Order):
        self._order, self._bars, self._tasks = order, bars(), {}
        self._done: dict[str, int] = {}
        self._totals: dict[str, int] = {}

    def __enter__(self):
        self._bars.start()
        return self.tell

    def __exit__(self, *_) -> None:
        self._bars.stop()

    def tell(self, line: dict) -> None:
        if "items" in line:
            for part in PARTS:
                self._totals[part] = sum(1 for one, _ in line["items"] if one == part)
                if self._totals[part] and part not in self._tasks:
                    self._tasks[part] = self._bars.add_task(part, total=self._totals[part])
        elif "compiled" in line:
            self._bars.update(
                self._tasks[line["part"]], description=f"{line['part']}: compiling {line['compiled']} of {line['of']}"
            )
            if line["compiled"] == line["of"]:
                self._line(f"{line['part']}: compiled for {line['of']}")
        elif "verdict" in line:
            part = line["part"]
            done = self._done[part] = self._done.get(part, 0) + 1
            if part in self._tasks:
                self._bars.update(self._tasks[part], completed=done, description=part)
            if line["verdict"] == FAILED:
                self._line(f"{part}: FAILED {line['name']}")
            elif done % 20 == 0 or done == self._totals.get(part):
                self._line(f"{part}: {done} of {self._totals.get(part, '?')}")

    def _line(self, what: str) -> None:
        if sys.stderr.isatty():
            self._bars.console.print(escape(what), highlight=False)
        else:
            print(what, file=sys.stderr, flush=True)
