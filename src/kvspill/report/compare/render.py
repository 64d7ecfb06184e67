"""How comparisons are written: sections of text and tables as Markdown, data as JSON."""

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from kvspill.report.numbers import NONE
from kvspill.texts import one_line

_NUMBER = 24
"""No figure is longer: what is, is a sentence that starts with one."""


@dataclass(frozen=True, slots=True)
class Table:
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with sentences, then a table."""

    title: str
    """Empty for what stands directly below the title of the whole."""
    lines: Sequence[str] = ()
    table: Table | None = None


def _cell(text: str) -> str:
    return one_line(text).replace("|", "\\|").replace("<", "&lt;")


def markdown(title: str, sections: Iterable[Section]) -> str:
    """The sections as Markdown with aligned tables, readable as it stands."""
    blocks = [f"# {_cell(title)}"]
    for section in sections:
        if section.title:
            blocks.append(f"## {_cell(section.title)}")
        lines = list(section.lines)
        if len(lines) > 1:
            lines = [f"- {line}" for line in lines]
        if lines:
            blocks.append("\n".join(_cell(line) for line in lines))
        if section.table is not None and section.table.rows:
            blocks.append(_markdown_table(section.table))
    return "\n\n".join(blocks) + "\n"


def _markdown_table(table: Table) -> str:
    from rich.box import MARKDOWN
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=MARKDOWN, pad_edge=True)
    numeric = [_is_numeric([row[index] for row in table.rows]) for index in range(len(table.header))]
    for name, is_number in zip(table.header, numeric, strict=True):
        drawn.add_column(Text(_cell(name)), justify="right" if is_number else "left", no_wrap=True)
    for row in table.rows:
        drawn.add_row(*(Text(_cell(cell)) for cell in row))
    text = io.StringIO()
    # No cell is ever wrapped or cut: a Markdown row is one line. A character takes two columns at most.
    wide = sum(
        3 + 2 * max(len(_cell(row[n])) for row in (table.header, *table.rows)) for n in range(len(numeric))
    )
    Console(file=text, width=wide + 2, no_color=True, highlight=False).print(drawn)
    lines = [line.rstrip() for line in text.getvalue().splitlines() if line.strip()]
    return "\n".join([lines[0], _alignment(lines[1], numeric), *lines[2:]])


def _is_numeric(cells: Sequence[str]) -> bool:
    return all((cell[:1].isdigit() or cell.startswith(NONE)) and len(cell) <= _NUMBER for cell in cells)


def _alignment(rule: str, numeric: Sequence[bool]) -> str:
    """Numbers stand to the right also where the Markdown is rendered."""
    parts = rule.strip("|").split("|")
    return "|" + "|".join(f"{p[:-1]}:" if right else p for p, right in zip(parts, numeric, strict=True)) + "|"


def json_text(value: Any) -> str:
    data = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    return json.dumps(data, indent=1, allow_nan=False) + "\n"
