"""The doubts of a page: which figure each touches, which load the figures are of, and in how many digits."""

import re
from collections import Counter
from typing import Any

import pytest

from kvspill.errors import UsageError
from kvspill.records import GIB, Purpose, Tier, Verb
from unit.measure.rows import op
from unit.result import sample

pytest.importorskip("jinja2")
pytest.importorskip("vl_convert")

from kvspill.report.html import page as page_module
from kvspill.report.html.facts import curve, labelled
from kvspill.report.html.headline import banners, doubts_of_all, headline_rows
from kvspill.report.html.prose import checks, search_sentence, setup_rows, subtitle
from kvspill.report.html.specs import bars, fitted
from kvspill.report.html.verdicts import verdict_of
from kvspill.result.schema import Result
from kvspill.result.warnings.known import noted
from unit.report.html.pages import build_page, drawn


def warned(*codes: str, **given: Any) -> Result:
    built = sample.built(**given)
    built.warnings = [noted(code, f"{code}.", "None.") for code in codes]
    return built


def badges(result: Result) -> dict[str, tuple[str, ...]]:
    return {row.title: row.cells[0].doubts for row in headline_rows(labelled([("r", result)]))}


def bare(monkeypatch: pytest.MonkeyPatch, *results: Result) -> str:
    """A page without its plots, which take seconds to make."""
    monkeypatch.setattr(page_module, "_library", lambda: "")
    monkeypatch.setattr(page_module, "_compiled", lambda spec: spec)
    return build_page([(f"r{n}", result) for n, result in enumerate(results)])


