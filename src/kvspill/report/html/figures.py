"""The figures of the page: each has a sentence, a plot and the table behind it."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kvspill.records import GIB, MIB
from kvspill.report.html import specs
from kvspill.report.html.facts import (
    PERCENTILES,
    VERBS,
    Curve,
    Labelled,
    curve,
    gauge,
    modelled,
    point_seconds,
    tier_label,
    tiers_of,
    timeline,
)
from kvspill.report.html.specs import Spec
from kvspill.report.numbers import figure as number
from kvspill.report.numbers import significant

PARTS = {
    "queue wait": "queue_wait_completed_ms",
    "storage I/O": "storage_io_latency_ms",
    "generation": "generation_latency_ms",
    "other": "other_ms",
}
_REQUEST_PARTS = {
    "end to end": "request_end_to_end",
    "queue wait": "request_queue",
    "storage I/O": "request_storage",
    "generation": "request_generation",
}
_SHOWN = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
_TABLE_ROWS = 60
_ENOUGH = 10_000
"""Values behind a 99.99th percentile that is one of them."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One plot with its words and its data."""

    id: str
    section: str
    title: str
    says: str
    spec: Spec
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def description(self) -> str:
        """The plot in words, for those who don't see it."""
        return f"{self.title}. {self.says} The table below has the values."


@dataclass(frozen=True, slots=True)
class Group:
    """A set of series that belongs into one plot: a title and what each line is called."""

    id: str
    title: str
    series: Sequence[tuple[str, Labelled, str]]
    """Name of the line, result, name of the histogram or column."""


def figures(results: Sequence[Labelled]) -> list[Figure]:
    """All figures that these results have data for, in the order of the page."""
    from kvspill.report.html.more_figures import more_figures

    makers: tuple[Callable[[Sequence[Labelled]], Iterator[Figure]], ...] = (
        _breakdown,
        _request_latencies,
        _tier_latencies,
        _throughput,
        _bandwidths,
        _load,
        more_figures,
    )
    return [found for make in makers for found in make(results)]


def _breakdown(results: Sequence[Labelled]) -> Iterator[Figure]:
    rows: list[Spec] = []
    table = []
    for item in results:
        found = {part: item.result.statistics(name) for part, name in PARTS.items()}
        means = {part: statistics["mean"] for part, statistics in found.items() if statistics}
        if len(means) < len(PARTS):
            continue
        whole = sum(means.values())
        for rank, (part, value) in enumerate(means.items()):
            rows.append({"row": item.label, "series": part, "value": value, "rank": rank})
            share = f"{value / whole:.1%}" if whole else "-"
            table.append((item.label, part, number(value), share))
    if rows:
        yield Figure(
            "breakdown",
            "Where a request's time goes",
            "Mean time of a completed request",
            "Queue wait, storage I/O, generation and the rest add up to the mean end-to-end latency.",
            specs.bars(rows, "milliseconds", [row["row"] for row in rows], list(PARTS), stacked=True),
            ("result", "part", "mean ms", "share"),
            table,
        )


def _request_latencies(results: Sequence[Labelled]) -> Iterator[Figure]:
    if len(results) == 1:
        series = [(part, results[0], name) for part, name in _REQUEST_PARTS.items()]
        groups = [Group("requests", "Latency of requests", series)]
    else:
        groups = [
            Group(f"requests-{number_}", f"Requests: {part}", [(item.label, item, name) for item in results])
            for number_, (part, name) in enumerate(_REQUEST_PARTS.items())
        ]
    for group in groups:
        yield from _distribution(
            group, "Latency distributions", "Per completed request, to the 99.99th percentile."
        )


def _entry_says(results: Sequence[Labelled], tiers: Sequence[str], verb: str) -> str:
    """What latencies of whole entries are of, with the sizes of those entries (S15)."""
    said = []
    for item in results:
        for tier in tiers:
            names = [f"{tier}_{verb}_entry_{size}_bytes" for size in ("p50", "p95")]
            sizes = [nbytes for name in names if (nbytes := item.result.number(name)) is not None]
            if len(sizes) == len(names):
                mib = " and ".join(number(nbytes / MIB, 1) for nbytes in sizes)
                said.append(f"{f'{item.label} ' if len(results) > 1 else ''}{tier} {verb} {mib} MiB")
    says = "Per entry, from submission to completion, demotions included."
    return f"{says} Sizes of entries, p50 and p95: {'; '.join(said)}." if said else says


