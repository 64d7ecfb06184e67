"""What the console summary is made of: titles, pairs and grids."""

from collections.abc import Iterable

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kvspill.texts import one_line, plain

Part = Text | Table | Padding


def title(text: str) -> Text:
    return Text(f"\n### {text} ###", style="bold")


def indent(text: Text, columns: int = 2) -> Part:
    return Padding(text, (0, 0, 0, columns), expand=False)


def pairs(rows: Iterable[tuple[str, str]], width: int = 30) -> Part:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=width)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(one_line(name)), Text(plain(value)))
    return Padding(table, (0, 0, 0, 2), expand=False)


def grid(header: Iterable[str], rows: Iterable[Iterable[str]], wraps: int = 0) -> Part:
    """A table; where it is too wide, the column of that number gives way."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="")
    for index, name in enumerate(header):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=index != wraps)
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    return Padding(table, (0, 0, 0, 2), expand=False)
