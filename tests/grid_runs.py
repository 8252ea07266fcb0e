"""What the scripts that ask grids of cases have in common: which part of a grid they ask, and what they print of it."""

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

Case = TypeVar("Case")


class Found(Protocol):
    """A comparison; as text, its error beside others."""

    what: str

    @property
    def right(self) -> bool: ...
    @property
    def share(self) -> float | None:
        """Of what its error is measured by; None where that is nothing."""


def part(text: str) -> slice:
    """Of "3/10" the third of each ten."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part: 1/10 is the first of ten, 10/10 the last")
    return slice(int(number) - 1, None, int(of))


def add_options(parser: argparse.ArgumentParser, grids: Sequence[str]) -> None:
    parser.add_argument("--grid", choices=grids, action="append", help="this one only; may be given more than once")
    parser.add_argument("--target", help="emulated, with few heads and short lengths; as gfx942")
    parser.add_argument("--part", type=part, default=slice(None), help="every so many-th case of each grid; as 3/10")


def ask_all(
    grids: Iterable[tuple[str, Sequence[Case]]], ask: Callable[[Case], Iterable[Found]], measure: str, width: int
) -> int:
    """The script's exit code, once all grids are asked, each with the cases that are chosen of it; `measure` says what
    shares are of."""
    failed = asked = made = 0
    for grid, chosen in grids:
        began = time.perf_counter()
        largest: dict[str, float] = {}
        for case in chosen:
            for found in ask(case):
                made += 1
                if not found.right:
                    failed += 1
                    print(f"WRONG {found}: {case}", flush=True)
                if found.share is not None:
                    largest[found.what] = max(largest.get(found.what, 0.0), found.share)
        asked += len(chosen)
        shares = ", ".join(f"{what} {share:.2f}" for what, share in largest.items())
        took = time.perf_counter() - began
        print(
            f"{grid:<{width}} {len(chosen):6} cases  {took:6.1f} s  largest errors, of {measure}: {shares}", flush=True
        )
    print(f"{asked} cases, {made} comparisons, {failed} failed")
    return int(failed > 0)
