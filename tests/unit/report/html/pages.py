"""The page of results, as tests want it."""

from collections.abc import Sequence

from kvspill.report.html.facts import labelled
from kvspill.report.html.page import page_of
from kvspill.result.schema import Result


def build_page(named: Sequence[tuple[str, Result]], title: str | None = None) -> str:
    return page_of(labelled(named), title)
