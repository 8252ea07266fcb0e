"""Which bytes of shared memory an access touches. It is remembered: blocks and loops touch the same ones again."""

import functools

import numpy as np

_KEPT = 4096  # accesses, at about 4 KB each


class Touched:
    """`size` bytes at each of the bytes `at`, by these lanes."""

    def __init__(self, lanes: np.ndarray, at: np.ndarray, size: int):
        self.lanes, self.at, self.size = lanes, at, size
        self.bits = int(np.bitwise_or.reduce(at))  # those that are set in any address
        self.stop = int(np.maximum.reduce(at)) + size if len(at) else 0
        self.are_words = not (self.bits | size) & 3
        self._places: dict[int, np.ndarray] = {}

    @functools.cached_property
    def bytes(self) -> np.ndarray:
        """Of each lane, in a row."""
        return self.at[:, None] + np.arange(self.size)

    @functools.cached_property
    def words(self) -> np.ndarray:
        """Where they are words: of all lanes the first, then the next, in a row each."""
        return self.places(4).reshape(-1, len(self.at))

    def places(self, unit: int) -> np.ndarray:
        """The same, one row after the other, of places of `unit` bytes that divide them."""
        found = self._places.get(unit)
        if found is None:
            count = self.size // unit
            found = self._places[unit] = (np.arange(count)[:, None] + self.at // unit).ravel()
        return found


_remembered: dict[tuple, Touched] = {}


def touched(address: np.ndarray, offset: int, size: int, full: bool, mask: np.ndarray) -> Touched:
    """Of the lanes in the mask; all where it is full."""
    address = np.broadcast_to(address, mask.shape) if np.shape(address) != mask.shape else address
    key = address.tobytes(), offset, size, None if full else mask.tobytes()
    found = _remembered.get(key)
    if found is None:
        lanes = mask.nonzero()[0]
        at = (address[lanes].astype(np.int64) + offset) & 0xFFFFFFFF  # as the unit adds
        if len(_remembered) >= _KEPT:
            _remembered.clear()
        found = _remembered[key] = Touched(lanes, at, size)
    return found
