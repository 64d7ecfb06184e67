"""Targets under one load: who ranks where, who shares a rank, and who has none."""

import pytest

from kvspill.config import Config
from kvspill.result.schema import MetricValue, Result, Trials, TrialStatistics
from kvspill.result.schema_honesty import Caution, Fault, Faults
from kvspill.run.progress import Progress
from kvspill.run.runner import make_plan, run_trials
from kvspill.suite.backends import SPEED, honesty, lines, ranked, rows_of, speeds


@pytest.fixture(scope="module")
def result() -> Result:
    config = Config(num_users=2, max_requests=4, cpu_mem_gb=0.0, gpu_mem_gb=0.0, generation_mode="none")
    found = run_trials(make_plan(config, True), Progress(quiet=True))
    return found.model_copy(update={"warnings": [], "trials": None})


def at(result: Result, speed: float | None, spread: float = 0.0) -> Result:
    """The result with that speed, and with trials around it where a spread is given."""
    metrics = {**result.metrics, SPEED: MetricValue(value=speed, unit="tokens/s")}
    trials = None
    if spread and speed is not None:
        low, high = speed - spread, speed + spread
        one = TrialStatistics(unit="tokens/s", median=speed, mean=speed, p95=high, min=low, max=high)
        trials = Trials(count=3, complete=3, metrics={SPEED: one})
    return result.model_copy(update={"metrics": metrics, "trials": trials})


def test_the_faster_target_comes_first(result: Result) -> None:
    found = {"slow": at(result, 10.0), "fast": at(result, 40.0)}
    assert ranked(found) == [("fast", "1"), ("slow", "2")]
    assert "fast did the work 4.0 times as fast as slow." in lines(found)
    near = {"slow": at(result, 10.0), "fast": at(result, 10.13)}
    assert "fast did the work 1.3% faster than slow." in lines(near), "1.0 times as fast says nothing"
    same = {"slow": at(result, 10.0), "fast": at(result, 10.001)}
    assert "fast did the work as fast as slow." in lines(same)
    assert [row[:4] for row in speeds(found)[1]] == [
        ("fast", "1", "40.0", "100%"),
        ("slow", "2", "10.0", "25%"),
    ]


def test_targets_whose_trials_overlap_share_a_rank(result: Result) -> None:
    found = {"a": at(result, 100.0, 5), "b": at(result, 97.0, 5), "c": at(result, 50.0, 5)}
    assert ranked(found) == [("a", "1"), ("b", "1"), ("c", "3")]
    two = {name: found[name] for name in ("a", "b")}
    assert "Their trials overlap: no target is faster than another as far as can be told." in lines(two)


def test_a_faulty_target_has_no_rank_however_fast(result: Result) -> None:
    faults = Faults(operations=[Fault(tier="storage", verb="read", kind="EIO", count=3)])
    caution = Caution(code="errors", message="x", remedy="x", severity="invalid")
    bad = at(result, 900.0).model_copy(update={"faults": faults, "warnings": [caution], "faulty": True})
    found = {"bad": bad, "good": at(result, 1.0)}
    assert ranked(found) == [("good", "1"), ("bad", "-")]
    assert any(
        line.startswith("bad is not ranked: it is faulty: 3 storage read EIO") for line in lines(found)
    )
    assert honesty(found)[1][1][-1] == "operations failed"


def with_hits(result: Result, hits: float) -> Result:
    metrics = {**result.metrics, "cache_hits": MetricValue(value=hits, unit="count")}
    return result.model_copy(update={"metrics": metrics})


def test_hits_that_differ_by_more_than_one_percent_between_ranked_targets_are_named(result: Result) -> None:
    a, b = at(result, 4.0), at(result, 2.0)
    (line,) = [
        line
        for line in lines({"a": with_hits(a, 138), "b": with_hits(b, 118)})
        if line.startswith("Not the same")
    ]
    assert line.startswith("Not the same on every target: 118 hits on b, 138 on a. A server may have")
    close = lines({"a": with_hits(a, 1000), "b": with_hits(b, 995)})
    unranked = lines({"a": with_hits(a, 138), "b": with_hits(at(result, None), 118)})
    assert not any(line.startswith("Not the same") for line in (*close, *unranked))
    equal = "Hits and bytes read were the same on every target with a rank."
    assert equal not in [*lines({"a": with_hits(a, 1000), "b": with_hits(b, 995)})]
    assert equal in lines({"a": with_hits(a, 1000), "b": with_hits(b, 1000)})


def test_other_work_is_said_aloud(result: Result) -> None:
    other = at(result, 2.0).model_copy(update={"digest": "f" * 64})
    assert any("WAS NOT THE SAME" in line for line in lines({"a": at(result, 1.0), "b": other}))
    assert any("was the same" in line for line in lines({"a": at(result, 1.0), "b": at(result, 2.0)}))


def test_rows_of_like_targets_have_names_of_their_own() -> None:
    targets = ["/mnt/nvme", "s3://bucket/" + "x" * 80, "s3://bucket/" + "x" * 80 + "y"]
    names = [row.name for row in rows_of(targets, [{}] * 3)]
    assert names[0] == "1-mnt-nvme"
    assert len(set(names)) == 3
    assert all(len(name) <= 40 for name in names)
