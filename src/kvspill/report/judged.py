"""The storage assessment as rows and counts, which the console and the page show alike."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kvspill.report.numbers import UNMEASURED, number
from kvspill.result.answer import in_memory
from kvspill.result.assessment import NO_TARGET, NOT_MEASURED
from kvspill.result.schema import Criterion, Result, StorageHealth
from kvspill.texts import significant


class JudgedCriterion(NamedTuple):
    """One criterion: what was asked and what came out."""

    name: str
    actual: str
    target: str
    passed: bool | None
    modelled: bool


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
    """Without the kind of drive that the seeds had in mind: nobody knows that it is one."""
    return name.replace("NVMe", "Storage")


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