def _tier_latencies(results: Sequence[Labelled]) -> Iterator[Figure]:
    tiers = tiers_of(results)
    if len(results) == 1:
        for verb in VERBS:
            series = [(tier_label(results, tier), results[0], f"{tier}_{verb}_total") for tier in tiers]
            device = []
            if "storage" in tiers and not modelled(results[0].result, "storage"):
                device = [("storage, in the device", results[0], f"storage_{verb}_device")]
            yield from _distribution(
                Group(f"tiers-{verb}", f"{verb.capitalize()} latency per tier", [*series, *device]),
                "Latency distributions",
                _entry_says(results, tiers, verb)
                + (" In the device is the time inside system calls." if device else ""),
            )
        return
    for tier in tiers:
        for verb in VERBS:
            group = Group(
                f"{tier}-{verb}",
                f"{tier_label(results, tier)} {verb} latency",
                [(item.label, item, f"{tier}_{verb}_total") for item in results],
            )
            yield from _distribution(group, "Latency distributions", _entry_says(results, [tier], verb))


_PERCENTILE_AXIS: Spec = {
    "field": "x",
    "title": "percentile",
    "tip": "percentile",
    "tip_type": "nominal",
    "scale": {"domain": [0, 4], "nice": False},
    "axis": {
        "values": [0, math.log10(2), 1, 2, 3, 4],
        "labelExpr": "datum.value < 0.1 ? '0' : datum.value < 0.5 ? '50' : datum.value < 1.5 ? '90' : "
        "datum.value < 2.5 ? '99' : datum.value < 3.5 ? '99.9' : '99.99'",
    },
}


def _distribution(group: Group, section: str, says: str) -> Iterator[Figure]:
    found = [(name, item, curve(item, key)) for name, item, key in group.series]
    curves: list[tuple[str, Curve]] = [
        (name, got) for name, _, got in found if got is not None and got.max_ms > 0
    ]
    if not curves:
        return
    rows: list[Spec] = [
        {
            "series": name,
            "x": _stretched(rank),
            "percentile": f"{rank:.6g}" if rank in PERCENTILES else "max",
            "y": value,
        }
        for name, got in curves
        for rank, value in got.points
        if value > 0
    ]
    heights = [row["y"] for row in rows]
    y: Spec = {"field": "y", "title": "milliseconds (log)", **specs.decades(min(heights), max(heights))}
    names = [name for name, _, _ in group.series]
    header = ("series", "values", *(f"p{rank:g}" for rank in _SHOWN), "max")
    table = [(name, f"{got.count:,}", *_at(got), number(got.max_ms, 3)) for name, got in curves]
    yield Figure(
        group.id,
        section,
        group.title,
        says + _thin(curves),
        specs.lines(rows, _PERCENTILE_AXIS, y, names),
        header,
        table,
    )


def _stretched(rank: float) -> float:
    """Percentiles on a scale on which 90, 99, 99.9 and 99.99 are equally far apart."""
    return -math.log10(1 - rank / 100)


def _at(got: Curve) -> Iterator[str]:
    known = dict(got.points)
    for rank in _SHOWN:
        yield significant(known[rank]) if rank in known else "too few"


def _thin(curves: Sequence[tuple[str, Curve]]) -> str:
    if all(got.count >= _ENOUGH for _, got in curves):
        return ""
    return f" A line ends where its values do: the 99.99th percentile needs {_ENOUGH:,} of them."


_TIME: Spec = {
    "field": "x",
    "title": "seconds into the measured window",
    "axis": {"tickCount": 6, "labelOverlap": "greedy"},
}


