"""The console summary: short by default, every section where asked; 80 columns, readable when piped."""

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


def render_summary(result: Result, files: Paths = (), *, verbose: bool = True) -> str:
    """The summary as plain text: 80 columns, no colours, no trailing blanks."""
    text = io.StringIO()
    _print(make_console(text, width=WIDTH, no_color=True), result, files, verbose)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def print_summary(
    result: Result, files: Paths = (), *, file: IO[str] | None = None, verbose: bool = False
) -> None:
    """Print the summary, in colours where the output is a terminal and as plain text elsewhere."""
    console = make_console(file or sys.stdout)
    if not console.is_terminal:
        console.file.write(render_summary(result, files, verbose=verbose))
        return
    console.width = min(console.width, _WIDEST)
    _print(console, result, files, verbose)


def _print(console: "Console", result: Result, files: Paths, verbose: bool) -> None:
    if verbose:
        from kvspill.report.sections import sections as parts
    else:
        from kvspill.report.short import short_summary as parts
    for part in parts(result):
        console.print(part)
    if files:
        console.print("\nFiles written:" if verbose else "All figures (--verbose prints them):")
        for number, path in enumerate(files):
            if number == 1 and not verbose:
                console.print("Also written:")
            # Never wrapped, so that it can be copied out of a log.
            console.print(f"  {one_line(os.fspath(path))}", soft_wrap=True, markup=False)
