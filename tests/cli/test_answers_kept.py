"""What suites, plans and other commands found is not lost to a full disk or an output that nobody reads."""

import errno
import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.run.runner import run_trials
from kvspill.suite import campaign
from real.rig import file_system

RUN = ["simulate", "--max-requests", "3", "--num-users", "1", "--generation-mode", "none", "--quiet"]


ROW = """\
scenarios:
  - name: one
    config: {model: tiny-1b, num_users: 1, max_requests: 3, request_rate: 50, generation_mode: none,
      storage_capacity_gb: 1}
"""


@pytest.fixture
def spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first place where a result is kept that its own does not take."""
    place = tmp_path / "spare"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.chdir(tmp_path)
    return place


def test_a_suites_row_that_its_directory_does_not_take_is_kept_elsewhere(
    tmp_path: Path, spare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(ROW)
    (tmp_path / "out" / "01-one.json" / "in the way").mkdir(parents=True)
    assert main(["suite", "mine.yaml", "--simulate", "--output-dir", "out"]) == 1
    (kept,) = spare.rglob("01-one.json")
    said = " ".join(capsys.readouterr().err.split())
    assert f"choose a writable place with --output-dir; the result is in {kept}" in said
    assert json.loads(kept.read_text())["requests_completed"] == 3


@pytest.mark.usefixtures("spare")
def test_a_suite_without_room_for_its_summary_prints_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(ROW)
    (tmp_path / "out" / "summary.json" / "in the way").mkdir(parents=True)
    assert main(["suite", "mine.yaml", "--simulate", "--output-dir", "out"]) == 1
    captured = capsys.readouterr()
    assert "### THROUGHPUT AND LATENCY ###" in captured.out
    assert "cannot write out/summary.json" in captured.err


@pytest.mark.usefixtures("spare")
def test_a_suite_that_cannot_keep_its_state_at_the_end_prints_its_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(ROW)

    def measured(plan: Any, progress: Any, **_: Any) -> Any:
        result = run_trials(plan, progress)
        (tmp_path / "out" / "manifest.json").unlink()
        (tmp_path / "out" / "manifest.json" / "in the way").mkdir(parents=True)
        return result

    monkeypatch.setattr(campaign, "run_trials", measured)
    assert main(["suite", "mine.yaml", "--simulate", "--output-dir", "out"]) == 1
    captured = capsys.readouterr()
    assert "### THROUGHPUT AND LATENCY ###" in captured.out
    assert "kvspill: error: cannot write out/manifest.json" in captured.err


@pytest.mark.parametrize(
    "command",
    [
        " ".join(RUN[:-1]),
        "can --users 1 --simulate --model tiny-1b --duration 20",
        "curve --num-users 2 --duration 5 --model tiny-1b --dram-gib 1",
        "plan --users 1 --model tiny-1b --option nvme-gen4 --quick --duration 8",
    ],
)
def test_where_a_result_is_kept_is_said_though_nothing_can_be_printed(
    command: str,
    tmp_path: Path,
    spare: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A log on the same full disk: the error was that of standard output, and named no place."""
    (tmp_path / "r.json").symlink_to("/dev/full")
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main([*command.split(), "--output", "r.json"]) == 1
    (kept,) = spare.rglob("r.json")
    assert f" is in {kept}" in capsys.readouterr().err


@pytest.mark.usefixtures("spare")
def test_a_suite_says_what_it_could_not_keep_though_nothing_can_be_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(ROW)
    (tmp_path / "out" / "summary.json" / "in the way").mkdir(parents=True)
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["suite", "mine.yaml", "--simulate", "--quiet", "--output-dir", "out"]) == 1
    assert "cannot write out/summary.json" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["curve", "validate"])
