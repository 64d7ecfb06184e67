"""Trials: medians and spread of complete runs; an incomplete run is named and enters no average."""

from typing import Any

import pytest

from kvspill.config import Config
from kvspill.report.console import render_summary
from kvspill.result.schema import Result, Trials
from kvspill.result.schema_honesty import Caution, Fault
from kvspill.result.trials import HEADLINES, aggregate, combine, incomplete_reason
from unit.measure.rows import request
from unit.result.sample import built, codes, empty_recorder, facts


def trial(tokens: int, config: Config | None = None, **changes: Any) -> Result:
    recorder = empty_recorder()
    recorder.request(request(15, intended=12, storage=1, tokens=tokens))
    return built(recorder, facts(**changes), config)


def trials_of(combined: Result) -> Trials:
    assert combined.trials is not None
    return combined.trials


def test_the_headlines_are_the_figures_that_drives_are_compared_by() -> None:
    assert {
        "avg_throughput_tokens_per_sec",
        "storage_throughput_tokens_per_sec",
        "nvme_throughput",
        "decode_bytes_read_gb",
        "tier_storage_read_bandwidth_gbps",
        "tier_storage_write_bandwidth_gbps",
    } <= set(HEADLINES)


def test_median_p95_spread_and_interval_of_three() -> None:
    found = aggregate([trial(90), trial(110), trial(100)]).metrics["avg_throughput_tokens_per_sec"]
    assert found.median == found.mean == 10.0
    assert found.p95 == pytest.approx(10.9)
    assert found.cv == pytest.approx(0.1)
    assert (found.min, found.max) == (9.0, 11.0)
    assert found.ci95_high is not None
    assert found.ci95_high - 10.0 == pytest.approx(4.3027 / 3**0.5, rel=1e-3)
    assert found.unit == "tokens/s"


def test_an_interval_of_two_distant_trials_ends_at_zero() -> None:
    found = aggregate([trial(10), trial(100)]).metrics["avg_throughput_tokens_per_sec"]
    assert found.ci95_low == 0


def test_trials_that_never_began_are_counted_as_asked_for() -> None:
    ended = trial(100, interrupted="stopped by SIGINT")
    assert "1 complete of 3" in render_summary(combine([trial(100), ended], asked=3))


def test_one_trial_has_a_median_but_no_spread() -> None:
    found = aggregate([trial(100)]).metrics["avg_throughput_tokens_per_sec"]
    assert found.median == 10.0
    assert found.cv is None
    assert found.ci95_low is None


def test_an_incomplete_trial_is_named_and_enters_no_average() -> None:
    block = aggregate([trial(100), trial(10_000, interrupted="stopped by SIGINT"), trial(100)])
    assert (block.count, block.complete) == (3, 2)
    assert [(item.trial, item.reason) for item in block.set_aside] == [
        (2, "ended early (interrupted by Ctrl-C)")
    ]
    assert block.metrics["avg_throughput_tokens_per_sec"].max == 10.0
    assert len(block.rows) == 3


def test_a_trial_with_fewer_requests_than_asked_for_is_incomplete() -> None:
    asked = Config(max_requests=11)
    assert incomplete_reason(trial(1, completed=10, config=asked)) == "completed 10 of 11 requests"
    assert incomplete_reason(trial(1, completed=11, config=asked)) is None
    assert incomplete_reason(built(empty_recorder())) == "completed no request"


def test_what_was_asked_for_is_compared_with_the_whole_load_and_not_with_its_window() -> None:
    """With a warm-up the window never has all of it."""
    served = trial(1, arrived=60, completed=60, config=Config(max_requests=60))
    assert served.requests_completed == 1
    assert incomplete_reason(served) is None
    assert aggregate([served, served]).complete == 2


def test_a_recording_that_ends_before_the_requests_asked_for_is_complete_where_all_of_it_was_served() -> None:
    for config in (Config(max_requests=60), Config(max_requests=60, duration=600)):
        assert incomplete_reason(trial(1, arrived=11, completed=11, config=config)) is None
        left = trial(1, arrived=11, completed=10, config=config)
        assert incomplete_reason(left) == "completed 10 of 11 requests"
    # Here it was the time that ended it: others would still have come.
    late = trial(1, arrived=11, completed=11, config=Config(max_requests=60, duration=11))
    assert incomplete_reason(late) == "completed 11 of 60 requests"


def test_a_trial_whose_requests_failed_is_faulty_and_not_incomplete() -> None:
    asked = Config(max_requests=11)
    assert incomplete_reason(trial(1, completed=9, failed=2, config=asked)) is None
    assert incomplete_reason(trial(1, completed=9, failed=1, config=asked)) == "completed 9 of 11 requests"


def test_a_metric_that_a_trial_did_not_measure_has_no_statistics() -> None:
    missing = trial(100)
    missing.metrics["nvme_throughput"].value = None
    assert "nvme_throughput" not in aggregate([trial(100), missing]).metrics


def test_the_trial_in_the_middle_stands_for_all() -> None:
    combined = combine([trial(300), trial(100), trial(200)])
    assert combined.value("total_tokens") == 200
    assert trials_of(combined).complete == 3
    assert "few_trials" not in codes(combined)


def test_set_aside_trials_are_warned_of_by_name() -> None:
    combined = combine([trial(1, interrupted="x"), trial(2), trial(3)])
    assert {"incomplete_trials", "few_trials"} <= codes(combined)
    assert combined.value("total_tokens") == 2
    message = next(item.message for item in combined.warnings if item.code == "incomplete_trials")
    assert "trial 1 ended early (x)" in message


def test_nothing_but_incomplete_trials_is_still_a_result() -> None:
    combined = combine([trial(1, interrupted="x")])
    assert combined.incomplete is True
    assert trials_of(combined).metrics == {}


def test_trials_that_planned_other_work_are_said_to_differ() -> None:
    assert "different_work" in codes(combine([trial(1), trial(2, digest="e" * 64)]))
    assert "different_work" not in codes(combine([trial(1), trial(2)]))


def test_no_trial_at_all_is_an_error() -> None:
    with pytest.raises(ValueError, match="no trial"):
        combine([])


def test_the_console_shows_the_trials() -> None:
    text = render_summary(combine([trial(90), trial(110), trial(100)]))
    assert "TRIALS: 3 complete of 3" in text
    row = next(line for line in text.splitlines() if "avg_throughput_tokens_per_sec" in line)
    assert row.split()[1:3] == ["10.00", "10.90"]
    assert row.endswith("10.0%")
    assert max(map(len, text.splitlines())) <= 80


def test_the_faults_of_every_trial_are_named_not_only_those_of_the_middle_one() -> None:
    """A trial with failed operations that is not the one in the middle must not vanish among the others."""
    faulty = trial(50)
    faulty.warnings.append(Caution(code="errors", message="Operations failed: 21.", remedy="Look."))
    faulty.honesty.errors = [Fault(tier="storage", verb="read", kind="torn", count=21)]
    combined = combine([faulty, trial(200), trial(100)])
    messages = [item.message for item in combined.warnings if item.code == "errors"]
    assert messages == ["Trial 1: Operations failed: 21."]
    assert [row.failed_operations for row in trials_of(combined).rows] == [21, 0, 0]


def test_what_all_trials_are_warned_of_is_said_once() -> None:
    combined = combine([trial(90), trial(110), trial(100)])
    assert len(combined.warnings) == len({item.code for item in combined.warnings})
    assert not any(item.message.startswith("Trial") for item in combined.warnings)
