"""What a warning is: how grave, what it puts in doubt and spoils, what it says and advises."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kvspill.result.metrics.metric import Area
from kvspill.result.schema_honesty import Caution


class Severity(StrEnum):
    """How far a warning goes."""

    INVALID = "invalid"
    """The figures are not valid: something failed, or the run ended early."""
    SERIOUS = "serious"
    """The figures do not describe the devices under this load."""
    NOTE = "note"
    """The figures are valid; this information belongs with them."""


class Spoils(StrEnum):
    """What a result with a warning must not be used for."""

    RANK = "rank"
    COMPARISON = "comparison"
    SUBMISSION = "submission"
    ADVICE = "advice"
    CERTAINTY = "certainty"
    """Advice that rests on it is provisional."""


DEVICE = (Spoils.SUBMISSION, Spoils.ADVICE, Spoils.COMPARISON)
"""What figures of something else than the device are no good for."""
FAULT = (Spoils.RANK, *DEVICE)


EVERYTHING = tuple(Area)


NOTHING: tuple[Area, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """One warning. Message and remedy have places for the figures, as str.format knows them."""

    code: str
    """How programs and the page of warnings know it; what a person reads never has it alone."""
    title: str
    """What happened, in a few plain words."""
    message: str
    remedy: str
    severity: Severity = Severity.NOTE
    touches: tuple[Area, ...] = EVERYTHING
    spoils: tuple[Spoils, ...] = ()
    means: str = ""
    """What it means for advice that would rest on the run: a clause, where there is something to say."""
    is_fault: bool = False
    """True where only a faulty result has it (S13)."""

    def of(self, **figures: Any) -> Caution:
        """The warning with its figures."""
        return Caution(
            code=self.code,
            message=self.message.format(**figures),
            remedy=self.remedy.format(**figures),
            severity=self.severity.value,
            touches=[area.value for area in self.touches],
        )
