"""Runs the items of the bring-up one after the other, and says a line of JSON before and after each.

A process of its own, which may die of what it runs, or hang in it: the supervisor then starts another one behind that item.
"""

import dataclasses
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch

from wmma_ops.bringup.item import FAILED, LEFT_OUT, PARTS, Item, plain
from wmma_ops.bringup.machine import Machine
from wmma_ops.bringup.parts import items

LOST = 3  # exit status: the device answers nothing any more
Say = Callable[[dict], None]


@dataclass(frozen=True)
class Order:
    """What a worker is asked: everything from item `first` on."""

    machine: Machine
    minutes: float
    only: tuple[str, ...] = ()
    first: int = 0
    used: dict[str, float] = field(default_factory=dict)  # seconds, by part, before it was started

    @classmethod
    def of(cls, text: str) -> "Order":
        said = json.loads(text)
        return cls(Machine(**said["machine"]), said["minutes"], tuple(said["only"]), said["first"], said["used"])

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self))


def left(order: Order, part: str, used: dict[str, float]) -> float:
    """The seconds for which items of a part may begin: its share, whatever others took, and what those before it left."""
    shares = {name: share * order.minutes * 60 for name, share in PARTS.items()}
    names = [*PARTS]
    before = sum(shares[name] for name in names[: names.index(part) + 1]) - sum(used.values())
    return max(before, shares[part] - used.get(part, 0.0))


def work(order: Order, chosen: Sequence[Item], say: Say) -> bool:
    """Runs items from the order's first on. False where the device is lost, behind the item that was said last."""
    used = dict(order.used)
    say({"items": [(item.part, item.name) for item in chosen]})
    prepared: set[str] = set()
    for index in range(order.first, len(chosen)):
        item, start = chosen[index], time.perf_counter()
        if left(order, item.part, used) <= 0:
            say({"end": index, "verdict": LEFT_OUT, "why": "the time for this part was used up"})
            continue
        if item.part not in prepared:
            prepared.add(item.part)
            prepare([one for one in chosen[index:] if one.part == item.part], left(order, item.part, used), say)
        say({"begin": index})
        found, lost = _run(item, order.machine)
        seconds = time.perf_counter() - start
        used[item.part] = used.get(item.part, 0.0) + seconds
        say({"end": index, "seconds": round(seconds, 3), **plain(found)})
        if lost:
            return False
    return True


def prepare(chosen: Sequence[Item], seconds: float, say: Say) -> None:
    """Compiles what the items launch, beside each other. What fails here fails again where it is told."""
    asked = [item for item in chosen if item.prepare is not None]
    if not asked:
        return
    until = time.perf_counter() + seconds

    def one(item: Item) -> None:
        if time.perf_counter() < until:
            try:
                item.prepare()
            except Exception:
                return

    with ThreadPoolExecutor(min(os.cpu_count() or 1, 16)) as pool:
        for done, _ in enumerate(pool.map(one, asked), 1):
            say({"compiled": done, "of": len(asked), "part": asked[0].part})


def _run(item: Item, machine: Machine) -> tuple[dict, bool]:
    try:
        return item.run(), False
    except Exception as error:
        found = {"verdict": FAILED, "error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    if machine.is_card:
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            return found | {"device": f"lost: {str(error).splitlines()[0]}"}, True
    return found, False


def main(order: Order) -> int:
    # What kernels and libraries print goes where errors go: standard output has our lines alone.
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(line: dict) -> None:
        print(json.dumps(line, allow_nan=False), file=lines, flush=True)

    return 0 if work(order, items(order.machine, order.only), say) else LOST


if __name__ == "__main__":
    sys.exit(main(Order.of(sys.argv[1])))
