"""The gate of a comparison: is B slower than A by more than a limit allows, and can that be told?"""

from kvspill.errors import CriteriaMissed, UsageError
from kvspill.report.compare.comparison import Comparison, Line, speed_of
from kvspill.report.compare.ratios import CANNOT_TELL, NO_RANK, WORSE


def check_gate(found: Comparison, limit: float) -> str:
    """One line on what was judged; raises where B is slower, or where nothing can be said.

    Only a difference that the spread of the runs can't explain counts as slower.
    """
    lines = [line for line in found.lines if line.metric in found.primary]
    if not lines:
        raise UsageError("--fail-if-slower has no metric that both sides report; name one with --metric")
    if any(line.verdict == NO_RANK for line in lines):
        raise UsageError(
            "--fail-if-slower cannot judge: a result is faulty or was crowded and is not ranked; run it again"
        )
    untold = [line.title for line in lines if line.verdict == CANNOT_TELL]
    if untold:
        raise UsageError(
            f"--fail-if-slower cannot tell by {', '.join(untold)}: the spread between runs is unknown; "
            "give two or more runs a side"
        )
    slower = [line for line in lines if line.verdict == WORSE and _speed(line) < 1 - limit]
    if slower:
        raise CriteriaMissed(f"B is slower than A by more than {100 * limit:g} %: {_named(slower)}")
    text = f"B is not shown to be slower than A by more than {100 * limit:g} %: {_named(lines)}"
    wide = [line.title for line in lines if _slowest_speed(line) < 1 - limit]
    return text + (
        f"; the spread leaves room for it in {', '.join(wide)}: more runs would tell" if wide else ""
    )


def _named(lines: list[Line]) -> str:
    return ", ".join(
        f"{line.title} {'from nothing' if line.ratio is None else f'{_speed(line) - 1:+.1%}'}"
        for line in lines
    )


def _speed(line: Line) -> float:
    return 1.0 if line.ratio is None else speed_of(line, line.ratio.value)


def _slowest_speed(line: Line) -> float:
    """The interval's end on the slow side."""
    if line.ratio is None or line.ratio.low is None or line.ratio.high is None:
        return _speed(line)
    return min(speed_of(line, line.ratio.low), speed_of(line, line.ratio.high))
