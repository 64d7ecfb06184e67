"""Figures over the measured window: throughput, bandwidth, operations, depth, utilisation and load."""

import math
from collections.abc import Callable, Iterator, Sequence

from kvspill.records import GIB
from kvspill.report.html import specs
from kvspill.report.html.facts import (
    VERBS,
    Labelled,
    device_count,
    gauge,
    point_seconds,
    tier_label,
    tiers_of,
    timeline,
)
from kvspill.report.html.figure import Figure, Group
from kvspill.report.html.specs import Spec
from kvspill.report.numbers import counted
from kvspill.report.numbers import figure as number
from kvspill.result.schema import Result

IN_FLIGHT = "storage_in_flight"
DEVICE_QUEUE = "device_queue_ms_per_sec"
MS_PER_SEC = 1000
_LINES_TOLD_APART = 2
"""So many lines that jump with each second can be told apart; more lie on top of each other."""
_POINTS_OF_MANY = 60
_TIME: Spec = {
    "field": "x",
    "title": "seconds into the measured window",
    "axis": {"tickCount": 6, "labelOverlap": "greedy"},
}


Points = list[tuple[float, float]]
Read = Callable[[Result, str], Points]


def over_time_figures(results: Sequence[Labelled]) -> Iterator[Figure]:
    yield from _throughput(results)
    yield from _bandwidths(results)
    yield from _operations(results)
    yield from _depth(results)
    yield from _utilisation(results)
    yield from _load(results)


def _over_time(group: Group, says: str, unit: str, read: Read) -> Iterator[Figure]:
    found = [(name, read(item.result, column)) for name, item, column in group.series]
    # A line of zeros says nothing that its absence does not.
    known = [(name, points) for name, points in found if any(value for _, value in points)]
    if not known:
        return
    crowded = len(known) > _LINES_TOLD_APART
    says = f"{says} {_per_point(group, crowded)}"
    if crowded:
        known = [(name, _averaged(points)) for name, points in known]
    rows = [{"series": name, "x": at, "y": value} for name, points in known for at, value in points]
    names = [name for name, _, _ in group.series]
    y: Spec = {"field": "y", "title": unit, "scale": {"zero": True}}
    shown = counted if unit == "count" else number
    table = [(name, shown(min(v)), number(sum(v) / len(v)), shown(max(v))) for name, v in _values(known)]
    yield Figure(
        group.id,
        "Over time",
        group.title,
        says,
        specs.lines(rows, _TIME, y, names),
        ("series", "lowest", "mean", "highest"),
        table,
    )


def _per_point(group: Group, crowded: bool) -> str:
    seconds = [_seconds_of(item, column, crowded) for _, item, column in group.series]
    least, most = min(seconds), max(seconds)
    if most <= 1:
        return "A point per second."
    between = f"{least:g} to {most:g}" if least < most else f"{most:g}"
    why = ", so that the lines can be told apart" if crowded else ""
    return f"Each point is the mean of {between} s{why}."


def _seconds_of(item: Labelled, column: str, crowded: bool) -> float:
    together = _together(len(timeline(item.result, column))) if crowded else 1
    return together * point_seconds(item.result, column)


def _together(points: int) -> int:
    """How many points become one where there are many lines."""
    return max(1, math.ceil(points / _POINTS_OF_MANY))


def _averaged(points: Points) -> Points:
    together = _together(len(points))
    parts = [points[start : start + together] for start in range(0, len(points), together)]
    return [(part[0][0], sum(value for _, value in part) / len(part)) for part in parts]


def _values(known: Sequence[tuple[str, Points]]) -> Iterator[tuple[str, list[float]]]:
    for name, points in known:
        yield name, [value for _, value in points]


def _one_per_result(results: Sequence[Labelled], column: str) -> list[tuple[str, Labelled, str]]:
    return [(item.label, item, column) for item in results]


def _throughput(results: Sequence[Labelled]) -> Iterator[Figure]:
    for column, title, unit in (
        ("tokens", "Throughput over time", "generated tokens/s"),
        ("requests", "Requests completed over time", "requests/s"),
    ):
        group = Group(f"time-{column}", title, _one_per_result(results, column))
        yield from _over_time(group, "Counted when a request completes.", unit, timeline)


