"""Submissions: the fixed parameters, every deviation named, and the rules of aggregation."""

import tempfile
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.result.schema import MetricValue, Result
from kvspill.result.schema_honesty import Caution, Fault, Faults
from kvspill.run.progress import Progress
from kvspill.run.runner import make_plan, run_trials
from kvspill.suite.aggregates import aggregate
from kvspill.suite.submission import (
    OPTIONS,
    allocs_text,
    deviations,
    metric_choice,
    render,
    summarize,
)


@pytest.fixture(scope="module")
def result() -> Result:
    """A real result of a small simulation, dressed as a measured one."""
    config = Config(num_users=4, duration=20.0, cpu_mem_gb=0.0, gpu_mem_gb=0.0, generation_mode="none")
    return measured(run_trials(make_plan(config, True), Progress(quiet=True)))


def measured(found: Result) -> Result:
    honesty = found.honesty.model_copy(update={"modelled_tiers": []})
    return found.model_copy(update={"simulated": False, "honesty": honesty})


def warned(result: Result, *cautions: tuple[str, str]) -> Result:
    """The result with these warnings, code and message."""
    warnings = [Caution(code=code, message=message, remedy="x") for code, message in cautions]
    return result.model_copy(update={"warnings": warnings})


def config(option: str, **changes: Any) -> Config:
    return Config.model_validate({**OPTIONS[option].settings, **changes})


def with_figures(result: Result, tokens: float, read: float, p95: float | None) -> Result:
    changes: dict[str, Any] = {
        "avg_throughput_tokens_per_sec": tokens,
        "tier_storage_read_bandwidth_gbps": read,
        "storage_read_device_p95_ms": p95,
    }
    metrics = {name: MetricValue(value=value, unit="x") for name, value in changes.items()}
    return result.model_copy(update={"metrics": {**result.metrics, **metrics}})


def test_the_options_have_their_published_parameters() -> None:
    found = {
        name: tuple(
            option.settings.get(key)
            for key in (
                "model",
                "num_users",
                "duration",
                "cpu_mem_gb",
                "max_concurrent_allocs",
                "generation_mode",
            )
        )
        for name, option in OPTIONS.items()
    }
    assert found == {
        "1": ("llama3.1-8b", 200, 300.0, 0.0, 16, "none"),
        "2": ("llama3.1-8b", 100, 300.0, 4.0, 0, "none"),
        "3": ("llama3.1-70b-instruct", 70, 300.0, 0.0, 4, "none"),
        "8b": ("llama3.1-8b", 150, 600.0, 2.0, None, "realistic"),
        "70b": ("llama3.1-70b-instruct", 40, 600.0, 4.0, None, "realistic"),
    }
    assert all(
        option.settings["seed"] == 42 and option.settings["gpu_mem_gb"] == 0 for option in OPTIONS.values()
    )
    assert OPTIONS["8b"].settings["performance_profile"] == "throughput"


@pytest.mark.parametrize("option", OPTIONS)
def test_three_clean_trials_with_fixed_parameters_are_closed(option: str, result: Result) -> None:
    trials = [[result]] * 3
    assert deviations(OPTIONS[option], config(option), trials) == []
    assert summarize(OPTIONS[option], config(option), trials)["division"] == "closed"


def test_directories_and_outputs_may_differ(result: Result) -> None:
    changed = config("1", cache_dir=("/mnt/nvme",), output="x.json", storage_capacity_gb=500.0)
    assert deviations(OPTIONS["1"], changed, [[result]] * 3) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_users": 100}, "--num-users 100: option 1 fixes 200"),
        ({"duration": 30.0}, "--duration 30: option 1 fixes 300"),
        ({"seed": 7}, "--seed 7: option 1 fixes 42"),
        ({"max_concurrent_allocs": 0}, "--max-concurrent-allocs 0: option 1 fixes 16"),
        ({"io_threads": 64}, "--io-threads 64: option 1 fixes 32"),
        ({"cpu_mem_gb": 4.0}, "--cpu-mem-gb 4: option 1 fixes 0"),
    ],
)
def test_each_deviation_is_named_with_both_values(changes: dict[str, Any], says: str, result: Result) -> None:
    assert deviations(OPTIONS["1"], config("1", **changes), [[result]] * 3) == [says]


def test_two_trials_are_too_few(result: Result) -> None:
    assert deviations(OPTIONS["1"], config("1"), [[result]] * 2) == [
        "2 complete trials: at least 3 are required"
    ]


def test_an_incomplete_trial_is_named_and_in_no_average(result: Result) -> None:
    broken = result.model_copy(update={"incomplete": True, "interrupted": "stopped by SIGTERM"})
    slow = with_figures(broken, tokens=0.0, read=0.0, p95=1e9)
    summary = summarize(OPTIONS["1"], config("1"), [[result], [result], [result], [slow]])
    assert summary["deviations"] == ["trial 4: ended early (stopped by SIGTERM)"]
    assert summary["division"] == "open"
    assert len(summary["figures"]["avg_throughput_tokens_per_sec"]["per_trial"]) == 3


