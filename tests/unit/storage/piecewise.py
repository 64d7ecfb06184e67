"""Lanes piece by piece, as threads work: what the model of lanes is compared with."""

import heapq
import itertools
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


def simulate(model: DeviceModel, entries: Sequence[Entry], piece_bytes: int) -> None:
    """Let threads take tickets, and a device serve pieces first come, first served, each direction apart
    (duplex 1) or both in one line (duplex 0); fills in when entries are done."""
    speed = {verb: model.direction(verb) for verb in (Verb.READ, Verb.WRITE)}
    free_at = {Verb.READ: 0.0, Verb.WRITE: 0.0}
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
        line = Verb.READ if one_line else entry.verb
        free_at[line] = max(now, free_at[line]) + size * speed[entry.verb].ns_per_byte
        heapq.heappush(events, (free_at[line], next(number), "moved", entry))

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

    while events:
        now, _number, what, entry = heapq.heappop(events)
        if what == "arrives":
            tickets.append(entry)
        elif what == "opened":
            helpers = min(model.lanes_per_entry, len(entry.sizes) // model.pieces_per_lane) - 1
            tickets.extendleft([entry] * max(0, helpers))
            piece(entry, now)
        else:
            piece(entry, now)
        take(now)
