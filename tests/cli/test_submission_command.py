"""kvspill submission: judges the folders that the MLPerf harness leaves, by the ranks' own files."""

import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from kvspill import outputs
from kvspill.cli.main import main
from kvspill.config import Config
from kvspill.result.result import write_result
from kvspill.result.schema import MetricValue, Result, Window
from kvspill.run.progress import Progress
from kvspill.run.runner import make_plan, run_trials
from kvspill.run.signals import Interrupts
from kvspill.suite.submission import OPTIONS


@pytest.fixture(scope="module")
def simulated() -> Result:
    config = Config(num_users=4, duration=20.0, cpu_mem_gb=0.0, gpu_mem_gb=0.0, generation_mode="none")
    return run_trials(make_plan(config, True), Progress(quiet=True))


def write_rank(folder: Path, base: Result, read: float, p95: float | None, **changes: Any) -> Path:
    """A rank's file as a closed run of option 1 would leave it, with these figures."""
    config = Config.model_validate({**OPTIONS["1"].settings, **changes})
    figures = {"tier_storage_read_bandwidth_gbps": read, "storage_read_device_p95_ms": p95}
    metrics = {name: MetricValue(value=value, unit="x") for name, value in figures.items()}
    result = base.model_copy(
        update={
            "simulated": False,
            "warnings": [],
            "honesty": base.honesty.model_copy(update={"modelled_tiers": []}),
            "config": config.model_dump(mode="json"),
            "workload": {"kind": "synthetic", "personas": config.persona_preset},
            "metrics": {**base.metrics, **metrics},
            "window": Window(measured_seconds=270.0),
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    return write_result(folder / "kvcache_results_20260101_000000.json", result)


@pytest.fixture
def run(tmp_path: Path, simulated: Result) -> Path:
    """Three trials of two ranks."""
    for trial in range(3):
        for rank in range(2):
            place = tmp_path / "option_1" / f"trial_{trial}" / f"rank_{rank}"
            write_rank(place, simulated, 1.0 + trial + rank, 10.0 * (trial + rank), seed=42 + rank)
    return tmp_path


def judged(run: Path, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = main(["submission", str(run), *argv])
    return code, capsys.readouterr().out


def test_a_whole_run_is_closed_and_gets_the_harnesss_summary(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = judged(run, capsys, "-o", str(run / "judged.json"))
    assert code == 0, said
    assert "Division: CLOSED" in said
    assert "Workload: personas 2026-02, --sync data." in said
    summary = json.loads((run / "kvcache_run_summary.json").read_text())
    option = summary["options"]["1"]
    sums = [sum(1.0 + trial + rank for rank in range(2)) for trial in range(3)]
    assert option["aggregated_read_bandwidth_gbps"] == pytest.approx(fmean(sums))
    assert option["aggregated_device_read_p95_ms"] == 30.0
    assert (option["rank_count"], option["trial_count"], option["partial_failure"]) == (2, 3, False)
    assert (summary["total_ranks"], summary["trials_per_option"]) == (2, 3)
    assert json.loads((run / "judged.json").read_text())["options"]["1"]["division"] == "closed"
    code, said = judged(run, capsys)
    assert (code, "its figures are those of the ranks' files" in said) == (0, True)


def test_a_figure_that_the_ranks_do_not_bear_out_is_named(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judged(run, capsys)
    path = run / "kvcache_run_summary.json"
    summary = json.loads(path.read_text())
    summary["options"]["1"]["aggregated_read_bandwidth_gbps"] = 9.5
    path.write_text(json.dumps(summary))
    code, said = judged(run, capsys)
    assert code == 1
    assert "option 1: aggregated_read_bandwidth_gbps is 9.5 there, 5.0 by the ranks' files" in said


@pytest.mark.parametrize("folder_too", [False, True])
def test_a_rank_without_a_result_is_named(
    run: Path, capsys: pytest.CaptureFixture[str], folder_too: bool
) -> None:
    (lost,) = (run / "option_1" / "trial_1" / "rank_0").iterdir()
    lost.unlink()
    if folder_too:
        lost.parent.rmdir()
    code, said = judged(run, capsys)
    assert code == 1
    head = said.split("=" * 72)[1]
    assert "Division: INVALID\n" in head
    assert "2 of 3 trials complete, 2 clients (ranks) each; incomplete: trial 1 (rank 0)\n" in head
    assert said.count(f"option 1: no result in {lost.parent}\n") == 1
    assert "Compare by" not in said
    assert json.loads((run / "kvcache_run_summary.json").read_text())["partial_failure"] is True


def test_a_mixture_of_workloads_is_refused(
    run: Path, simulated: Result, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rank(run / "option_1" / "trial_2" / "rank_0", simulated, 1.0, 1.0, workload_preset="2025-11")
    code, said = judged(run, capsys)
    assert code == 1
    assert (
        "mixture: workload: personas 2026-02 in trial 0, 1 (2 ranks), trial 2 (rank 1), "
        "personas 2025-11 in trial 2 (rank 0)\n"
    ) in said
    assert "Division: INVALID" in said


def test_a_rank_served_from_dram_breaks_nothing(
    run: Path, simulated: Result, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rank(run / "option_1" / "trial_0" / "rank_0", simulated, 0.0, None)
    assert judged(run, capsys)[0] == 0


def test_copies_of_a_result_are_no_ranks_and_no_trials(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (first,) = (run / "option_1" / "trial_0" / "rank_0").iterdir()
    for place in ("trial_0/rank_1", "trial_2/rank_0"):
        (copy,) = (run / "option_1" / place).iterdir()
        copy.write_bytes(first.read_bytes())
    code, said = judged(run, capsys)
    assert (code, "Division: INVALID" in said, "aggregate_bandwidth_gbps" in said) == (1, True, False)
    assert "copy: option 1, trial 0, rank 1 is the same result as option 1, trial 0, rank 0\n" in said
    assert "copy: option 1, trial 2, rank 0 is the same result as option 1, trial 0, rank 0\n" in said


def test_a_copy_with_another_date_is_still_a_copy(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (first,) = (run / "option_1" / "trial_0" / "rank_0").iterdir()
    (copy,) = (run / "option_1" / "trial_2" / "rank_0").iterdir()
    document = json.loads(first.read_text())
    copy.write_text(json.dumps({**document, "created_at": "2026-01-01T00:00:00+00:00"}))
    code, said = judged(run, capsys)
    assert code == 1
    assert "copy: option 1, trial 2, rank 0 is the same result as option 1, trial 0, rank 0\n" in said


def edited(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the file of the first rank of the first trial."""
    (path,) = (run / "option_1" / "trial_0" / "rank_0").iterdir()
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_a_trial_that_measured_a_part_of_its_duration_is_not_complete(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edited(run, lambda document: document["window"].update(measured_seconds=12.5))
    _, said = judged(run, capsys)
    assert "deviation: trial 0 (rank 0): measured 12.5 of 270 seconds\n" in said
    assert "deviation: 2 complete trials: at least 3 are required\n" in said
    assert "Division: CLOSED" not in said
    assert "\n2 of 3 trials complete, 2 clients (ranks) each; incomplete: trial 0 (rank 0)\n" in said


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda document: document["honesty"].update(
                errors=[{"tier": "storage", "verb": "read", "kind": "EIO", "count": 7}]
            ),
            "7 storage read EIO",
        ),
        (lambda document: document["honesty"]["requests"].update(failed=3), "3 failed requests"),
        (lambda document: document["faults"].update(failed_requests=2), "2 failed requests"),
    ],
)
def test_counts_of_failures_outweigh_a_word_that_denies_them(
    run: Path, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], object], says: str
) -> None:
    edited(run, change)
    code, said = judged(run, capsys)
    assert (code, "Division: INVALID" in said) == (1, True)
    assert f"trial 0 (rank 0) is faulty: {says}" in said


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda document: document["config"].clear(), "not a whole kvspill result (config: empty)"),
        (
            lambda document: document["config"].pop("num_users"),
            "option 1: not a whole kvspill result (config has no num_users)",
        ),
    ],
)
def test_settings_that_a_result_does_not_state_are_not_assumed(
    run: Path, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], object], says: str
) -> None:
    edited(run, change)
    assert main(["submission", str(run)]) == 2
    assert says in capsys.readouterr().err


def test_bad_input_is_one_line(
    run: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*argv: str) -> str:
        assert main(["submission", *argv]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        return err

    empty = tmp_path_factory.mktemp("empty")
    assert "no run given" in refused()
    assert "has no option_N/trial_N/rank_N; give the folder of a run of mlpstorage" in refused(str(empty))
    (empty / "option_9" / "trial_0" / "rank_0").mkdir(parents=True)
    assert "no such option" in refused(str(empty))
    place = run / "option_1" / "trial_0" / "rank_0"
    (place / "kvcache_results_2.json").write_text("{}")
    assert "holds 2 results; keep the one that belongs to this trial" in refused(str(run))
    (place / "kvcache_results_2.json").unlink()
    (run / "kvcache_run_summary_x.json").write_text("[]")
    assert "is no summary of the harness" in refused(str(run))


RANK = "option_1/trial_0/rank_0/kvcache_results_20260101_000000.json"


@pytest.mark.parametrize("name", [RANK, "kvcache_run_summary.json", "link", "hard"])
@pytest.mark.parametrize("summed", [False, True])
def test_the_judgement_never_replaces_what_it_is_read_from(
    run: Path, name: str, summed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    if summed:
        judged(run, capsys)
    (run / "link").symlink_to(RANK)
    os.link(run / RANK, run / "hard")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert main(["submission", str(run), "-o", str(run / name)]) == 2
    assert "is one of the inputs and would be lost" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_judgement_may_replace_an_earlier_one_and_goes_through_a_device(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "null").symlink_to("/dev/null")
    for name in ("submission.json", "submission.json", "null"):
        assert judged(run, capsys, "-o", str(run / name))[0] == 0
    assert "options" in json.loads((run / "submission.json").read_text())
    assert (run / "null").is_char_device()


def test_a_run_that_takes_no_file_is_judged_all_the_same(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a read-only file system nothing was judged, and the remedy was a flag that the command lacks."""

    def refused(_target: Path) -> Path:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(outputs, "temporary_beside", refused)
    assert main(["submission", str(run)]) == 1
    captured = capsys.readouterr()
    assert "Division: " in captured.out
    missing = run / "kvcache_run_summary.json"
    assert f"{missing}: is missing and cannot be written (Read-only file system)" in captured.err


def test_a_judgement_without_a_reader_is_written(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file came after the text, and not at all where `| head -1` had seen enough."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as unread:
        monkeypatch.setattr(sys, "stdout", unread)
        # No signal ended a command of an earlier test.
        monkeypatch.setattr(Interrupts, "came", False)
        assert main(["submission", str(run), "-o", str(run / "judged.json")]) == 1
    assert json.loads((run / "judged.json").read_text())["options"]
