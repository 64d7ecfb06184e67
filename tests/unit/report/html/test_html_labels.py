"""What a page calls its results: which drives were measured, and which load its figures are of."""

from typing import Any

import pytest

pytest.importorskip("jinja2", reason="the page needs the extra `report`")
pytest.importorskip("vl_convert", reason="the page needs the extra `report`")

from kvspill.config import Config
from kvspill.records import QoS
from kvspill.report.console import render_summary
from kvspill.report.html.drawings import with_flags
from kvspill.report.html.facts import labelled
from kvspill.report.html.headline import headline_rows
from kvspill.report.html.page import Remarks, page_of
from kvspill.report.html.prose import page_title, stage_label
from kvspill.report.html.specs import lines, with_targets
from kvspill.report.html.verdicts import verdict_of
from kvspill.report.numbers import UNMEASURED
from kvspill.result.schema import Question, Result
from kvspill.result.warnings.known import noted
from kvspill.run.settle import settled
from unit.measure.rows import ns, request
from unit.report.html.outline import Outline
from unit.report.html.pages import build_page
from unit.result import sample


def on_drive(name: str) -> Result:
    found = sample.built()
    directory = {"path": "/mnt", "device": name, "model": "KX 900", "filesystem": "ext4"}
    found.environment = {"directories": [directory]}
    return found


def simulated(profile: str) -> Result:
    found = sample.built(run=sample.facts(simulated=True))
    return found.model_copy(update={"config": {**found.config, "device_profile": profile}})


def test_the_device_of_a_simulation_has_a_name_where_nobody_gave_one() -> None:
    config = settled(Config(), simulated=True)
    found = sample.built(run=sample.facts(simulated=True), config=config)
    assert page_title(labelled([("a", found)])) == f"{config.model} on a simulated nvme-gen4"
    assert settled(Config(), simulated=False).device_profile is None


def test_a_simulated_device_is_not_counted_as_a_drive() -> None:
    models = [simulated(name) for name in ("nvme-gen4", "nvme-gen5", "sata-ssd")]
    assert page_title(labelled([(f"{n}", item) for n, item in enumerate(models)])) == (
        f"{models[0].config['model']} on 3 simulated devices"
    )
    other = simulated("nvme-gen4")
    other.config["model"] = "tiny-1b"
    assert page_title(labelled([("a", models[0]), ("b", other)])).startswith(
        f"{models[0].config['model']} and tiny-1b on "
    )
    mixed = [*models, on_drive("nvme0n1"), on_drive("nvme1n1"), on_drive("nvme1n1")]
    assert page_title(labelled([(f"{n}", item) for n, item in enumerate(mixed)])).endswith(
        " on 2 drives and 3 simulated devices"
    )
    drives = [on_drive(f"nvme{n}n1") for n in range(3)]
    assert page_title(labelled([(f"{n}", item) for n, item in enumerate(drives)])).endswith(" on 3 drives")


def test_a_directory_in_memory_is_not_counted_as_a_drive() -> None:
    memory = on_drive("tmpfs").model_copy(update={"warnings": [noted("memory_directory", "m.", "r.")]})
    results = [on_drive("nvme0n1"), on_drive("nvme1n1"), memory]
    assert page_title(labelled([(f"{n}", item) for n, item in enumerate(results)])).endswith(
        " on 2 drives and 1 directory in memory"
    )


def test_figures_of_another_load_than_the_one_asked_about_say_so() -> None:
    step = {"mode": "slo", "users": 4, "reason": "Largest load", "concluded": True, "target_met": True}
    found = sample.built(autoscaling=[step])
    asked = Question(answer="no", users=900, sentence="NO: 900 users do not.", helps="Use fewer --users.")
    window = found.window.model_copy(update={"users": 4})
    found = found.model_copy(update={"question": asked, "window": window})
    text = " ".join(" ".join(Outline(build_page([("mine", found)])).text).split())
    assert text.index("Figures with 4 users (asked: 900):") < text.index("Throughput, wall clock")
    assert "Storage criteria, with 4 users, not the answer to the question: " in text
    assert "Storage assessment" not in text
    plain = " ".join(Outline(build_page([("mine", sample.built())])).text)
    assert "Figures with" not in plain


def test_figures_of_the_last_of_several_windows_say_so() -> None:
    levels = [{"level": 4, "windows": 2}, {"level": 5, "windows": 1}]
    step = {"mode": "slo", "users": 4, "reason": "Largest load", "concluded": True, "levels": levels}
    found = sample.built(autoscaling=[step])
    found = found.model_copy(update={"window": found.window.model_copy(update={"users": 4})})
    said = f", last of 2 windows, {found.window.measured_seconds:.0f} s"
    for count in (1, 2, 6):
        text = " ".join(Outline(build_page([(f"r{number}", found) for number in range(count)])).text)
        assert text.count(said) == count
    found = found.model_copy(update={"window": found.window.model_copy(update={"users": 5})})
    assert "window" not in stage_label(found)


def test_a_search_whose_users_miss_their_targets_is_not_shown_as_met_s11() -> None:
    step: dict[str, Any] = {
        **{"mode": "qos", "users": 14, "reason": "Largest load", "concluded": True, "target_met": True},
        "qos": {"batch": {"sla_verdict": "missed"}},
        "no_verdict": [],
    }
    assert verdict_of(sample.built(autoscaling=[step])).state == "open"
    step["qos"] = {"batch": {"sla_verdict": "met"}}
    assert verdict_of(sample.built(autoscaling=[step])).state == "met"


