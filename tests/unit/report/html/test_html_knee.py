"""The curve of a load that grows: of a search, and of results that differ in their users."""

from typing import Any

import pytest

from kvspill.config import Config
from unit.report.html.outline import Outline
from unit.result import sample

vl_convert = pytest.importorskip("vl_convert")

from unit.report.html.pages import build_page, drawn  # noqa: E402


def test_the_knee_has_target_lines_where_the_search_has_targets() -> None:
    def classes(added: float) -> dict[str, Any]:
        return {"interactive": {"added_ms": {"p95": added}, "sla_target_p95_ms": 50.0}}

    steps = [
        {"time_seconds": 10.0, "users": 4, "throughput": 100.0, "qos": classes(20.0), "saturation": 0.2},
        {"time_seconds": 20.0, "users": 8, "throughput": 150.0, "qos": classes(90.0), "saturation": 0.9},
        {
            **{"time_seconds": 20.0, "users": 4, "action": "stop", "reason": "Found", "mode": "qos"},
            "target_saturation": 0.8,
        },
    ]
    found = drawn(sample.built(autoscaling=steps))
    assert next(iter(found)) == "load-curve-0"
    layers = found["knee-0"].spec["layer"]
    assert [(row["x"], row["y"]) for row in found["knee-0"].spec["data"]["values"]] == [(4, 20.0), (8, 90.0)]
    assert [row["y"] for row in layers[1]["data"]["values"]] == [50.0]
    assert found["knee-0"].rows[-1] == ("target", "50.00")
    assert [row["y"] for row in found["saturation-0"].spec["layer"][1]["data"]["values"]] == [0.8]


def test_a_load_that_was_tried_and_has_no_point_is_named() -> None:
    def held(users: int, **figures: Any) -> dict[str, Any]:
        return {"time_seconds": 10.0, "users": users, "throughput": 100.0, **figures}

    steps = [
        *(held(users, latency_ms={"end_to_end": {"p95": 20.0}}) for users in (4, 5)),
        held(10, reason="88.0% of responsive late, 5.0% allowed at 10: too much"),
        {**held(4), "action": "stop", "reason": "Found", "mode": "slo"},
    ]
    found = drawn(sample.built(autoscaling=steps))
    assert found["knee-0"].says.endswith(
        "Tried and not drawn, as too few requests gave a figure: 10 (users)."
    )
    assert "not drawn" not in found["load-curve-0"].says


@pytest.mark.parametrize("waits", [{1: 0.0, 2: 0.0, 4: 3.0, 8: 900.0}, {1: 0.0, 2: 0.0}])
def test_a_wait_of_nothing_is_drawn_or_named(waits: dict[int, float]) -> None:
    """A logarithmic axis has no zero: these points were left out without a word, or the page failed."""

    def held(users: int, wait_ms: float) -> dict[str, Any]:
        classes = {name: {"queue_wait_ms": {"p95": wait_ms}} for name in ("interactive", "batch")}
        return {"time_seconds": 10.0, "users": users, "throughput": 100.0, "qos": classes}

    limits = {"interactive": {"target_ms": 50.0}, "batch": {"target_ms": 1000.0}}
    promise = {"latency": "queue-wait", "percentile": 95.0, "classes": limits}
    last = {**held(1, 0.0), "action": "stop", "reason": "Largest load", "mode": "slo", "slo": promise}
    knee = drawn(sample.built(autoscaling=[*(held(*item) for item in waits.items()), last]))["knee-0"]
    points = {point["x"] for point in knee.spec["data"]["values"]}
    missing = "as a logarithmic axis has no zero: interactive at 1 and 2 (users); batch at 1 and 2 (users)."
    assert points == ({4, 8} if 8 in waits else {1, 2})
    assert (missing in knee.says) is (8 in waits)
    assert [row[0] for row in knee.rows] == [*map(str, waits), "target"]


def test_a_search_for_a_promise_is_shown_by_that_and_by_no_other_target() -> None:
    """Beside "found, within its target" stood the classes' own targets, missed."""

    def held(users: int, added: float) -> dict[str, Any]:
        classes = {"batch": {"added_ms": {"p95": added}, "sla_target_p95_ms": 1000.0}}
        return {"time_seconds": 10.0, "users": users, "throughput": 100.0, "qos": classes}

    row = {"target_ms": 2000.0, "actual_ms": 1957.0, "requests": 549, "violations": 26, "verdict": "met"}
    promise = {"latency": "added", "percentile": 95.0, "classes": {"batch": row}}
    last = {**held(4, 2093.0), "action": "stop", "reason": "Largest load", "mode": "slo", "slo": promise}
    result = sample.built(autoscaling=[held(4, 2093.0), held(8, 5000.0), last])
    knee = drawn(result)["knee-0"]
    assert [(point["x"], point["y"]) for point in knee.spec["data"]["values"]] == [(4, 1957.0), (8, 5000.0)]
    assert knee.rows[-1] == ("target", "2,000")
    text = " ".join(" ".join(Outline(build_page([("mine", result)])).text).split())
    assert "Service classes: what queue and storage add to generation, p95, as the search keeps it" in text
    assert "batch 549 requests 1.957 s 2 s ✓ met" in text