def _over_time(
    group: Group, says: str, unit: str, read: Callable[[Labelled, str], list[tuple[float, float]]]
) -> Iterator[Figure]:
    found = [(name, read(item, column)) for name, item, column in group.series]
    known = [(name, points) for name, points in found if points]
    if not known:
        return
    rows = [{"series": name, "x": at, "y": value} for name, points in known for at, value in points]
    names = [name for name, _, _ in group.series]
    y: Spec = {"field": "y", "title": unit, "scale": {"zero": True}}
    table = [(name, number(min(v)), number(sum(v) / len(v)), number(max(v))) for name, v in _values(known)]
    yield Figure(
        group.id,
        "Over time",
        group.title,
        f"{says} {_per_point(group)}",
        specs.lines(rows, _TIME, y, names),
        ("series", "lowest", "mean", "highest"),
        table,
    )


def _per_point(group: Group) -> str:
    seconds = max(point_seconds(item.result, column) for _, item, column in group.series)
    return "A point per second." if seconds <= 1 else f"Each point is the mean of {seconds:g} s."


def _values(known: Sequence[tuple[str, list[tuple[float, float]]]]) -> Iterator[tuple[str, list[float]]]:
    for name, points in known:
        yield name, [value for _, value in points]


def _throughput(results: Sequence[Labelled]) -> Iterator[Figure]:
    for column, title, unit in (
        ("tokens", "Throughput over time", "generated tokens/s"),
        ("requests", "Requests completed over time", "requests/s"),
    ):
        series = [(item.label, item, column) for item in results]
        says = "Counted when a request completes."
        yield from _over_time(
            Group(f"time-{column}", title, series), says, unit, lambda item, name: timeline(item.result, name)
        )


def _bandwidths(results: Sequence[Labelled]) -> Iterator[Figure]:
    tiers = tiers_of(results)
    says = "Bytes that the tier moved, demotions included."

    def gib_per_sec(item: Labelled, column: str) -> list[tuple[float, float]]:
        return timeline(item.result, column, 1 / GIB)

    if len(results) == 1:
        for tier in tiers:
            label = tier_label(results, tier)
            series = [(verb, results[0], f"{tier}_{verb}_bytes") for verb in VERBS]
            yield from _over_time(
                Group(f"{tier}-bandwidth", f"Bandwidth of {label}", series), says, "GiB/s", gib_per_sec
            )
        return
    for tier in tiers:
        for verb in VERBS:
            series = [(item.label, item, f"{tier}_{verb}_bytes") for item in results]
            title = f"{tier_label(results, tier)} {verb} bandwidth"
            yield from _over_time(
                Group(f"{tier}-{verb}-bandwidth", title, series), says, "GiB/s", gib_per_sec
            )


_LOAD = {"queued": "waiting requests", "in_service": "requests in service", "users": "users"}


def _load(results: Sequence[Labelled]) -> Iterator[Figure]:
    """Users and queue, where the timeline has them."""

    def read(item: Labelled, column: str) -> list[tuple[float, float]]:
        return gauge(item.result, column)

    says = "Seen once a second; a queue that only grows is a load that can't be served."
    if len(results) == 1:
        named = {column: (name, results[0], column) for column, name in _LOAD.items()}
        groups = [
            Group("queue", "Queue over time", [named["queued"]]),
            Group("load", "Users over time", [named["users"], named["in_service"]]),
        ]
    else:
        groups = [
            Group(
                f"load-{column}",
                f"{name.capitalize()} over time",
                [(item.label, item, column) for item in results],
            )
            for column, name in _LOAD.items()
        ]
    for group in groups:
        yield from _over_time(group, says if "queue" in group.id else "Seen once a second.", "count", read)


def stat_rows(results: Sequence[Labelled], names: dict[str, str]) -> Iterator[tuple[Labelled, str, float]]:
    """Metrics that the results have, under the names they are shown by."""
    for item in results:
        for shown, name in names.items():
            value = item.result.number(name)
            if value is not None:
                yield item, shown, value


def plain_rows(rows: Sequence[Sequence[Any]]) -> list[tuple[str, ...]]:
    """Cells as text, and not more rows than a reader will look at."""
    return [tuple(str(cell) for cell in row) for row in rows[:_TABLE_ROWS]]
