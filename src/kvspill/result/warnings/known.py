"""All warnings by their codes, whatever their topic."""

from collections.abc import Collection, Iterable

from kvspill.result.schema_honesty import Caution
from kvspill.result.warnings import certainty, devices, faults, loads, settings
from kvspill.result.warnings.kind import Kind, Severity, Spoils

_TOPICS = (faults, devices, loads, certainty, settings)
KINDS = {kind.code: kind for topic in _TOPICS for kind in vars(topic).values() if isinstance(kind, Kind)}
"""Topic by topic, what failed first."""
GRAVE: dict[str, str] = {
    Severity.INVALID: "Invalid",
    Severity.SERIOUS: "Serious",
    Severity.NOTE: "Bear in mind",
}
"""How a person reads a severity."""


def kind_of(code: str) -> Kind:
    """What is known of a code; one that only a plug-in or a newer version knows is a note on everything."""
    return KINDS.get(code) or Kind(code, code.replace("_", " "), "{message}", "{remedy}")


def said(item: Caution) -> str:
    """As a person reads it: how grave it is, then what happened."""
    return f"{GRAVE.get(item.severity, GRAVE[Severity.NOTE])}: {item.message}"


def titles(items: Iterable[Caution | str]) -> str:
    """What happened, each in a few plain words, by warnings or by codes."""
    codes = (item if isinstance(item, str) else item.code for item in items)
    return "; ".join(dict.fromkeys(kind_of(code).title for code in codes))


def noted(code: str, message: str, remedy: str) -> Caution:
    """A warning whose words come from elsewhere, such as a backend or an older file."""
    kind = kind_of(code)
    return Caution(
        code=code,
        message=message,
        remedy=remedy,
        severity=kind.severity.value,
        touches=[area.value for area in kind.touches],
    )


def that_spoil(use: Spoils, codes: Collection[str]) -> list[Kind]:
    """Which of these warnings spoil that use."""
    return [kind for kind in KINDS.values() if use in kind.spoils and kind.code in codes]
