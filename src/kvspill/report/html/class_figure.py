"""The figure of service classes of several results: the share within target, and the verdict on each."""

from collections.abc import Iterator, Sequence

from kvspill.report.html import specs
from kvspill.report.html.facts import Labelled
from kvspill.report.html.figure import Figure
from kvspill.report.html.labels import told_apart
from kvspill.report.html.specs import Spec
from kvspill.report.judged import JudgedClass, judged_classes
from kvspill.report.numbers import UNMEASURED
from kvspill.result.answer import promise_of
from kvspill.result.schema import Result
from kvspill.texts import counted, listed, significant

_LOOKS = {"met": specs.COLOURS[2], "missed": specs.COLOURS[4], "no verdict": specs.COLOURS[7]}
"""Green, red and grey; the label of a short bar without a verdict says so, too."""
_SHORT_BAR = 0.25
_SHORT = {"added": "added by queue and storage", "storage-ttft": "queue and cache to the first token"}


def classes(results: Sequence[Labelled]) -> Iterator[Figure]:
    """One row per class and result; beside one result's verdict stands a table of its classes."""
    if len(results) < 2:
        return
    short = told_apart([item.label for item in results])
    found = [
        (f"{judged.name}: {short[item.label]}", item, judged)
        for item in results
        for judged in judged_classes(item.result)
    ]
    if not found:
        return
    rows: list[Spec] = [
        {**specs.bar(row, judged.verdict, judged.within or 0.0), "label": _label(judged)}
        for row, _, judged in found
    ]
    none = [f"{judged.name} of {item.label}" for _, item, judged in found if judged.verdict == "no verdict"]
    answered = any(promise_of(item.result) for item in results)
    yield Figure(
        "classes",
        "Where a request's time goes",
        "Service classes",
        "Requests within their class's target; failed ones count as missed."
        + (" The classes of an answer are of all the windows that it rests on." if answered else "")
        + (f" Grey, without a verdict: {listed(none)}." if none else ""),
        specs.bars(
            rows,
            "requests within target",
            [row["row"] for row in rows],
            list(_LOOKS),
            share=True,
            looks=_LOOKS,
        ),
        ("class", "what is judged", "within target", "value ms", "target ms", "verdict"),
        [_cells(row, item.result, judged) for row, item, judged in found],
    )


def _label(judged: JudgedClass) -> str:
    if judged.within is None:
        return "no requests" if not judged.completed else judged.verdict
    share = f"{judged.within:.1%}"
    # The colour of a short bar is hardly seen, and beside a long one there is no room for words on a phone.
    return f"{share}, no verdict" if judged.verdict == "no verdict" and judged.within < _SHORT_BAR else share


def _cells(row: str, result: Result, judged: JudgedClass) -> tuple[str, ...]:
    within = UNMEASURED if judged.within is None else f"{judged.within:.1%}"
    actual = UNMEASURED if judged.actual_ms is None else significant(judged.actual_ms)
    target = "none" if judged.target_ms is None else f"{judged.target_ms:,g}"
    return (row, _what(result), within, actual, target, judged.verdict)


def _what(result: Result) -> str:
    """What is held against the target, and of how long a look."""
    promise = promise_of(result)
    if promise is None:
        return f"{_SHORT['added']}, p95"
    what = f"{_SHORT.get(promise['latency'], promise['latency'])}, p{promise['percentile']:g}"
    level, windows = promise.get("level"), promise.get("windows")
    parts = [counted(level, "user")] if isinstance(level, int) else []
    parts += [counted(windows, "window")] if isinstance(windows, int) else []
    return f"{what} ({', '.join(parts)})" if parts else what
