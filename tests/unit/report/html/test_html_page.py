"""The page: complete in itself, doubts first, nothing in a result can run, every figure has its table."""

import json
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.records import Tier
from unit.measure.rows import request
from unit.report.html.hostile import PAYLOAD, poisoned
from unit.report.html.outline import Outline
from unit.result import sample

vl_convert = pytest.importorskip("vl_convert")

from kvspill.report.console import render_summary  # noqa: E402
from kvspill.report.html.doubts import folds  # noqa: E402
from kvspill.report.html.facts import labelled  # noqa: E402
from kvspill.report.html.figures import figures  # noqa: E402
from kvspill.report.html.headline import headline_rows  # noqa: E402
from kvspill.report.html.prose import metric_rows, page_title  # noqa: E402
from kvspill.report.numbers import counted  # noqa: E402
from kvspill.result.schema import LatencyMap, Result  # noqa: E402
from kvspill.result.warnings.known import noted  # noqa: E402
from unit.report.html.pages import build_page, drawn  # noqa: E402

pytest.importorskip("jinja2")


@pytest.fixture(scope="module")
def page() -> Outline:
    return Outline(build_page([("mine", sample.built())]))


def test_the_page_loads_nothing_from_anywhere(page: Outline) -> None:
    assert page.all("link") == []
    assert page.all("img") == []
    assert [script.get("src") for script in page.all("script")] == [None, None, None]
    assert all(str(anchor["href"]).startswith("#") for anchor in page.all("a"))
    (policy,) = [meta["content"] for meta in page.all("meta") if "http-equiv" in meta]
    assert str(policy).startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in str(policy)


def test_verdict_and_doubts_come_before_any_figure(page: Outline) -> None:
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
        "tokens",
        "tiers-read",
        "tiers-write",
        "time-tokens",
        "time-requests",
        "cpu-bandwidth",
        "storage-bandwidth",
        "storage-operations",
        "heat-storage_read-0",
        "heat-storage_write-0",
        "heat-request_end_to_end-0",
        "tier-bytes",
        "phase-bytes",
        "hit-rates",
    ]


def with_columns(**columns: list[int]) -> Result:
    built = sample.built()
    built.timeline.columns = {**built.timeline.columns, **columns}
    return built


def test_depth_utilisation_and_ios_of_the_device_are_drawn_where_they_were_seen() -> None:
    built = with_columns(
        storage_in_flight=[4] * 10,
        device_queue_ms_per_sec=[2500] * 10,
        device_busy_ms_per_sec=[900] * 10,
        device_ios_per_sec=[120] * 10,
    )
    found = drawn(built)
    depth = {(row["series"], row["y"]) for row in found["depth"].spec["data"]["values"]}
    assert depth == {("operations of the tier", 4), ("I/Os at the device", 2.5)}
    assert "seen once a second. I/Os in the device's queue" in found["depth"].says
    tier_alone = drawn(with_columns(storage_in_flight=[4] * 10))["depth"].says
    assert "seen once a second." in tier_alone
    assert "device" not in tier_alone, "no line of it is drawn"
    assert {row["y"] for row in found["utilisation"].spec["data"]["values"]} == {90}
    assert {row["y"] for row in found["device-iops"].spec["data"]["values"]} == {120}


def test_the_utilisation_of_two_devices_is_their_mean() -> None:
    built = with_columns(device_busy_ms_per_sec=[900] * 10)
    built.honesty.probes["block_device"] = {"devices": ["a", "b"]}
    (row,) = drawn(built)["utilisation"].rows
    assert row[1:] == ("45.00", "45.00", "45.00")


def test_what_was_zero_all_the_time_is_not_drawn() -> None:
    found = drawn(with_columns(queued=[0] * 10, users=[5] * 10, device_busy_ms_per_sec=[0] * 10))
    assert "queue" not in found
    assert "utilisation" not in found
    assert "load" in found
    # No class keeps its target in this run: no bars, but a table.
    assert "classes" not in found
    assert "interactive" in " ".join(Outline(build_page([("mine", sample.built())])).text)


def test_a_heat_map_has_a_field_for_each_step_and_band_that_has_values() -> None:
    built = sample.built()
    fields = drawn(built)["heat-storage_read-0"].spec["data"]["values"]
    assert [(field["x"], field["x2"], field["count"]) for field in fields] == [(4.0, 5.0, 1)]
    assert fields[0]["y"] < 2000 < fields[0]["y2"]


def test_a_heat_map_speaks_of_no_darkness_which_one_theme_turns_round() -> None:
    says = drawn(sample.built())["heat-storage_read-0"].says
    assert "dark" not in says
    assert "The stronger the colour" in says


def test_figures_of_a_simulation_are_all_called_simulated() -> None:
    maps = {"storage_read": LatencyMap(step_seconds=1, edges_ms=[1, 2], counts=[[1], [2], [3]])}
    run = sample.facts(simulated=True, tiers=(sample.tier(Tier.STORAGE, modelled=True),))
    built = sample.built(run=run).model_copy(update={"latency_maps": maps})
    titles = [figure.title for figure in drawn(built).values()]
    assert "Storage reads over time (simulated)" in titles
    assert not [title for title in titles if "(modelled)" in title]


def test_ttft_and_tpot_are_drawn_where_requests_have_them_s12() -> None:
    recorder = sample.filled_recorder()
    recorder.request(request(19, intended=15, tokens=10, ttft=2, decode=1))
    figure = drawn(sample.built(recorder))["tokens"]
    assert [row[0] for row in figure.rows] == ["TTFT", "TPOT"]


