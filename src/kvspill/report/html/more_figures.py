"""Figures of volumes, hit rates, the search for users, service classes and rankings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvspill.report.columns import COLUMN, STORAGE_THROUGHPUT, WALL_THROUGHPUT, finite
from kvspill.report.html import specs
from kvspill.report.html.facts import (
    VERBS,
    Labelled,
    reuse_and_bounds,
    search_lever,
    tier_label,
    tiers_of,
)
from kvspill.report.html.figures import Figure, plain_rows, stat_rows
from kvspill.report.html.specs import Spec
from kvspill.report.numbers import figure as number
from kvspill.report.numbers import significant
from kvspill.report.settings import canonical
from kvspill.result.ranking import faults_text, no_rank

_PHASES = {
    "decode reads": "decode_bytes_read_gb",
    "prefill writes": "prefill_bytes_written_gb",
    "prefill writes of rebuilt entries": "rebuilt_bytes_written_gib",
    "demoted to storage": "demotion_storage_write_gib",
    "demoted to CPU": "demotion_cpu_write_gib",
}
_LEVER_NAMES = {"num_users": "users", "trace_speedup": "speed of the trace", "speed": "speed of the trace"}
_LOADS = {
    "model": "model",
    "workload_preset": "workload preset",
    "generation_mode": "generation",
    "arrival": "arrivals",
    "duration": "duration",
    "max_requests": "number of requests",
    "gpu_mem_gb": "GPU memory",
    "cpu_mem_gb": "CPU memory",
    "storage_capacity_gb": "storage capacity",
}
"""What makes results unlike, whatever the device or the engine."""
_HITS = {"all lookups": "cache_hit_rate", "without decode re-reads": "reuse_hit_rate"}


def more_figures(results: Sequence[Labelled]) -> Iterator[Figure]:
    yield from _tier_bytes(results)
    yield from _phase_bytes(results)
    yield from _hit_rates(results)
    yield from _autoscaler(results)
    yield from _classes(results)
    yield from _ranking(results)


def _row(results: Sequence[Labelled], item: Labelled, name: str) -> str:
    """The tier or class first: where a label is cut, it must not be the part that is lost."""
    return name if len(results) == 1 else f"{name}: {item.label}"


def _tier_bytes(results: Sequence[Labelled]) -> Iterator[Figure]:
    rows: list[Spec] = []
    table = []
    for tier in tiers_of(results):
        for item in results:
            for rank, verb in enumerate(VERBS):
                word = "written" if verb == "write" else "read"
                value = item.result.number(f"tier_{tier}_kv_bytes_{word}_gb")
                if value is not None:
                    row = _row(results, item, tier_label([item], tier) if len(results) == 1 else tier)
                    rows.append({"row": row, "series": word, "value": value, "rank": rank})
                    table.append((row, word, number(value)))
    if rows:
        yield Figure(
            "tier-bytes",
            "Bytes",
            "Bytes per tier",
            "Logical bytes in the measured window; a demotion is read on one tier and written on the next.",
            specs.bars(rows, "GiB", [row["row"] for row in rows], ["read", "written"]),
            ("tier", "direction", "GiB"),
            table,
        )


def _phase_bytes(results: Sequence[Labelled]) -> Iterator[Figure]:
    found = [(item, shown, value) for item, shown, value in stat_rows(results, _PHASES) if value > 0]
    rows = [{"row": shown, "series": item.label, "value": value, "rank": 0} for item, shown, value in found]
    if rows:
        order = [shown for shown in _PHASES if any(row["row"] == shown for row in rows)]
        yield Figure(
            "phase-bytes",
            "Bytes",
            "Bytes per phase",
            "What the bytes were moved for, on any tier; decode reads include history, prompts and chunks.",
            specs.bars(rows, "GiB", order, [item.label for item in results]),
            ("phase", "result", "GiB"),
            [(shown, item.label, number(value)) for item, shown, value in found],
        )


def _hit_rates(results: Sequence[Labelled]) -> Iterator[Figure]:
    found = list(stat_rows(results, _HITS))
    if found:
        yield _shares(
            "hit-rates", "Hit rates", "Per lookup. A failed read is an error, never a hit.", results, found
        )
    bounded = [
        (item, name, value) for item in results for name, value in reuse_and_bounds(item.result).items()
    ]
    if bounded:
        yield _shares(
            "hit-bounds",
            "Reuse against its bounds",
            "Share of looked-up bytes found, decode re-reads left out, beside what plain LRU, perfect "
            "foresight and an unlimited cache would have found in the same lookups.",
            results,
            bounded,
        )


def _shares(
    name: str,
    title: str,
    says: str,
    results: Sequence[Labelled],
    found: Sequence[tuple[Labelled, str, float]],
) -> Figure:
    rows: list[Spec] = [
        {"row": shown, "series": item.label, "value": value, "rank": 0} for item, shown, value in found
    ]
    order = [shown for _, shown, _ in found]
    spec = specs.bars(rows, "share found", order, [item.label for item in results], share=True)
    table = [(shown, item.label, f"{value:.2%}") for item, shown, value in found]
    return Figure(name, "Cache", title, says, spec, ("what", "result", "share"), table)


def _autoscaler(results: Sequence[Labelled]) -> Iterator[Figure]:
    """The search for the load: its path over time, and what each load gave."""
    for index, item in enumerate(results):
        steps = item.result.autoscaling_stats
        lever = search_lever(steps)
        if lever is None:
            continue
        stages = [step for step in steps if _known(step, "time_seconds", lever)]
        if stages:
            yield _path(index, item, lever, stages, len(results) > 1)
            yield from _stage_waits(index, item, stages, len(results) > 1)
            yield from _load_curve(index, item, lever, stages, len(results) > 1)


def _known(step: Mapping[str, Any], *names: str) -> bool:
    return all(finite(step.get(name)) is not None for name in names)


def _held(stages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The stages themselves: the last entry is the answer, which was held no more."""
    return [step for step in stages if step.get("action") != "stop"] or list(stages)