def test_a_faulty_trial_is_named_and_leaves_the_submission_without_figures(result: Result) -> None:
    faults = Faults(operations=[Fault(tier="storage", verb="read", kind="EIO", count=12)])
    bad = result.model_copy(update={"faulty": True, "faults": faults})
    summary = summarize(OPTIONS["1"], config("1"), [[result], [bad], [result], [result]])
    assert summary["division"] == "invalid"
    assert summary["figures"] == {}
    assert summary["deviations"] == ["trial 2 is faulty: 12 storage read EIO"]
    text = render(summary)
    assert "has no figures" in text
    assert "Compare by" not in text
    assert "All trials" not in text


def test_simulated_modelled_and_failed_are_deviations(result: Result) -> None:
    honesty = result.honesty.model_copy(update={"modelled_tiers": ["storage"]})
    faults = Faults(failed_requests=2)
    bad = result.model_copy(update={"faulty": True, "faults": faults, "honesty": honesty})
    virtual = result.model_copy(update={"simulated": True})
    found = deviations(OPTIONS["1"], config("1"), [[result], [bad], [virtual]])
    assert found == [
        "trial 2 is faulty: 2 failed requests",
        "trial 2: modelled tiers: storage",
        "trial 3: simulated, no byte moved",
    ]


@pytest.mark.parametrize(
    "code",
    [
        "memory_directory",
        "not_direct",
        "page_cache",
        "not_written",
        "device_excess",
        "client_bound",
        "capacity_bound",
        "crowded",
    ],
)
def test_a_trial_that_measured_something_else_is_not_closed(code: str, result: Result) -> None:
    spoiled = warned(result, (code, "What went wrong."))
    summary = summarize(OPTIONS["1"], config("1"), [[result], [spoiled], [result]])
    assert summary["deviations"] == [f"trial 2: {code}: What went wrong."]
    assert summary["division"] == "open"


def test_a_submission_bounded_by_a_small_storage_budget_is_not_closed() -> None:
    small = Config(
        model="tiny-1b", num_users=8, duration=60.0, cpu_mem_gb=0.0, gpu_mem_gb=0.0, storage_capacity_gb=1.0
    )
    bounded = measured(run_trials(make_plan(small, True), Progress(quiet=True)))
    found = deviations(OPTIONS["1"], config("1", storage_capacity_gb=4.0), [[bounded]] * 3)
    assert [text for text in found if "capacity_bound" in text] == [found[-1]]
    assert found[-1].startswith("trial 1, 2, 3: capacity_bound: ")


@pytest.mark.real
def test_trials_in_memory_or_through_the_page_cache_are_named_and_open() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        small = Config(
            model="tiny-1b",
            num_users=2,
            duration=3.0,
            cpu_mem_gb=0.0,
            gpu_mem_gb=0.0,
            storage_capacity_gb=0.5,
            cache_dir=(folder,),
            direct="off",
        )
        trial = run_trials(make_plan(small, False), Progress(quiet=True))
    summary = summarize(OPTIONS["1"], config("1"), [[trial]] * 3)
    assert summary["division"] == "open"
    for code in ("memory_directory", "not_direct"):
        assert any(text.startswith(f"trial 1, 2, 3: {code}: ") for text in summary["deviations"])


def test_no_complete_trial_is_invalid() -> None:
    assert summarize(OPTIONS["1"], config("1"), [])["division"] == "invalid"


def test_ranks_are_summed_trials_averaged_and_device_p95_is_the_maximum(result: Result) -> None:
    trials = [
        [with_figures(result, 100, 1.0, 10), with_figures(result, 50, 0.5, 30)],
        [with_figures(result, 110, 1.1, 20), with_figures(result, 60, 0.6, 5)],
    ]
    found = aggregate(trials)
    assert found["avg_throughput_tokens_per_sec"]["value"] == pytest.approx(160)
    assert found["tier_storage_read_bandwidth_gbps"]["value"] == pytest.approx(1.6)
    assert found["storage_read_device_p95_ms"]["value"] == 30
    assert found["avg_throughput_tokens_per_sec"]["median"] == pytest.approx(160)
    assert found["storage_read_device_p95_ms"]["rule"] == "maximum over ranks and trials"


def test_the_whole_bandwidth_stands_beside_its_trials(result: Result) -> None:
    found = aggregate([[result], [result]])
    parts = [found[f"tier_storage_{verb}_bandwidth_gbps"]["value"] for verb in ("read", "write")]
    whole = found["aggregate_bandwidth_gbps"]
    assert whole["value"] == pytest.approx(sum(parts))
    assert whole["per_trial"] == [pytest.approx(sum(parts))] * 2
    assert whole["cv"] == 0.0


def test_a_figure_that_a_trial_lacks_is_not_invented(result: Result) -> None:
    lacking = with_figures(result, 1.0, 1.0, None)
    assert aggregate([[result], [lacking]])["storage_read_device_p95_ms"]["value"] is None


