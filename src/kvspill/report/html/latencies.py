"""Figures of latencies: where a request's time goes, and distributions of requests and entries."""

import math
from collections.abc import Iterator, Sequence

from kvspill.report.html import specs
from kvspill.report.html.facts import (
    PERCENTILES,
    TIER_NAMES,
    VERBS,
    Curve,
    Labelled,
    curve,
    modelled,
    tier_label,
    tiers_of,
)
from kvspill.report.html.figure import Figure, Group
from kvspill.report.html.specs import Spec
from kvspill.result.bottleneck import PARTS
from kvspill.texts import significant, size_text

_WHOLE = "end to end"
_REQUEST_PARTS = {
    _WHOLE: "request_end_to_end",
    "queue wait": "request_queue",
    "storage I/O": "request_storage",
    "generation": "request_generation",
}
_SHOWN = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
_ENOUGH = 10_000
"""Values behind a 99.99th percentile that is one of them."""


def latency_figures(results: Sequence[Labelled]) -> Iterator[Figure]:
    yield from _request_latencies(results)
    yield from _token_latencies(results)
    yield from _tier_latencies(results)


def breakdown(results: Sequence[Labelled]) -> Iterator[Figure]:
    rows: list[Spec] = []
    table = []
    for item in results:
        found = {part: item.result.statistics(name) for name, part in PARTS.items()}
        means = {part: statistics["mean"] for part, statistics in found.items() if statistics}
        if len(means) < len(PARTS):
            continue
        whole = sum(means.values())
        for rank, (part, value) in enumerate(means.items()):
            rows.append(specs.bar(item.label if len(results) > 1 else "", part, value, rank))
            share = f"{value / whole:.1%}" if whole else "-"
            table.append((item.label, part, significant(value), share))
    if rows:
        yield Figure(
            "breakdown",
            "Where a request's time goes",
            "Mean time of a completed request",
            "Queue wait, storage I/O, generation and the rest add up to the mean end-to-end latency.",
            specs.bars(
                rows, "milliseconds", [row["row"] for row in rows], list(PARTS.values()), stacked=True
            ),
            ("result", "part", "mean ms", "share"),
            table,
        )


def _request_latencies(results: Sequence[Labelled]) -> Iterator[Figure]:
    if len(results) == 1:
        series = [(part, results[0], name) for part, name in _REQUEST_PARTS.items()]
        # The parts of a request have the colours that they have in its mean time.
        told_from = (*PARTS.values(), _WHOLE)
        groups = [Group("requests", "Latency of requests", series, told_from)]
    else:
        groups = [
            Group(f"requests-{number_}", f"Requests: {part}", [(item.label, item, name) for item in results])
            for number_, (part, name) in enumerate(_REQUEST_PARTS.items())
        ]
    for group in groups:
        yield from _distribution(
            group, "Latency distributions", "Per completed request, to the 99.99th percentile."
        )


def _token_latencies(results: Sequence[Labelled]) -> Iterator[Figure]:
    """What LLM operators know: the time to the first token, and per token after it (S12)."""
    says = {
        "ttft": "Time to the first token: queue, reads, prefill and the first decode read.",
        "tpot": "Time per output token: decode reads and generation over the generated tokens.",
    }
    if len(results) == 1:
        series = [(part.upper(), results[0], f"request_{part}") for part in says]
        group = Group("tokens", "TTFT and TPOT", series)
        yield from _distribution(group, "Latency distributions", " ".join(says.values()))
        return
    for part, said in says.items():
        series = [(item.label, item, f"request_{part}") for item in results]
        yield from _distribution(Group(f"tokens-{part}", part.upper(), series), "Latency distributions", said)


def _entry_says(results: Sequence[Labelled], tiers: Sequence[str], verb: str) -> str:
    """What latencies of whole entries are of, with the sizes of those entries (S15)."""
    said = []
    for item in results:
        for tier in tiers:
            names = [f"{tier}_{verb}_entry_{size}_bytes" for size in ("p50", "p95")]
            sizes = [nbytes for name in names if (nbytes := item.result.number(name)) is not None]
            if len(sizes) == len(names):
                both = " and ".join(map(size_text, sizes))
                said.append(f"{f'{item.label} ' if len(results) > 1 else ''}{TIER_NAMES[tier]} {verb} {both}")
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
    table = [(name, f"{got.count:,}", *_at(got), significant(got.max_ms)) for name, got in curves]
    yield Figure(
        group.id,
        section,
        group.title,
        says + _thin(curves),
        specs.lines(rows, _PERCENTILE_AXIS, y, group.told_from or names),
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
