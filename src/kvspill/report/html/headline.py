"""Headline figures: value, unit, spread over trials, and the doubts that touch each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvspill.report.columns import finite
from kvspill.report.compare.render import figure as number
from kvspill.report.html.facts import Labelled

EVERYTHING = "everything"
LATENCY = "latency"
STORAGE = "storage"

_TOUCHES: Mapping[str, tuple[str, ...]] = {
    "overload": (LATENCY,),
    "unfinished": (LATENCY,),
    "late_arrivals": (LATENCY,),
    "event_loop_lag": (LATENCY,),
    "shed": (LATENCY,),
    "page_cache": (STORAGE,),
    "not_direct": (STORAGE,),
    "device_excess": (STORAGE,),
    "modelled_tier": (STORAGE,),
}
"""Which figures a warning puts in doubt; a code that is not listed touches all of them."""

GRAVE = (
    "simulated",
    "incomplete",
    "errors",
    "failed_requests",
    "modelled_tier",
    "client_bound",
    "incomplete_trials",
)
"""Doubts that are said above the figures."""


@dataclass(frozen=True, slots=True)
class Headline:
    """One row of the headline table."""

    name: str
    title: str
    unit: str
    about: str
    digits: int = 2
    factor: float = 1.0


HEADLINES = (
    Headline("avg_throughput_tokens_per_sec", "Throughput, wall clock", "tokens/s", "load"),
    Headline("storage_throughput_tokens_per_sec", "Throughput over storage I/O time", "tokens/s", "load"),
    Headline("decode_bytes_read_gb", "Decode bytes read", "GiB", STORAGE),
    Headline("tier_storage_read_bandwidth_gbps", "Storage read bandwidth", "GiB/s", STORAGE, 3),
    Headline("tier_storage_write_bandwidth_gbps", "Storage write bandwidth", "GiB/s", STORAGE, 3),
    Headline("end_to_end_latency_ms.p95", "End-to-end latency, p95", "ms", LATENCY),
    Headline("storage_io_latency_ms.p95", "Storage I/O per request, p95", "ms", LATENCY),
    Headline("storage_read_device_p95_ms", "Storage read in the device, p95", "ms", STORAGE),
    Headline("cache_hit_rate", "Cache hit rate", "%", "cache", 1, 100.0),
    Headline("requests_completed", "Requests completed", "requests", "load", 0),
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A headline figure of one result, ready to print."""

    value: str
    spread: str
    doubts: tuple[str, ...]
    """Codes of the warnings that touch this figure in particular."""


@dataclass(frozen=True, slots=True)
class HeadlineRow:
    title: str
    unit: str
    cells: tuple[Shown, ...]


def headline_rows(results: Sequence[Labelled]) -> list[HeadlineRow]:
    """The headline figures that at least one result has."""
    rows = []
    for headline in HEADLINES:
        cells = tuple(_shown(headline, item.result) for item in results)
        if any(cell.value != "not measured" for cell in cells):
            rows.append(HeadlineRow(headline.title, headline.unit, cells))
    return rows


def _metric(result: Mapping[str, Any], name: str) -> float | None:
    base, _, part = name.partition(".")
    value = result["metrics"].get(base, {}).get("value")
    return finite(value.get(part) if isinstance(value, Mapping) else value)


def _shown(headline: Headline, result: Mapping[str, Any]) -> Shown:
    statistics = _trials(result).get(headline.name)
    middle = finite(statistics.get("median")) if statistics else None
    value = _metric(result, headline.name) if middle is None else middle
    if value is None:
        return Shown("not measured", "", ())
    codes = tuple(
        item["code"] for item in result["warnings"] if headline.about in _TOUCHES.get(item["code"], ())
    )
    return Shown(number(value * headline.factor, headline.digits), _spread(headline, statistics), codes)


def _trials(result: Mapping[str, Any]) -> Mapping[str, Any]:
    trials = result.get("trials")
    metrics = trials.get("metrics") if isinstance(trials, Mapping) else None
    return metrics if isinstance(metrics, Mapping) else {}


def _spread(headline: Headline, statistics: Mapping[str, Any] | None) -> str:
    """The spread between trials, or that there is none to speak of."""
    if not statistics:
        return ""
    low, high, cv = (finite(statistics.get(key)) for key in ("ci95_low", "ci95_high", "cv"))
    if low is None or high is None:
        return "median of the trials"
    ends = " to ".join(number(end * headline.factor, headline.digits) for end in (low, high))
    spread = "" if cv is None else f", CV {cv:.1%}"
    return f"median; mean within {ends} (95 %){spread}"


def grave(result: Mapping[str, Any]) -> list[Mapping[str, str]]:
    return [item for item in result["warnings"] if item["code"] in GRAVE]