def _path(index: int, item: Labelled, lever: str, stages: Sequence[Mapping[str, Any]], many: bool) -> Figure:
    held = _held(stages)
    # A stage is noted when it ends: its level held since the stage before.
    first = held[0]["time_seconds"] - (finite(held[0].get("stage_seconds")) or 0.0)
    rows: list[Spec] = [{"series": lever, "x": first, "y": held[0][lever]}]
    rows += [{"series": lever, "x": step["time_seconds"], "y": step[lever]} for step in held]
    spec = specs.lines(
        rows,
        {"field": "x", "title": "seconds since the start", "axis": {"tickCount": 6}},
        {"field": "y", "title": lever},
        [lever],
        interpolate="step-before",
    )
    table = [
        (
            number(step["time_seconds"], 1),
            number(step[lever], 0),
            number(finite(step.get("throughput"))),
            number(finite(step.get("storage_throughput"))),
            step.get("action", ""),
            step.get("reason", ""),
        )
        for step in stages
    ]
    return Figure(
        f"autoscaler-{index}",
        "Search for the load",
        f"Autoscaler path: {_LEVER_NAMES.get(lever, lever)} over time" + (f", {item.label}" if many else ""),
        f"The search ended with: {stages[-1].get('reason', 'no reason given')}",
        spec,
        ("seconds", lever, "tokens/s", "KV tokens/s on storage", "action", "reason"),
        plain_rows(table),
    )


def _stage_waits(
    index: int, item: Labelled, stages: Sequence[Mapping[str, Any]], many: bool
) -> Iterator[Figure]:
    """The queue over the whole search: what the requests of each stage waited."""
    rows: list[Spec] = []
    table = []
    for step in _held(stages):
        waits = step.get("latency_ms")
        waits = waits.get("queue_wait") if isinstance(waits, Mapping) else None
        if not isinstance(waits, Mapping):
            continue
        found = {name: finite(waits.get(name)) for name in ("mean", "p95")}
        at = step["time_seconds"]
        rows += [{"series": name, "x": at, "y": value} for name, value in found.items() if value is not None]
        table.append((number(at, 1), *(significant(value) for value in found.values())))
    if not rows:
        return
    x: Spec = {"field": "x", "title": "seconds since the start", "axis": {"tickCount": 6}}
    y: Spec = {"field": "y", "title": "queue wait, milliseconds", "scale": {"zero": True}}
    yield Figure(
        f"stage-waits-{index}",
        "Search for the load",
        "Queue wait over the search" + (f", {item.label}" if many else ""),
        "What the requests that completed in a stage had waited, at the stage's end; a wait that grows is a "
        "load that can't be served.",
        specs.lines(rows, x, y, ["mean", "p95"], dots=True),
        ("seconds", "mean ms", "p95 ms"),
        plain_rows(table),
    )


