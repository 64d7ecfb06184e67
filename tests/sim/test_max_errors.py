"""Faults cost the request and not the run; too many of them end it, and the reason is said aloud."""

import json
import random
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.config import Config
from kvspill.records import NS_PER_SEC, Tier
from kvspill.run import trial
from kvspill.run.backends import open_backends
from kvspill.world import World
from sim.hazards import HazardousDevice, Hazards, Outage

RUN = ["simulate", "--model", "tiny-1b", "--num-users", "5", "--cpu-mem-gb", "0", "--duration", "20"]
RUN += ["--storage-capacity-gb", "1", "--generation-mode", "fast", "--quiet"]


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs a command line on a storage tier with hazards; returns its exit code and its result.

    The trials after the first one have the hazards named last.
    """
    real_open = open_backends

    def run(hazards: Hazards, *argv: str, afterwards: Hazards | None = None) -> Any:
        of_trials = chain([hazards], repeat(afterwards or hazards))

        def open_hazardous(config: Config, world: World, *rest: Any) -> Any:
            backends = real_open(config, world, *rest)
            device = HazardousDevice(backends[Tier.STORAGE], next(of_trials), random.Random(1), world.now_ns)
            return {**backends, Tier.STORAGE: device}

        monkeypatch.setattr(trial, "open_backends", open_hazardous)
        path = tmp_path / "result.json"
        code = main([*RUN, *argv, "--output", str(path)])
        return code, json.loads(path.read_text())

    return run


def test_errors_below_the_limit_cost_requests_and_the_rank_but_not_the_run(
    simulate: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    code, result = simulate(Hazards(fail={"write": 0.1}), "--warmup", "0")
    assert code == 1
    assert result["incomplete"] is False
    assert result["faulty"] is True
    line = capsys.readouterr().err
    assert line.startswith("kvspill: error: the result is faulty and is not ranked: ")
    assert line.count("\n") == 1
    assert result["honesty"]["requests"]["failed"] > 0
    assert {row["kind"] for row in result["honesty"]["errors"]} > {"ENOSPC", "EIO"}


@pytest.mark.parametrize("limit", [0, 40])
def test_more_errors_than_the_limit_end_the_run_with_the_kinds_the_limit_and_exit_code_1(
    simulate: Any, capsys: pytest.CaptureFixture[str], limit: int
) -> None:
    """S13: above --max-errors."""
    code, result = simulate(Hazards(fail={"write": 1.0}), "--max-errors", str(limit))
    assert code == 1
    assert result["incomplete"] is True
    assert sum(row["count"] for row in errors_of(result)) == limit + 1
    line = capsys.readouterr().err
    assert line.startswith(f"kvspill: error: the run ended early: {limit + 1} operation")
    assert f"--max-errors is {limit}; check the device, its free space and the kernel log" in line
    assert result["interrupted"] in line
    assert line.count("\n") == 1


@pytest.mark.parametrize(("place", "limit"), [("s3://bucket/x", "40"), ("redis://host", "100000")])
def test_what_fails_in_a_store_is_not_blamed_on_a_device(
    simulate: Any, capsys: pytest.CaptureFixture[str], place: str, limit: str
) -> None:
    code, result = simulate(Hazards(fail={"write": 0.5}), "--max-errors", limit, "--cache-dir", place)
    line = capsys.readouterr().err
    assert code == 1
    assert line.endswith("; check the store, the network and its logs\n")
    remedies = {item["code"]: item["remedy"] for item in result["warnings"]}
    assert remedies["errors"].startswith("Check the store, the network and its logs, ")


def test_as_many_errors_as_the_limit_do_not_end_the_run(simulate: Any) -> None:
    """S13."""
    few = Hazards(outages=(Outage(0, NS_PER_SEC, "EIO", ("write",)),))
    code, result = simulate(few, "--warmup", "0")
    failed = sum(row["count"] for row in errors_of(result))
    assert (code, failed > 0, result["incomplete"]) == (1, True, False)
    assert simulate(few, "--warmup", "0", "--max-errors", str(failed))[1]["incomplete"] is False
    assert simulate(few, "--warmup", "0", "--max-errors", str(failed - 1))[1]["incomplete"] is True


def test_a_fault_in_the_warm_up_is_in_no_figure_and_still_reported(simulate: Any) -> None:
    early = Outage(0, 2 * NS_PER_SEC, "EROFS", ("write",))
    code, result = simulate(Hazards(outages=(early,)), "--warmup", "5")
    honesty = result["honesty"]
    assert code == 1
    assert result["faulty"] is True
    assert honesty["errors"] == []
    assert [row["kind"] for row in honesty["errors_outside_window"]] == ["EROFS"]
    assert "errors_outside_window" in {warning["code"] for warning in result["warnings"]}


def test_trials_after_a_failed_one_are_not_run_and_the_reason_survives(
    simulate: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    code, result = simulate(Hazards(fail={"write": 1.0}), "--max-errors", "10", "--trials", "3")
    assert code == 1
    assert result["trials"]["count"] == 1
    assert "11 operations failed" in capsys.readouterr().err


def test_what_failed_in_a_trial_is_named_although_the_trial_that_is_shown_is_sound(
    simulate: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    code, result = simulate(
        Hazards(fail={"write": 0.1}), "--warmup", "0", "--trials", "3", afterwards=Hazards()
    )
    assert (code, result["faulty"], result["faults"]["operations"]) == (1, True, [])
    assert "is not ranked: trial 1: " in capsys.readouterr().err


def test_a_run_in_which_every_request_fails_says_that_none_was_completed(
    simulate: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    code, result = simulate(Hazards(fail={"write": 1.0}), "--max-errors", "1000000")
    assert (code, result["requests_completed"]) == (1, 0)
    line = capsys.readouterr().err
    assert line.startswith("kvspill: error: no request was completed, and the result is faulty")


def test_a_run_in_which_no_request_is_completed_is_no_success(
    simulate: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    code, result = simulate(Hazards(), "--duration", "1", "--generation-mode", "realistic")
    assert (code, result["requests_completed"], result["faulty"]) == (1, 0, False)
    line = capsys.readouterr().err
    assert line.startswith("kvspill: error: no request was completed in the measured time (")
    assert line.rstrip().endswith("unfinished at the end); give a longer --duration, or a lighter load")
    assert line.count("\n") == 1


def errors_of(result: Any) -> Any:
    return result["honesty"]["errors"] + result["honesty"]["errors_outside_window"]
