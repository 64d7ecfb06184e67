"""What a command chose itself, such as the 30 s of quick: no warning to its user, but one plain note."""

from collections.abc import Collection

from kvspill.result.answer import Status
from kvspill.result.schema import Result
from kvspill.result.warnings.certainty import FEW_TRIALS, NOT_STEADY, STAGE_NOT_SETTLED, TOO_SHORT
from kvspill.result.warnings.devices import CAPACITY_BOUND
from kvspill.result.warnings.loads import HALF_DONE, UNFINISHED
from kvspill.texts import listed

_LONGER = "--duration 300"
_UNSEEN = {
    TOO_SHORT.code: ("whether its rates were steady", _LONGER),
    HALF_DONE.code: ("rates that do not hang on when it ended", _LONGER),
    STAGE_NOT_SETTLED.code: ("whether the load before it still shows", _LONGER),
    UNFINISHED.code: ("how long its last requests would wait", _LONGER),
    CAPACITY_BOUND.code: ("what a larger storage tier would keep", "a larger --storage-capacity-gb"),
    FEW_TRIALS.code: ("how far the next run would differ", "--trials 3"),
}
"""What a look that has such a warning does not show, and what shows it, in the order of a sentence."""


def with_chosen(result: Result, codes: Collection[str]) -> Result:
    """The same result, in which warnings of these codes are marked as the command's own choice."""
    marked = [
        item.model_copy(update={"chosen": True}) if item.code in codes else item for item in result.warnings
    ]
    return result.model_copy(update={"warnings": marked})


def chosen_note(result: Result) -> str:
    """What so short a look shows and can't show, in one sentence; empty where the command chose nothing."""
    codes = {item.code for item in result.warnings if item.chosen}
    found = dict(pair for code, pair in _UNSEEN.items() if code in codes)
    seconds = f"{result.window.measured_seconds:,.0f} s"
    parts, helps = [], f"{_LONGER} tells whether they become so"
    if NOT_STEADY.code in codes:
        # It did see that: in the words of what was checked.
        parts.append(f"The rates of the {seconds} measured were not steady")
    if found:
        look = "so short a look" if parts else f"A measurement of {seconds}"
        parts.append(f"{look} can't show {listed(list(found), 'or')}")
        helps = f"{listed(list(dict.fromkeys(found.values())))} would"
    if not parts:
        return ""
    said = ", and ".join(parts)
    if result.question is not None:
        is_answered = result.question.answer in (Status.YES, Status.NO)
        return f"{said}{'; the answer does not rest on that' if is_answered else ''}."
    return f"{said}; {helps}."
