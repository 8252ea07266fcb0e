"""Vector memory as one compute unit sees it: a queue, its cache, and what is on its way from beyond. RDNA's pair of them, a
WGP, has two."""

from collections import OrderedDict, deque

from wmma_ops.emulator.timing.operations import Executed
from wmma_ops.emulator.timing.rules import Rules

SEGMENT = 64  # bytes, of which the cache gives one at a time


class Cache:
    """Sets of lines, the one that was not used for longest leaving first."""

    def __init__(self, size: int, line: int, ways: int):
        self._ways = ways
        self._sets: list[OrderedDict[int, int]] = [OrderedDict() for _ in range(size // line // ways)]

    def arrival(self, line: int) -> int | None:
        """When a line is or was there; None where it is not."""
        lines = self._sets[line % len(self._sets)]
        found = lines.get(line)
        if found is not None:
            lines.move_to_end(line)
        return found

    def put(self, line: int, arrives: int) -> None:
        lines = self._sets[line % len(self._sets)]
        lines[line] = arrives
        if len(lines) > self._ways:
            lines.popitem(last=False)


class Seldom:
    """Tells, of steps that are counted, some that lie apart by chance: always the same."""

    def __init__(self, average: int):
        self._average, self._state, self._left = average, 1, 0.0
        self._draw()

    def passes(self, step: int) -> bool:
        self._left -= step
        if self._left > 0 or not self._average:
            return False
        self._draw()
        return True

    def _draw(self) -> None:
        self._state = (self._state * 1664525 + 1013904223) % (1 << 32)
        self._left += 2 * self._average * self._state / (1 << 32)


class Memory:
    """A first cache, with the queue before it and its path from beyond."""

    def __init__(self, rules: Rules, lanes: int):
        self._rules, self._lanes = rules, lanes
        self._cache = Cache(rules.cache_bytes, rules.cache_line, rules.cache_ways)
        self._queue: deque[int] = deque()  # when each leaves it
        self._coming: deque[tuple[int, int]] = deque()  # (when it is there, bytes), in order
        self._bytes = 0  # on their way
        self._path = 0  # the cache is free from
        self._l2 = 0.0  # likewise
        self._seldom = Seldom(rules.l2_miss)
        self.fetched = 0  # bytes from beyond the cache
        self.asked = 0  # bytes

    def room(self, now: int) -> int:
        """From when the queue takes one more."""
        queue, most = self._queue, self._rules.vmem_queue
        while queue and queue[0] <= now:
            queue.popleft()
        return now if len(queue) < most else queue[len(queue) - most]

    def take(self, now: int, executed: Executed) -> int:
        """When an access is done."""
        rules, op = self._rules, executed.operation
        size = max(op.size * (self._lanes if executed.lanes is None else executed.lanes), 1)
        self.asked += size
        start = max(now, self._path)
        segments = executed.segments or -(-size // SEGMENT)
        missed, there = [], 0
        if executed.lines is None:
            fetched = size
        elif op.is_store:  # they go through
            fetched = segments * SEGMENT
        else:
            for line in executed.lines:
                arrives = self._cache.arrival(line)
                if arrives is None:
                    missed.append(line)
                else:
                    there = max(there, arrives)
            fetched = len(missed) * rules.cache_line
        coming = self._coming
        while coming and (coming[0][0] <= start or (fetched and self._bytes + fetched > rules.vmem_bytes)):
            done, freed = coming.popleft()
            start, self._bytes = max(start, done), self._bytes - freed
        self._path = start + segments * SEGMENT // rules.cache_path
        self._queue.append(start)
        last = coming[-1][0] if coming else 0  # what is asked for first comes first
        if not fetched:
            return max(start + rules.cache_latency, there, last)
        self._l2 = max(start, self._l2) + fetched / rules.l2_path
        latency = rules.l2_latency
        if not op.is_store and self._seldom.passes(fetched):
            latency += rules.l2_miss_latency
        done = max(int(self._l2) + latency, there, last)
        for line in missed:
            self._cache.put(line, done)
        coming.append((done, fetched))
        self._bytes += fetched
        self.fetched += fetched
        return done
