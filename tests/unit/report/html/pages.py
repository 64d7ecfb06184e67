"""The page of results and its figures, as tests want them."""

from collections.abc import Sequence

from kvspill.report.html.facts import labelled
from kvspill.report.html.figure import Figure
from kvspill.report.html.figures import figures
from kvspill.report.html.page import page_of
from kvspill.result.schema import Result


def build_page(named: Sequence[tuple[str, Result]], title: str | None = None) -> str:
    return page_of(labelled(named), title)


def drawn(*results: Result) -> dict[str, Figure]:
    """The figures of a page by their ids."""
    return {figure.id: figure for figure in figures(labelled([(f"r{n}", r) for n, r in enumerate(results)]))}
