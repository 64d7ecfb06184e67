"""The line that every summary of a run begins with."""

from rich.text import Text

from kvspill.result.answer import Answer, Status
from kvspill.texts import one_line

_STYLES = {
    Status.YES: "bold green",
    Status.FOUND: "bold green",
    Status.NO: "bold red",
    Status.INVALID: "bold red",
    Status.UNDECIDED: "bold yellow",
}


def verdict_line(found: Answer) -> Text:
    """The verdict in its colour."""
    return Text(one_line(found.line), style=_STYLES[found.status])
