"""The page: complete in itself, doubts first, nothing in a result can run, every figure has its table."""

import json
import re
from html.parser import HTMLParser

import pytest

from kvspill.config import Config
from kvspill.errors import UsageError
from unit.report.html.hostile import PAYLOAD, poisoned
from unit.result import sample

pytest.importorskip("jinja2")
vl_convert = pytest.importorskip("vl_convert")

from kvspill.report.html.facts import labelled  # noqa: E402
from kvspill.report.html.figures import Figure, figures  # noqa: E402
from kvspill.report.html.page import build_page  # noqa: E402
from kvspill.result.schema import Result  # noqa: E402


class Outline(HTMLParser):
    """What a page is made of: elements, attributes, text outside of scripts, and the JSON data."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.data = ""
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script" and dict(attrs).get("id") == "specs":
            self._inside = "data"

    def handle_endtag(self, tag: str) -> None:
        del tag
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "data":
            self.data += data
        elif self._inside not in ("script", "style"):
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def page() -> Outline:
    return Outline(build_page([("mine", sample.built())]))


def drawn(*results: Result) -> dict[str, Figure]:
    return {figure.id: figure for figure in figures(labelled([(f"r{n}", r) for n, r in enumerate(results)]))}


def test_the_page_loads_nothing_from_anywhere(page: Outline) -> None:
    assert page.all("link") == []
    assert page.all("img") == []
    assert [script.get("src") for script in page.all("script")] == [None, None, None]
    assert all(str(anchor["href"]).startswith("#") for anchor in page.all("a"))
    (policy,) = [meta["content"] for meta in page.all("meta") if "http-equiv" in meta]
    assert str(policy).startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in str(policy)


def test_headline_and_doubts_come_before_any_figure(page: Outline) -> None:
    sections = [section["id"] for section in page.all("section")]
    assert sections[:2] == ["headline", "doubts"]
    text = " ".join(page.text)
    assert text.index("Throughput, wall clock") < text.index("How far to trust this")
    assert "tokens/s" in text
    assert "1 trial: the spread between runs is unknown." in text


def test_a_figure_in_doubt_links_to_the_doubt() -> None:
    late = sample.facts(lateness_ns=(50_000_000,) * 100)
    outline = Outline(build_page([("mine", sample.built(run=late))]))
    assert "#doubt-0-late_arrivals" in {anchor["href"] for anchor in outline.all("a")}
    assert "doubt-0-late_arrivals" in {item.get("id") for item in outline.all("li")}


def test_a_simulated_result_says_so_above_its_figures() -> None:
    text = build_page([("mine", sample.built(run=sample.facts(simulated=True)))])
    assert text.index('class="banner"') < text.index('id="headline"')
    assert "no byte moved" in text


def test_every_figure_has_a_plot_a_name_and_a_table(page: Outline) -> None:
    plots = [div for div in page.all("div") if div.get("class") == "plot"]
    specs = json.loads(page.data)
    assert {plot["data-figure"] for plot in plots} == set(specs)
    assert all(plot["role"] == "img" and plot["aria-label"] for plot in plots)
    assert len(page.all("figure")) == len(plots) == len(set(specs)) > 5


def test_one_result_gives_each_figure_that_it_has_data_for() -> None:
    assert list(drawn(sample.built())) == [
        "breakdown",
        "requests",
        "tiers-read",
        "tiers-write",
        "time-tokens",
        "time-requests",
        "cpu-bandwidth",
        "storage-bandwidth",
        "tier-bytes",
        "phase-bytes",
        "hit-rates",
        "classes",
    ]


def test_a_caption_names_the_sizes_of_its_own_plot_s15() -> None:
    for found in (drawn(sample.built()), drawn(sample.built(), sample.built())):
        plots = [figure for name, figure in found.items() if name.endswith(("-read", "-write"))]
        says = [
            (figure.id.rsplit("-", 1)[1], figure.says.partition("Sizes of entries")[2]) for figure in plots
        ]
        assert any(sizes for _verb, sizes in says)
        for verb, sizes in says:
            assert ("write" if verb == "read" else "read") not in sizes


def test_the_parts_of_the_breakdown_add_up_to_the_end_to_end_mean() -> None:
    built = sample.built()
    rows = drawn(built)["breakdown"].spec["data"]["values"]
    assert sum(row["value"] for row in rows) == pytest.approx(
        (built.statistics("end_to_end_latency_ms") or {})["mean"]
    )


def test_a_percentile_is_shown_only_where_there_are_values_behind_it() -> None:
    figure = drawn(sample.built())["requests"]
    end_to_end = dict(zip(figure.header, figure.rows[0], strict=True))
    assert (end_to_end["values"], end_to_end["p99.99"]) == ("2", "too few")
    assert "needs 10,000 of them" in figure.says


def test_several_results_stand_side_by_side_in_the_same_colours() -> None:
    found = drawn(sample.built(), sample.built())
    assert {"requests-0", "storage-read", "ranking-avg_throughput_tokens_per_sec"} <= set(found)
    for name in ("requests-0", "time-tokens", "storage-read"):
        assert found[name].spec["encoding"]["color"]["scale"]["domain"] == ["r0", "r1"]


def test_engines_are_ranked_where_engines_are_what_differs() -> None:
    results = [sample.built(), sample.built()]
    for built, engine in zip(results, ("vllm-fs", "lmcache"), strict=True):
        built.config["engine"] = engine
    ranking = drawn(*results)["ranking-avg_throughput_tokens_per_sec"]
    assert ranking.section == "Engine ranking"
    assert {row[0] for row in ranking.rows} == {"vllm-fs", "lmcache"}


def test_users_and_queue_are_drawn_where_the_timeline_has_them() -> None:
    built = sample.built()
    built.timeline.columns = {
        **built.timeline.columns,
        "users": [5] * 10,
        "queued": [0, 3] * 5,
        "in_service": [5] * 10,
    }
    found = drawn(built)
    assert {row["y"] for row in found["queue"].spec["data"]["values"]} == {0, 3}
    load = found["load"].spec["data"]["values"]
    assert {(row["series"], row["y"]) for row in load} == {("users", 5), ("requests in service", 5)}


def test_the_autoscalers_path_is_drawn_with_its_reasons() -> None:
    steps = [
        {"time_seconds": 10.0, "stage_seconds": 9.0, "users": 4, "throughput": 100.0, "action": "start"},
        {"time_seconds": 20.0, "stage_seconds": 10.0, "users": 8, "throughput": 150.0, "action": "scale_up"},
        {"time_seconds": 20.0, "users": 8, "action": "stop", "reason": "Peak capacity found", "mode": "qos"},
    ]
    found = drawn(sample.built(autoscaling=steps))
    path = found["autoscaler-0"]
    assert [(row["x"], row["y"]) for row in path.spec["data"]["values"]] == [(1.0, 4), (10.0, 4), (20.0, 8)]
    assert "Peak capacity found" in path.says
    curve = found["load-curve-0"].spec["data"]["values"]
    assert [(row["x"], row["y"]) for row in curve] == [(4, 100.0), (8, 150.0)]


def test_hit_rates_stand_beside_their_bounds() -> None:
    built = sample.built()
    bounds = {"infinite": 0.9, "belady": 0.8, "lru": 0.6, "belady_exact": True, "requests": 9}
    built.io_model = {"byte_hit_rate": 0.7, "hit_rate_bounds": bounds}
    rows = drawn(built)["hit-bounds"].spec["data"]["values"]
    assert {row["row"]: row["value"] for row in rows} == {
        "measured": 0.7,
        "plain LRU": 0.6,
        "perfect foresight": 0.8,
        "unlimited cache": 0.9,
    }


def test_trials_give_the_median_with_its_interval() -> None:
    from kvspill.result.trials import combine

    text = build_page([("mine", combine([sample.built(), sample.built(), sample.built()]))])
    assert "3 of 3 trials complete" in text
    assert "median; mean within 40.00 to 40.00 (95 %), CV 0.0%" in text


def test_a_long_timeline_is_averaged_and_its_mean_kept() -> None:
    built = sample.built()
    built.timeline.columns = {**built.timeline.columns, "tokens": [1, 3] * 1800}
    built.window.measured_seconds = 3600.0
    values = [row["y"] for row in drawn(built)["time-tokens"].spec["data"]["values"]]
    assert len(values) <= 400
    assert sum(values) / len(values) == pytest.approx(2.0)


def test_a_last_part_of_a_second_is_not_drawn_as_a_drop() -> None:
    built = sample.built()
    built.timeline.columns = {**built.timeline.columns, "tokens": [100] * 10 + [3]}
    built.window.measured_seconds = 10.02
    assert {row["y"] for row in drawn(built)["time-tokens"].spec["data"]["values"]} == {100}


def test_no_string_of_a_result_becomes_markup() -> None:
    outline = Outline(
        build_page([(PAYLOAD, Result.model_validate(poisoned(sample.result())))], title=PAYLOAD)
    )
    assert len(outline.all("script")) == 3
    assert outline.all("img") == []
    for _, attributes in outline.elements:
        assert not [name for name in attributes if name.startswith("on")]
    # The data ends where it should, and is JSON still.
    assert json.loads(outline.data)
    assert "<" not in outline.data
    assert PAYLOAD in "".join(outline.text)


def test_a_damaged_histogram_is_one_line() -> None:
    built = sample.built()
    built.histograms["request_end_to_end"].hdr = "garbage"
    with pytest.raises(UsageError, match="histogram request_end_to_end cannot be decoded"):
        build_page([("x", built)])


@pytest.mark.parametrize("count", [0, 9])
def test_a_page_has_a_sensible_number_of_results(count: int) -> None:
    with pytest.raises(UsageError, match=f"1 to 8 results, not {count}"):
        build_page([("x", sample.built())] * count)


def test_a_result_in_which_nothing_happened_still_makes_a_page() -> None:
    built = sample.built(sample.empty_recorder(), config=Config(cpu_mem_gb=0))
    assert "No request completed" in build_page([("empty", built)])


def luminance(colour: str) -> float:
    def linear(part: str) -> float:
        value = int(part, 16) / 255
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(colour[n : n + 2]) for n in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1, 2])
def test_text_and_lines_have_enough_contrast_in_either_theme(theme: int) -> None:
    from importlib.resources import files

    css = (files("kvspill.report.html") / "page.css").read_text()
    blocks = [block for block in re.findall(r"\{([^{}]*)\}", css) if "--page:" in block]
    colours = dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", blocks[theme]))
    for text in ("ink", "ink-soft", "accent"):
        for ground in ("panel", "page"):
            assert contrast(colours[text], colours[ground]) >= 4.5
    assert contrast(colours["warn-ink"], colours["warn-bg"]) >= 4.5
    for number in range(1, 9):
        assert contrast(colours[f"series-{number}"], colours["panel"]) >= 3