@pytest.mark.parametrize("code", ["too_short", "not_steady", "few_trials", "autoscaling_inconclusive", "new"])
def test_a_doubt_of_the_whole_run_has_its_badge_beside_every_figure(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = warned(code)
    assert doubts_of_all(built) == (code,)
    for page in (bare(monkeypatch, built), bare(monkeypatch, built, built)):
        headline = page[page.index('id="headline"') : page.index('id="doubts"')]
        assert f'href="#doubt-0-{code}"' in headline


def test_what_touches_no_figure_has_no_badge() -> None:
    built = warned("left_behind", "ignored_keys")
    assert doubts_of_all(built) == ()
    assert set(badges(built).values()) == {()}


def with_modelled(name: Tier, serves: bool = True) -> Result:
    recorder = sample.filled_recorder()
    if serves and name is Tier.GPU:
        recorder.op(op(12, started=11, tier=name, verb=Verb.READ, purpose=Purpose.DECODE, nbytes=GIB))
    tiers = tuple(sample.tier(tier, modelled=tier is name) for tier in (Tier.GPU, Tier.CPU, Tier.STORAGE))
    return sample.built(recorder, sample.facts(tiers=tiers))


def test_requests_in_service_at_the_end_put_in_doubt_what_counts_on_completion_and_no_bytes() -> None:
    found = badges(warned("half_done"))
    assert [title for title, doubts in found.items() if doubts] == [
        "Throughput, wall clock",
        "Throughput over storage I/O time",
        "Requests completed",
    ]


def test_a_modelled_tier_is_in_the_figures_that_it_served_and_in_no_other() -> None:
    found = badges(with_modelled(Tier.GPU))
    for title in (
        "Throughput, wall clock",
        "Throughput over storage I/O time",
        "Cache I/O per request, p95",
    ):
        assert "modelled_tier" in found[title]
    for title in ("Storage read bandwidth", "Storage read in the device, p95", "Cache hit rate"):
        assert "modelled_tier" not in found[title]
    assert "modelled_tier" in badges(with_modelled(Tier.STORAGE))["Storage read bandwidth"]


def test_a_modelled_tier_that_served_nothing_is_in_no_figure() -> None:
    assert not [codes for codes in badges(with_modelled(Tier.GPU, serves=False)).values() if codes]


def search(concluded: bool = True, answer: int = 240) -> list[dict[str, Any]]:
    waits = {"queue_wait": {"mean": 1.0, "p95": 5.0}}
    return [
        {"time_seconds": 10.0, "stage_seconds": 10.0, "users": 240, "throughput": 9.0, "latency_ms": waits},
        {"time_seconds": 20.0, "stage_seconds": 10.0, "users": 360, "throughput": 8.0, "latency_ms": waits},
        {
            "time_seconds": 20.0,
            "users": answer,
            "action": "stop",
            "reason": "Peak found",
            "concluded": concluded,
        },
    ]


def test_the_users_are_those_of_the_measured_window() -> None:
    built = sample.built(autoscaling=search(), users=360)
    asked = built.config["num_users"]
    assert f"360 users (given: {asked})" in subtitle(labelled([("r", built)]))
    assert dict(setup_rows(built))["Users"] == f"360 (given: {asked})"
    assert "(given" not in subtitle(labelled([("r", sample.built())]))


def test_many_unlike_results_have_a_short_subtitle() -> None:
    unlike = labelled([(f"r{n}", sample.built(users=n + 1)) for n in range(8)])
    assert subtitle(unlike).endswith("; users differ")
    assert "; r0: " in subtitle(unlike[:2])


def test_the_line_below_the_title_of_several_results_has_their_hosts_and_dates() -> None:
    results = [sample.built() for _ in range(5)]
    for number, result in enumerate(results):
        result.environment = {"hostname": f"rack{number % 2}"}
        result.created_at = f"2026-11-1{number}T12:00:00"
        result.config["num_users"] = number + 1
    text = subtitle(labelled([(f"r{n}", result) for n, result in enumerate(results)]))
    assert "hosts rack0 and rack1" in text
    assert "2026-11-10 12:00 to 2026-11-14 12:00" in text


def test_a_search_says_its_answer_and_which_stage_the_figures_are_of(monkeypatch: pytest.MonkeyPatch) -> None:
    built = sample.built(autoscaling=search(), users=360)
    assert search_sentence(built) == ("The figures are of the stage with 360 users, not of the answer (240).")
    assert search_sentence(sample.built(autoscaling=search(), users=240)).endswith("stage with 240 users.")
    open_ended = warned("autoscaling_inconclusive", autoscaling=search(concluded=False), users=360)
    page = bare(monkeypatch, open_ended)
    assert page.index('class="banner"') < page.index('id="headline"')
    assert "the search has no answer yet" in page
    assert "NO VERDICT: the search did not conclude" in page
    assert "FOUND: 240 users of" in bare(monkeypatch, built)


def test_a_search_shows_users_and_queue_over_its_time() -> None:
    found = drawn(sample.built(autoscaling=search(), users=360))
    assert found["autoscaler-0"].title == "Search: users over time"
    waits = found["stage-waits-0"].spec["data"]["values"]
    assert {(row["series"], row["x"], row["y"]) for row in waits} == {
        ("mean", 10.0, 1.0),
        ("p95", 10.0, 5.0),
        ("mean", 20.0, 1.0),
        ("p95", 20.0, 5.0),
    }


def test_a_search_over_the_speed_of_a_trace_is_drawn_too() -> None:
    steps = [{**step, "trace_speedup": step["users"]} for step in search()]
    for step in steps:
        del step["users"]
    built = sample.built(autoscaling=steps)
    assert drawn(built)["autoscaler-0"].title == "Search: speed of the trace over time"
    assert search_sentence(built) == "The figures are of the last stage of the search."
    assert verdict_of(built).headline.startswith("FOUND: 240 times the trace's speed")


def test_a_doubt_that_results_share_is_one_banner() -> None:
    shared = [warned("simulated") for _ in range(8)]
    (banner,) = banners(labelled([(f"r{n}", built) for n, built in enumerate(shared)]))
    assert banner.labels == "all 8 results"
    (banner,) = banners(labelled([("a", warned("simulated")), ("b", warned())]))
    assert banner.labels == "a"


def test_a_code_given_twice_has_one_anchor(monkeypatch: pytest.MonkeyPatch) -> None:
    page = bare(monkeypatch, warned("device_excess", "device_excess"))
    assert page.count('id="doubt-0-device_excess"') == 1
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_every_plot_is_described_by_its_own_words() -> None:
    figure = drawn(sample.built())["breakdown"]
    described = page_module._described(figure)["description"]
    assert described.startswith("Mean time of a completed request. Queue wait, storage I/O")
    assert page_module._compiled(page_module._described(figure))["description"] == described


def test_a_point_says_how_long_a_time_it_stands_for() -> None:
    built = sample.built()
    assert drawn(built)["time-tokens"].says.endswith("A point per second.")
    built.timeline.columns = {**built.timeline.columns, "tokens": [1] * 600}
    built.window.measured_seconds = 600.0
    assert drawn(built)["time-tokens"].says.endswith("Each point is the mean of 2 s.")


def test_the_lines_of_many_results_are_averaged_until_they_can_be_told_apart() -> None:
    def built(seconds: int) -> Result:
        made = sample.built()
        made.timeline.columns = {"tokens": [1, 3] * (seconds // 2)}
        made.window.measured_seconds = float(seconds)
        return made

    def points(*results: Result) -> dict[str, int]:
        values = drawn(*results)["time-tokens"].spec["data"]["values"]
        return Counter(row["series"] for row in values)

    assert set(points(built(600), built(600)).values()) == {300}
    alike = [built(600)] * 3
    assert set(points(*alike).values()) == {60}
    figure = drawn(*alike)["time-tokens"]
    assert figure.says.endswith("Each point is the mean of 10 s, so that the lines can be told apart.")
    assert {row[1:] for row in figure.rows} == {("2.00", "2.00", "2.00")}
    assert points(*alike, built(30))["r3"] == 30
    says = drawn(*alike, built(30))["time-tokens"].says
    assert says.endswith("Each point is the mean of 1 to 10 s, so that the lines can be told apart.")
    short = drawn(*[built(30)] * 3)["time-tokens"]
    assert short.says.endswith("A point per second.")


def test_bars_carry_their_whole_value_and_keep_the_start_and_end_of_a_name() -> None:
    names = ["storage: eng-mooncake-bucket-run-1", "storage: eng-mooncake-bucket-run-2"]
    rows = [{"row": name, "series": "s", "value": 516_469.82, "rank": 0} for name in names]
    shown = bars(rows, "GiB", names, ["s"])["data"]["values"]
    assert {row["label"] for row in shown} == {"516,470"}
    assert len({row["row"] for row in shown}) == 2
    assert all(row["row"].startswith("storage: eng") and row["row"][-2:] in ("-1", "-2") for row in shown)
    assert [row["full"] for row in shown] == names


def test_names_that_would_become_the_same_stay_whole() -> None:
    names = ["a" * 20 + middle + "b" * 20 for middle in "xy"]
    assert fitted(names) == {name: name for name in names}


def test_a_share_above_the_whole_stays_inside_its_plot() -> None:
    rows = [{"row": "measured", "series": "s", "value": 1.14, "rank": 0}]
    spec = bars(rows, "share", ["measured"], ["s"], share=True)
    assert spec["encoding"]["x"]["scale"]["domain"] == [0, 1.14]


def test_a_ranking_says_in_what_else_the_results_differ() -> None:
    few, many = sample.built(users=5), sample.built(users=50)
    assert "also differ in users." in drawn(few, many)["ranking-avg_throughput_tokens_per_sec"].says
    assert "differ in" not in drawn(few, few)["ranking-avg_throughput_tokens_per_sec"].says


def test_a_damaged_histogram_names_its_result() -> None:
    built = sample.built()
    built.histograms["request_end_to_end"].hdr = "garbage"
    with pytest.raises(UsageError, match=r"^r1: histogram request_end_to_end cannot be decoded"):
        drawn(sample.built(), built)


@pytest.mark.parametrize("count", [1, 2, 3, 12, 40])
def test_the_percentiles_of_a_plot_are_those_of_the_result(count: int) -> None:
    recorder = sample.empty_recorder()
    for number in range(count):
        recorder.op(op(12 + number / 10, started=11.5, nbytes=GIB))
    built = sample.built(recorder)
    found = curve(labelled([("r", built)])[0], "storage_read_total")
    assert found is not None
    points = dict(found.points)
    for rank, name in ((50.0, "p50"), (90.0, "p90"), (95.0, "p95")):
        if rank in points:
            told = built.number(f"storage_read_{name}_ms")
            assert points[rank] == pytest.approx(told, rel=1e-6)


def faulty() -> Result:
    recorder = sample.filled_recorder()
    recorder.op(op(13, error="EIO"))
    return sample.built(recorder)


def test_a_faulty_result_is_the_first_banner_of_the_page_s13(monkeypatch: pytest.MonkeyPatch) -> None:
    first = banners(labelled([("bad", faulty()), ("good", sample.built())]))[0]
    assert (first.code, first.message, first.labels) == ("faulty", "1 storage read EIO.", "bad")
    page = bare(monkeypatch, faulty())
    assert page.index("<strong>Faulty</strong>") < page.index('id="headline"')


def test_a_faulty_result_has_no_rank_s13() -> None:
    found = drawn(sample.built(users=5), sample.built(users=5), faulty())
    ranking = found["ranking-avg_throughput_tokens_per_sec"]
    assert [row[0] for row in ranking.rows] == ["r1", "r0"]
    assert "Without rank, because faulty or crowded: r2." in ranking.says


def test_latencies_of_whole_entries_name_their_sizes_s15() -> None:
    assert "storage read 4.00 GiB and 4.00 GiB" in drawn(sample.built())["tiers-read"].says
    rows = {row.title: row.cells[0].sizes for row in headline_rows(labelled([("r", sample.built())]))}
    assert rows["Storage read in the device, p95"] == "entries of 4.00 GiB, p95 4.00 GiB"


def test_no_two_counts_of_requests_have_one_name_on_a_page() -> None:
    """A card had those of the window, the checks those of the whole load, both as "Requests completed"."""
    result = sample.built(sample.filled_recorder())
    cards = {row.title: row.cells[0].value for row in headline_rows(labelled([("r", result)]))}
    rows = dict(checks(result))
    assert not [title for title, value in rows.items() if cards.get(title, value) != value]
    assert rows["Requests completed in the measured window"] == cards["Requests completed"]
    assert "Requests completed" not in rows


def test_the_bandwidths_of_a_page_have_one_unit() -> None:
    """A page had 7.4 MiB/s of reads beside 0.143 GiB/s of writes."""

    def units(read: float, write: float) -> set[str]:
        result = sample.built(sample.filled_recorder())
        for verb, value in (("read", read), ("write", write)):
            result.metrics[f"tier_storage_{verb}_bandwidth_gbps"].value = value
        rows = headline_rows(labelled([("r", result)]))
        return {row.unit for row in rows if row.unit.endswith("iB/s")}

    assert units(0.007, 0.143) == units(3.0, 0.02) == units(0.02, 0.0) == {"MiB/s"}
    assert units(3.0, 0.2) == units(3.0, 0.0) == {"GiB/s"}