def test_the_metric_depends_on_the_dram_budget() -> None:
    one, standard = OPTIONS["1"], OPTIONS["8b"]
    assert metric_choice(0, one).primary == ("decode_bytes_read_gb", "avg_throughput_tokens_per_sec")
    assert metric_choice(0, one).unfit == ("storage_throughput_tokens_per_sec",)
    assert metric_choice(4, one).primary == ("storage_throughput_tokens_per_sec",)
    assert "2 GB" in metric_choice(2, standard).reason
    assert "this option's own rule" in metric_choice(2, standard).reason
    assert "own rule" not in metric_choice(2, one).reason


def test_option_2_says_which_allocs_it_takes(result: Result) -> None:
    assert "0, as in the published invocation" in str(allocs_text(OPTIONS["2"], 0))
    assert "16, as the MLPerf harness" in str(allocs_text(OPTIONS["2"], 16))
    assert allocs_text(OPTIONS["1"], 16) is None
    assert deviations(OPTIONS["2"], config("2", max_concurrent_allocs=16), [[result]] * 3) == []


def test_the_text_marks_the_primary_metrics_and_the_division(result: Result) -> None:
    text = render(summarize(OPTIONS["1"], config("1"), [[result]] * 3))
    assert "Division: CLOSED" in text
    assert "-> decode_bytes_read_gb" in text
    assert "   storage_throughput_tokens_per_sec" in text


def test_warnings_are_told_once_with_their_trials(result: Result) -> None:
    few, late = ("few_trials", "1 trial"), ("late_arrivals", "late by 5 ms")
    trials = [[warned(result, few, late)], [warned(result, few)], [warned(result, late)]]
    summary = summarize(OPTIONS["1"], config("1"), trials)
    assert summary["warnings"] == ["late_arrivals (trial 1, 3): late by 5 ms"]


def test_a_warning_with_other_figures_in_each_trial_says_whose_it_shows(result: Result) -> None:
    trials = [[warned(result, ("unfinished", f"{count} requests"))] for count in (12, 15)]
    summary = summarize(OPTIONS["1"], config("1"), trials)
    assert summary["warnings"] == ["unfinished (trial 1, 2; figures of trial 1): 12 requests"]


def test_what_is_a_deviation_is_no_warning_too_and_equal_ranks_are_told_once(result: Result) -> None:
    cached, late = ("not_direct", "412 openings."), ("late_arrivals", "late by 5 ms")
    odd = warned(
        result, ("not_direct", "7 openings."), ("incomplete", "It ended early."), ("few_trials", "1")
    )
    trials = [[warned(result, cached, late)] * 2, [warned(result, cached), odd], [warned(result), odd]]
    summary = summarize(OPTIONS["1"], config("1"), trials)
    assert summary["deviations"] == [
        "trial 1, 2 (2 ranks), trial 3 (rank 1); figures of trial 1 (rank 0): not_direct: 412 openings."
    ]
    assert summary["warnings"] == ["late_arrivals (trial 1 (2 ranks)): late by 5 ms"]


def of(result: Result, **changes: Any) -> Result:
    """The result as one of another configuration."""
    other = Config.model_validate(changes)
    workload = {"kind": "synthetic", "personas": other.persona_preset or "own"}
    return result.model_copy(update={"config": other.model_dump(mode="json"), "workload": workload})


def test_trials_of_different_workloads_are_no_submission(result: Result) -> None:
    closed, old = of(result, **OPTIONS["1"].settings), of(result, **{**OPTIONS["1"].settings, "sync": "none"})
    summary = summarize(OPTIONS["1"], config("1"), [[closed], [old], [closed]])
    assert summary["mixed"] == ["sync: data in trial 1, 3, none in trial 2"]
    assert (summary["division"], summary["figures"]) == ("invalid", {})
    assert "mixture: sync: data in trial 1, 3, none in trial 2\n" in render(summary)
    personas = of(result, **{**OPTIONS["1"].settings, "workload_preset": "2025-11"})
    summary = summarize(OPTIONS["1"], config("1"), [[closed, personas]] * 3)
    assert summary["mixed"][0] == (
        "workload: personas 2026-02 in trial 1, 2, 3 (rank 0), personas 2025-11 in trial 1, 2, 3 (rank 1)"
    )
    summary = summarize(OPTIONS["1"], config("1"), [[closed], [old], [personas]])
    assert "Workload: personas 2025-11 and personas 2026-02, --sync data and none.\n" in render(summary)


def test_two_sets_of_own_personas_are_a_mixture_too(result: Result) -> None:
    one, two = (of(result, personas={"chatbot": {"weight": weight}}) for weight in (2, 3))
    assert summarize(OPTIONS["1"], config("1"), [[one], [two]])["mixed"] == [
        "workload: personas own in trial 1, personas own in trial 2"
    ]


def test_ranks_with_seeds_and_directories_of_their_own_are_no_mixture(result: Result) -> None:
    ranks = [
        of(result, **{**OPTIONS["1"].settings, "seed": 42 + n, "cache_dir": [f"/c/rank_{n}"]}) for n in (0, 1)
    ]
    summary = summarize(OPTIONS["1"], config("1"), [ranks] * 3)
    assert summary["mixed"] == []
    assert summary["workload"] == ["personas 2026-02"]
    assert "Workload: personas 2026-02, --sync data.\n" in render(summary)
