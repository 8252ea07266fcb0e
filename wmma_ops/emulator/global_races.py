"""Races in global memory: two waves' accesses to one place that nothing orders, one of them a store.

What a wave does between two of its synchronisations is a stretch. Of each place are kept the last stretch that stored there,
and the last two, of different waves, that read and that were atomic. Waves of a block are ordered by its barriers. Blocks,
and waves without a barrier, are ordered by atomics: one that has been atomic after its accesses has released them; one that
was atomic later, and then made its cache forget what it held, has acquired what was released until then, for all who meet it
at a barrier after that. Which place the atomics were at, and whether a release waited for its stores, is not asked.

Loads and stores that pass by a cache count as atomic, so volatile ones do. No race are stores of what is there already, and
a load beside another wave's atomic: a loop of compare-and-swap begins with one.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from wmma_ops.emulator.errors import Race

_KEPT = 4096  # loads of a region before they are noted by place
_FAR = 1 << 62  # bytes


class Stretch(NamedTuple):
    """Of a wave, with what it has passed and acquired before; `time` counts all waves' synchronisations by atomics."""

    block: tuple[int, int, int]
    wave: int
    signals: int
    waits: int
    time: int
    released: int  # the time of its last atomic
    acquired: int  # of the last one that acquired


def _others(stretches: np.ndarray, own: int) -> list[int]:
    """The different ones but `own` and 0, which stands for none."""
    if not stretches.size:
        return []
    first = stretches.item(0)
    alike = np.count_nonzero(stretches == first) == stretches.size
    return [one for one in ([first] if alike else np.unique(stretches).tolist()) if one not in (0, own)]


def _between(offsets, size: int) -> tuple[int, int]:
    """The first byte of accesses, and the one after the last."""
    if isinstance(offsets, int):
        return offsets, offsets + size
    return int(np.minimum.reduce(offsets)), int(np.maximum.reduce(offsets)) + size


class _Kind:
    """The stretches of one kind of access to each place: the latest, and the latest of another wave before it. And between
    which bytes the accesses lie: one wave's, and those of all that had their turns before it."""

    def __init__(self):
        self.any = False
        self.latest = self.before = np.zeros(0, np.int32)
        self.wave = None
        self.low = self.own_low = _FAR
        self.high = self.own_high = 0

    def begin(self, places: int) -> None:
        if not self.any:
            self.any, self.latest, self.before = True, np.zeros(places, np.int32), np.zeros(places, np.int32)

    def refine(self, times: int) -> None:
        self.latest, self.before = self.latest.repeat(times), self.before.repeat(times)

    def _turn(self, wave) -> None:
        self.low, self.high = min(self.low, self.own_low), max(self.high, self.own_high)
        self.wave, self.own_low, self.own_high = wave, _FAR, 0

    def reach(self, low: int, high: int, wave) -> None:
        if wave is not self.wave:
            self._turn(wave)
        self.own_low, self.own_high = min(low, self.own_low), max(high, self.own_high)

    def is_near(self, low: int, high: int, wave) -> bool:
        """Whether what lies between these bytes may be another wave's too."""
        if wave is not self.wave:
            self._turn(wave)
        return low < self.high and self.low < high

    def note(self, places: np.ndarray, own: int, races: "GlobalRaces") -> None:
        latest = self.latest[places]
        for one in _others(latest, own) if np.count_nonzero(latest) else ():
            if not races.ordered(one, own):
                those = places[latest == one]
                # Another block's stays: fewer later accesses are ordered with it.
                far = [x for x in _others(self.before[those], own) if races.are_of_two_blocks(x, own)]
                self.before[those[~np.isin(self.before[those], far)] if far else those] = one
        self.latest[places] = own

    def unordered(self, places: np.ndarray, own: int, races: "GlobalRaces"):
        """(which of the places another wave has met with nothing between, the stretches in which it did), or None."""
        for kept in (self.latest, self.before):
            stretches = kept[places]
            if not np.count_nonzero(stretches):
                return None
            bad = [one for one in _others(stretches, own) if not races.ordered(one, own)]
            if bad:
                return np.isin(stretches, bad), stretches
        return None