def test_a_class_of_which_nothing_ended_stands_on_the_page_as_missed_l3() -> None:
    recorder = sample.filled_recorder()
    starved = sample.facts(unfinished_ages_ns=(ns(9),) * 100, unfinished_qos=(QoS.RESPONSIVE,) * 100)
    classes = {row.name: row for row in verdict_of(sample.built(recorder, starved)).classes}
    found = classes["responsive"]
    assert (found.actual, found.target, found.state) == ("not measured", "100 ms", "missed")
    assert "not measured" in build_page([("mine", sample.built(recorder, starved))])


def test_a_percentile_stands_beside_the_number_that_it_is_of_and_those_left_are_said() -> None:
    recorder = sample.empty_recorder()
    for _ in range(90):
        recorder.request(request(15, intended=14.99, qos=QoS.BATCH))
    left = sample.facts(unfinished_ages_ns=(ns(9),) * 10, unfinished_qos=(QoS.BATCH,) * 10)
    result = sample.built(recorder, left, Config(num_users=100))
    (row,) = verdict_of(result).classes
    said = "10 still waited at the end; these count as late"
    assert (row.actual, row.state) == ("10.00 ms", "missed")
    assert row.note == f"90 requests, 90.0% within the target, {said}"
    shown = " ".join(render_summary(result, verbose=False).split())
    assert "batch 10.00 ms 1 s 90 missed" in shown
    assert f"batch: 90 requests completed, {said}." in shown


def test_a_search_gives_the_number_that_its_percentile_is_of_too() -> None:
    row = {"target_ms": 1000.0, "actual_ms": 10.0, "requests": 100, "waiting": 10, "verdict": "missed"}
    promise = {"latency": "added", "percentile": 95.0, "classes": {"batch": row}}
    step = {"mode": "slo", "users": 8, "reason": "x", "concluded": True, "slo": promise}
    result = sample.built(autoscaling=[step])
    (judged,) = verdict_of(result).classes
    assert judged.note == "90 requests, 10 still waited at the end; these count as late"
    assert "batch 10.00 ms 1 s 90 missed" in " ".join(render_summary(result, verbose=False).split())


def test_the_advice_of_simulated_suites_is_headed_by_what_it_is_of() -> None:
    results = labelled([("a", simulated("nvme-gen4"))])
    for of_model, heading in ((True, "for the modelled devices"), (False, "for this machine")):
        text = page_of(results, remarks=[Remarks("s", ["Buy nothing."], of_model)])
        assert f"What this means {heading}" in text
    both = page_of(results, remarks=[Remarks("one", ["A."], True), Remarks("two", ["B."])])
    assert ">What this means</h2>" in both
    assert "<h3>one (simulated)</h3>" in both


def test_the_lowest_target_is_named_below_its_line_so_that_two_near_ones_can_be_read() -> None:
    axis = {"field": "x", "title": "users"}
    spec = lines([{"series": "interactive", "x": 1.0, "y": 9e5}], axis, axis, ["interactive"])
    layers = with_targets(spec, {"interactive": 50.0, "responsive": 100.0}, "milliseconds")["layer"]
    texts = {
        row["label"]: layer["mark"]["baseline"]
        for layer in layers
        if layer["mark"].get("type") == "text"
        for row in layer["data"]["values"]
    }
    assert texts == {"target 100 ms (responsive)": "bottom", "target 50 ms (interactive)": "top"}


@pytest.mark.parametrize(("heights", "side"), [((10, 20, 1100), "left"), ((1100, 2000, 5000), "right")])
def test_a_target_is_named_where_no_curve_crosses_its_label(heights: tuple[int, ...], side: str) -> None:
    axis = {"field": "x", "title": "users"}
    rows = [{"series": "batch", "x": 4.0 * number, "y": float(y)} for number, y in enumerate(heights)]
    layers = with_targets(lines(rows, axis, axis, ["batch"]), {"batch": 1000.0}, "milliseconds")["layer"]
    assert [layer["mark"]["align"] for layer in layers if layer["mark"].get("type") == "text"] == [side]


def test_the_tile_of_a_slow_drive_shows_digits_that_tell_it_from_none() -> None:
    name = "tier_storage_read_bandwidth_gbps"
    slow, fast = sample.built(), sample.built()
    slow.metrics[name] = slow.metrics[name].model_copy(update={"value": 25 / 1024})

    def shown(*results: Result) -> tuple[str, ...]:
        rows = headline_rows(labelled([(f"r{n}", result) for n, result in enumerate(results)]))
        (row,) = [row for row in rows if row.title == "Storage read bandwidth"]
        return (row.unit, *(cell.value for cell in row.cells))

    assert shown(slow) == ("MiB/s", "25.0")
    assert shown(slow, fast) == ("GiB/s", "0.024", "0.400"), "one unit for what is compared"


def test_a_result_without_storage_shows_no_figure_of_storage() -> None:
    memory = sample.built()
    memory.tiers = [tier for tier in memory.tiers if tier.tier != "storage"]
    titles = [row.title for row in headline_rows(labelled([("a", memory)]))]
    assert "Cache I/O per request, p95" in titles
    assert not [title for title in titles if "storage" in title.lower()]
    beside = headline_rows(labelled([("a", memory), ("b", sample.built())]))
    (row,) = [row for row in beside if row.title == "Throughput over storage I/O time"]
    assert row.cells[0].value == UNMEASURED


def test_a_flag_is_not_broken_at_its_hyphens() -> None:
    text = "Use fewer --num-users, <b>"
    assert with_flags(text) == 'Use fewer <span class="flag">--num-users</span>, &lt;b&gt;'
    page = build_page([("mine", sample.built(warnings=[noted("shed", "m", "Use --max-queue.")]))])
    assert 'Use <span class="flag">--max-queue</span>.' in page
