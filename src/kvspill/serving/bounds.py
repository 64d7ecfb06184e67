"""Bounds of the hit rate: unlimited cache, perfect foresight and plain LRU on the same lookups."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from kvspill.serving.stack import reuse_bytes

ACCESSES_MAX = 1_000_000
"""Lookups that are kept: with their keys they take about a hundred megabytes at most."""

_NEVER = -1


class Access(NamedTuple):
    """One object that a request needs. Only reads are counted; a write makes the object resident."""

    key: str
    nbytes: int
    counted: bool = True


@dataclass(slots=True)
class AccessLog:
    """What requests asked for; whole requests up to the limit, nothing after it."""

    chained: bool = True
    """True where a request's objects continue each other; else each stands for itself."""
    whole: bool = True
    """False where requests also need objects that are not noted, such as the ends of prefixes."""
    limit: int = ACCESSES_MAX
    full: bool = False
    numbers: "array[int]" = field(default_factory=lambda: array("i"))
    counted: bytearray = field(default_factory=bytearray)
    ends: "array[int]" = field(default_factory=lambda: array("i"))
    """Where each request's accesses end."""
    starts: "array[int]" = field(default_factory=lambda: array("q"))
    """When each request began to ask."""
    sizes: "array[int]" = field(default_factory=lambda: array("q"))
    """Bytes of each object by its number."""
    preloaded: int = 0
    """Objects that were there before the load: each stands in the log like a request that writes it."""
    _names: dict[str, int] = field(default_factory=dict)

    def add(self, accesses: Iterable[Access], started_ns: int = 0) -> bool:
        """Note one request's accesses; False once the log is full."""
        if self.full:
            return False
        names, sizes, numbers, marks = self._names, self.sizes, self.numbers, self.counted
        for key, nbytes, counted in accesses:
            number = names.setdefault(key, len(names))
            if number == len(sizes):
                sizes.append(nbytes)
            numbers.append(number)
            marks.append(counted)
        self.ends.append(len(self.numbers))
        self.starts.append(started_ns)
        self.full = len(self.numbers) >= self.limit
        return True

    def preload(self, key: str, nbytes: int, at_ns: int) -> None:
        """Note an object that is resident before anybody asks."""
        self.preloaded += self.add([Access(key, nbytes, counted=False)], at_ns)

    def requests(self) -> Iterator[range]:
        """The places of each request's accesses."""
        first = 0
        for end in self.ends:
            yield range(first, end)
            first = end

    def sort(self) -> None:
        """Bring the requests, noted as they ended, into the order in which they asked."""
        ranges = list(self.requests())
        numbers, counted = self.numbers, self.counted
        self.numbers, self.counted, self.ends = array("i"), bytearray(), array("i")
        for request in sorted(range(len(ranges)), key=self.starts.__getitem__):
            places = ranges[request]
            self.numbers.extend(numbers[places.start : places.stop])
            self.counted.extend(counted[places.start : places.stop])
            self.ends.append(len(self.numbers))
        self.starts = array("q", sorted(self.starts))

    @property
    def unit_bytes(self) -> int | None:
        """The size that all objects have, or None."""
        sizes = set(self.sizes)
        return sizes.pop() if len(sizes) == 1 else None


@dataclass(frozen=True, slots=True)
class HitBounds:
    """Shares of the looked-up bytes that could have been found."""

    looked_up_bytes: int
    infinite: float
    """Everything that was ever seen before."""
    belady: float
    """Perfect foresight at this capacity."""
    lru: float
    """Least recently used first, over the tiers' capacities taken together."""
    belady_exact: bool
    """True for objects of one size that are all that was needed. Else it is an upper bound: objects may be
    kept in part, and what is not noted takes no room."""
    requests: int
    truncated: bool


def hit_bounds(log: AccessLog, capacity_bytes: int) -> HitBounds | None:
    """The bounds of the logged lookups; None where nothing was looked up."""
    total = sum(log.sizes[number] for number, counts in zip(log.numbers, log.counted, strict=True) if counts)
    if total == 0:
        return None
    unit = log.unit_bytes
    if unit is not None:
        capacity_bytes -= capacity_bytes % unit
    infinite = _infinite_hit_bytes(log)
    if capacity_bytes >= sum(log.sizes):
        belady = lru = infinite
    else:
        belady, lru = _belady_hit_bytes(log, capacity_bytes), _lru_hit_bytes(log, capacity_bytes)
    return HitBounds(
        looked_up_bytes=total,
        infinite=infinite / total,
        belady=belady / total,
        lru=lru / total,
        belady_exact=unit is not None and log.whole,
        requests=len(log.ends) - log.preloaded,
        truncated=log.full,
    )


def _infinite_hit_bytes(log: AccessLog) -> int:
    seen = bytearray(len(log.sizes))
    hits = 0
    for number, counts in zip(log.numbers, log.counted, strict=True):
        if seen[number] and counts:
            hits += log.sizes[number]
        seen[number] = 1
    return hits


def _lru_hit_bytes(log: AccessLog, capacity_bytes: int) -> int:
    numbers = np.frombuffer(log.numbers, np.int32)
    sizes = np.frombuffer(log.sizes, np.int64)
    distances = reuse_bytes(numbers, np.array(log.ends, np.int64), sizes, log.chained)
    found = (distances <= capacity_bytes) & np.frombuffer(log.counted, np.bool_)
    return int(sizes[numbers[found]].sum())


def _belady_hit_bytes(log: AccessLog, capacity_bytes: int) -> int:
    following = next_uses(log.numbers, len(log.sizes))
    found = belady_found_bytes(log.numbers, log.sizes, capacity_bytes, following)
    return sum(nbytes for nbytes, counts in zip(found, log.counted, strict=True) if counts)


def belady_found_bytes(
    numbers: Sequence[int], sizes: Sequence[int], capacity_bytes: int, next_use: Sequence[int]
) -> "array[int]":
    """What each access finds of its object with perfect foresight.

    Furthest next use goes first, in part where that suffices; what has no next use is not kept.
    In a chain a block is next used no later than those that continue it, so it is kept at least as long.
    """
    kept = array("q", bytes(8 * len(sizes)))
    due: list[tuple[int, int]] = []
    when = array("q", bytes(8 * len(sizes)))
    found = array("q", bytes(8 * len(numbers)))
    used = 0
    for place, number in enumerate(numbers):
        size = sizes[number]
        found[place] = kept[number]
        used -= kept[number]
        kept[number] = 0
        if next_use[place] == _NEVER:
            continue
        kept[number] = size
        when[number] = next_use[place]
        used += size
        heappush(due, (-next_use[place], number))
        while used > capacity_bytes:
            negative, victim = due[0]
            if kept[victim] == 0 or when[victim] != -negative:
                heappop(due)
                continue
            taken = min(kept[victim], used - capacity_bytes)
            kept[victim] -= taken
            used -= taken
    return found


def next_uses(numbers: Sequence[int], objects: int) -> "array[int]":
    """For each access the place of the object's next one."""
    following = array("q", [_NEVER]) * len(numbers)
    last = array("q", [_NEVER]) * objects
    for place in range(len(numbers) - 1, -1, -1):
        number = numbers[place]
        following[place] = last[number]
        last[number] = place
    return following
