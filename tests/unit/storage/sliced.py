"""A limit in slices, piece by piece as the kernel's throttle deals it out: the model must do the same."""

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable

from kvspill.storage.direction import Direction


class Throttle:
    """What may pass a limit: so many bytes in each slice since the first, one slice's rest kept."""

    def __init__(self, speed: Direction):
        self._per_ns, self._slice_ns = 1 / speed.ns_per_byte, speed.slice_ns
        self._start_ns = self._end_ns = -math.inf
        self._passed_bytes = 0.0

    def wait_ns(self, now_ns: float, nbytes: int, queued: bool) -> float:
        """How long a piece must wait; 0 where it may pass."""
        slice_ns = self._slice_ns
        if now_ns > self._end_ns and not queued:
            self._start_ns, self._end_ns, self._passed_bytes = now_ns, now_ns + slice_ns, 0.0
        elif self._end_ns < now_ns + slice_ns:
            self._end_ns = math.ceil((now_ns + slice_ns) / slice_ns) * slice_ns
        elapsed_ns = now_ns - self._start_ns
        whole_ns = max(1, math.ceil(elapsed_ns / slice_ns)) * slice_ns
        beyond = self._passed_bytes + nbytes - self._per_ns * whole_ns
        return 0.0 if beyond <= 1 else beyond / self._per_ns + whole_ns - elapsed_ns

    def passes(self, now_ns: float, nbytes: int) -> None:
        slice_ns = self._slice_ns
        self._passed_bytes += nbytes
        self._end_ns = math.ceil((now_ns + slice_ns) / slice_ns) * slice_ns
        past_ns = math.floor((now_ns - self._start_ns) / slice_ns) * slice_ns - slice_ns
        if past_ns > 0:
            self._passed_bytes = max(0.0, self._passed_bytes - self._per_ns * past_ns)
            self._start_ns += past_ns


Next = Callable[[int, float], tuple[float, int] | None]
"""Told which stream's entry was done when; says when its next one comes and of how many bytes, or None."""


def simulate(speed: Direction, streams: int, piece_bytes: int, next_of: Next) -> list[tuple[int, float]]:
    """Streams that ask for one entry after the other; returns the bytes of each, and how long it took."""
    number, events = itertools.count(), list[tuple[float, int, str, int]]()
    throttle, waiting = Throttle(speed), deque[tuple[int, int]]()
    left, flying = [0] * streams, [0] * streams
    asked = dict[int, tuple[float, int]]()
    took = list[tuple[int, float]]()
    free_ns = 0.0

    def ask(stream: int, now_ns: float) -> None:
        if left[stream]:
            nbytes = min(piece_bytes, left[stream])
            left[stream] -= nbytes
            flying[stream] += 1
            waiting.append((stream, nbytes))
            if len(waiting) == 1:
                dispatch(now_ns, queued=False)

    def dispatch(now_ns: float, queued: bool) -> None:
        nonlocal free_ns
        passed = list[int]()
        while waiting:
            stream, nbytes = waiting[0]
            wait_ns = throttle.wait_ns(now_ns, nbytes, queued)
            if wait_ns > 0:
                heapq.heappush(events, (now_ns + wait_ns, next(number), "slice", 0))
                break
            waiting.popleft()
            throttle.passes(now_ns, nbytes)
            free_ns = max(now_ns, free_ns) + nbytes * speed.burst_ns_per_byte
            passed.append(stream)
        # What passes together is moved side by side, so that all of it is done at once.
        for stream in passed:
            heapq.heappush(events, (free_ns, next(number), "moved", stream))

    def come(stream: int, now_ns: float) -> None:
        entry = next_of(stream, now_ns)
        if entry is not None:
            asked[stream] = entry
            heapq.heappush(events, (entry[0], next(number), "asks", stream))

    for stream in range(streams):
        come(stream, 0.0)
    while events:
        now_ns, _number, what, stream = heapq.heappop(events)
        if what == "slice":
            dispatch(now_ns, queued=True)
            continue
        if what == "asks":
            left[stream] = asked[stream][1]
            for _lane in range(4):
                ask(stream, now_ns)
            continue
        flying[stream] -= 1
        ask(stream, now_ns)
        if not flying[stream] and not left[stream]:
            asked_ns, nbytes = asked[stream]
            took.append((nbytes, now_ns - asked_ns))
            come(stream, now_ns)
    return took
