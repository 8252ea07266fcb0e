"""How many cycles shared memory's banks take for the addresses of a wave's lanes.

Lanes are served in groups; a group takes as many cycles as its busiest bank has different words. Which lanes make a group
of 16-byte reads was measured on CDNA (rules.py: banks, hipkittens); others are neighbours, as many as the banks have words
for.
"""

import functools

import numpy as np

from wmma_ops.emulator.timing.rules import Rules

# Of 32 lanes; the others are 32 on.
_READ_16 = {
    128: ((0, 1, 2, 3, 20, 21, 22, 23), (4, 5, 6, 7, 16, 17, 18, 19), (8, 9, 10, 11, 28, 29, 30, 31),
          (12, 13, 14, 15, 24, 25, 26, 27)),
    256: ((0, 1, 2, 3, 12, 13, 14, 15, *range(20, 28)), (*range(4, 12), 16, 17, 18, 19, 28, 29, 30, 31)),
}  # fmt: skip


@functools.cache
def _groups(bytes_a_cycle: int, size: int, is_store: bool, lanes: int) -> tuple[tuple[int, ...], ...]:
    if size == 16 and lanes == 64 and not is_store:
        return tuple(tuple(lane + at for lane in group) for at in (0, 32) for group in _READ_16[bytes_a_cycle])
    together = max(bytes_a_cycle // max(size, 4), 1)
    return tuple(tuple(range(at, min(at + together, lanes))) for at in range(0, lanes, together))


def cycles(rules: Rules, addresses: np.ndarray, size: int, is_store: bool, active: np.ndarray | None = None) -> int:
    """Of one instruction; `addresses` are the lanes' first bytes."""
    banks, total = rules.lds_bytes // 4, 0
    words = np.arange(max(size, 4) // 4)
    for group in _groups(rules.lds_bytes, size, is_store, len(addresses)):
        lanes = [lane for lane in group if active is None or active[lane]]
        if lanes:
            asked = np.unique(addresses[lanes][:, None] // 4 + words)
            total += int(np.bincount(asked % banks).max())
    return total
