"""The page in a real browser: drawn whole, in both themes, on a phone and on a desk, and nothing runs."""

from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.report.html.plans import page_of as plan_page
from kvspill.result.reading import load_result
from kvspill.result.schema import Result
from real.browsing import CHROMIUM, EMPTY_PLOTS, OVERLAPPING_LABELS, Visit
from unit.report.html.hostile import PAYLOAD, poisoned

pytest.importorskip("jinja2", reason="the page needs the extra `report`")
pytest.importorskip("vl_convert", reason="the page needs the extra `report`")
pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium here: scripts/install-test-tools.sh installs it"
    ),
]

VIEWS = [(390, "light"), (390, "dark"), (1440, "light"), (1440, "dark")]
PAGE_BYTES_MAX = 6_000_000
OPEN_SECONDS_MAX = 2.0


@pytest.fixture(scope="module")
def page(ten_minutes: Path) -> Path:
    target = ten_minutes.with_suffix(".html")
    assert main(["report", str(ten_minutes), "-o", str(target)]) == 0
    return target


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_every_figure_is_drawn_without_a_complaint(browser: Any, page: Path, width: int, scheme: str) -> None:
    with Visit(browser, page, width, scheme) as visit:
        assert visit.complaints == []
        assert visit.requests == [page.as_uri()]
        assert visit.value(EMPTY_PLOTS) == []
        assert visit.value("document.documentElement.dataset.drawn") == str(
            visit.value("document.querySelectorAll('.plot').length")
        )
        assert visit.value("document.documentElement.scrollWidth") <= width


_CUT_TEXTS = """() => [...document.querySelectorAll('.plot svg')].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(text => text.getAttribute('opacity') !== '0')
    .map(text => [text.textContent, text.getBoundingClientRect()])
    .filter(([_, box]) => box.width > 0 && (box.left < frame.left - 1 || box.right > frame.right + 1))
    .map(([said, _]) => said);
})"""


@pytest.mark.parametrize("width", [390, 1440])
def test_the_labels_of_an_axis_do_not_run_into_each_other(
    browser: Any, ten_minutes: Path, tmp_path: Path, width: int
) -> None:
    document = load_result(ten_minutes).document()
    bounds = {"infinite": 1.0, "belady": 0.8, "lru": 0.6}
    document["io_model"] = {"byte_hit_rate": 1.0, "hit_rate_bounds": bounds}
    named = [
        (f"a-rather-long-name-of-a-result-{number}", Result.model_validate(document)) for number in range(3)
    ]
    from unit.report.html.pages import build_page

    for results in (named[:1], named):
        target = tmp_path / f"{len(results)}.html"
        target.write_text(build_page(results))
        with Visit(browser, target, width, "light") as visit:
            assert visit.value("document.querySelectorAll('#fig-hit-bounds svg').length") == 1
            assert visit.value(OVERLAPPING_LABELS) == []
            assert visit.value(_CUT_TEXTS) == []


