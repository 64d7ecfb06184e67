"""One load on several storage targets: its rows, who ranks where, and how far each may be trusted."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvspill.result.ranking import why_unranked
from kvspill.result.schema import Result
from kvspill.result.warnings.kind import Severity
from kvspill.result.warnings.known import KINDS, titles
from kvspill.suite.scenario import Scenario
from kvspill.texts import as_fast, counted, duration

BACKENDS = "backends"
"""The kind of suite whose rows are the same load on different targets."""
SPEED = "avg_throughput_tokens_per_sec"
"""What ranks them: the work is the same, and so is everything but the storage."""
_ODD = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_MAX = 40
NONE = "-"
TABLE = ("target", "rank", "tok/s", "of best", "read GiB/s", "write GiB/s", "read p95", "first byte p95")
Grid = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Heads of columns, and rows."""
_UNEQUAL = 0.01
"""Hits or bytes read that differ by a larger share are said to differ."""
_COMPARED = {"cache_hits": ("hits", 0), "tier_storage_kv_bytes_read_gb": ("GiB read", 3)}
HONESTY = ("target", "verified", "hits", "read GiB", "written GiB", "repeated", "warnings")


def rows_of(targets: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> list[Scenario]:
    """A row per target, each with its settings."""
    rows = []
    for number, (target, own) in enumerate(zip(targets, settings, strict=True), start=1):
        name = f"{number}-{_ODD.sub('-', target).strip('-.')}"[:_NAME_MAX].rstrip("-.")
        rows.append(Scenario(name, target, "the same load on another target", dict(own), "suite backends"))
    return rows


def ranked(results: Mapping[str, Result]) -> list[tuple[str, str]]:
    """The targets by speed, each with its rank; those that have none come last, with a dash.

    Two whose trials overlap share a rank: the next run may change their order.
    """
    able = {name: result for name, result in results.items() if _why_no_rank(result) is None}
    order = sorted(able, key=lambda name: -(able[name].number(SPEED) or 0.0))
    found: list[tuple[str, str]] = []
    for place, name in enumerate(order, start=1):
        tied = bool(found) and _overlap(able[order[place - 2]], able[name])
        found.append((name, found[-1][1] if tied else str(place)))
    return [*found, *((name, NONE) for name in results if name not in able)]


def _why_no_rank(result: Result) -> str | None:
    why_not = why_unranked(result)
    return "has no speed" if why_not is None and result.number(SPEED) is None else why_not


def _overlap(faster: Result, slower: Result) -> bool:
    spans = []
    for result in (faster, slower):
        found = None if result.trials is None else result.trials.metrics.get(SPEED)
        if found is None or result.trials is None or result.trials.complete < 2:
            return False
        spans.append(found)
    return spans[1].max >= spans[0].min


def speeds(results: Mapping[str, Result]) -> Grid:
    """The table of ranks."""
    able = [result.number(SPEED) or 0.0 for result in results.values() if _why_no_rank(result) is None]
    best = max(able, default=0.0)
    rows = []
    for name, rank in ranked(results):
        result = results[name]
        speed = result.number(SPEED)
        share = f"{speed / best:.0%}" if speed is not None and best and rank != NONE else NONE
        rows.append(
            (
                name,
                rank,
                _figure(speed, 1),
                share,
                _figure(result.number("tier_storage_read_bandwidth_gbps"), 3),
                _figure(result.number("tier_storage_write_bandwidth_gbps"), 3),
                duration(result.number("storage_read_p95_ms")),
                duration(result.number("storage_read_first_byte_p95_ms")),
            )
        )
    return TABLE, rows


def honesty(results: Mapping[str, Result]) -> Grid:
    """The table of what each target really did, and what puts it in doubt."""
    rows = []
    for name, _rank in ranked(results):
        result = results[name]
        storage = result.tier("storage")
        serious = [item for item in result.warnings if item.severity != Severity.NOTE.value]
        rows.append(
            (
                name,
                {True: "yes", False: "no", None: NONE}[result.honesty.verified],
                _share(result.number("cache_hit_rate")),
                _figure(result.number("tier_storage_kv_bytes_read_gb"), 3),
                _figure(result.number("tier_storage_kv_bytes_written_gb"), 3),
                str((storage.counters if storage else {}).get("repeated_requests", NONE)),
                titles(serious) or "none serious",
            )
        )
    return HONESTY, rows


def lines(results: Mapping[str, Result]) -> Iterator[str]:
    """What the tables mean, a sentence each."""
    digests = {result.digest for result in results.values()}
    same = "was the same" if len(digests) == 1 else "WAS NOT THE SAME"
    yield f"The planned work {same} on every target (digest {', '.join(str(one)[:12] for one in digests)})."
    for name, result in results.items():
        storage = result.tier("storage")
        if storage is not None:
            yield f"{name} is {storage.backend}: {storage.description}."
    order = [(name, rank) for name, rank in ranked(results) if rank != NONE]
    if len(order) > 1:
        first, last = results[order[0][0]].number(SPEED), results[order[-1][0]].number(SPEED)
        if order[0][1] == order[-1][1]:
            yield "Their trials overlap: no target is faster than another as far as can be told."
        elif first and last:
            yield f"{order[0][0]} did the work {as_fast(first / last)} {order[-1][0]}."
    with_rank = {name: results[name] for name, _rank in order}
    unequal = _unequal(with_rank)
    if len(order) > 1 and all(_once(with_rank, metric) for metric in _COMPARED):
        yield "Hits and bytes read were the same on every target with a rank."
    elif unequal:
        yield (
            f"Not the same on every target: {unequal}. A server may have dropped entries by itself; with "
            "several servers (--set servers=N) or a duration, speed decides what is evicted."
        )
    for name, result in results.items():
        why_not = _why_no_rank(result)
        if why_not is not None:
            yield f"{name} is not ranked: it {why_not}."
    if any(result.trials is None for result in results.values()):
        yield "One trial each: small differences mean nothing; --trials 3 shows the spread."
    touched = [
        f"{name}: {KINDS[item.code].title}"
        for name, result in results.items()
        for item in result.warnings
        if item.code in KINDS and KINDS[item.code].severity is not Severity.NOTE
    ]
    if touched:
        yield f"{counted(len(touched), 'serious warning')} ({', '.join(touched)}): see the result of each."


def _once(results: Mapping[str, Result], metric: str) -> bool:
    """Whether all of them have the same value."""
    values = {result.number(metric) for result in results.values()}
    return len(values) == 1 and None not in values


def _unequal(results: Mapping[str, Result]) -> str:
    """The fewest and the most hits and bytes read, where they differ; else empty."""
    found = []
    for metric, (unit, digits) in _COMPARED.items():
        values = {name: result.number(metric) or 0.0 for name, result in results.items()}
        names = sorted(values, key=lambda name: values[name])
        if names and values[names[-1]] - values[names[0]] > _UNEQUAL * values[names[-1]]:
            few, many = (_figure(values[name], digits) for name in (names[0], names[-1]))
            found.append(f"{few} {unit} on {names[0]}, {many} on {names[-1]}")
    return "; ".join(found)


def _figure(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:,.{digits}f}"


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value:.1%}"
