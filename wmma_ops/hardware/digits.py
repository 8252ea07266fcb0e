"""A lane layout as arithmetic, both ways, from its table.

Lane, element, block, row and column are numbers in mixed radix, and a layout deals the digits of (lane, element) to (block,
row, column): row = lane % 16 says that the lane's lowest digit, of 16, is the row's. One list of digits gives the way there
and the way back, with + * // and % alone: on whole numbers, on NumPy arrays, on whatever else knows these four.
"""

import math
import numbers
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

Index = Any  # a whole number, an array of them, or a symbol that has + * // and %
_USED = ("add", "mul", "floordiv", "mod")


@dataclass(frozen=True)
class Digit:
    """A digit of a lane's or element's number, and of which coordinate of the place it is one."""

    size: int
    slot: int  # 0: the lane, 1: the element
    slot_weight: int
    axis: int | None  # 0: block, 1: row, 2: column; None: copies, which hold the same
    weight: int


@dataclass(frozen=True)
class Digits:
    digits: tuple[Digit, ...]
    slots: tuple[int, int]  # lanes, elements
    sizes: tuple[int, int, int]  # blocks, rows, columns
    copies: int

    @classmethod
    def of(cls, places, sizes: tuple[int, int, int]) -> "Digits":
        """From the table [lane][element] -> (block, row, column), all of whose sizes are powers of two."""
        slots = len(places), len(places[0])
        digits: list[Digit] = []
        for slot, size in enumerate(slots):
            for weight in (1 << bit for bit in range(size.bit_length() - 1)):
                place = places[weight][0] if slot == 0 else places[0][weight]
                axis, step = next(((axis, step) for axis, step in enumerate(place) if step), (None, 0))
                last = digits[-1] if digits else None
                if axis is None:  # copies are numbered by the lanes' order
                    step = (last.size * last.weight) if last and last.axis is None else 1
                if last and (last.slot, last.axis, last.size * last.weight) == (slot, axis, step):
                    digits[-1] = Digit(last.size * 2, slot, last.slot_weight, axis, last.weight)
                else:
                    digits.append(Digit(2, slot, weight, axis, step))
        copies = math.prod(digit.size for digit in digits if digit.axis is None)
        found = cls(tuple(digits), slots, sizes, copies)
        for lane, row in enumerate(places):
            for e, place in enumerate(row):
                assert found.place(lane, e) == place, f"lane {lane}, element {e}: no layout of digits"
        return found

    def place(self, lane: Index, e: Index) -> tuple[Index, Index, Index]:
        """Block, row and column."""
        given = lane, e
        block, row, column = (
            _total((_digit(given[d.slot], d.slot_weight, d.size, self.slots[d.slot]), d.weight) for d in self._of(axis))
            for axis in range(3)
        )
        return block, row, column

    def owner(self, block: Index, row: Index, column: Index, copy: Index) -> tuple[Index, Index]:
        """Lane and element of one copy."""
        given: dict[int | None, Index] = {0: block, 1: row, 2: column, None: copy}
        sizes: dict[int | None, int] = {**dict(enumerate(self.sizes)), None: self.copies}
        lane, e = (
            _total(
                (_digit(given[d.axis], d.weight, d.size, sizes[d.axis]), d.slot_weight)
                for d in self.digits
                if d.slot == slot
            )
            for slot in range(2)
        )
        return lane, e

    def _of(self, axis: int) -> list[Digit]:
        return sorted((digit for digit in self.digits if digit.axis == axis), key=lambda digit: -digit.weight)


def _digit(number: Index, weight: int, size: int, whole: int) -> Index:
    """(number // weight) % size, without what changes nothing."""
    digit = number if weight == 1 else number // weight
    return digit if weight * size == whole else digit % size


def _total(parts: Iterable[tuple[Index, int]]) -> Index:
    total = None
    for digit, weight in parts:
        part = digit if weight == 1 else digit * weight
        total = part if total is None else total + part
    return 0 if total is None else total


def indices(**bounds: tuple[Index, int]) -> tuple[list[Index], tuple[int, ...] | None]:
    """Numbers, each checked to lie below its bound where it is known, and the shape that arrays among them have together."""
    found = [_index(name, given, below) for name, (given, below) in bounds.items()]
    arrays = [value.shape for value in found if isinstance(value, np.ndarray)]
    return found, np.broadcast_shapes(*arrays) if arrays else None


def shaped(found: tuple[Index, ...], shape: tuple[int, ...] | None) -> tuple[Index, ...]:
    """As arrays of one shape, each its own."""
    return found if shape is None else tuple(np.broadcast_to(value, shape).copy() for value in found)


def _index(name: str, given: Index, below: int) -> Index:
    if isinstance(given, numbers.Integral):
        given = operator.index(given)
        outside = not 0 <= given < below
    elif isinstance(given, (np.ndarray, list, tuple)):
        given = np.asarray(given)
        if given.dtype.kind not in "iu":
            raise TypeError(f"{name} is an array of {given.dtype}; takes whole numbers")
        outside = given.size and not (given.min() >= 0 and given.max() < below)
        given = given.astype(np.int64)
    elif isinstance(given, numbers.Number) or not all(hasattr(given, f"__{name}__") for name in _USED):
        raise TypeError(
            f"{name} is of type {type(given).__name__}; takes a whole number, a NumPy array of them, or a symbol that has "
            "+ * // and %"
        )
    else:
        outside = False
    if outside:
        # Python would take negative indices from the end.
        raise IndexError(f"{name} {given}; takes 0 to {below - 1}")
    return given
