"""The console summary: prints a result's sections, readable at 80 columns and when piped."""

import io
import os
import sys
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

from kvspill.result.schema import Result
from kvspill.texts import make_console, one_line

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 80
_WIDEST = 100
Paths = Sequence[str | os.PathLike[str]]


def render_summary(result: Result, files: Paths = ()) -> str:
    """The summary as plain text: 80 columns, no colours, no trailing blanks."""
    text = io.StringIO()
    _print(make_console(text, width=WIDTH, no_color=True), result, files)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def print_summary(result: Result, files: Paths = (), *, file: IO[str] | None = None) -> None:
    """Print the summary, in colours where the output is a terminal and as plain text elsewhere."""
    console = make_console(file or sys.stdout)
    if not console.is_terminal:
        console.file.write(render_summary(result, files))
        return
    console.width = min(console.width, _WIDEST)
    _print(console, result, files)


def _print(console: "Console", result: Result, files: Paths) -> None:
    from kvspill.report.sections import sections

    for part in sections(result):
        console.print(part)
    if files:
        console.print("\nFiles written:")
        for path in files:
            # Never wrapped, so that it can be copied out of a log.
            console.print(f"  {one_line(os.fspath(path))}", soft_wrap=True, markup=False)
