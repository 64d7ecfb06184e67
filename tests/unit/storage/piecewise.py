"""Lanes piece by piece, as threads work: what the model of lanes is compared with."""

import heapq
import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvspill.records import Verb
from kvspill.storage.profiles import DeviceModel


@dataclass(eq=False)
class Entry:
    """One entry: what it is, and when it was done."""

    verb: Verb
    nbytes: int
    at_ns: float
    started_ns: float = 0.0
    done_ns: float = 0.0
    begun: bool = False
    left: int = 0
    active: int = 0
    sizes: list[int] = field(default_factory=list)


class Line:
    """Pieces are served one after another."""

    def __init__(self, ns_per_byte: float):
        self.ns_per_byte = ns_per_byte
        self.free_ns = 0.0
        self.waiting: deque[tuple[float, Entry]] = deque()

    def begin(self, now_ns: float, nbytes: int, entry: Entry) -> None:
        self.free_ns = max(now_ns, self.free_ns) + nbytes * self.ns_per_byte
        self.waiting.append((self.free_ns, entry))

    def next_ns(self) -> float:
        return self.waiting[0][0] if self.waiting else math.inf

    def end(self) -> Entry:
        return self.waiting.popleft()[1]


class Shared:
    """All pieces are under way at once, and a short one takes as long as a long one."""

    def __init__(self, ns_per_byte: float):
        self.ns_per_byte = ns_per_byte
        self.at_ns = self.turns = 0.0
        self.ends: list[tuple[float, int, int, Entry]] = []
        self.number = itertools.count()

    def _turn_ns(self) -> float:
        return self.ns_per_byte * sum(nbytes for _end, _number, nbytes, _entry in self.ends)

    def _come_to(self, now_ns: float) -> None:
        if self.ends:
            self.turns += (now_ns - self.at_ns) / self._turn_ns()
        self.at_ns = now_ns

    def begin(self, now_ns: float, nbytes: int, entry: Entry) -> None:
        self._come_to(now_ns)
        heapq.heappush(self.ends, (self.turns + 1, next(self.number), nbytes, entry))

    def next_ns(self) -> float:
        return self.at_ns + (self.ends[0][0] - self.turns) * self._turn_ns() if self.ends else math.inf

    def end(self) -> Entry:
        self._come_to(self.next_ns())
        return heapq.heappop(self.ends)[3]


def simulate(model: DeviceModel, entries: Sequence[Entry], piece_bytes: int) -> None:
    """Let threads take tickets, and a device serve pieces first come, first served, or side by side, each
    direction apart (duplex 1) or both in one line (duplex 0); fills in when entries are done."""
    speed = {verb: model.direction(verb) for verb in (Verb.READ, Verb.WRITE)}
    lines = {verb: (Shared if of.side_by_side else Line)(of.ns_per_byte) for verb, of in speed.items()}
    one_line = speed[Verb.READ].duplex == 0
    tickets: deque[Entry] = deque()
    free = model.lanes
    number = itertools.count()
    events: list[tuple[float, int, str, Entry]] = []
    for entry in entries:
        sizes = [piece_bytes] * (entry.nbytes // piece_bytes)
        if entry.nbytes % piece_bytes or not sizes:
            sizes.append(entry.nbytes % piece_bytes)
        entry.sizes, entry.left = sizes, len(sizes)
        heapq.heappush(events, (entry.at_ns, next(number), "arrives", entry))

    def piece(entry: Entry, now: float) -> None:
        """A lane takes the next piece, or leaves."""
        nonlocal free
        if entry.left == 0:
            entry.active -= 1
            free += 1
            if entry.active == 0:
                entry.done_ns = now
            return
        size = entry.sizes[len(entry.sizes) - entry.left]
        entry.left -= 1
        lines[Verb.READ if one_line else entry.verb].begin(now, size, entry)

    def take(now: float) -> None:
        nonlocal free
        while free and tickets:
            entry = tickets.popleft()
            if entry.begun and entry.done_ns:
                continue
            free -= 1
            entry.active += 1
            if entry.begun:
                piece(entry, now)
                continue
            entry.begun, entry.started_ns = True, now
            opened = now + speed[entry.verb].open_ns
            heapq.heappush(events, (opened, next(number), "opened", entry))

    def following() -> tuple[float, str, Entry]:
        """What happens next."""
        line = min(lines.values(), key=lambda one: one.next_ns())
        if not events or line.next_ns() < events[0][0]:
            return line.next_ns(), "moved", line.end()
        now, _number, what, entry = heapq.heappop(events)
        return now, what, entry

    while events or any(line.next_ns() < math.inf for line in lines.values()):
        now, what, entry = following()
        if what == "arrives":
            tickets.append(entry)
        elif what == "opened":
            helpers = min(model.lanes_per_entry, len(entry.sizes) // model.pieces_per_lane) - 1
            tickets.extendleft([entry] * max(0, helpers))
            piece(entry, now)
        else:
            piece(entry, now)
        take(now)