def test_the_title_names_model_and_drive_and_the_line_below_host_and_date() -> None:
    built = sample.built()
    directory = {"path": "/mnt", "device": "nvme0n1", "model": "KX 900", "filesystem": "ext4"}
    built.environment = {"hostname": "rack7", "directories": [directory]}
    assert page_title(labelled([("a", built)])) == f"{built.config['model']} on KX 900 (nvme0n1, ext4)"
    text = build_page([("a", built)])
    assert "host rack7" in text
    assert "2026-01-01" in text
    simulated = sample.built(run=sample.facts(simulated=True))
    assert "a simulated device" in page_title(labelled([("a", simulated)]))


def test_the_criteria_stand_beside_the_verdict() -> None:
    text = " ".join(" ".join(Outline(build_page([("mine", sample.built())])).text).split())
    assert "Storage assessment: FAIL (" in text
    assert "criteria met, latency profile)" in text
    assert "Storage Read P95 &lt; 200ms" in text or "Storage Read P95 < 200ms" in text
    assert "NVMe Read P95" not in text, "nobody knows that it is one"
    assert "✗ missed" in text


def test_titles_of_warnings_begin_with_a_capital_and_go_on_as_a_sentence() -> None:
    built = sample.built()
    built.warnings = [noted("memory_directory", "m.", "r."), noted("client_bound", "c.", "r.")]
    page = build_page([("a", built)])
    assert "<strong>The directory lies in memory</strong>" in page
    assert "<strong>kvspill itself was the limit</strong>" in page
    assert "text-transform: capitalize" not in page


def test_warnings_are_folded_by_severity_the_gravest_first() -> None:
    built = sample.built()
    built.warnings = [
        noted("few_trials", "n.", "r."),
        noted("simulated", "s.", "r."),
        noted("errors", "e.", "r."),
    ]
    found = folds(labelled([("a", built), ("b", built)]))
    assert [(fold.severity, fold.is_open) for fold in found] == [
        ("invalid", True),
        ("serious", True),
        ("note", False),
    ]
    (doubt,) = found[0].doubts
    assert (doubt.labels, doubt.anchors) == ("both results", ("doubt-0-errors", "doubt-1-errors"))


def test_a_warning_that_stands_above_the_figures_is_not_read_twice() -> None:
    built = sample.built()
    built.warnings = [noted("simulated", "s.", "r."), noted("few_trials", "n.", "r.")]
    assert [fold.is_open for fold in folds(labelled([("a", built)]), {("simulated", "s.")})] == [False, False]
    outline = Outline(build_page([("a", built)]))
    drawn_folds = [fold for fold in outline.all("details") if "fold" in (fold.get("class") or "")]
    assert ["open" in fold for fold in drawn_folds] == [False, False]


def test_one_result_has_no_name_at_its_bar_and_parts_keep_their_colours() -> None:
    found = drawn(sample.built())
    (bar,) = {row["row"] for row in found["breakdown"].spec["data"]["values"]}
    assert bar == ""
    assert found["breakdown"].spec["encoding"]["y"]["axis"] is None

    def colours(spec: Any) -> dict[str, str]:
        scale = spec["encoding"]["color"]["scale"]
        return dict(zip(scale["domain"], scale["range"], strict=True))

    parts = colours(found["breakdown"].spec["layer"][0])
    distributions = colours(found["requests"].spec)
    assert {name: distributions[name] for name in parts} == parts


def test_times_of_seconds_are_written_as_the_sentences_write_them() -> None:
    rows = {row.title: row for row in headline_rows(labelled([("a", sample.built())]))}
    row = rows["End-to-end latency, p95"]
    assert row.unit == "s"
    text = render_summary(sample.built(), verbose=False)
    assert f"p95 {row.cells[0].value} s" in text


def test_many_results_have_a_row_each_and_bars_instead_of_lines() -> None:
    results = [(f"r{n}", sample.built()) for n in range(12)]
    outline = Outline(build_page(results))
    found = figures(labelled(results))
    assert {figure.section for figure in found} == {"Beside each other", "Where a request's time goes"}
    assert all(len(figure.rows) == 12 for figure in found if figure.section == "Beside each other")
    tables = [table for table in outline.all("table") if table.get("class") == "headline crowd"]
    assert len(tables) == 1
    text = build_page(results)
    assert text.index('<dl class="answers">') < text.index('class="headline crowd">'), "the answer first"


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


def test_hit_rates_stand_beside_their_bounds() -> None:
    built = sample.built()
    bounds = {"infinite": 0.9, "belady": 0.8, "lru": 0.6, "belady_exact": True, "requests": 9}
    built.io_model = {"byte_hit_rate": 0.7, "hit_rate_bounds": bounds}
    rows = drawn(built)["hit-bounds"].spec["data"]["values"]
    assert "cache hit rate counts lookups instead of bytes" in drawn(built)["hit-bounds"].says
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


def test_a_page_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="a page needs a result"):
        build_page([])


def test_a_result_in_which_nothing_happened_still_makes_a_page() -> None:
    built = sample.built(sample.empty_recorder(), config=Config(cpu_mem_gb=0))
    assert "no request completed in the measured window" in build_page([("empty", built)])


def test_counts_have_no_decimals() -> None:
    assert (counted(78.0), counted(1.5), counted(1234)) == ("78", "1.50", "1,234")
    assert not [row for row in metric_rows(sample.built()) if row[1].endswith(".000")]
