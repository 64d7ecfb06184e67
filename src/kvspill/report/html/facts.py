"""What the page shows of a result, as plain values: nothing here knows of HTML or of plots."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvspill.errors import UsageError
from kvspill.records import NS_PER_MS, Tier
from kvspill.report.columns import finite
from kvspill.report.settings import canonical
from kvspill.result.schema import Result

TIERS = tuple(tier.value for tier in Tier)
VERBS = ("read", "write")
TIER_NAMES = {"gpu": "GPU", "cpu": "DRAM", "storage": "storage"}
LEVERS = ("users", "num_users", "trace_speedup", "speed")
MAX_POINTS = 400
"""More points than this don't show on a screen; longer timelines are averaged down to it."""

PERCENTILES = (
    *(0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5, 95.0, 96.5, 98.0),
    *(99.0, 99.25, 99.5, 99.7, 99.8, 99.9, 99.95, 99.97, 99.99),
)


@dataclass(frozen=True, slots=True)
class Labelled:
    """A result with the name that the page calls it by; of a suite, also its row and which suite that is."""

    label: str
    result: Result
    row: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """A latency distribution: milliseconds by percentile, as far as the number of values carries."""

    count: int
    max_ms: float
    points: tuple[tuple[float, float], ...]


def labelled(named: Sequence[tuple[str, Result]]) -> list[Labelled]:
    """Results under names that differ."""
    labels = different([name for name, _ in named])
    return [Labelled(label, result) for label, (_, result) in zip(labels, named, strict=True)]


def different(names: Sequence[str]) -> list[str]:
    """The same names, those that come again with a number."""
    return [
        f"{name} ({count})" if (count := names[: place + 1].count(name)) > 1 else name
        for place, name in enumerate(names)
    ]


def curve(item: Labelled, name: str) -> Curve | None:
    """The distribution of one histogram of a result, or None where it has none."""
    data = item.result.histograms.get(name)
    if data is None or data.count <= 0:
        return None
    from kvspill.measure.histograms import decoded, nearest_ranks

    try:
        values = nearest_ranks(decoded(data.hdr), PERCENTILES)
    except Exception as error:
        # The decoder lets base64, zlib and struct errors through; each means a damaged result.
        raise UsageError(
            f"{item.label}: histogram {name} cannot be decoded ({type(error).__name__}); run it again"
        ) from None
    count, max_ms = data.count, data.max_ns / NS_PER_MS
    # The p-th percentile of n values is told from the maximum only where n (1 - p) is at least one.
    last = 100.0 * (1 - 1 / count)
    points = [
        (rank, min(ns / NS_PER_MS, max_ms))
        for rank, ns in zip(PERCENTILES, values, strict=True)
        if rank <= last + 1e-9
    ]
    # The maximum stands for the whole of the last share: near its middle, at no percentile that has a name.
    end = 100.0 * (1 - 0.49 / count)
    if end < PERCENTILES[-1]:
        points.append((end, max_ms))
    return Curve(count, max_ms, tuple(points))


def timeline(result: Result, column: str, scale: float = 1.0) -> list[tuple[float, float]]:
    """Per-second values of a column: (seconds since the window's start, value), averaged to few points."""
    values = result.timeline.columns.get(column)
    if not values:
        return []
    length = len(values)
    step = _step(length)
    seconds = result.timeline.interval_seconds
    # The last second of the window may be a part of one: its sum would look like a drop.
    whole = math.floor(result.window.measured_seconds / seconds) if seconds else length
    end = min(length, whole) if whole > 0 else length
    points = []
    for start in range(0, end, step):
        part = [value for value in values[start : min(start + step, end)] if value is not None]
        if part:
            points.append((start * seconds, scale * sum(part) / len(part) / seconds))
    return points


def _step(length: int) -> int:
    return max(1, math.ceil(length / MAX_POINTS))


def point_seconds(result: Result, column: str) -> float:
    """How long a time one point of a timeline stands for."""
    values = result.timeline.columns.get(column) or ()
    return _step(len(values)) * float(result.timeline.interval_seconds)


def gauge(result: Result, column: str) -> list[tuple[float, float]]:
    """Sampled states (users, queue): never divided by the length of the second."""
    seconds = result.timeline.interval_seconds
    return [(at, value * seconds) for at, value in timeline(result, column)]


def device_count(result: Result) -> int:
    """How many devices the kernel's counts are of."""
    block_device = result.honesty.probes.get("block_device")
    devices = block_device.get("devices") if isinstance(block_device, Mapping) else None
    return max(1, len(devices)) if isinstance(devices, list) else 1


def tiers_of(results: Iterable[Labelled]) -> list[str]:
    """Tiers that any of the results has, fastest first."""
    present = {tier.tier for item in results for tier in item.result.tiers}
    return [tier for tier in TIERS if tier in present]


def modelled(result: Result, tier: str) -> bool:
    found = result.tier(tier)
    return found is not None and found.modelled


def tier_label(results: Sequence[Labelled], tier: str) -> str:
    """The tier's name, with a mark wherever its times come from a model."""
    marks = {modelled(item.result, tier) for item in results if item.result.tier(tier)}
    name = TIER_NAMES[tier]
    if marks == {True}:
        simulated = all(item.result.simulated for item in results)
        return f"{name} ({'simulated' if simulated else 'modelled'})"
    return f"{name} (partly modelled)" if True in marks else name


def search_lever(steps: Sequence[Mapping[str, Any]]) -> str | None:
    """What the search turned: the number of users, or the speed of a trace."""
    return next((name for name in LEVERS if steps and name in steps[-1]), None)


BOUNDS = {"lru": "plain LRU", "belady": "perfect foresight", "infinite": "unlimited cache"}


def reuse_and_bounds(result: Result) -> dict[str, float]:
    """Share of looked-up bytes that were found, and what other caches would have found; {} if unknown."""
    account = result.io_model
    if not isinstance(account.get("hit_rate_bounds"), Mapping):
        return {}
    bounds = account["hit_rate_bounds"]
    found = {"measured": finite(account.get("byte_hit_rate"))}
    found |= {shown: finite(bounds.get(name)) for name, shown in BOUNDS.items()}
    return {name: value for name, value in found.items() if value is not None}


_LOADS = {
    "model": "model",
    "workload_preset": "workload preset",
    "generation_mode": "generation",
    "arrival": "arrivals",
    "duration": "duration",
    "max_requests": "number of requests",
    "gpu_mem_gb": "GPU memory",
    "cpu_mem_gb": "DRAM",
    "storage_capacity_gb": "storage capacity",
}
"""What makes results unlike, whatever the device or the engine."""


def unlike(results: Sequence[Labelled]) -> list[str]:
    """What makes these results unlike, in words; a rank over unlike loads must say so."""
    seen: dict[str, set[str]] = {}
    for item in results:
        result, config = item.result, item.result.config
        users = config.get("num_users") if result.window.users is None else result.window.users
        seen.setdefault("users", set()).add(str(users))
        seen.setdefault("tiers", set()).add(str([tier.tier for tier in result.tiers]))
        seen.setdefault("simulated or measured", set()).add(str(result.simulated))
        for name, title in _LOADS.items():
            seen.setdefault(title, set()).add(canonical(config.get(name)))
    return [title for title, values in seen.items() if len(values) > 1]
