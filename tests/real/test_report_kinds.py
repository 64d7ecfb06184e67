"""The pages of each kind of result in a real browser, and in print: a search, a suite, a curve, faults."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from real.browsing import CHROMIUM, EMPTY_PLOTS, OVERLAPPING_LABELS, Visit

pytest.importorskip("jinja2", reason="the page needs the extra `report`")
pytest.importorskip("vl_convert", reason="the page needs the extra `report`")
pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium here: scripts/install-test-tools.sh installs it"
    ),
]


def simulated(path: Path, *flags: str) -> Path:
    command = [sys.executable, "-m", "kvspill.cli.main", "simulate", *flags, "--quiet", "--output", str(path)]
    # A run in which nothing completed ends with status 1 and leaves its result.
    assert subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode in (0, 1)
    return path


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory, ten_minutes: Path) -> dict[str, Path]:
    """A page of each kind: a search, an idle run, a faulty one, a suite of nine rows, and a curve."""
    folder = tmp_path_factory.mktemp("kinds")
    search = ("--enable-autoscaling", "--autoscaler-mode", "qos", "--duration", "200", "--num-users", "4")
    given = {
        "search": simulated(folder / "search.json", *search, "--generation-mode", "fast"),
        "idle": simulated(folder / "idle.json", "--num-users", "1", "--duration", "5", "--model", "tiny-1b"),
        "suite": folder / "suite",
        "curve": folder / "curve.json",
    }
    curve = ["curve", "--num-users", "10", "--duration", "30", "--quiet", "--output", str(given["curve"])]
    assert main(curve) == 0
    document = json.loads(ten_minutes.read_text())
    document["faulty"] = True
    document["faults"]["operations"] = [{"tier": "storage", "verb": "read", "kind": "EIO", "count": 12}]
    given["faulty"] = folder / "faulty.json"
    given["faulty"].write_text(json.dumps(document))
    suite = ["suite", "--simulate", "--quick", "--quiet", "--output-dir", str(given["suite"])]
    subprocess.run([sys.executable, "-m", "kvspill.cli.main", *suite], check=True, stdout=subprocess.DEVNULL)
    pages = {name: folder / f"{name}.html" for name in given}
    for name, path in given.items():
        assert main(["report", str(path), "-o", str(pages[name])]) == 0
    return pages


@pytest.mark.parametrize("kind", ["search", "idle", "faulty", "suite", "curve"])
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_every_kind_of_page_is_whole_and_fits(
    browser: Any, kinds: dict[str, Path], kind: str, width: int, scheme: str
) -> None:
    with Visit(browser, kinds[kind], width, scheme) as visit:
        assert visit.complaints == []
        assert visit.value(EMPTY_PLOTS) == []
        assert visit.value(OVERLAPPING_LABELS) == []
        assert visit.value("document.documentElement.scrollWidth") <= width


def test_the_table_of_a_suite_is_not_cut_however_many_badges_it_has(
    browser: Any, kinds: dict[str, Path]
) -> None:
    with Visit(browser, kinds["suite"], 1280, "light") as visit:
        visit.value(
            "document.querySelectorAll('table.crowd td').forEach(cell => { for (const _ of [1, 2, 3]) {"
            "const badge = document.querySelector('.doubt').cloneNode(true); badge.textContent = '!'; "
            "cell.append(badge); } })"
        )
        table = "document.querySelector('table.crowd').parentElement"
        assert visit.value(f"{table}.scrollWidth") <= visit.value(f"{table}.clientWidth")


_BROKEN_WORDS = """() => [...document.querySelectorAll('.doubt')].flatMap(badge =>
  [...badge.textContent.matchAll(/[^ ]+/g)].filter(word => {
    const range = document.createRange();
    range.setStart(badge.firstChild, word.index);
    range.setEnd(badge.firstChild, word.index + word[0].length);
    return range.getClientRects().length > 1;
  }).map(word => word[0]))"""


@pytest.mark.parametrize("width", [390, 1280])
def test_no_badge_breaks_inside_a_word(
    browser: Any, kinds: dict[str, Path], ten_minutes: Path, tmp_path: Path, width: int
) -> None:
    four = tmp_path / "four.html"
    assert main(["report", *[str(ten_minutes)] * 4, "-o", str(four)]) == 0
    for page in (*kinds.values(), four):
        with Visit(browser, page, width, "light") as visit:
            assert visit.value(_BROKEN_WORDS) == []


def test_the_knee_of_a_search_has_its_target_lines(browser: Any, kinds: dict[str, Path]) -> None:
    with Visit(browser, kinds["search"], 1280, "light") as visit:
        texts = visit.value(
            "[...document.querySelectorAll('#fig-knee-0 .mark-text text')].map(t => t.textContent)"
        )
        assert "target 50 ms (interactive)" in texts
        # The axes' grid is made of rules, too.
        targets = "document.querySelectorAll('#fig-knee-0 .mark-rule.role-mark line').length"
        assert visit.value(targets) == 3
        first = visit.value("document.querySelector('figure').id")
    assert first == "fig-load-curve-0"


def test_a_print_is_light_whole_and_without_controls(browser: Any, kinds: dict[str, Path]) -> None:
    with Visit(browser, kinds["faulty"], 1280, "dark") as visit:
        ground = "getComputedStyle(document.querySelector('section')).backgroundColor"
        dark = visit.value(ground)
        visit.tab.emulate_media(media="print")
        visit.value("window.dispatchEvent(new Event('beforeprint'))")
        assert visit.value(ground) != dark
        for hidden in ("nav", "#theme", "figure details"):
            assert not visit.tab.locator(hidden).first.is_visible()
        assert visit.tab.locator("details.fold.note .count").is_visible(), "folded, with its number"
        assert not visit.tab.locator("details.fold.note li").first.is_visible()
        visit.value("window.dispatchEvent(new Event('afterprint'))")
        visit.tab.emulate_media(media="screen")
        assert visit.value(ground) == dark
        assert visit.tab.pdf(format="A4").startswith(b"%PDF")


def test_a_print_leaves_no_half_page_blank_for_a_figure_that_does_not_fit(
    browser: Any, kinds: dict[str, Path]
) -> None:
    with Visit(browser, kinds["faulty"], 703, "light") as visit:  # as wide as the text of an A4 page
        visit.tab.emulate_media(media="print")
        visit.value("window.dispatchEvent(new Event('beforeprint'))")
        heights = visit.value("[...document.querySelectorAll('figure')].map(f => f.offsetHeight)")
        text_pixels = (297 - 2 * 14) * 96 / 25.4
        assert max(heights) < 0.4 * text_pixels


@pytest.mark.parametrize("kind", ["faulty", "suite"])
def test_a_print_shows_the_sizes_of_entries_beside_their_latency_s15(
    browser: Any, kinds: dict[str, Path], kind: str
) -> None:
    with Visit(browser, kinds[kind], 1280, "light") as visit:
        visit.tab.emulate_media(media="print")
        sizes = visit.tab.locator("#headline .sizes", has_text="entries of")
        assert sizes.count() >= 1
        assert all(size.is_visible() for size in sizes.all())