def _load_curve(
    index: int, item: Labelled, lever: str, stages: Sequence[Mapping[str, Any]], many: bool
) -> Iterator[Figure]:
    by_storage = stages[-1].get("mode") == "capacity"
    name = "storage_throughput" if by_storage else "throughput"
    unit = "KV tokens/s on storage" if by_storage else "generated tokens/s"
    points = sorted((step[lever], step[name]) for step in _held(stages) if _known(step, name))
    if len(points) < 2:
        return
    rows: list[Spec] = [{"series": unit, "x": level, "y": value} for level, value in points]
    x: Spec = {"field": "x", "title": lever, "axis": {"tickCount": 6}}
    yield Figure(
        f"load-curve-{index}",
        "Search for the load",
        "What each load gave" + (f": {item.label}" if many else ""),
        "Where the line turns flat, more load only makes requests wait longer.",
        specs.lines(rows, x, {"field": "y", "title": unit, "scale": {"zero": True}}, [unit], dots=True),
        (lever, unit),
        [(number(level, 0), number(value)) for level, value in points],
    )


def _classes(results: Sequence[Labelled]) -> Iterator[Figure]:
    rows: list[Spec] = []
    table = []
    for item in results:
        for name, entry in item.result.summary.qos_metrics.items():
            sla = entry.sla
            if sla is None or sla.compliance is None:
                continue
            row = _row(results, item, str(name))
            rows.append({"row": row, "series": "within target", "value": sla.compliance, "rank": 0})
            times = (number(value) for value in (sla.added_p95_ms, sla.actual_p95_ms, sla.target_p95_ms))
            table.append((row, f"{sla.compliance:.1%}", *times, sla.verdict))
    if rows:
        spec = specs.bars(
            rows,
            "requests within target",
            [row["row"] for row in rows],
            ["within target"],
            share=True,
        )
        yield Figure(
            "classes",
            "Where a request's time goes",
            "Service classes",
            "Requests to which queue and storage added no more than their class's target; failed ones count "
            "as missed. The generation's own time is in the end-to-end latency beside it.",
            spec,
            ("class", "within target", "added p95 ms", "end-to-end p95 ms", "target p95 ms", "verdict"),
            table,
        )


def _ranking(results: Sequence[Labelled]) -> Iterator[Figure]:
    """Several results in order, by engine where engines are what differs; some have no rank (S13)."""
    unranked = [item.label for item in results if _no_rank(item)]
    results = [item for item in results if not _no_rank(item)]
    if len(results) < 2:
        return
    engines = [item.result.config.get("engine") for item in results]
    by_engine = all(engines) and len(set(engines)) == len(engines)
    names = [str(engine) if by_engine else item.label for item, engine in zip(results, engines, strict=True)]
    unlike = _unlike(results)
    if unranked:
        unlike += f" Without rank, because faulty or crowded: {', '.join(unranked)}."
    for metric in (WALL_THROUGHPUT, STORAGE_THROUGHPUT):
        values = {name: item.result.number(metric) for name, item in zip(names, results, strict=True)}
        known = sorted(((v, name) for name, v in values.items() if v), reverse=True)
        if len(known) < 2:
            continue
        rows: list[Spec] = [
            {"row": name, "series": "result", "value": value, "rank": 0} for value, name in known
        ]
        slowest = known[-1][0]
        title = COLUMN[metric].title
        yield Figure(
            f"ranking-{metric}",
            "Engine ranking" if by_engine else "Ranking",
            f"{'Engines' if by_engine else 'Results'} by {title}",
            "Fastest first; `kvspill compare` says which differences can be told from noise." + unlike,
            specs.bars(rows, title, [row["row"] for row in rows], ["result"]),
            ("engine" if by_engine else "result", title, "over the slowest"),
            [(name, number(value), f"{value / slowest:.2f}x") for value, name in known],
        )


def _no_rank(item: Labelled) -> bool:
    codes = [warning.code for warning in item.result.warnings]
    return no_rank(faults_text(item.result), codes) is not None


def _unlike(results: Sequence[Labelled]) -> str:
    """A rank over unlike loads must say so."""
    seen: dict[str, set[str]] = {}
    for item in results:
        result, config = item.result, item.result.config
        users = config.get("num_users") if result.window.users is None else result.window.users
        seen.setdefault("users", set()).add(str(users))
        seen.setdefault("tiers", set()).add(str([tier.tier for tier in result.tiers]))
        seen.setdefault("simulated or measured", set()).add(str(result.simulated))
        for name, title in _LOADS.items():
            seen.setdefault(title, set()).add(canonical(config.get(name)))
    differing = [title for title, values in seen.items() if len(values) > 1]
    return f" These results also differ in {', '.join(differing)}." if differing else ""
