"""The console summary: prints a result's sections, readable at 80 columns and when piped."""

import io
import os
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 80
_WIDEST = 100


def render_summary(result: Mapping[str, Any], files: Sequence[str | os.PathLike[str]] = ()) -> str:
    """The summary as plain text, 80 columns wide."""
    from rich.console import Console

    text = io.StringIO()
    print_summary(result, files, console=Console(file=text, width=WIDTH, no_color=True, highlight=False))
    return text.getvalue()


def print_summary(
    result: Mapping[str, Any],
    files: Sequence[str | os.PathLike[str]] = (),
    *,
    file: IO[str] | None = None,
    console: "Console | None" = None,
) -> None:
    """Print the summary; colours only where the output is a terminal."""
    from rich.console import Console

    from kvspill.report.sections import sections

    if console is None:
        console = Console(file=file, highlight=False)
        console.width = min(console.width, _WIDEST) if console.is_terminal else WIDTH
    for part in sections(result):
        console.print(part)
    if files:
        console.print("\nFiles written:")
        for path in files:
            # Never wrapped, so that it can be copied out of a log.
            console.print(f"  {os.fspath(path)}", soft_wrap=True, markup=False)
