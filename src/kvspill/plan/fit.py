"""Fits the device model to the points of a calibration, and says how well it fits."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from kvspill.plan.cells import Point, Seen
from kvspill.records import GIB, MIB, NS_PER_SEC, Verb
from kvspill.storage.jobs import LANES_PER_ENTRY
from kvspill.storage.profiles import DeviceModel

LARGE, MIXED, PACED, BURST, DEPTH, LONG = "saturated", "mixed", "paced", "burst", "depth", "one long entry"
TOGETHER, BOTH = "pieces together:", "pieces both ways"
MANY, ANSWERED, PIECES = "many small entries:", "one answer after another", "pieces of"
"""The kinds of cells: a cell's name begins with one of them. Nothing is fitted to a long entry: it shows
whether what was fitted to the others holds for it."""
_OF_MEMORY = ("open_us", "piece_us", "alone_gib_per_sec")
_SPREAD_OF_ONE = 0.05
"""What one measurement alone may be off by."""
_SPREAD_MIN = 0.005
_ABREAST_SHARE = 0.8
"""Of four pieces that begin together, one after another, the mean takes 0.63 of the time of the last."""
_FEW_SHARE = 0.98
"""A smaller difference is the spread of the cells."""
_LONE_SHARE = 0.95
_BURST_SECONDS_MIN = 0.02
_GAP_SECONDS = 0.008
_CROWDS_MIN = 6
_CROWDED_SHARE = 0.7
_UNEVEN_SHARE = 0.25
_QUICK_SHARE = 0.25
_LANES_SHARE = 0.6
_CROWDED_TIMES = 1.5
_UNLIMITED_SHARE = 50
"""A piece alone that is so many times faster than the device under load is not what limits it."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A device model, and how far it may be off."""

    model: DeviceModel
    read_spread: float
    write_spread: float

    def on_machine(self, answer_seconds: float, tick_seconds: float) -> "Fit":
        """The same, where the program takes so long from an answer to the next question, and with the ticks
        of that kernel, to which its limits in slices keep."""
        sliced = self.model.read_slice_ms or self.model.write_slice_ms
        tick_ms = _rounded(tick_seconds * 1000) if sliced else 0.0
        model = replace(self.model, answer_us=_rounded(answer_seconds * 1e6), slice_tick_ms=tick_ms)
        return replace(self, model=model)


@dataclass(frozen=True, slots=True)
class _Limits:
    """What one direction can do under full load, and how far its repetitions lie apart."""

    bytes_per_sec: float
    spread: float


def fit(points: Sequence[Point], lanes: int, write_lanes: int, piece_bytes: int) -> Fit:
    """The model of a storage device behind lanes."""
    reads, writes = (_limits(points, verb) for verb in (Verb.READ, Verb.WRITE))
    figures: dict[str, Any] = {}
    for verb, mine, other in ((Verb.READ, reads, writes), (Verb.WRITE, writes, reads)):
        word = verb.value
        piece_seconds, alone = _alone(points, verb, mine.bytes_per_sec)
        figures[f"{word}_gib_per_sec"] = mine.bytes_per_sec / GIB
        figures[f"{word}_open_us"] = _opening_seconds(points, verb) * 1e6
        figures[f"{word}_open_apart_us"] = _apart_seconds(points, verb) * 1e6
        figures[f"{word}_piece_us"] = piece_seconds * 1e6
        figures[f"{word}_alone_gib_per_sec"] = alone / GIB
        figures[f"{word}_duplex"] = _duplex(points, verb, mine.bytes_per_sec, other.bytes_per_sec)
        burst_bytes = _burst(points, verb, mine.bytes_per_sec)
        burst_speed = _burst_speed(points, verb, piece_bytes)
        slice_seconds = _slices(points, verb, mine.bytes_per_sec, lanes, piece_bytes)
        if slice_seconds:
            figures[f"{word}_slice_ms"] = slice_seconds * 1000
        elif burst_bytes:
            figures[f"{word}_burst_mib"] = burst_bytes / MIB
        else:
            of_verb = write_lanes if verb is Verb.WRITE and write_lanes else lanes
            lone = piece_bytes / (piece_seconds + piece_bytes / alone) if alone < math.inf else math.inf
            few = _few(points, verb, mine.bytes_per_sec, of_verb, piece_bytes, lone)
            figures[f"{word}_few_gib_per_sec"] = few / GIB
            figures[f"{word}_per_piece_us"] = _per_piece_seconds(points, verb, piece_bytes) * 1e6
        if slice_seconds or burst_bytes:
            figures[f"{word}_burst_duplex"] = _burst_duplex(points, verb, piece_bytes)
            if burst_speed > mine.bytes_per_sec:
                figures[f"{word}_burst_gib_per_sec"] = burst_speed / GIB
    # Among many others a delete waits for the journal's lock, which is not its own time.
    paced = [point for point in points if point.cell.name.startswith(PACED)]
    deletes_ns = [delete_ns for point in paced for delete_ns in point.delete_ns]
    rounded: dict[str, Any] = {
        name: _rounded(value) for name, value in figures.items() if math.isfinite(value)
    }
    delete_us = _rounded(float(np.median(deletes_ns)) / 1000) if deletes_ns else 0.0
    limits = DeviceModel(rounded["read_gib_per_sec"], rounded["write_gib_per_sec"], lanes=lanes)
    counts: dict[str, Any] = {
        f"{verb.value}_side_by_side": int(_side_by_side(points, verb))
        for verb in (Verb.READ, Verb.WRITE)
        if f"{verb.value}_slice_ms" not in figures
    }
    counts |= {
        "write_lanes": write_lanes,
        "piece_mib": piece_bytes / MIB,
        "delete_latency_us": delete_us,
    }
    model = replace(limits, **counts, **rounded)
    return Fit(model, reads.spread, writes.spread)