def _by_verb(
    results: Sequence[Labelled], tier: str, what: str, column: str, says: str, unit: str, read: Read
) -> Iterator[Figure]:
    """Reads and writes of a tier: in one figure, or a figure each where there are several results."""
    label = tier_label(results, tier)
    if len(results) == 1:
        series = [(verb, results[0], f"{tier}_{verb}_{column}") for verb in VERBS]
        title = f"{what.capitalize()} of {label}"
        yield from _over_time(Group(f"{tier}-{what}", title, series), says, unit, read)
        return
    for verb in VERBS:
        series = _one_per_result(results, f"{tier}_{verb}_{column}")
        yield from _over_time(
            Group(f"{tier}-{verb}-{what}", f"{label} {verb} {what}", series), says, unit, read
        )


def _bandwidths(results: Sequence[Labelled]) -> Iterator[Figure]:
    def gib_per_sec(result: Result, column: str) -> Points:
        return timeline(result, column, 1 / GIB)

    says = "Bytes that the tier moved, demotions included."
    for tier in tiers_of(results):
        yield from _by_verb(results, tier, "bandwidth", "bytes", says, "GiB/s", gib_per_sec)


def _operations(results: Sequence[Labelled]) -> Iterator[Figure]:
    """Whole entries as the tier was asked for them, and I/Os as the kernel counted them."""
    if "storage" in tiers_of(results):
        says = "Entries or blocks completed, each of one or more I/Os."
        yield from _by_verb(results, "storage", "operations", "ops", says, "operations/s", timeline)
    group = Group("device-iops", "I/Os of the device", _one_per_result(results, "device_ios_per_sec"))
    says = "Reads and writes that the kernel completed, other programs' included."
    yield from _over_time(group, says, "I/Os per second", gauge)


def _depth(results: Sequence[Labelled]) -> Iterator[Figure]:
    """What was under way: operations handed to the tier, and I/Os in the device's queue."""

    def read(result: Result, column: str) -> Points:
        scale = 1 / MS_PER_SEC if column == DEVICE_QUEUE else 1.0
        return [(at, scale * value) for at, value in gauge(result, column)]

    says = {
        IN_FLIGHT: "Operations handed to the storage tier and not yet answered, seen once a second.",
        DEVICE_QUEUE: "I/Os in the device's queue, the mean of each second by the kernel's count.",
    }
    if len(results) == 1:
        names = {IN_FLIGHT: "operations of the tier", DEVICE_QUEUE: "I/Os at the device"}
        series = [(name, results[0], column) for column, name in names.items()]
        seen = [text for column, text in says.items() if any(v for _, v in read(results[0].result, column))]
        group = Group("depth", "Queue depth of storage", series)
        yield from _over_time(group, " ".join(seen), "under way", read)
        return
    titles = {
        IN_FLIGHT: "Storage operations under way",
        DEVICE_QUEUE: "Depth of the device's queue",
    }
    for column, title in titles.items():
        group = Group(f"depth-{column}", title, _one_per_result(results, column))
        yield from _over_time(group, says[column], "under way", read)


def _utilisation(results: Sequence[Labelled]) -> Iterator[Figure]:
    def percent(result: Result, column: str) -> Points:
        share = 100 / MS_PER_SEC / device_count(result)
        # The kernel counts in ticks of some milliseconds, so that a second may have more than one.
        return [(at, min(100.0, share * value)) for at, value in gauge(result, column)]

    group = Group("utilisation", "Device utilisation", _one_per_result(results, "device_busy_ms_per_sec"))
    says = (
        "Share of the time in which the device had work, by the kernel's count; a drive that serves many "
        "I/Os at once can be at 100 % and still have room."
    )
    yield from _over_time(group, says, "% busy", percent)


_LOAD = {"queued": "waiting requests", "in_service": "requests in service", "users": "users"}


def _load(results: Sequence[Labelled]) -> Iterator[Figure]:
    """Users and queue, where the timeline has them."""
    says = "Seen once a second; a queue that only grows is a load that can't be served."
    if len(results) == 1:
        named = {column: (name, results[0], column) for column, name in _LOAD.items()}
        groups = [
            Group("queue", "Queue over time", [named["queued"]]),
            Group("load", "Users over time", [named["users"], named["in_service"]]),
        ]
    else:
        groups = [
            Group(f"load-{column}", f"{name.capitalize()} over time", _one_per_result(results, column))
            for column, name in _LOAD.items()
        ]
    for group in groups:
        yield from _over_time(group, says if "queue" in group.id else "Seen once a second.", "count", gauge)
