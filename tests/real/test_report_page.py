"""The page in a real browser: drawn whole, in both themes, on a phone and on a desk, and nothing runs."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.report.html.plans import page_of as plan_page
from kvspill.result.reading import load_result
from kvspill.result.schema import Result
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

    def __init__(self, browser: Any, path: Path, width: int, scheme: str) -> None:
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


_OVERLAPPING_LABELS = """() => [...document.querySelectorAll('.plot')].flatMap(plot =>
  [...plot.querySelectorAll('.role-axis-label')].flatMap(axis => {
    const boxes = [...axis.querySelectorAll('text')].filter(text => text.getAttribute('opacity') !== '0')
      .map(text => text.getBoundingClientRect()).filter(box => box.width > 0);
    const across = (a, b) => a.left < b.right && b.left < a.right;
    const meet = (a, b) => across(a, b) && a.top + 2 < b.bottom && b.top + 2 < a.bottom;
    return boxes.some((a, n) => boxes.slice(n + 1).some(b => meet(a, b))) ? [plot.dataset.figure] : [];
  }))"""


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
            assert visit.value(_OVERLAPPING_LABELS) == []
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
        "text": ["NO (predicted): 60 users do not.", "Bottleneck: the device."],
        "notes": {},
        "options": [{"name": name, "holds": 20, "enough": False} for name in names],
    }
    target = tmp_path / "plan.html"
    target.write_text(plan_page(plan, {"Options": [["OPTION"] * 12, ["a-long-cell-of-a-row"] * 12]}))
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
        assert tab.evaluate(_EMPTY_PLOTS) == []


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
        assert visit.value(_EMPTY_PLOTS) == []
        assert visit.value(_OVERLAPPING_LABELS) == []
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


def test_a_badge_opens_the_fold_that_it_leads_to(browser: Any, page: Path) -> None:
    with Visit(browser, page, 1280, "light") as visit:
        assert visit.value("document.querySelector('details.fold.note').open") is False
        visit.tab.click("a.doubt[href='#doubt-0-too_short'], .card a.doubt >> nth=0")
        visit.tab.wait_for_function("document.querySelector('details.fold.note').open")


def test_a_print_is_light_whole_and_without_controls(browser: Any, kinds: dict[str, Path]) -> None:
    with Visit(browser, kinds["faulty"], 1280, "dark") as visit:
        ground = "getComputedStyle(document.querySelector('section')).backgroundColor"
        dark = visit.value(ground)
        visit.tab.emulate_media(media="print")
        visit.value("window.dispatchEvent(new Event('beforeprint'))")
        assert visit.value(ground) != dark
        for hidden in ("nav", "#theme", "figure details"):
            assert not visit.tab.locator(hidden).first.is_visible()
        assert visit.tab.locator("details.fold.note li").first.is_visible()
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
