"""The run of the rows: one row's trouble never costs the others, and only a signal stops the suite."""

import errno
import io
import signal
from pathlib import Path
from typing import Any

import pytest

from kvspill.errors import KvspillError, UsageError
from kvspill.outputs import write_whole
from kvspill.result.schema import Result
from kvspill.run.progress import Progress
from kvspill.run.runner import run_trials
from kvspill.run.trial import Trial
from kvspill.suite import campaign
from kvspill.suite import manifest as manifest_module
from kvspill.suite.campaign import run_folder, run_rows
from kvspill.suite.closing import finish
from kvspill.suite.manifest import NAME, Manifest, RowStatus, load, locked, new_manifest, read_result, save
from kvspill.suite.scenario import Scenario

QUIET = Progress(quiet=True)


def scenario(name: str, **settings: Any) -> Scenario:
    usual: dict[str, Any] = {
        "model": "tiny-1b",
        "num_users": 2,
        "duration": 5,
        "cpu_mem_gb": 1,
        "storage_capacity_gb": 1,
    }
    return Scenario(name, name, "", {**usual, **settings}, "test")


def suite(*names: str) -> Manifest:
    return new_manifest("T", [scenario(name) for name in names], (), simulated=True, quick=False)


def troubled(monkeypatch: pytest.MonkeyPatch, trouble: dict[int, Any]) -> None:
    """Let the n-th row raise, or change its result."""
    real, calls = run_trials, iter(range(100))

    def run(*args: Any, **more: Any) -> Result:
        bad = trouble.get(next(calls))
        if isinstance(bad, BaseException):
            raise bad
        return real(*args, **more).model_copy(update=bad or {})

    monkeypatch.setattr(campaign, "run_trials", run)


class Unread(io.StringIO):
    """A pipe whose reader is gone."""

    def write(self, _text: str) -> int:
        raise BrokenPipeError


def states(manifest: Manifest) -> list[RowStatus]:
    return [row.status for row in manifest.rows]


@pytest.mark.parametrize(
    ("trouble", "status"),
    [
        (UsageError("does not fit"), RowStatus.SKIPPED),
        (KvspillError("disk is gone"), RowStatus.FAILED),
        (ValueError("defect"), RowStatus.FAILED),
        ({"incomplete": True, "interrupted": "too many errors"}, RowStatus.FAILED),
    ],
)
def test_one_rows_trouble_does_not_cost_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Any, status: RowStatus
) -> None:
    troubled(monkeypatch, {1: trouble})
    manifest, stopped = run_rows(tmp_path, suite("a", "b", "c"), QUIET)
    assert states(manifest) == [RowStatus.DONE, status, RowStatus.DONE]
    assert not stopped
    assert read_result(tmp_path, manifest.rows[1]) is None
    assert manifest.rows[1].reason
    assert states(load(tmp_path)) == states(manifest)
    assert finish(tmp_path, manifest, stopped) == (0 if status is RowStatus.SKIPPED else 1)


def test_a_state_that_cannot_be_kept_between_two_rows_does_not_cost_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, full = write_whole, iter([False, True, True])

    def write(path: Path, text: str, **more: Any) -> Path:
        if path.name == NAME and next(full, False):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, text, **more)

    monkeypatch.setattr(manifest_module, "write_whole", write)
    assert run_folder(tmp_path, suite("a", "b", "c"), Progress(quiet=False)) == 0
    assert states(load(tmp_path)) == [RowStatus.DONE] * 3
    said = [line for line in capsys.readouterr().err.splitlines() if "its state was not kept" in line]
    assert len(said) == 2
    assert all("No space left on device" in line for line in said)


@pytest.mark.parametrize(
    "trouble", [KeyboardInterrupt(), {"incomplete": True, "interrupted": "stopped by SIGTERM"}]
)
def test_a_signal_stops_the_suite_and_a_resume_runs_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    troubled(monkeypatch, {1: trouble})
    manifest, stopped = run_rows(tmp_path, suite("a", "b", "c"), QUIET)
    assert stopped
    assert states(manifest) == [RowStatus.DONE, RowStatus.INTERRUPTED, RowStatus.PENDING]
    assert finish(tmp_path, manifest, stopped) == 130
    assert f"kvspill suite --resume {tmp_path}" in capsys.readouterr().err
    monkeypatch.undo()
    manifest, stopped = run_rows(tmp_path, load(tmp_path), QUIET)
    assert states(manifest) == [RowStatus.DONE] * 3
    assert finish(tmp_path, manifest, stopped) == 0


def test_a_signal_after_a_rows_load_keeps_the_row_and_runs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came while the trial removed its files, and the suite went on with the next row."""
    close = Trial._close

    async def signalled(self: Trial) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return await close(self)

    monkeypatch.setattr(Trial, "_close", signalled)
    manifest, stopped = run_rows(tmp_path, suite("a", "b"), QUIET)
    assert stopped
    assert states(manifest) == [RowStatus.DONE, RowStatus.PENDING]


def test_a_row_that_this_machine_cannot_run_is_named_and_tried_again_on_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "unavailable", lambda _settings: "needs --x: no y here")
    manifest, _ = run_rows(tmp_path, suite("a"), QUIET)
    assert (manifest.rows[0].status, manifest.rows[0].reason) == (
        RowStatus.UNAVAILABLE,
        "needs --x: no y here",
    )
    monkeypatch.undo()
    assert states(run_rows(tmp_path, manifest, QUIET)[0]) == [RowStatus.DONE]


def test_a_suite_keeps_its_settings_through_the_file(tmp_path: Path) -> None:
    before = suite("a", "b").with_row(0, status=RowStatus.DONE, seconds=1.5)
    save(tmp_path, before)
    assert load(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json"]


def test_a_manifest_cannot_point_outside_its_directory(tmp_path: Path) -> None:
    save(tmp_path, suite("a").with_row(0, file="../a.json"))
    with pytest.raises(UsageError, match="outside the directory"):
        load(tmp_path)


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_a_lock_that_cannot_be_made_is_one_line(tmp_path: Path, kind: str) -> None:
    place = tmp_path / ".lock"
    if kind == "directory":
        place.mkdir()
    else:
        place.symlink_to("elsewhere")
    with pytest.raises(UsageError, match=r"/\.lock: cannot be locked \(.*\); name another --output-dir$"):
        run_folder(tmp_path, suite("a"), QUIET)


def test_two_suites_cannot_write_into_one_directory(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(UsageError, match="another suite is running"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_rows_that_another_process_finished_a_moment_before_do_not_run_again(tmp_path: Path) -> None:
    """Its state had been read before the other one, which held the lock, was done."""
    read_before = suite("a", "b")
    assert run_folder(tmp_path, read_before, QUIET) == 0
    kept = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("0*.json")}
    assert run_folder(tmp_path, read_before, QUIET) == 0
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("0*.json")} == kept
    assert states(load(tmp_path)) == [RowStatus.DONE, RowStatus.DONE]


def test_an_interrupted_suite_whose_reader_is_gone_keeps_its_summary_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    troubled(monkeypatch, {1: KeyboardInterrupt()})
    manifest, stopped = run_rows(tmp_path, suite("a", "b"), QUIET)
    assert finish(tmp_path, manifest, stopped, Unread()) == 130
    assert f"kvspill suite --resume {tmp_path}" in capsys.readouterr().err
    assert (tmp_path / "summary.json").exists()
    assert "### WHAT THIS MEANS" in (tmp_path / "summary.txt").read_text()


def test_progress_whose_reader_is_gone_ends_nothing() -> None:
    progress = Progress(quiet=False, stream=Unread())
    progress.say("x")
    progress.say("y")