def fit_memory(points: Sequence[Point], threads: int, pieces_per_lane: int, piece_bytes: int) -> Fit:
    """The model of the DRAM tier: all threads may help with a large entry, and both ways share the memory."""
    fitted = fit(points, threads, 0, piece_bytes)
    model = fitted.model
    # A moment of other work on the processors slows all threads at once, but never speeds one up.
    reads, writes = (
        _rounded(max(_limits(points, verb).bytes_per_sec, _paced(points, verb)) / GIB)
        for verb in (Verb.READ, Verb.WRITE)
    )
    plain = DeviceModel(reads, writes)
    kept = replace(
        plain,
        **_of_memory(model, "read", reads, threads, piece_bytes),
        **_of_memory(model, "write", writes, threads, piece_bytes),
        lanes=threads,
        lanes_per_entry=threads,
        pieces_per_lane=pieces_per_lane,
        piece_mib=piece_bytes / MIB,
    )
    return Fit(kept, fitted.read_spread, fitted.write_spread)


def _of_memory(model: DeviceModel, word: str, limit: float, threads: int, piece_bytes: int) -> dict[str, Any]:
    """What a copy takes: what is more than threads under full load spend on a piece, an entry pays once."""
    open_us, piece_us, alone = (getattr(model, f"{word}_{name}") for name in _OF_MEMORY)
    spent_us = (threads * piece_bytes / limit - piece_bytes / alone) / GIB * 1e6
    once_us = max(0.0, piece_us - max(0.0, spent_us))
    figures = (open_us + once_us, piece_us - once_us, alone)
    return {f"{word}_{name}": _rounded(value) for name, value in zip(_OF_MEMORY, figures, strict=True)}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _seen(points: Iterable[Point], kind: str, verb: Verb) -> list[Seen]:
    found = [point.of(verb) for point in points if point.cell.name.startswith(kind)]
    return [seen for seen in found if seen.completions]


def _with_pieces(seen: list[Seen]) -> list[Seen]:
    """Those that tell when each piece was done."""
    return [one for one in seen if one.completions[0].pieces]


def _limits(points: Sequence[Point], verb: Verb) -> _Limits:
    speeds = [seen.bytes_per_sec() for seen in _seen(points, LARGE, verb)]
    middle = float(np.median(speeds))
    if len(speeds) < 2:
        return _Limits(middle, _SPREAD_OF_ONE)
    spread = max(abs(speed / middle - 1) for speed in speeds)
    return _Limits(middle, max(_SPREAD_MIN, spread))


def _alone(points: Sequence[Point], verb: Verb, limit: float) -> tuple[float, float]:
    """Seconds and bytes per second of a piece that is alone in flight: a line through the sizes."""
    found = [(seen.nbytes, seen.median_seconds("device_ns")) for seen in _one_by_one(points, verb)]
    if not found:
        return 0.0, math.inf
    sizes, seconds = (np.array(column, dtype=np.float64) for column in zip(*found, strict=True))
    if len(found) == 1:
        return 0.0, float(sizes[0] / seconds[0])
    slope, start = np.polyfit(sizes, seconds, 1)
    if slope <= 0:
        # A busy machine answers late whatever the size: then the least of it is the device's.
        return float(seconds.min()), math.inf
    speed = 1 / slope
    return max(0.0, float(start)), speed if speed < _UNLIMITED_SHARE * limit else math.inf