@pytest.mark.parametrize("width", [390, 1440])
def test_the_page_of_a_plan_fits_and_names_every_option_whole(
    browser: Any, tmp_path: Path, width: int
) -> None:
    names = [f"{count} x nvme-gen4 with 64 GiB of DRAM" for count in (1, 2, 3)]
    plan = {
        "answer": "no",
        "asked": 60,
        "asked_is": "users",
        "model": "llama3.1-8b",
        "kvspill_version": "1.0",
        "text": ["NO (predicted): 60 users do not.", "Bottleneck: the device."],
        "notes": {},
        "options": [{"name": name, "holds": 20, "enough": False} for name in names],
    }
    target = tmp_path / "plan.html"
    target.write_text(
        plan_page(plan, {"Options": [["OPTION"] * 12, ["a-long-cell-of-a-row"] * 12]}, "2026-11-19")
    )
    with browser.new_context(viewport={"width": width, "height": 900}) as context:
        tab = context.new_page()
        tab.goto(target.as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert [text.partition(": ")[0] for text in tab.locator("dt").all_inner_texts()] == names
        assert tab.locator(".answer.missed .status").inner_text() == "NO (predicted): 60 users do not."
        edges = tab.evaluate(
            "[...document.querySelectorAll('dt')].map(each => each.getBoundingClientRect().right)"
        )
        assert max(edges) <= width


def test_a_screen_reader_is_told_what_each_plot_shows(browser: Any, page: Path) -> None:
    labels = "[...document.querySelectorAll('.plot')].map(plot => plot.getAttribute('aria-label'))"
    with Visit(browser, page, 1440, "light") as visit:
        found = visit.value(labels)
    assert "Vega visualization" not in found
    assert len(set(found)) == len(found)
    assert found[0].startswith("Mean time of a completed request. ")


def test_what_is_in_sight_is_drawn_before_the_rest_and_printing_draws_all(browser: Any, page: Path) -> None:
    with Visit(browser, page, 1440, "light") as visit:
        times = visit.value("(({openMs, readyMs}) => [+openMs, +readyMs])(document.documentElement.dataset)")
    assert 0 < times[0] < times[1]
    with browser.new_context() as context:
        tab = context.new_page()
        # Nothing is idle here, so only the print draws what is out of sight.
        tab.add_init_script("window.requestIdleCallback = () => {}")
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-open-ms]", state="attached", timeout=60_000)
        assert tab.evaluate("document.documentElement.dataset.drawn") is None
        tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        tab.wait_for_selector("html[data-drawn]", state="attached", timeout=60_000)
        assert tab.evaluate(EMPTY_PLOTS) == []


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_several_results_fit_side_by_side(
    browser: Any, ten_minutes: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    target = tmp_path / "both.html"
    assert main(["report", str(ten_minutes), str(ten_minutes), "-o", str(target)]) == 0
    with Visit(browser, target, width, scheme) as visit:
        assert visit.complaints == []
        assert visit.value(EMPTY_PLOTS) == []
        assert visit.value("document.documentElement.scrollWidth") <= width


def test_a_badge_opens_the_fold_that_it_leads_to(browser: Any, page: Path) -> None:
    with Visit(browser, page, 1280, "light") as visit:
        assert visit.value("document.querySelector('details.fold.note').open") is False
        visit.tab.click("a.doubt[href='#doubt-0-too_short'], .card a.doubt >> nth=0")
        visit.tab.wait_for_function("document.querySelector('details.fold.note').open")


def test_the_page_of_ten_minutes_is_small_and_opens_within_two_seconds(browser: Any, page: Path) -> None:
    assert page.stat().st_size < PAGE_BYTES_MAX
    with browser.new_context(viewport={"width": 1440, "height": 900}) as context:
        tab = context.new_page()
        session = context.new_cdp_session(tab)
        # Time of the page's own thread: what else runs on the machine doesn't count.
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-drawn]", state="attached", timeout=60_000)
        found = {item["name"]: item["value"] for item in session.send("Performance.getMetrics")["metrics"]}
    assert 0 < found["TaskDuration"] < OPEN_SECONDS_MAX


def test_the_theme_follows_the_system_and_the_button_by_keyboard(browser: Any, page: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    line = "getComputedStyle(document.querySelector('.mark-line path')).stroke"
    with Visit(browser, page, 1440, "light") as light, Visit(browser, page, 1440, "dark") as dark:
        assert light.value(ground) != dark.value(ground)
        assert light.value(line) != dark.value(line)
        light.tab.focus("#theme")
        light.tab.keyboard.press("Enter")
        assert light.tab.text_content("#theme") == "Theme: light"
        light.tab.keyboard.press("Space")
        assert light.tab.text_content("#theme") == "Theme: dark"
        assert light.value(ground) == dark.value(ground)
        assert light.value(line) == dark.value(line)


def test_the_values_behind_a_plot_are_reached_by_keyboard(browser: Any, page: Path) -> None:
    with Visit(browser, page, 390, "light") as visit:
        visit.tab.focus("#fig-breakdown summary")
        visit.tab.keyboard.press("Enter")
        assert visit.tab.is_visible("#fig-breakdown table")
        assert visit.value("document.querySelectorAll('img:not([alt]), .plot:not([aria-label])').length") == 0


def test_the_pointer_shows_the_values_of_a_line(browser: Any, page: Path) -> None:
    with Visit(browser, page, 1440, "light") as visit:
        visit.tab.locator("#fig-time-tokens .mark-symbol path").nth(5).hover(force=True)
        visit.tab.wait_for_selector("#vg-tooltip-element.visible")
        assert "generated tokens/s" in str(visit.tab.text_content("#vg-tooltip-element"))


def test_no_string_of_a_result_runs_as_script(browser: Any, ten_minutes: Path, tmp_path: Path) -> None:
    from unit.report.html.pages import build_page

    target = tmp_path / "hostile.html"
    document = Result.model_validate(poisoned(load_result(ten_minutes).document()))
    target.write_text(build_page([(PAYLOAD, document), (f"{PAYLOAD} 2", document)], title=PAYLOAD))
    with Visit(browser, target, 1440, "light") as visit:
        assert visit.value("window.ran") is None
        assert visit.complaints == []
        assert visit.requests == [target.as_uri()]
        visit.tab.locator("#fig-time-tokens .mark-symbol path").nth(5).hover(force=True)
        visit.tab.wait_for_selector("#vg-tooltip-element.visible")
        assert visit.value("window.ran") is None
        assert visit.value("document.querySelectorAll('img').length") == 0
