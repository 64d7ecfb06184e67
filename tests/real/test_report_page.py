"""The page in a real browser: drawn whole, in both themes, on a phone and on a desk, and nothing runs."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.report.reading import load_result
from unit.report.html.hostile import PAYLOAD, poisoned

pytest.importorskip("jinja2", reason="the page needs the extra `report`")
pytest.importorskip("vl_convert", reason="the page needs the extra `report`")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

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
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        # Without a sandbox of its own, because tests may run as root in a container.
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def ten_minutes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result of 600 simulated seconds."""
    path = tmp_path_factory.mktemp("results") / "ten-minutes.json"
    flags = ["--num-users", "10", "--duration", "600", "--cpu-mem-gb", "2", "--storage-capacity-gb", "8"]
    # A process of its own: the browser's driver keeps an event loop in this one.
    command = [sys.executable, "-m", "kvspill.cli.main", "simulate", *flags, "--quiet", "--output", str(path)]
    subprocess.run(command, check=True)
    return path


@pytest.fixture(scope="module")
def page(ten_minutes: Path) -> Path:
    target = ten_minutes.with_suffix(".html")
    assert main(["report", str(ten_minutes), "-o", str(target)]) == 0
    return target


class Visit:
    """One view of a page, with everything that the browser complained about or asked for."""

    def __init__(self, browser: Any, path: Path, width: int, scheme: str):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.tab = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.tab.on("console", lambda message: self.complaints.append(message.text))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.goto(path.as_uri())
        self.tab.wait_for_selector("html[data-drawn]", state="attached", timeout=60_000)

    def __enter__(self) -> "Visit":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def value(self, script: str) -> Any:
        return self.tab.evaluate(script)


_EMPTY_PLOTS = """() => [...document.querySelectorAll('.plot')].filter(plot => {
  const svg = plot.querySelector('svg');
  const marks = plot.querySelectorAll('.mark-line path, .mark-rect path');
  return !svg || svg.getBoundingClientRect().width < 200 || ![...marks].some(m => m.getAttribute('d'));
}).map(plot => plot.dataset.figure)"""


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_every_figure_is_drawn_without_a_complaint(browser: Any, page: Path, width: int, scheme: str) -> None:
    with Visit(browser, page, width, scheme) as visit:
        assert visit.complaints == []
        assert visit.requests == [page.as_uri()]
        assert visit.value(_EMPTY_PLOTS) == []
        assert visit.value("document.documentElement.dataset.drawn") == str(
            visit.value("document.querySelectorAll('.plot').length")
        )
        assert visit.value("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_several_results_fit_side_by_side(
    browser: Any, ten_minutes: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    target = tmp_path / "both.html"
    assert main(["report", str(ten_minutes), str(ten_minutes), "-o", str(target)]) == 0
    with Visit(browser, target, width, scheme) as visit:
        assert visit.complaints == []
        assert visit.value(_EMPTY_PLOTS) == []
        assert visit.value("document.documentElement.scrollWidth") <= width


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
    from kvspill.report.html.page import build_page

    target = tmp_path / "hostile.html"
    document = poisoned(load_result(ten_minutes))
    target.write_text(build_page([(PAYLOAD, document), (f"{PAYLOAD} 2", document)], title=PAYLOAD))
    with Visit(browser, target, 1440, "light") as visit:
        assert visit.value("window.ran") is None
        assert visit.complaints == []
        assert visit.requests == [target.as_uri()]
        visit.tab.locator("#fig-time-tokens .mark-symbol path").nth(5).hover(force=True)
        visit.tab.wait_for_selector("#vg-tooltip-element.visible")
        assert visit.value("window.ran") is None
        assert visit.value("document.querySelectorAll('img').length") == 0
