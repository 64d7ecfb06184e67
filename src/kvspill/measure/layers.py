"""A system call's time by layer: file system, block layer and device, from the kernel's tracepoints."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kvspill.measure.histograms import Histogram
from kvspill.storage.pieces import union_ns

LAYERS: Final = ("file_system", "block_layer", "device")
"""From the call inwards: time in the call before, between and after its requests; from a bio's queueing to
its request's issue; from there to its completion."""


@dataclass(slots=True)
class Call:
    """One system call, and when its requests were queued, issued and completed."""

    verb: str
    start_ns: int
    end_ns: int
    nbytes: int
    requests: list[tuple[int, int, int]] = field(default_factory=list)
    unseen_ends: int = 0
    """Requests whose end was not seen: taken for that of the call, which is the latest that it can be."""

    def layers_ns(self) -> dict[str, int]:
        """The call's time, split; requests that overlap count once (their union)."""
        total_ns, last_ns = self.end_ns - self.start_ns, self.end_ns
        ends = [(queued, issued, min(done, last_ns)) for queued, issued, done in self.requests]
        device_ns = union_ns(((issued, done) for _queued, issued, done in ends), self.start_ns)
        below_ns = union_ns(((queued, done) for queued, _issued, done in ends), self.start_ns)
        return {"file_system": total_ns - below_ns, "block_layer": below_ns - device_ns, "device": device_ns}


@dataclass(frozen=True, slots=True)
class Traced:
    """What a tracer's lines hold."""

    calls: Sequence[Call]
    lines: int
    lost: int
    """Lines that the tracer could not deliver: above zero, some calls lack requests."""


class _Request(NamedTuple):
    """A block request: when it was issued, and its sectors."""

    issued_ns: int
    device: int
    first: int
    sectors: int


class _Done(NamedTuple):
    """The end of a request."""

    at_ns: int
    device: int
    first: int


class _Bio(NamedTuple):
    """What a thread queued inside a call; it becomes a request, several, or a part of another's."""

    thread: int
    at_ns: int
    device: int
    first: int
    sectors: int


def calls_of(lines: Iterable[str]) -> Traced:
    """The calls, each with its requests: those that hold what the call's thread queued in its time."""
    by_thread: dict[int, list[Call]] = {}
    bios: list[_Bio] = []
    requests: list[_Request] = []
    ends: list[_Done] = []
    count = lost = 0
    for line in lines:
        kind, *words = line.split() or [""]
        try:
            if kind == "c":
                thread, start_ns, end_ns, nbytes = map(int, words[1:])
                if nbytes > 0:
                    by_thread.setdefault(thread, []).append(Call(words[0], start_ns, end_ns, nbytes))
            elif kind == "q":
                bios.append(_Bio(*map(int, words)))
            elif kind == "i":
                requests.append(_Request(*map(int, words)))
            elif kind == "d":
                ends.append(_Done(*map(int, words)))
            else:
                lost += int(words[0]) if kind == "Lost" else 0
                continue
        except (ValueError, IndexError, TypeError):
            # A line that was cut off where the tracer ended.
            continue
        count += 1
    for calls in by_thread.values():
        calls.sort(key=lambda call: call.start_ns)
    requests.sort()
    done_ns = _ends_of(requests, ends)
    for bio in bios:
        call = _call_at(by_thread.get(bio.thread, ()), bio.at_ns)
        if call is None:
            continue
        for request in _requests_of(bio, requests, call.end_ns):
            call.unseen_ends += request not in done_ns
            call.requests.append((bio.at_ns, request.issued_ns, done_ns.get(request, call.end_ns)))
    return Traced([call for calls in by_thread.values() for call in calls], count, lost)


def _ends_of(requests: Sequence[_Request], ends: Sequence[_Done]) -> dict[_Request, int]:
    """When each request ended, but for those whose end the kernel did not show: it runs no program for an
    event that comes while another program is at work on the processor."""
    under_way: dict[tuple[int, int], _Request] = {}
    found = {}
    events: list[_Request | _Done] = sorted([*requests, *ends], key=lambda event: event[0])
    for event in events:
        place = event.device, event.first
        if isinstance(event, _Request):
            under_way[place] = event
        elif (request := under_way.pop(place, None)) is not None:
            found[request] = event.at_ns
    return found


def _requests_of(bio: _Bio, requests: Sequence[_Request], end_ns: int) -> Iterator[_Request]:
    """The requests that hold a bio's sectors, issued while its call lasted, until all sectors are found.

    Those of a later call on the same sectors are none of them: its own may not have been seen.
    """
    left = bio.sectors
    place = bisect_left(requests, bio.at_ns, key=lambda request: request.issued_ns)
    for request in requests[place : place + _REQUESTS_LOOKED_AT]:
        if request.issued_ns > end_ns:
            return
        if request.device != bio.device:
            continue
        first = max(bio.first, request.first)
        last = min(bio.first + bio.sectors, request.first + request.sectors)
        if first < last:
            yield request
            left -= last - first
            if left <= 0:
                return


_REQUESTS_LOOKED_AT = 4096
"""Requests that may be issued between a bio's queueing and its own."""


def _call_at(calls: Sequence[Call], at_ns: int) -> Call | None:
    place = bisect_right(calls, at_ns, key=lambda call: call.start_ns) - 1
    return calls[place] if place >= 0 and at_ns <= calls[place].end_ns else None


def layers_block(traced: Traced, from_ns: int, to_ns: int) -> dict[str, Any]:
    """For the result: by verb the calls that ended in the window, their layers and how each spreads."""
    block: dict[str, Any] = {"traced_lines": traced.lines, "lost_lines": traced.lost}
    for verb in ("read", "write"):
        calls = [call for call in traced.calls if call.verb == verb and from_ns <= call.end_ns <= to_ns]
        if not calls:
            continue
        parts = [call.layers_ns() for call in calls]
        whole_ns = sum(call.end_ns - call.start_ns for call in calls)
        block[verb] = {
            "calls": len(calls),
            "requests": sum(len(call.requests) for call in calls),
            "unseen_ends": sum(call.unseen_ends for call in calls),
            "bytes": sum(call.nbytes for call in calls),
            "total_ms": whole_ns / 1e6,
            "system_call": _spread_of([call.end_ns - call.start_ns for call in calls]),
            "layers": {name: _spread_of([part[name] for part in parts]) for name in LAYERS},
            "shares": {name: sum(part[name] for part in parts) / max(1, whole_ns) for name in LAYERS},
        }
    return block


def _spread_of(values_ns: Sequence[int]) -> dict[str, Any]:
    histogram = Histogram()
    histogram.record_all(values_ns)
    return spread(histogram)


def spread(histogram: Histogram) -> dict[str, Any]:
    """Mean, percentiles and maximum in milliseconds, and the histogram itself."""
    statistics = histogram.statistics_ms()
    assert statistics is not None, "there are calls"
    return {**statistics, "histogram": histogram.to_dict()}
