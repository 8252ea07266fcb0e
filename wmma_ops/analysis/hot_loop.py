"""Finds the hot loop in the control flow of a kernel, whatever its instructions are.

A flow has for each instruction the label that it may jump to, and whether the next instruction may follow.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Loop:
    body: tuple[int, ...]  # instructions
    branches: int


def hot_loop(flow: Sequence[tuple[str | None, bool]], labels: dict[str, int], matrix: Sequence[bool]) -> Loop | None:
    """Of the loops with matrix instructions that have none such inside, the one with the most; then the largest."""
    blocks = _blocks(flow, labels)
    follows = _follows(blocks, flow, labels)
    loops = [loop for loop in _natural_loops(follows) if any(matrix[i] for b in loop for i in blocks[b])]
    innermost = [loop for loop in loops if not any(other < loop for other in loops)]
    if not innermost:
        return None

    def size(loop: frozenset[int]) -> tuple[int, int]:
        return sum(matrix[i] for b in loop for i in blocks[b]), sum(len(blocks[b]) for b in loop)

    best = max(innermost, key=size)
    body = tuple(i for b in sorted(best) for i in blocks[b])
    return Loop(body, sum(len(follows[b] & best) > 1 for b in best))


def _blocks(flow: Sequence[tuple[str | None, bool]], labels: dict[str, int]) -> list[range]:
    starts = {0, *labels.values()}
    starts |= {i + 1 for i, (jump, falls) in enumerate(flow) if jump is not None or not falls}
    ordered = sorted(start for start in starts if start < len(flow))
    return [range(start, end) for start, end in zip(ordered, [*ordered[1:], len(flow)], strict=True)]


def _follows(
    blocks: list[range], flow: Sequence[tuple[str | None, bool]], labels: dict[str, int]
) -> list[frozenset[int]]:
    starting = {block.start: b for b, block in enumerate(blocks)}
    found = []
    for block in blocks:
        jump, falls = flow[block[-1]]
        after = {labels.get(jump), block.stop if falls else None}
        found.append(frozenset(starting[at] for at in after if at in starting))
    return found


def _natural_loops(follows: list[frozenset[int]]) -> list[frozenset[int]]:
    """Their blocks; loops of one header are one loop."""
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
    return [frozenset(loop) for loop in loops.values()]


_ALL = -1


def _dominators(follows: list[frozenset[int]], before: list[list[int]]) -> list[int]:
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
