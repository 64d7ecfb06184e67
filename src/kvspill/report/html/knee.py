"""Figures of how far the load can grow: latency and throughput against users, and the path of a search."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from kvspill.report.columns import WALL_THROUGHPUT, finite
from kvspill.report.html import specs
from kvspill.report.html.facts import Labelled, search_lever
from kvspill.report.html.figure import Figure, plain_rows
from kvspill.report.html.more_figures import without_rank
from kvspill.report.html.prose import drive
from kvspill.report.html.specs import Spec
from kvspill.report.numbers import figure as number
from kvspill.report.settings import NOT_SETTINGS, canonical
from kvspill.result.answer import promise_of
from kvspill.result.schema import Result
from kvspill.texts import listed, significant

KNEE = "How far the load can grow"
_LEVER_NAMES = {"num_users": "users", "trace_speedup": "speed of the trace", "speed": "speed of the trace"}
_LOG_FROM = 10
Points = dict[str, list[tuple[float, float]]]
Step = Mapping[str, Any]


def knee_figures(results: Sequence[Labelled]) -> Iterator[Figure]:
    """Latency and throughput against the load: over the stages of a search, or over results."""
    for index, item in enumerate(results):
        lever, stages = _stages(item)
        if stages:
            yield from _search_knee(index, item, str(lever), stages, len(results) > 1)
    yield from _results_knee(results)


def search_figures(results: Sequence[Labelled]) -> Iterator[Figure]:
    """The path of each search over time, and the queue on it; a search of one load has neither."""
    for index, item in enumerate(results):
        lever, stages = _stages(item)
        if len({step[str(lever)] for step in stages}) > 1:
            yield _path(index, item, str(lever), stages, len(results) > 1)
            yield from _stage_waits(index, item, stages, len(results) > 1)


def _stages(item: Labelled) -> tuple[str | None, list[Step]]:
    steps = item.result.autoscaling_stats
    lever = search_lever(steps)
    return lever, [step for step in steps if lever is not None and _known(step, "time_seconds", lever)]


def _known(step: Step, *names: str) -> bool:
    return all(finite(step.get(name)) is not None for name in names)


def _held(stages: Sequence[Step]) -> list[Step]:
    """The stages themselves: the last entry is the answer, which was held no more."""
    return [step for step in stages if step.get("action") != "stop"] or list(stages)


def _path(index: int, item: Labelled, lever: str, stages: Sequence[Step], many: bool) -> Figure:
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
    reason = stages[-1].get("reason", "no reason given")
    return Figure(
        f"autoscaler-{index}",
        "Search for the load",
        f"Search: {_LEVER_NAMES.get(lever, lever)} over time" + (f", {item.label}" if many else ""),
        f"Each step is a load that was tried. The reason for the last one: {reason}",
        spec,
        ("seconds", lever, "tokens/s", "KV tokens/s on storage", "action", "reason"),
        plain_rows(table),
    )


def _stage_waits(index: int, item: Labelled, stages: Sequence[Step], many: bool) -> Iterator[Figure]:
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


def _search_knee(
    index: int, item: Labelled, lever: str, stages: Sequence[Step], many: bool
) -> Iterator[Figure]:
    """A point for each level that was held, the last one where it was held twice."""
    held = {step[lever]: step for step in _held(stages)}
    of = f": {item.label}" if many else ""
    last = item.result.autoscaling_stats[-1]
    axis = _LEVER_NAMES.get(lever, lever)
    by_storage = last.get("mode") == "capacity"
    name = "storage_throughput" if by_storage else "throughput"
    unit = "KV tokens/s on storage" if by_storage else "generated tokens/s"
    rates: Points = {unit: [(level, step[name]) for level, step in held.items() if _known(step, name)]}
    tried = [*held, *(entry["level"] for entry in last.get("levels", ()))]
    yield from _against(
        f"load-curve-{index}",
        f"Throughput against {axis}{of}",
        "Where the line turns flat, more load only makes requests wait longer."
        + _not_drawn(tried, rates, axis),
        axis,
        unit,
        rates,
    )
    latencies, targets, what = _latencies(held, promise_of(item.result), last, lever)
    if targets:
        what += " Dashed lines are targets: where a curve crosses its target, the load is too much."
    yield from _against(
        f"knee-{index}",
        f"Latency against {axis}{of}",
        what + _not_drawn(tried, latencies, axis),
        axis,
        "milliseconds",
        latencies,
        targets,
    )
    saturations: Points = {
        "saturation": [
            (level, step["saturation"]) for level, step in held.items() if _known(step, "saturation")
        ]
    }
    target = finite(last.get("target_saturation"))
    if target is not None:
        yield from _against(
            f"saturation-{index}",
            f"Saturation of storage against {axis}{of}",
            "1 - p95 of a read on the idle device / p95 now: 0.5 means that reads take twice as long. The "
            "search keeps it below the dashed line.",
            axis,
            "saturation",
            saturations,
            {"saturation": target},
        )


def _not_drawn(tried: Sequence[float], found: Points, axis: str) -> str:
    """Loads that were tried and have no point in a plot; empty where there are none."""
    drawn = {level for points in found.values() for level, _ in points}
    missing = sorted(set(tried) - drawn)
    if not missing:
        return ""
    return f" Tried and not drawn, as too few requests gave a figure: {_levels(missing)} ({axis})."


def _below_log(rows: Sequence[Spec], axis: str) -> str:
    """Points that a logarithmic axis has no place for; empty where there are none."""
    zeros: dict[str, list[float]] = {}
    for row in rows:
        if row["y"] <= 0:
            zeros.setdefault(row["series"], []).append(row["x"])
    named = "; ".join(f"{name} at {_levels(levels)} ({axis})" for name, levels in zeros.items())
    return f" Not drawn, as a logarithmic axis has no zero: {named}." if named else ""


def _levels(levels: Sequence[float]) -> str:
    return listed([number(level, 0 if level == int(level) else 2) for level in levels])


_PARTS = {"added": "added_ms", "end-to-end": "latency_ms", "queue-wait": "queue_wait_ms"}
_STATS = ("p50", "p95", "p99")
_WHAT = {
    "added_ms": "what queue and storage add to a request",
    "latency_ms": "requests end to end",
    "queue_wait_ms": "the wait in the queue",
}


def _latencies(
    held: Mapping[float, Step], promise: Mapping[str, Any] | None, last: Step, lever: str
) -> tuple[Points, dict[str, float], str]:
    """The latencies that a search judges by, per class, with the targets; else end to end."""
    found: Points = {}
    targets: dict[str, float] = {}
    latency = "added" if promise is None else str(promise.get("latency"))
    stat = "p95" if promise is None else f"p{float(promise.get('percentile') or 95):g}"
    # What the stages have no figure of is shown by the nearest one, without a target.
    is_shown = latency in _PARTS and stat in _STATS
    part, stat = (_PARTS[latency], stat) if is_shown else ("added_ms", "p95")
    kept = {} if promise is None else promise["classes"]
    # All windows of a level judge it, not the last of them alone.
    judged = {entry["level"]: entry["classes"] for entry in last.get("levels", ())} or {last.get(lever): kept}
    for level, step in held.items():
        for name, entry in (step.get("qos") or {}).items():
            own = entry.get("sla_target_p95_ms") if promise is None else kept.get(name, {}).get("target_ms")
            target = own if is_shown else None
            value = (entry.get(part) or {}).get(stat)
            if is_shown:
                value = judged.get(level, {}).get(name, {}).get("actual_ms", value)
            _put(found, targets, str(name), level, value, target)
    if found:
        return found, targets, f"{stat} of {_WHAT[part]}, by service class."
    for level, step in held.items():
        waits = step.get("latency_ms") or {}
        for part, title in (("end_to_end", "end to end"), ("queue_wait", "queue wait")):
            _put(found, {}, title, level, (waits.get(part) or {}).get("p95"), None)
    return found, {}, "p95 of completed requests."


def _put(found: Points, targets: dict[str, float], name: str, level: float, actual: Any, target: Any) -> None:
    known, bound = finite(actual), finite(target)
    if known is not None:
        found.setdefault(name, []).append((level, known))
        if bound is not None:
            targets[name] = bound


def _results_knee(results: Sequence[Labelled]) -> Iterator[Figure]:
    """Results with a rank that differ in nothing but their users are points of one curve, repeats by their
    median.
    """
    plain = [item for item in results if not (item.result.autoscaling_stats or without_rank(item))]
    levels: dict[int, list[Result]] = {}
    for item in plain:
        levels.setdefault(_users(item), []).append(item.result)
    if len(levels) < 2 or len({_apart_from_users(item.result) for item in plain}) > 1:
        return
    rates: dict[float, list[float]] = {}
    latencies: dict[str, dict[float, list[float]]] = {}
    targets: dict[str, float] = {}
    for level, result in ((float(level), result) for level, repeats in levels.items() for result in repeats):
        if rate := result.number(WALL_THROUGHPUT):
            rates.setdefault(level, []).append(rate)
        for name, entry in result.summary.qos_metrics.items():
            if entry.sla is not None and (known := finite(entry.sla.added_p95_ms)) is not None:
                latencies.setdefault(name, {}).setdefault(level, []).append(known)
                targets[name] = entry.sla.target_p95_ms
    unit = "generated tokens/s"
    says = "Where the line turns flat, more users only make requests wait longer."
    if len(levels) == 2:
        says = "Two loads show whether more users still bring more, not where the line turns."
    says += _REPEATED if len(plain) > len(levels) else ""
    drawn: Points = {unit: _medians(rates)}
    says += _not_drawn(list(levels), drawn, "users")
    yield from _against("knee-rate", "Throughput against users", says, "users", unit, drawn)
    says = (
        "p95 of what queue and storage add to a request, by service class. Dashed lines are targets: where a "
        "curve crosses its target, the load is too much."
    )
    points = {name: _medians(found) for name, found in latencies.items()}
    says += _not_drawn(list(levels), points, "users")
    yield from _against(
        "knee-latency", "Latency against users", says, "users", "milliseconds", points, targets
    )


def unlike_durations(results: Sequence[Labelled]) -> str:
    """That results which differ in users make no curve because they ran for unequal times; else empty."""
    plain = [item for item in results if not (item.result.autoscaling_stats or without_rank(item))]
    durations = sorted({known for item in plain if (known := finite(item.result.config.get("duration")))})
    alike = {_apart_from_users(item.result, "duration") for item in plain}
    if len({_users(item) for item in plain}) < 2 or len(durations) < 2 or len(alike) > 1:
        return ""
    times = listed([f"{seconds:g} s" for seconds in durations])
    return f"No curve over users is drawn, because the results ran for {times}: run all of them equally long."


_REPEATED = " A load with several results stands at their median."


def _medians(found: Mapping[float, Sequence[float]]) -> list[tuple[float, float]]:
    return [(level, median(values)) for level, values in sorted(found.items())]


def _apart_from_users(result: Result, *also: str) -> tuple[str, ...]:
    """What a result is of, its users apart: the same machine and drive, the same settings."""
    host = str((result.environment or {}).get("hostname"))
    tiers = canonical([(tier.tier, tier.backend) for tier in result.tiers])
    settings = sorted(
        f"{name} {canonical(value)}"
        for name, value in result.config.items()
        if name not in NOT_SETTINGS and name not in ("num_users", "max_users", *also)
    )
    return (drive(result), host, tiers, str(result.simulated), *settings)


def _users(item: Labelled) -> int:
    users = item.result.window.users
    return int(users if users is not None else item.result.config.get("num_users") or 0)


def _against(
    figure_id: str,
    title: str,
    says: str,
    x_title: str,
    unit: str,
    found: Points,
    targets: Mapping[str, float] | None = None,
) -> Iterator[Figure]:
    """Lines over the load, with targets as dashed lines; nothing with fewer than two levels."""
    if len({level for points in found.values() for level, _ in points}) < 2:
        return
    rows: list[Spec] = [
        {"series": name, "x": level, "y": value}
        for name, points in found.items()
        for level, value in sorted(points)
    ]
    targets = {name: value for name, value in (targets or {}).items() if name in found}
    heights = [value for value in (*(row["y"] for row in rows), *targets.values()) if value > 0]
    y: Spec = {"field": "y", "title": unit, "scale": {"zero": True}}
    above = [row for row in rows if row["y"] > 0]
    if above and max(heights) > _LOG_FROM * min(heights) and unit == "milliseconds":
        says += _below_log(rows, x_title)
        rows = above
        y = {"field": "y", "title": f"{unit} (log)", **specs.decades(min(heights), max(heights))}
    x: Spec = {"field": "x", "title": x_title, "axis": {"tickCount": 6}, "scale": {"nice": False}}
    names = list(found)
    spec = specs.lines(rows, x, y, names, dots=True)
    levels = sorted({level for points in found.values() for level, _ in points})
    by_level = {name: dict(points) for name, points in found.items()}
    yield Figure(
        figure_id,
        KNEE,
        title,
        says,
        specs.with_targets(spec, targets, unit) if targets else spec,
        (x_title, *names),
        [(number(level, 0), *(significant(by_level[name].get(level)) for name in names)) for level in levels]
        + ([("target", *(significant(targets.get(name)) for name in names))] if targets else []),
    )
