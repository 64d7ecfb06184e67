"""A system call's time by layer: file system, block layer and device, from the kernel's tracepoints."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kvspill.measure.histograms import Histogram

LAYERS: Final = ("file_system", "block_layer", "device")
"""From the call inwards: time in the call before, between and after its requests; from a bio's queueing to
its request's issue; from there to its completion."""
Interval = tuple[int, int]


@dataclass(slots=True)
class Call:
    """One system call, and when its requests were queued, issued and completed."""

    verb: str
    start_ns: int
    end_ns: int
    nbytes: int
    requests: list[tuple[int, int, int]] = field(default_factory=list)

    def layers_ns(self) -> dict[str, int]:
        """The call's time, split; requests that overlap count once (their union)."""
        total_ns = self.end_ns - self.start_ns
        device_ns = self._union_ns([(issued, done) for _queued, issued, done in self.requests])
        below_ns = self._union_ns([(queued, done) for queued, _issued, done in self.requests])
        return {"file_system": total_ns - below_ns, "block_layer": below_ns - device_ns, "device": device_ns}

    def _union_ns(self, intervals: Sequence[Interval]) -> int:
        total_ns, reached_ns = 0, self.start_ns
        for start_ns, end_ns in sorted(intervals):
            end_ns = min(end_ns, self.end_ns)
            if end_ns > reached_ns:
                total_ns += end_ns - max(start_ns, reached_ns)
                reached_ns = end_ns
        return total_ns


@dataclass(frozen=True, slots=True)
class Traced:
    """What a tracer's lines hold."""

    calls: Sequence[Call]
    lines: int
    lost: int
    """Lines that the tracer could not deliver: above zero, some calls lack requests."""


def calls_of(lines: Iterable[str]) -> Traced:
    """The calls, each with its requests: a request belongs to the call in which its thread queued it."""
    by_thread: dict[int, list[Call]] = {}
    queued: dict[int, list[tuple[int, int, int]]] = {}
    requests: list[tuple[int, int, int, int]] = []
    count = lost = 0
    for line in lines:
        words = line.split()
        try:
            if words[:1] == ["c"]:
                thread, start_ns, end_ns, nbytes = map(int, words[2:])
                if nbytes > 0:
                    by_thread.setdefault(thread, []).append(Call(words[1], start_ns, end_ns, nbytes))
            elif words[:1] == ["q"]:
                thread, at_ns, sector, sectors = map(int, words[1:])
                queued.setdefault(thread, []).append((at_ns, sector, sectors))
            elif words[:1] == ["r"]:
                thread, issued_ns, done_ns, sector = map(int, words[1:])
                requests.append((thread, issued_ns, done_ns, sector))
            else:
                lost += int(words[1]) if words[:1] == ["Lost"] else 0
                continue
        except (ValueError, IndexError):
            # A line that was cut off where the tracer ended.
            continue
        count += 1
    for calls in by_thread.values():
        calls.sort(key=lambda call: call.start_ns)
    for thread, issued_ns, done_ns, sector in requests:
        queued_ns = _queued_ns(queued.get(thread, ()), sector, issued_ns)
        call = _call_at(by_thread.get(thread, ()), queued_ns)
        if call is not None:
            call.requests.append((queued_ns, issued_ns, done_ns))
    return Traced([call for calls in by_thread.values() for call in calls], count, lost)


def _queued_ns(bios: Sequence[tuple[int, int, int]], sector: int, issued_ns: int) -> int:
    """When the bio with a request's first sector was queued; where none is known, when it was issued."""
    last = bisect_right(bios, (issued_ns, 1 << 62, 0))
    for at_ns, first, sectors in reversed(bios[max(0, last - _BIOS_LOOKED_AT) : last]):
        if first <= sector < first + sectors:
            return at_ns
    return issued_ns


_BIOS_LOOKED_AT = 256
"""Bios that one call may have queued."""


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
            "bytes": sum(call.nbytes for call in calls),
            "total_ms": whole_ns / 1e6,
            "system_call": _spread([call.end_ns - call.start_ns for call in calls]),
            "layers": {name: _spread([part[name] for part in parts]) for name in LAYERS},
            "shares": {name: sum(part[name] for part in parts) / max(1, whole_ns) for name in LAYERS},
        }
    return block


def _spread(values_ns: Sequence[int]) -> dict[str, Any]:
    histogram = Histogram()
    histogram.record_all(values_ns)
    statistics = histogram.statistics_ms()
    assert statistics is not None, "there are calls"
    return {**statistics, "mean": sum(values_ns) / len(values_ns) / 1e6, "histogram": histogram.to_dict()}
