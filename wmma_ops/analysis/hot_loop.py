"""Finds the hot loop in the control flow of a kernel, whatever its instructions are.

A flow has for each instruction the label that it may jump to, and whether the next instruction may follow.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from wmma_ops.emulator.loops import natural_loops


@dataclass(frozen=True)
class Loop:
    body: tuple[int, ...]  # instructions
    branches: int


def hot_loop(flow: Sequence[tuple[str | None, bool]], labels: dict[str, int], matrix: Sequence[bool]) -> Loop | None:
    """Of the loops with matrix instructions that have none such inside, the one with the most; then the largest."""
    blocks = _blocks(flow, labels)
    follows = _follows(blocks, flow, labels)
    loops = [loop for loop in natural_loops(follows).values() if any(matrix[i] for b in loop for i in blocks[b])]
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