def _few(
    points: Sequence[Point], verb: Verb, limit: float, lanes: int, piece_bytes: int, lone: float
) -> float:
    """The speed with a quarter to a half of the lanes in flight, where that is below the limit.

    lone: the speed of a piece alone; cells that this explains say nothing of the device as a whole. With more
    in flight no device is slower: where it seems so, something else was in the way just then.
    """
    fastest, telling = 0.0, False
    for point in points:
        cell, seen = point.cell, point.of(verb)
        depth = (cell.readers + cell.writers) * min(LANES_PER_ENTRY, -(-cell.nbytes // piece_bytes))
        if cell.name.startswith(DEPTH) and seen.completions and 2 * depth <= lanes:
            speed = seen.bytes_per_sec()
            fastest = max(fastest, speed)
            telling = telling or (lanes <= 4 * depth and speed < _LONE_SHARE * depth * lone)
    return fastest if telling and fastest < _FEW_SHARE * limit else math.inf


def _per_piece_seconds(points: Sequence[Point], verb: Verb, piece_bytes: int) -> float:
    """What each piece takes besides its bytes under full load; nothing where not every turn shows it.

    A piece of n bytes takes a + b n, and one of a part of them a + b n / part.
    """
    seconds: dict[int, list[float]] = {}
    for point in points:
        seen, part = point.of(verb), point.cell.part
        if point.cell.name.startswith(PIECES) and seen.completions:
            seconds.setdefault(part, []).append(piece_bytes / part / seen.bytes_per_sec())
    found = [
        (smaller - usual / part) / (1 - 1 / part)
        for part in seconds.keys() - {1}
        for usual, smaller in zip(seconds[1], seconds[part], strict=False)
    ]
    return float(np.median(found)) if found and min(found) > 0 else 0.0


def _side_by_side(points: Sequence[Point], verb: Verb) -> bool:
    """Whether pieces that begin together end together, rather than one after another."""
    shares = []
    for seen in _with_pieces(_seen(points, TOGETHER, verb)):
        for done in seen.completions:
            ends_ns = [end_ns - done.pieces[0][0] for _start_ns, end_ns, _nbytes in done.pieces]
            shares += [float(np.mean(ends_ns)) / max(ends_ns)] if len(ends_ns) > 1 else []
    return bool(shares) and float(np.median(shares)) >= _ABREAST_SHARE


def _one_by_one(points: Sequence[Point], verb: Verb) -> list[Seen]:
    """For each size what was seen of one entry in flight: after pauses, or at once where that is quicker.

    A request reads its entries one after the other: only the first of them finds threads and device asleep.
    """
    alone = [point for point in points if point.cell.readers + point.cell.writers == 1]
    quickest: dict[int, Seen] = {}
    for seen in [seen for kind in (PACED, DEPTH) for seen in _seen(alone, kind, verb)]:
        known = quickest.get(seen.nbytes)
        if known is None or seen.median_seconds("device_ns") < known.median_seconds("device_ns"):
            quickest[seen.nbytes] = seen
    return [quickest[nbytes] for nbytes in sorted(quickest)]


def _paced(points: Sequence[Point], verb: Verb) -> float:
    """The speed of one lane alone."""
    return max(
        (seen.nbytes / seen.median_seconds("device_ns") for seen in _seen(points, PACED, verb)), default=0.0
    )


def _opening_seconds(points: Sequence[Point], verb: Verb) -> float:
    """What an entry takes besides its device time where no lane is busy, the waking of a thread included."""
    found = [
        seen.median_seconds("host_ns") + seen.median_seconds("queue_ns") for seen in _one_by_one(points, verb)
    ]
    return float(np.median(found)) if found else 0.0


def _apart_seconds(points: Sequence[Point], verb: Verb) -> float:
    """What each of many entries takes that are opened at once: threads share processors and the file system.

    Nothing where each thread takes about as long as it does alone.
    """
    one_by_one = _one_by_one(points, verb)
    if not one_by_one:
        return 0.0
    alone = one_by_one[0].median_seconds("total_ns")
    found = []
    for point in points:
        seen = point.of(verb)
        if point.cell.name.startswith(MANY) and seen.completions:
            apart = seen.nbytes / seen.bytes_per_sec()
            threads = point.cell.readers + point.cell.writers
            found.append(apart if apart * threads > _CROWDED_TIMES * alone else 0.0)
    return float(np.median(found)) if found else 0.0


def answer_seconds(points: Sequence[Point]) -> float:
    """How long after an answer the next is asked for, where nothing else is to be done."""
    gaps_ns = [
        following.submitted_ns - done.finished_ns
        for seen in _seen(points, ANSWERED, Verb.READ)
        for done, following in pairwise(seen.completions)
    ]
    return float(np.median(gaps_ns)) / NS_PER_SEC if gaps_ns else 0.0


def _duplex(points: Sequence[Point], verb: Verb, mine: float, other: float) -> float:
    """How far a turn is longer than its own bytes need, in terms of the other direction's bytes in flight."""
    above = below = 0.0
    for point in points:
        if not point.cell.name.startswith(MIXED):
            continue
        seen, against = (point.reads, point.writes) if verb is Verb.READ else (point.writes, point.reads)
        lanes, turn_seconds = seen.in_flight()
        other_lanes, _ = against.in_flight()
        if not lanes or not other_lanes:
            continue
        piece_bytes = seen.bytes_per_sec() * turn_seconds / lanes
        own_seconds, other_seconds = lanes * piece_bytes / mine, other_lanes * piece_bytes / other
        above += other_seconds * (turn_seconds - own_seconds)
        below += other_seconds**2
    return min(1.0, max(-20.0, 1 - above / below)) if below else 0.0


def _slices(points: Sequence[Point], verb: Verb, limit: float, lanes: int, piece_bytes: int) -> float:
    """Seconds of the slices in which a limit is dealt out: pieces end in crowds, each of a slice's bytes."""
    crowds: list[float] = []
    quick = 0
    for seen in _with_pieces(_seen(points, LARGE, verb)):
        seconds, moved = seen.curve()
        gaps = np.diff(seconds)
        breaks = np.flatnonzero(gaps > max(_GAP_SECONDS, 1.5 * float(np.mean(gaps)))) + 1
        edges = [0, *breaks.tolist(), len(seconds)]
        for first, after in pairwise(edges[1:-1]):
            nbytes = float(moved[after - 1] - moved[first - 1])
            crowds.append(nbytes)
            quick += seconds[after - 1] - seconds[first] < _QUICK_SHARE * nbytes / limit
    if len(crowds) < _CROWDS_MIN or quick < _CROWDED_SHARE * len(crowds):
        return 0.0
    low, middle, high = np.percentile(crowds, (25, 50, 75))
    if high - low > _UNEVEN_SHARE * middle + piece_bytes or middle > _LANES_SHARE * lanes * piece_bytes:
        # A busy machine makes crowds as well, but not of one size; and lanes may all come back at once.
        return 0.0
    # Where a slice holds no whole number of pieces, the rest goes with the next.
    usual = [crowd for crowd in crowds if low - piece_bytes <= crowd <= high + piece_bytes]
    return float(np.mean(usual)) / limit


def _burst(points: Sequence[Point], verb: Verb, limit: float) -> float:
    """Bytes that go at once after a pause."""
    found = []
    for seen in _with_pieces(_seen(points, BURST, verb)):
        seconds, moved = seen.curve()
        late = seconds >= seconds[-1] / 3
        found.append(float(np.percentile(moved[late] - limit * seconds[late], 90)))
    ahead = float(np.median(found)) if found else 0.0
    return ahead if ahead >= _BURST_SECONDS_MIN * limit else 0.0


def _burst_speed(points: Sequence[Point], verb: Verb, piece_bytes: int) -> float:
    """How fast a burst is: how much longer pieces take together than one of them alone."""
    alone = [seen for seen in _seen(points, PACED, verb) if seen.nbytes == piece_bytes]
    together = _seen(points, TOGETHER, verb)
    if not alone or not together:
        return math.inf
    one, all_of_them = (side[-1].median_seconds("device_ns") for side in (alone, together))
    return together[-1].nbytes / all_of_them if all_of_them > one else math.inf


def _burst_duplex(points: Sequence[Point], verb: Verb, piece_bytes: int) -> float:
    """How far a burst is spared by one of as many bytes in the other direction."""
    other = Verb.WRITE if verb is Verb.READ else Verb.READ
    for seen in _seen(points, BOTH, verb):
        own_seconds, other_seconds = (
            seen.nbytes / _burst_speed(points, way, piece_bytes) for way in (verb, other)
        )
        if other_seconds:
            more_seconds = seen.median_seconds("device_ns") - own_seconds
            return min(1.0, max(0.0, 1 - more_seconds / other_seconds))
    return 1.0
