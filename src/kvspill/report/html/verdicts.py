"""The verdict of a result as the page shows it: the answer, the criteria and the service classes."""

from collections.abc import Iterator
from dataclasses import dataclass

from kvspill.report.html.prose import search_sentence, trials_sentence
from kvspill.report.judged import (
    criterion_name,
    judged_classes,
    judged_criteria,
    judges,
    met_text,
)
from kvspill.report.numbers import UNMEASURED
from kvspill.report.unused import unused_storage
from kvspill.result.answer import Status, answer, in_memory, missed_in_search, promise_of, seen_with
from kvspill.result.assessment import FAIL, PASS
from kvspill.result.classes import LATENCIES
from kvspill.result.link import link_sentence
from kvspill.result.schema import Result
from kvspill.texts import counted, duration, target_time

MET, MISSED, OPEN = "met", "missed", "open"
_STATES = {
    **{Status.YES: MET, Status.FOUND: MET, Status.NO: MISSED, Status.INVALID: MISSED},
    Status.UNDECIDED: OPEN,
}
_STATE_OF = {"met": MET, "missed": MISSED}
"""A class without a verdict is open."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One criterion or class: what was asked and what came out."""

    name: str
    actual: str
    target: str
    state: str
    """met, missed or open: not judged."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What stands at the top of a page."""

    state: str
    headline: str
    lines: tuple[tuple[str, str], ...]
    """What each sentence answers, and the sentence."""
    assessment: str
    criteria: tuple[Judged, ...]
    classes: tuple[Judged, ...]
    classes_title: str = ""


def verdict_of(result: Result, of_suite: bool = False) -> Verdict:
    """The answer of a result with all that it rests on; a suite has flags of its own for a longer run."""
    if result.schema_version == 0:
        program = (result.environment or {}).get("program")
        return Verdict(
            OPEN, f"Figures of {program}, as it wrote them; kvspill has no verdict on them.", (), "", (), ()
        )
    found = answer(result)
    lines = [("", search_sentence(result)), ("", trials_sentence(result))]
    if result.requests_completed:
        link = ("GPU link", link_sentence(result) or "")
        helps = "" if found.status is Status.YES else found.helps
        lines = [(f"Bottleneck{seen_with(result)}", found.because), ("What would help", helps), link, *lines]
    reasons = [unused_storage(result)] if result.question is None else result.question.reasons
    lines = [*(("", reason) for reason in reasons), *lines]
    state = _STATES[found.status]
    if found.status is Status.FOUND and missed_in_search(result):
        state = OPEN
    return Verdict(
        state=state,
        headline=found.verdict if of_suite else found.line,
        lines=tuple((name, text) for name, text in lines if text),
        assessment=_assessment(result),
        criteria=tuple(_criteria(result)),
        classes=tuple(_classes(result)),
        classes_title=_classes_title(result),
    )


def _assessment(result: Result) -> str:
    health = result.summary.storage_health
    if health is None:
        return ""
    met = met_text(health)
    if in_memory(result):
        return f"No storage assessment: the directory lies in memory, not on a drive ({met})"
    stage = result.window.users if result.autoscaling_stats else None
    at = "" if stage is None else f", with {counted(stage, 'user')}"
    if result.question is not None:
        return f"Storage criteria{at}, not the answer to the question: {met}"
    judged = f"{health.overall_status} ({met}, {health.performance_profile} profile)"
    scope = f"; {judges(health)}" if health.overall_status in (PASS, FAIL) else ""
    return f"Storage assessment{at}: {judged}{scope}"


def _criteria(result: Result) -> Iterator[Judged]:
    for item in judged_criteria(result):
        note = "modelled" if item.modelled and not result.simulated else ""
        yield Judged(criterion_name(item.name), item.actual, item.target, _state(item.passed), note)


def _state(passed: bool | None) -> str:
    return OPEN if passed is None else MET if passed else MISSED


def _classes_title(result: Result) -> str:
    promise = promise_of(result)
    if promise is not None:
        latency = LATENCIES.get(promise["latency"], promise["latency"])
        what = f"Service classes: {latency}, p{promise['percentile']:g}"
        windows = f" in {counted(promise['windows'], 'window')}" if "windows" in promise else ""
        if isinstance(promise.get("level"), int):
            return f"{what}, with {counted(promise['level'], 'user')}{windows}"
        return f"{what}, as the search keeps it{windows}"
    beside = "; not what the search was for" if result.autoscaling_stats else ""
    return f"Service classes: what queue and storage add, p95{beside}"


def _classes(result: Result) -> Iterator[Judged]:
    """Service classes that had requests, and those that the answer is about."""
    is_own = promise_of(result) is None
    for item in judged_classes(result):
        note = counted(item.completed, "request")
        if is_own and item.within is not None:
            note += f", {item.within:.1%} within the target"
        actual, target = _times(item.actual_ms, item.target_ms)
        yield Judged(item.name, actual, target, _STATE_OF.get(item.verdict, OPEN), _note(note, item.left))


def _times(actual_ms: float | None, target_ms: float | None) -> tuple[str, str]:
    """As the sentences above have them."""
    actual = UNMEASURED if actual_ms is None else duration(actual_ms)
    return actual, "none" if target_ms is None else target_time(target_ms)


def _note(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
