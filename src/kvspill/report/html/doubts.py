"""The warnings of a page, folded by how grave they are: each said once, with the results that have it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kvspill.report.html.facts import Labelled
from kvspill.report.html.headline import named
from kvspill.result.chosen import chosen_note
from kvspill.result.warnings.kind import Severity
from kvspill.result.warnings.known import kind_of

_TITLES = {
    Severity.INVALID: "Invalid: these figures are not valid",
    Severity.SERIOUS: "Serious: the figures do not describe the devices under this load",
    Severity.NOTE: "Bear in mind: information that belongs with the figures",
}


@dataclass(frozen=True, slots=True)
class Doubt:
    """One warning, and the anchors that the badges of each result lead to."""

    code: str
    message: str
    remedy: str
    labels: str
    anchors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fold:
    """The warnings of one severity."""

    severity: str
    title: str
    doubts: Sequence[Doubt]
    is_open: bool
    """What is grave is read without a click, but not twice on one page."""


def folds(results: Sequence[Labelled], above: Collection[tuple[str, str]] = ()) -> list[Fold]:
    """All warnings of all results, the gravest first; a severity without any is left out.

    What a command chose itself is no warning: `plain_notes` says it. above: codes and messages that stand
    in full above the figures.
    """
    found: dict[tuple[str, str, str], list[int]] = {}
    for number, item in enumerate(results):
        for warning in (each for each in item.result.warnings if not each.chosen):
            found.setdefault((warning.code, warning.message, warning.remedy), []).append(number)
    anchored: set[str] = set()
    doubts: dict[Severity, list[Doubt]] = {severity: [] for severity in _TITLES}
    for (code, message, remedy), numbers in found.items():
        # An anchor is there once: it leads to the first warning of that code of that result.
        anchors = [name for name in (f"doubt-{n}-{code}" for n in numbers) if name not in anchored]
        anchored.update(anchors)
        labels = named([results[n].label for n in numbers], len(results))
        doubts[kind_of(code).severity].append(
            Doubt(code, message, remedy, labels, tuple(dict.fromkeys(anchors)))
        )
    return [
        Fold(
            severity.value,
            _TITLES[severity],
            rows,
            severity is not Severity.NOTE and any((row.code, row.message) not in above for row in rows),
        )
        for severity, rows in doubts.items()
        if rows
    ]


def plain_notes(results: Sequence[Labelled]) -> list[tuple[str, str]]:
    """What the commands chose themselves, each sentence once, with the results that it is of."""
    found: dict[str, list[str]] = {}
    for item in results:
        if note := chosen_note(item.result):
            found.setdefault(note, []).append(item.label)
    return [(named(labels, len(results)), note) for note, labels in found.items()]
