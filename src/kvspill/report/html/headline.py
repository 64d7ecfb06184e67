"""Headline figures: value, unit, spread over trials, and the doubts that touch each of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvspill.records import GIB, MIB
from kvspill.report.columns import of_no_storage
from kvspill.report.html.facts import Labelled
from kvspill.report.numbers import UNMEASURED
from kvspill.report.numbers import figure as number
from kvspill.result.metrics.catalog import shown_at
from kvspill.result.metrics.metric import Area, Figure, Place
from kvspill.result.ranking import faults_text
from kvspill.result.schema import Result, TrialStatistics
from kvspill.result.schema_honesty import Caution
from kvspill.result.warnings.devices import MODELLED_TIER
from kvspill.result.warnings.kind import EVERYTHING, Severity
from kvspill.result.warnings.known import kind_of
from kvspill.texts import duration, significant, size_text

HEADLINES = shown_at(Place.HEADLINE)


_SLOW = 0.1
"""Where no result has so many GiB/s of a bandwidth, MiB/s are shown."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A headline figure of one result, ready to print."""

    value: str
    spread: str
    sizes: str
    """Of the entries that a latency is of (S15)."""
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
        scale = scale_of(headline, results)
        cells = tuple(_shown(headline, item.result, scale) for item in results)
        if any(cell.value != UNMEASURED for cell in cells):
            rows.append(HeadlineRow(headline.title, scale.unit, cells))
    return rows


@dataclass(frozen=True, slots=True)
class Scale:
    """How the figures of one row are written: in one unit, so that they can be compared."""

    unit: str
    factor: float
    digits: int


def scale_of(headline: Figure, results: Sequence[Labelled]) -> Scale:
    """All bandwidths in MiB/s where one is slow: of GiB/s it would show one digit.

    Times have the unit that sentences give them.
    """
    unit = headline.metric.unit
    if unit == "ratio":
        return Scale("%", 100.0, headline.digits)
    if unit == "GiB/s" and any(_is_slow(each, results) for each in HEADLINES if each.metric.unit == unit):
        return Scale("MiB/s", GIB / MIB, 1)
    if unit == "GiB/s" and any(0 < value < _SLOW for value in _values(headline, results)):
        return Scale(unit, 1.0, headline.digits + 1)
    if unit == "ms" and _all_in_seconds(headline, results):
        return Scale("s", 0.001, headline.digits)
    return Scale(unit, 1.0, headline.digits)


def _values(headline: Figure, results: Sequence[Labelled]) -> list[float]:
    return [value for item in results if (value := value_of(item.result, headline)) is not None]


def _all_in_seconds(headline: Figure, results: Sequence[Labelled]) -> bool:
    values = _values(headline, results)
    return bool(values) and all(duration(value).endswith(" s") for value in values)


def _is_slow(headline: Figure, results: Sequence[Labelled]) -> bool:
    fastest = max(_values(headline, results), default=0.0)
    return 0 < fastest < _SLOW


def value_of(result: Result, figure: Figure) -> float | None:
    """A figure of a result, None where it was not measured."""
    if of_no_storage(figure.title, result):
        return None
    if figure.stat:
        return (result.statistics(figure.name) or {}).get(figure.stat)
    return result.number(figure.name)


def _shown(headline: Figure, result: Result, scale: Scale) -> Shown:
    statistics = None if result.trials is None else result.trials.metrics.get(headline.key)
    value = value_of(result, headline) if statistics is None else statistics.median
    if value is None or (statistics is not None and of_no_storage(headline.title, result)):
        return Shown(UNMEASURED, "", "", ())
    codes = dict.fromkeys(item.code for item in result.warnings if _touched(headline, item, result))
    sizes, spread = _entry_size(headline, result), _spread(scale, statistics)
    return Shown(text_of(scale, value), spread, sizes, tuple(codes))


def _entry_size(headline: Figure, result: Result) -> str:
    """The sizes that a latency of whole entries is of (S15)."""
    name = headline.name.partition("_device_")[0]
    sizes = [result.number(f"{name}_entry_{size}_bytes") for size in ("p50", "p95")]
    if None in sizes:
        return ""
    return "entries of {}, p95 {}".format(*(size_text(nbytes or 0) for nbytes in sizes))


def _touched(headline: Figure, warning: Caution, result: Result) -> bool:
    """Whether a warning is about this figure in particular: one about all of them stands beside the table."""
    if warning.chosen:
        return False
    if warning.code == MODELLED_TIER.code:
        return _modelled(headline, result)
    touches = kind_of(warning.code).touches
    return touches != EVERYTHING and any(area in touches for area in headline.metric.about)


def doubts_of_all(result: Result) -> tuple[str, ...]:
    """Codes that touch every figure: shown once beside them all, or nobody would read the particular ones."""
    codes = dict.fromkeys(item.code for item in result.warnings if not item.chosen)
    return tuple(code for code in codes if kind_of(code).touches == EVERYTHING)


def _modelled(headline: Figure, result: Result) -> bool:
    """Whether times of a model entered this figure: a request's come from every tier that served it."""
    served = {tier.tier for tier in result.tiers if tier.modelled and _moved_bytes(result, tier.tier)}
    if headline.metric.about == (Area.STORAGE,):
        return Area.STORAGE.value in served
    return headline.metric.about != (Area.CACHE,) and bool(served)


def _moved_bytes(result: Result, tier: str) -> bool:
    """A tier that says nothing of its bytes may have moved some."""
    moved = [result.number(f"tier_{tier}_kv_bytes_{word}_gb") for word in ("read", "written")]
    return None in moved or any(moved)


def text_of(scale: Scale, value: float) -> str:
    """Latencies with the digits that their histograms have, other figures with those they need."""
    scaled = value * scale.factor
    return significant(scaled) if scale.unit in ("ms", "s") else number(scaled, scale.digits)


def _spread(scale: Scale, statistics: TrialStatistics | None) -> str:
    """The spread between trials, or that there is none to speak of."""
    if statistics is None:
        return ""
    low, high, cv = statistics.ci95_low, statistics.ci95_high, statistics.cv
    if low is None or high is None:
        return "median of the trials"
    ends = " to ".join(text_of(scale, end) for end in (low, high))
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
    """Faults first (S13), then what else is grave."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for item in results:
        faults = faults_text(item.result)
        if faults is not None:
            found.setdefault(("faulty", f"{faults}.", _FAULTY), []).append(item.label)
    for item in results:
        for warning in item.result.warnings:
            if kind_of(warning.code).severity is not Severity.NOTE:
                key = (warning.code, warning.message, warning.remedy)
                found.setdefault(key, []).append(item.label)
    return [Banner(*key, named(labels, len(results))) for key, labels in found.items()]


_FAULTY = "A faulty result is not ranked: find the cause and run it again."


def named(labels: Sequence[str], count: int) -> str:
    """Which of the results, in words; empty where there is only one."""
    names = list(dict.fromkeys(labels))
    if count == 1:
        return ""
    everybody = "both results" if count == 2 else f"all {count} results"
    return everybody if len(names) == count else ", ".join(names)
