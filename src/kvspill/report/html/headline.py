"""Headline figures: value, unit, spread over trials, and the doubts that touch each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvspill.report.columns import finite
from kvspill.report.html.facts import Labelled, cache_stat
from kvspill.report.numbers import figure as number
from kvspill.report.numbers import significant
from kvspill.result.catalog import shown_at
from kvspill.result.cautions import EVERYTHING, MODELLED_TIER, Severity, kind_of
from kvspill.result.metrics import Area, Figure, Place

HEADLINES = shown_at(Place.HEADLINE)


def _text(figure: Figure, value: float) -> str:
    """Latencies with the digits that their histograms have, other figures with those they need."""
    if figure.metric.unit == "ms":
        return significant(value)
    return number(value * (100.0 if figure.metric.unit == "ratio" else 1.0), figure.digits)


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
            unit = headline.metric.unit
            rows.append(HeadlineRow(headline.title, "%" if unit == "ratio" else unit, cells))
    return rows


def _metric(result: Mapping[str, Any], figure: Figure) -> float | None:
    value = result["metrics"].get(figure.name, {}).get("value")
    return finite(value.get(figure.stat) if isinstance(value, Mapping) else value)


def _shown(headline: Figure, result: Mapping[str, Any]) -> Shown:
    statistics = _trials(result).get(headline.key)
    middle = finite(statistics.get("median")) if statistics else None
    value = _metric(result, headline) if middle is None else middle
    if value is None:
        return Shown("not measured", "", ())
    codes = dict.fromkeys(item["code"] for item in result["warnings"] if _touched(headline, item, result))
    return Shown(_text(headline, value), _spread(headline, statistics), tuple(codes))


def _touched(headline: Figure, warning: Mapping[str, Any], result: Mapping[str, Any]) -> bool:
    """Whether a warning is about this figure in particular: one about all of them stands beside the table."""
    if warning["code"] == MODELLED_TIER.code:
        return _modelled(headline, result)
    touches = kind_of(warning["code"]).touches
    return touches != EVERYTHING and any(area in touches for area in headline.metric.about)


def doubts_of_all(result: Mapping[str, Any]) -> tuple[str, ...]:
    """Codes that touch every figure: shown once beside them all, or nobody would read the particular ones."""
    codes = dict.fromkeys(item["code"] for item in result["warnings"])
    return tuple(code for code in codes if kind_of(code).touches == EVERYTHING)


def _modelled(headline: Figure, result: Mapping[str, Any]) -> bool:
    """Whether times of a model entered this figure: a request's come from every tier that served it."""
    served = {
        tier["tier"] for tier in result["tiers"] if tier["modelled"] and _moved_bytes(result, tier["tier"])
    }
    if headline.metric.about == (Area.STORAGE,):
        return Area.STORAGE.value in served
    return headline.metric.about != (Area.CACHE,) and bool(served)


def _moved_bytes(result: Mapping[str, Any], tier: str) -> bool:
    """A tier that says nothing of its bytes may have moved some."""
    moved = [cache_stat(result, f"tier_{tier}_kv_bytes_{word}_gb") for word in ("read", "written")]
    return None in moved or any(moved)


def _trials(result: Mapping[str, Any]) -> Mapping[str, Any]:
    trials = result.get("trials")
    metrics = trials.get("metrics") if isinstance(trials, Mapping) else None
    return metrics if isinstance(metrics, Mapping) else {}


def _spread(headline: Figure, statistics: Mapping[str, Any] | None) -> str:
    """The spread between trials, or that there is none to speak of."""
    if not statistics:
        return ""
    low, high, cv = (finite(statistics.get(key)) for key in ("ci95_low", "ci95_high", "cv"))
    if low is None or high is None:
        return "median of the trials"
    ends = " to ".join(_text(headline, end) for end in (low, high))
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
            if kind_of(warning["code"]).severity is not Severity.NOTE:
                key = (warning["code"], warning["message"], warning["remedy"])
                found.setdefault(key, []).append(item.label)
    return [Banner(*key, _named(labels, len(results))) for key, labels in found.items()]


def _named(labels: Sequence[str], count: int) -> str:
    names = list(dict.fromkeys(labels))
    if count == 1:
        return ""
    return f"all {count} results" if len(names) == count else ", ".join(names)