class _Watched:
    """A region's accesses. Words are watched until one touches less."""

    def __init__(self, region):
        self.region = region
        self.unit = 4
        self.stores, self.atomics, self.reads = _Kind(), _Kind(), _Kind()
        self.loads: list[tuple] = []  # not yet noted: (offsets, bytes, stretch)

    def begin(self, kind: _Kind) -> None:
        kind.begin(len(self.region.bytes) // self.unit)

    def places(self, offsets, size: int, words=None) -> np.ndarray:
        """Of each access the places, in a row. `words` are its words where it is one of whole ones."""
        if words is None or self.unit != 4:
            offsets = np.atleast_1d(offsets)
            bits = int(np.bitwise_or.reduce(offsets)) | size
            if bits & (self.unit - 1):
                unit = 1 if bits & 1 else 2
                for kind in (self.stores, self.atomics, self.reads):
                    kind.refine(self.unit // unit)
                self.unit = unit
            words = offsets // self.unit
        return words[:, None] if size == self.unit else words[:, None] + np.arange(size // self.unit)

    def flush(self, own: int, races: "GlobalRaces") -> None:
        """Notes the loads but those of `own`, which come last."""
        if not self.loads or self.loads[0][2] == own:
            return
        self.begin(self.reads)
        kept = []
        for (size, stretch), group in itertools.groupby(self.loads, lambda load: load[1:]):
            if stretch == own:
                kept += group
                continue
            offsets = np.concatenate([np.atleast_1d(offsets) for offsets, *_ in group])
            self.reads.note(self.places(offsets, size).ravel(), stretch, races)
            self.reads.reach(*_between(offsets, size), None)
        self.loads = kept


class GlobalRaces:
    """Of one launch."""

    def __init__(self):
        self.alone = False  # the launch's only wave, which races with none
        self.regions: dict[object, _Watched] = {}
        self.stretches: list[Stretch | None] = [None]
        self.wave = None
        self.own = 0  # the wave's stretch at hand; 0 before its first access
        self.time = 1
        self.released: dict[tuple, int] = {}  # by block and wave: the time until which its own accesses are
        self.released_waits: dict[tuple, int] = {}  # by block: those signalled before so many barriers are

    def stored_in(self) -> list:
        """The regions that something was stored in."""
        return [of for of, watched in self.regions.items() if watched.stores.any or watched.atomics.any]

    def are_stored(self, region, offsets: np.ndarray, size: int) -> np.ndarray:
        """Of elements of `size` bytes, by their first ones, whether something was stored there: only where they lie, as a
        tensor's rows may be gigabytes apart."""
        watched = self.regions[region]
        places = np.asarray(offsets)[..., None] // watched.unit + np.arange(max(size // watched.unit, 1))
        kinds = (kind.latest[places] != 0 for kind in (watched.stores, watched.atomics) if kind.any)
        return np.logical_or.reduce([kind.any(-1) for kind in kinds])

    def enter(self, wave) -> None:
        self.wave, self.own = wave, 0

    def synchronised(self) -> None:
        """What the wave does from here on is another stretch."""
        self.own = 0

    def _stretch(self) -> int:
        wave = self.wave
        self.stretches.append(
            Stretch(wave.block, wave.index, wave.signals, wave.waits, self.time, wave.released, wave.acquired)
        )
        self.own = len(self.stretches) - 1
        return self.own

    def are_of_two_blocks(self, one: int, other: int) -> bool:
        return self.stretches[one].block != self.stretches[other].block

    def ordered(self, earlier: int, later: int) -> bool:
        before, after = self.stretches[earlier], self.stretches[later]
        same = before.block == after.block
        if same and (before.wave == after.wave or before.signals < after.waits):
            return True
        if before.time >= (after.released if same else after.acquired):
            return False
        own = self.released.get((before.block, before.wave), 0)
        return before.time <= own or before.signals < self.released_waits.get(before.block, 0)

    # Atomics.

    def _release(self, stretch: Stretch, waits: int) -> None:
        key = stretch.block, stretch.wave
        self.released[key] = max(self.released.get(key, 0), stretch.time)
        self.released_waits[stretch.block] = max(self.released_waits.get(stretch.block, 0), waits)

    def _synchronise(self, watched: _Watched, places: np.ndarray, releases: bool) -> None:
        """An atomic: it releases, and takes what it reads for a flag, so that who stored that has released too."""
        own = self.own or self._stretch()
        if watched.stores.any:
            for one in _others(watched.stores.latest[places], own):
                self._release(self.stretches[one], self.stretches[one].waits)
                self.time += 1
        self.wave.released = self.time
        if releases:
            self._release(self.stretches[own]._replace(time=self.time), self.wave.waits)
            self.time += 1
        self.own = 0

    def acquire(self) -> None:
        """The wave's cache forgets what it held."""
        self.wave.acquired, self.own = self.wave.released, 0

    # Accesses. Offsets count from the region's start, in bytes or, where all is aligned, words; `lanes` are theirs, or a
    # slice of all.

    def _watched(self, region) -> _Watched:
        found = self.regions[region] = _Watched(region)
        return found

    def load(self, region, offsets, words, size: int, lanes, atomic: bool = False) -> None:
        if self.alone or not region.is_watched:
            return
        watched = self.regions.get(region) or self._watched(region)
        if atomic:
            self._synchronise(watched, watched.places(offsets, size, words), False)
            return
        own = self.own or self._stretch()
        if watched.stores.any:
            low, high = _between(offsets, size)
            if watched.stores.is_near(low, high, self.wave):
                self._check(watched, watched.stores, watched.places(offsets, size, words), lanes, "load", "stored")
            watched.reads.reach(low, high, self.wave)
        watched.loads.append((offsets, size, own))
        if len(watched.loads) > _KEPT:
            watched.flush(0, self)

    def store(self, region, offsets, words, size: int, lanes, atomic: bool) -> Callable[[], None] | None:
        """What is to be called once the store is done, if that is to tell whether it changed another's value."""
        watched = self.regions.get(region) or self._watched(region)
        if self.alone:
            places = watched.places(offsets, size, words)  # which may become smaller ones
            watched.begin(watched.stores)
            watched.stores.latest[places] = 1
            return None
        own = self.own or self._stretch()
        low, high = _between(offsets, size)
        if not watched.stores.any:  # until now nothing asked where loads were
            watched.flush(own, self)
            for load in watched.loads:
                watched.reads.reach(*_between(*load[:2]), self.wave)
        near = watched.reads.is_near(low, high, self.wave)
        if near:
            watched.flush(own, self)
        places = watched.places(offsets, size, words)
        if atomic or (watched.atomics.any and self._is_own_atomic(watched, places)):
            self._atomic(watched, places, low, high, lanes, "atomic store")
            return None
        if near:
            self._check(watched, watched.reads, places, lanes, "store", "loaded")
        if watched.atomics.is_near(low, high, self.wave):
            self._check(watched, watched.atomics, places, lanes, "store", "changed atomically")
        watched.begin(watched.stores)
        found = None
        if watched.stores.is_near(low, high, self.wave):
            found = watched.stores.unordered(places, own, self)
        watched.stores.latest[places] = own
        watched.stores.reach(low, high, self.wave)
        if found is None:
            return None
        touched = np.asarray(offsets)[:, None] + np.arange(size)
        values = region.bytes[touched]

        def compare() -> None:
            changed = (region.bytes[touched] != values).reshape(*places.shape, -1).any(axis=2)
            if (found[0] & changed).any():
                self._report(watched, (found[0] & changed, found[1]), places, lanes, "store", "stored another value")

        return compare

    def _is_own_atomic(self, watched: _Watched, places: np.ndarray) -> bool:
        """Whether the wave was atomic there itself: so it is with a lock, which on some targets plain stores open."""
        own = self.stretches[self.own]
        found = [self.stretches[one] for one in _others(watched.atomics.latest[places], 0)]
        return any((one.block, one.wave) == (own.block, own.wave) for one in found)

    def atomic(self, region, offsets, size: int, lanes) -> None:
        watched = self.regions.get(region) or self._watched(region)
        if self.alone:
            places = watched.places(offsets, size)
            watched.begin(watched.atomics)
            watched.atomics.latest[places] = 1
        elif len(offsets):
            self._atomic(watched, watched.places(offsets, size), *_between(offsets, size), lanes, "atomic")
        else:  # compares and swaps that did not swap
            self._synchronise(watched, np.zeros((1, 0), np.intp), False)

    def _atomic(self, watched: _Watched, places: np.ndarray, low: int, high: int, lanes, what: str) -> None:
        own = self.own or self._stretch()
        if watched.stores.is_near(low, high, self.wave):
            self._check(watched, watched.stores, places, lanes, what, "stored")
        watched.begin(watched.atomics)
        watched.atomics.note(places.ravel(), own, self)
        watched.atomics.reach(low, high, self.wave)
        self._synchronise(watched, places, True)

    def _check(self, watched: _Watched, accesses: _Kind, places, lanes, what: str, did: str) -> None:
        found = accesses.unordered(places, self.own, self) if accesses.any else None
        if found is not None:
            self._report(watched, found, places, lanes, what, did)

    def _report(self, watched: _Watched, found, places, lanes, what: str, did: str) -> None:
        bad, stretches = found
        which, column = divmod(int(np.argmax(bad)), bad.shape[1])
        lane = which if isinstance(lanes, slice) else int(lanes[which])
        other = self.stretches[int(stretches[which, column])]
        near = other.block == self.wave.block
        raise Race(
            f"lane {lane}: this {what} at {watched.region.named(self._byte(watched, places[which, column]))} meets what "
            f"wave {other.wave}{'' if near else f' of block {other.block}'} {did} there with "
            + (
                "no barrier between"
                if near
                else "nothing between that orders blocks, as a release and an acquire would"
            )
        )

    def _byte(self, watched: _Watched, place: int) -> int:
        region = watched.region
        return max(int(place) * watched.unit - (region.base - region.start), 0)