@pytest.mark.usefixtures("spare")
def test_what_cannot_be_printed_is_written_all_the_same(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file came after the text, and not at all where that was not buffered."""
    monkeypatch.setattr("kvspill.plan.validate.validate.validate", lambda *_: {"passed": True})
    monkeypatch.setattr("kvspill.plan.validate.view.text_of", lambda _found: "all rows are equal\n")
    words = {
        "curve": "curve --num-users 2 --duration 5 --model tiny-1b --dram-gib 1",
        "validate": "validate lmcache --cache-dir .",
    }
    with open("/dev/full", "w", buffering=1, encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main([*words[command].split(), "--output", "r.json"]) == 1
    assert json.loads((tmp_path / "r.json").read_text())


@pytest.mark.usefixtures("spare")
def test_a_submission_without_room_for_its_summary_prints_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out" / "submission.json" / "in the way").mkdir(parents=True)
    words = ["suite", "mlperf", "--option", "2", "--simulate", "--duration", "10", "--trials", "3"]
    assert main([*words, "--output-dir", "out"]) == 1
    captured = capsys.readouterr()
    assert "Division: OPEN" in captured.out
    assert "cannot write out/submission.json" in captured.err


PLAN = "plan --users 3 --model tiny-1b --duration 8 --option nvme-gen4 --quick --quiet --generation-mode fast"


def test_a_plan_whose_output_is_full_prints_its_answer_and_keeps_it_elsewhere(
    tmp_path: Path, spare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("plan.json", "page.html"):
        (tmp_path / name).symlink_to("/dev/full")
    assert main([*PLAN.split(), "--output", "plan.json", "--page", "page.html"]) == 1
    captured = capsys.readouterr()
    (kept,), (page,) = spare.rglob("plan.json"), spare.rglob("page.html")
    assert f"plan.json: cannot be written (No space left on device); name another file; it is in {kept}" in (
        captured.err
    )
    assert f"All figures: {kept}\nPage: {page}\n" in captured.out
    assert json.loads(kept.read_text())["asked"] == 3


@pytest.mark.usefixtures("spare")
def test_a_plan_whose_kept_simulations_cannot_be_removed_prints_its_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended as for a path that cannot be reached, without the answer."""
    unlink = Path.unlink

    def refusing(path: Path, missing_ok: bool = False) -> None:
        if path.name == "plan.json.part":
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refusing)
    assert main([*PLAN.split(), "--output", "plan.json", "--workers", "1"]) == 1
    captured = capsys.readouterr()
    assert "All figures: plan.json" in captured.out
    assert "plan.json.part: cannot be removed (Operation not permitted); remove it by hand" in captured.err


@pytest.mark.real
def test_a_plan_goes_on_where_it_cannot_keep_its_simulations(
    tmp_path: Path, spare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with file_system(tmp_path, "tmpfs", 1 << 16) as full:
        with suppress(OSError), (full / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        assert main([*PLAN.split(), "--output", str(full / "plan.json")]) == 1
        assert sorted(path.name for path in full.iterdir()) in (["filler"], ["filler", "plan.json.part"])
    assert len(list(spare.rglob("plan.json"))) == 1
    assert "tiny-1b" in capsys.readouterr().out


def test_a_validation_whose_output_is_full_is_printed_and_kept_elsewhere(
    tmp_path: Path, spare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The engine itself takes gigabytes to install; what is tested begins where its rounds are over.
    monkeypatch.setattr("kvspill.plan.validate.validate.validate", lambda *_: {"passed": True})
    monkeypatch.setattr("kvspill.plan.validate.view.text_of", lambda _found: "all rows are equal\n")
    (tmp_path / "found.json").symlink_to("/dev/full")
    assert main(["validate", "lmcache", "--cache-dir", ".", "--output", "found.json"]) == 1
    captured = capsys.readouterr()
    (kept,) = spare.rglob("found.json")
    assert captured.out == "all rows are equal\n"
    assert f"found.json: cannot be written (No space left on device); name another file; it is in {kept}" in (
        captured.err
    )
    assert json.loads(kept.read_text()) == {"passed": True}


def test_a_limit_of_file_sizes_that_a_plan_meets_is_named(tmp_path: Path) -> None:
    """It was an internal error."""
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", sys.executable, "-m", "kvspill", *PLAN.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "a file would be larger than `ulimit -f` allows; raise the limit" in done.stderr
