"""What a figure of the page is: a sentence, a plot and the table behind it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kvspill.report.html.facts import Labelled
from kvspill.report.html.specs import Spec

_TABLE_ROWS = 60


@dataclass(frozen=True, slots=True)
class Figure:
    """One plot with its words and its data."""

    id: str
    section: str
    title: str
    says: str
    spec: Spec
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def description(self) -> str:
        """The plot in words, for those who don't see it."""
        return f"{self.title}. {self.says} The table below has the values."


@dataclass(frozen=True, slots=True)
class Section:
    """Figures under one heading, and sentences above them."""

    name: str
    anchor: str
    figures: Sequence[Figure]
    lines: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """A set of series that belongs into one plot: a title and what each line is called."""

    id: str
    title: str
    series: Sequence[tuple[str, Labelled, str]]
    """Name of the line, result, name of the histogram or column."""
    told_from: Sequence[str] = ()
    """All names beside which these lines have their colours; none where there are no others."""


def stat_rows(results: Sequence[Labelled], names: dict[str, str]) -> Iterator[tuple[Labelled, str, float]]:
    """Metrics that the results have, under the names they are shown by."""
    for item in results:
        for shown, name in names.items():
            value = item.result.number(name)
            if value is not None:
                yield item, shown, value


def plain_rows(rows: Sequence[Sequence[Any]]) -> list[tuple[str, ...]]:
    """Cells as text, and not more rows than a reader will look at."""
    return [tuple(str(cell) for cell in row) for row in rows[:_TABLE_ROWS]]
