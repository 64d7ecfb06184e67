"""Headline figures: value, unit, spread over trials, and the doubts that touch each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvspill.report.columns import finite
from kvspill.report.compare.render import figure as number
from kvspill.report.compare.render import significant
from kvspill.report.html.facts import Labelled, cache_stat

LOAD = "load"
LATENCY = "latency"
STORAGE = "storage"
CACHE = "cache"

_TOUCHES: Mapping[str, tuple[str, ...]] = {
    "overload": (LATENCY,),
    "unfinished": (LATENCY,),
    "half_done": (LOAD,),
    "late_arrivals": (LATENCY,),
    "event_loop_lag": (LATENCY,),
    "shed": (LATENCY,),
    "priority_inversion": (LATENCY,),
    "no_verdict": (LATENCY,),
    "page_cache": (STORAGE,),
    "not_written": (STORAGE,),
    "not_direct": (STORAGE,),
    "device_excess": (STORAGE,),
    "memory_directory": (STORAGE,),
    "io_engine": (STORAGE,),
    "ignored_keys": (),
    "unused_setting": (),
    "left_behind": (),
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
    "autoscaling_inconclusive",
)
"""Doubts that are said above the figures."""


@dataclass(frozen=True, slots=True)
class Headline:
    """One row of the headline table."""

    name: str
    title: str
    unit: str
    about: tuple[str, ...]
    digits: int = 2
    factor: float = 1.0

    def text(self, value: float) -> str:
        """Latencies with the digits that their histograms have, other figures with those they need."""
        return significant(value) if self.unit == "ms" else number(value * self.factor, self.digits)


HEADLINES = (
    Headline("avg_throughput_tokens_per_sec", "Throughput, wall clock", "tokens/s", (LOAD,)),
    Headline(
        "storage_throughput_tokens_per_sec", "Throughput over storage I/O time", "tokens/s", (LOAD, STORAGE)
    ),
    Headline("decode_bytes_read_gb", "Decode bytes read", "GiB", (STORAGE,)),
    Headline("tier_storage_read_bandwidth_gbps", "Storage read bandwidth", "GiB/s", (STORAGE,), 3),
    Headline("tier_storage_write_bandwidth_gbps", "Storage write bandwidth", "GiB/s", (STORAGE,), 3),
    Headline("end_to_end_latency_ms.p95", "End-to-end latency, p95", "ms", (LATENCY,)),
    Headline("storage_io_latency_ms.p95", "Storage I/O per request, p95", "ms", (LATENCY, STORAGE)),
    Headline("storage_read_device_p95_ms", "Storage read in the device, p95", "ms", (STORAGE,)),
    Headline("cache_hit_rate", "Cache hit rate", "%", (CACHE,), 1, 100.0),
    Headline("requests_completed", "Requests completed", "requests", (LOAD,), 0),
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
    codes = dict.fromkeys(
        item["code"] for item in result["warnings"] if _touched(headline, item["code"], result)
    )
    return Shown(headline.text(value), _spread(headline, statistics), tuple(codes))


def _touched(headline: Headline, code: str, result: Mapping[str, Any]) -> bool:
    if code == "modelled_tier":
        return _modelled(headline, result)
    return any(about in _TOUCHES.get(code, ()) for about in headline.about)


def doubts_of_all(result: Mapping[str, Any]) -> tuple[str, ...]:
    """Codes that touch every figure: shown once beside them all, or nobody would read the particular ones."""
    codes = dict.fromkeys(item["code"] for item in result["warnings"])
    return tuple(code for code in codes if code not in _TOUCHES and code != "modelled_tier")


def _modelled(headline: Headline, result: Mapping[str, Any]) -> bool:
    """Whether times of a model entered this figure: a request's come from every tier that served it."""
    served = {
        tier["tier"] for tier in result["tiers"] if tier["modelled"] and _moved_bytes(result, tier["tier"])
    }
    if headline.about == (STORAGE,):
        return STORAGE in served
    return headline.about != (CACHE,) and bool(served)


def _moved_bytes(result: Mapping[str, Any], tier: str) -> bool:
    """A tier that says nothing of its bytes may have moved some."""
    moved = [cache_stat(result, f"tier_{tier}_kv_bytes_{word}_gb") for word in ("read", "written")]
    return None in moved or any(moved)


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
    ends = " to ".join(headline.text(end) for end in (low, high))
    spread = "" if cv is None else f", CV {cv:.1%}"
    return f"median; mean within {ends} (95 %){spread}"


@dataclass(frozen=True, slots=True)
class Banner:
    """A doubt that is said above the figures, once for all results that share it."""

    code: str
    message: str
    remedy: str
    labels: str


def banners(results: Sequence[Labelled]) -> list[Banner]:
    found: dict[tuple[str, str, str], list[str]] = {}
    for item in results:
        for warning in item.result["warnings"]:
            if warning["code"] in GRAVE:
                key = (warning["code"], warning["message"], warning["remedy"])
                found.setdefault(key, []).append(item.label)
    return [Banner(*key, _named(labels, len(results))) for key, labels in found.items()]


def _named(labels: Sequence[str], count: int) -> str:
    names = list(dict.fromkeys(labels))
    if count == 1:
        return ""
    return f"all {count} results" if len(names) == count else ", ".join(names)
