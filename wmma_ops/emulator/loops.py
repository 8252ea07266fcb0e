"""The loops of a flow of control, given which of its blocks may follow each."""

import functools
from collections.abc import Sequence


def natural_loops(follows: Sequence[frozenset[int]]) -> dict[int, frozenset[int]]:
    """Their blocks by their headers; loops of one header are one loop."""
    before: list[list[int]] = [[] for _ in follows]
    for b, after in enumerate(follows):
        for one in after:
            before[one].append(b)
    dominators = _dominators(follows, before)
    loops: dict[int, set[int]] = {}
    for b, after in enumerate(follows):
        for header in after:
            if dominators[b] >> header & 1 and dominators[b] != _ALL:
                loops.setdefault(header, {header}).update(_reaching(b, header, before))
    return {header: frozenset(loop) for header, loop in loops.items()}


_ALL = -1


def _dominators(follows: Sequence[frozenset[int]], before: list[list[int]]) -> list[int]:
    """A bit set a block; that of what is never reached stays _ALL."""
    found = [_ALL] * len(follows)
    changed = True
    while changed:
        changed = False
        for b in range(len(follows)):
            common = functools.reduce(int.__and__, (found[one] for one in before[b]), _ALL) if b else 0
            new = common if common == _ALL else common | 1 << b
            changed |= new != found[b]
            found[b] = new
    return found


def _reaching(block: int, header: int, before: list[list[int]]) -> set[int]:
    seen, pending = {header}, [block]
    while pending:
        if (b := pending.pop()) not in seen:
            seen.add(b)
            pending.extend(before[b])
    return seen