@pytest.mark.parametrize("levels", [(1, 2, 4), (1, 4), (4, 1, 4, 2, 2)])
def test_results_that_differ_in_users_alone_make_a_curve(levels: tuple[int, ...]) -> None:
    results = [
        sample.built(config=Config(num_users=users, seed=n, cache_dir=[f"/c{n}"]))
        for n, users in enumerate(levels)
    ]
    found = drawn(*results)
    expected = sorted(set(levels))
    assert [row["x"] for row in found["knee-rate"].spec["data"]["values"]] == expected
    assert "knee-latency" in found
    says = found["knee-rate"].says
    assert ("Two loads show" in says) is (len(expected) == 2)
    assert ("several results stands at their median" in says) is (len(levels) > len(expected))


def test_a_result_without_a_figure_is_named_beside_the_curve_of_the_others() -> None:
    results = [sample.built(config=Config(num_users=users)) for users in (1, 2, 4)]
    del results[1].metrics["avg_throughput_tokens_per_sec"]
    rate = drawn(*results)["knee-rate"]
    assert [row["x"] for row in rate.spec["data"]["values"]] == [1, 4]
    assert rate.says.endswith("Tried and not drawn, as too few requests gave a figure: 2 (users).")


def test_results_of_unequal_durations_say_why_they_make_no_curve() -> None:
    results = [sample.built(config=Config(num_users=users, duration=s)) for users, s in ((2, 600), (8, 300))]
    assert "knee-rate" not in drawn(*results)
    text = " ".join(Outline(build_page([(f"{n}", item) for n, item in enumerate(results)])).text)
    assert "because the results ran for 300 s and 600 s: run all of them equally long." in text


@pytest.mark.parametrize("changed", [{"generation_mode": "none"}, {"io_size": 1 << 20}, {"io_threads": 8}])
def test_results_that_differ_in_more_than_users_make_no_curve(changed: dict[str, Any]) -> None:
    one = sample.built(config=Config(num_users=2))
    other = sample.built(config=Config(num_users=8).changed(**changed))
    assert "knee-rate" not in drawn(one, other)
    assert "knee-rate" not in drawn(one, one)
    failed = sample.built(config=Config(num_users=8)).model_copy(update={"faulty": True})
    assert "knee-rate" not in drawn(one, failed), "a faulty result has no rank (S13)"
    elsewhere = sample.built(config=Config(num_users=8))
    elsewhere = elsewhere.model_copy(update={"environment": {"hostname": "another"}})
    assert "knee-rate" not in drawn(one, elsewhere)


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


def test_what_was_checked_of_a_search_is_of_its_last_stage() -> None:
    """More requests had "completed, warm-up included" than had arrived: some were of the stage before."""
    steps = [
        {"time_seconds": 10.0, "users": 8, "throughput": 100.0, "reason": "too much"},
        {"time_seconds": 20.0, "users": 4, "throughput": 90.0, "action": "stop", "reason": "room left"},
    ]
    searched, plain = (build_page([("r", sample.built(autoscaling=found))]) for found in (steps, []))
    assert "Requests arrived in the last stage" in searched
    assert "Requests arrived, warm-up included" not in searched
    assert "Requests arrived, warm-up included" in plain
    assert "The search ended with" not in searched


def test_a_search_that_held_one_load_has_no_path_and_no_queue_over_time() -> None:
    """A flat line, and two dots."""
    waits = {"latency_ms": {"queue_wait": {"mean": 1.0, "p95": 2.0}}}
    steps = [
        {"time_seconds": 10.0, "stage_seconds": 9.0, "users": 4, "action": "start", **waits},
        {"time_seconds": 30.0, "stage_seconds": 20.0, "users": 4, "action": "confirm", **waits},
        {"time_seconds": 30.0, "users": 4, "action": "stop", "reason": "Largest load", "mode": "slo"},
    ]
    found = drawn(sample.built(autoscaling=steps))
    assert not [name for name in found if name.startswith(("autoscaler-", "stage-waits-"))]
