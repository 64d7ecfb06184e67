"""What the pages of documentation quote stands in the program: titles of sections and lines, and names."""

import re
from functools import cache
from pathlib import Path

import pytest

from kvspill.report.console import render_summary
from kvspill.report.html.prose import checks
from kvspill.result.metrics.catalog import METRICS
from unit.result.sample import built

ROOT = Path(__file__).parents[3]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
CODE = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"(?<![-/.\w{*…])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w{*…/])")
TITLE = re.compile(r"\b[A-Z]{2,}[A-Z-]*(?: (?:[A-Z/]{2,}[A-Z-]*))+\b")
OF_OTHERS = {"ios_pool_size", "orte_abort_on_non_zero_status", "use_aio", "use_posix_aio"}
"""Options of NIXL and Open MPI."""
NO_TITLES = {"NO VERDICT", "NOT MEASURED"}


@cache
def source() -> str:
    kept = (".py", ".yaml", ".j2", ".c")
    files = [path for path in (ROOT / "src").rglob("*") if path.suffix in kept]
    return "\n".join(
        path.read_text("utf-8") for path in [*files, ROOT / "config.yaml", ROOT / "mlperf_wrapper.py"]
    )


@cache
def names() -> frozenset[str]:
    metrics = {name for metric in METRICS for name, _ in metric.expand()}
    return frozenset({"mlperf_wrapper", *OF_OTHERS, *metrics, *re.findall(r"[A-Za-z_]\w*", source())})


def known(name: str) -> bool:
    """Of the code, or what Prometheus is told, whose prefix and ending are put to it."""
    bare = name.removeprefix("kvspill_").removesuffix("_total").removesuffix("_info")
    of_io = re.fullmatch(r"(?:short|failed)_(?:read|write)", name)
    return name in names() or bare in names() or of_io is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_name_and_every_title_that_a_page_quotes_is_in_the_code(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    quoted = {name for code in CODE.findall(text) for name in NAME.findall(code)}
    assert not [name for name in sorted(quoted) if not known(name)]
    titles = set(TITLE.findall(text)) - NO_TITLES
    assert not [title for title in sorted(titles) if title not in source()]


def test_the_page_on_trust_explains_the_lines_that_the_console_prints() -> None:
    text = (ROOT / "docs" / "trust.md").read_text("utf-8").partition("## The honesty block")[2]
    table = [
        line.split("|")[1].strip() for line in text.partition("\n## ")[0].splitlines() if line[:2] == "| "
    ]
    lines = [name.partition(" /")[0] if name.startswith("Asked") else name for name in table[2:]]
    result = built()
    printed = render_summary(result, verbose=True).partition("### HONESTY")[2]
    missing = [name for name in lines if name != "(in the file only)" and f"\n  {name}" not in printed]
    assert (len(lines) > 12, missing) == (True, [])
    shared = [name for name, _ in checks(result) if f"\n  {name} " in printed]
    assert {"Load / capacity without I/O", "Arrivals late by (p99)", "Limited by kvspill itself"} <= {*shared}
