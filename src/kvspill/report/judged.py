"""The storage assessment and the service classes as rows, which the console and the page show alike."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from kvspill.report.numbers import UNMEASURED, number
from kvspill.result.answer import Status, in_memory, promise_of
from kvspill.result.assessment import NO_TARGET, NOT_MEASURED
from kvspill.result.classes import left_of, promised_completed, promised_left, promised_verdict
from kvspill.result.schema import Criterion, QosClass, Result, StorageHealth
from kvspill.texts import significant


class JudgedCriterion(NamedTuple):
    """One criterion: what was asked and what came out."""

    name: str
    actual: str
    target: str
    passed: bool | None
    modelled: bool


class JudgedClass(NamedTuple):
    """One service class: what it was held to and what came of it."""

    name: str
    actual_ms: float | None
    target_ms: float | None
    completed: int
    """The requests that the percentile is of."""
    within: float | None
    """Share of the requests that are known to have kept the target or not."""
    verdict: str
    """met, missed or no verdict."""
    left: str
    """Those that failed or still waited, in words."""


def judged_classes(result: Result) -> Iterator[JudgedClass]:
    """The classes as the answer judges them: by what a search promises, or by their own targets (S11)."""
    promise = promise_of(result)
    if promise is None:
        entries = result.summary.qos_metrics.items()
        yield from (_own(name, entry, result) for name, entry in entries if _was_asked(entry))
        return
    asked = result.question
    is_no = asked is not None and asked.answer == Status.NO.value
    for name, row in promise["classes"].items():
        verdict = promised_verdict(row, float(promise["percentile"]), is_no)
        late, known = int(row.get("violations") or 0), int(row.get("requests") or 0)
        yield JudgedClass(
            name=name,
            actual_ms=row.get("actual_ms"),
            target_ms=row.get("target_ms"),
            completed=promised_completed(row),
            within=1 - late / known if known and "violations" in row else None,
            verdict=shown_verdict(result, verdict),
            left=promised_left(row) or _late(row, verdict),
        )


def _was_asked(entry: QosClass) -> bool:
    return bool(entry.total_requests or entry.unfinished_requests or entry.sla is not None)


def _own(name: str, entry: QosClass, result: Result) -> JudgedClass:
    sla = entry.sla
    if sla is None:
        return JudgedClass(name, None, None, entry.total_requests, None, "no verdict", left_of(entry))
    return JudgedClass(
        name=name,
        actual_ms=sla.added_p95_ms,
        target_ms=sla.target_p95_ms,
        completed=entry.total_requests,
        within=sla.compliance,
        verdict=shown_verdict(result, sla.verdict),
        left=left_of(entry),
    )


def _late(row: Mapping[str, Any], verdict: str) -> str:
    """What a class misses its target by that has too few requests for a percentile; else empty."""
    few = row.get("verdict") == "no verdict" and verdict == "missed"
    return f"{row['violations']:,} of {row['requests']:,} late" if few else ""


def judged_criteria(result: Result) -> Iterator[JudgedCriterion]:
    """The criteria that hold for this result."""
    health = result.summary.storage_health
    for item in () if health is None else health.criteria:
        if in_memory(result) and _of_storage(item):
            continue
        actual = _value(item, item.actual, _measured, UNMEASURED)
        target = _value(item, item.target, _given, "none")
        # Tiers have latencies of whole operations, too: the same name must not stand for two figures.
        inside = " in the device" if "_device_" in item.metric and item.actual is not None else ""
        yield JudgedCriterion(item.name, actual + inside, target, item.passed, item.modelled)


def criterion_name(name: str) -> str:
    """Without the kind of drive that the seeds had in mind, and memory by the name that it has elsewhere."""
    return name.replace("NVMe", "Storage").replace("CPU RAM", "DRAM")


def shown_verdict(result: Result, verdict: str) -> str:
    """The verdict of a service class; none beside "the run ended early"."""
    return "no verdict" if result.incomplete else verdict


def judges(health: StorageHealth) -> str:
    """Whose criteria they are and what they judge: beside the answer nobody should take them for another."""
    what = "the device" if health.performance_profile == "latency" else "throughput"
    return f"the proposal's criteria judge {what}, not these users"


def met_text(health: StorageHealth) -> str:
    """How many criteria were met."""
    if health.overall_status == NO_TARGET:
        return "give --min-tokens-per-sec to have one"
    judged = any(row.passed is not None for row in health.criteria if _of_storage(row))
    none = health.overall_status == NOT_MEASURED and not judged and health.performance_profile != "throughput"
    counts = f"{health.passed_count} of {health.total_count} criteria met"
    return f"{counts}, none of storage" if none else counts


def _of_storage(criterion: Criterion) -> bool:
    return criterion.metric.startswith("storage_")


def _value(item: Criterion, value: float | None, text: Callable[[float, str], str], without: str) -> str:
    if value is None:
        return without
    if item.unit == "ratio":
        return f"{100 * value:.10g}%" if text is _given else f"{value:.1%}"
    return text(value, f" {item.unit}")


def _measured(value: float, unit: str) -> str:
    return f"{significant(value)}{unit}" if unit == " ms" else number(value, unit)


def _given(value: float, unit: str) -> str:
    """A target has the digits that it was given with."""
    return f"{value:,.10g}{unit}"
