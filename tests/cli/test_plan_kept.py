"""`kvspill plan`: how far it is, its processes, and what it keeps: the same whatever they are (P4)."""

import errno
import json
import os
import re
import signal
from multiprocessing import active_children
from pathlib import Path

import pytest

from cli.children import left_over
from cli.planned import LOAD, PROFILE, plan
from kvspill.cli.main import main
from kvspill.config import Config
from kvspill.errors import KvspillError, UsageError
from kvspill.plan import simulations
from kvspill.plan.simulations import Journal, Pool, Simulation, _how_far
from kvspill.storage.profiles import load_profile


@pytest.fixture
def drive(tmp_path: Path) -> str:
    path = tmp_path / "drive.yaml"
    path.write_text(PROFILE)
    return str(path)


def test_the_answer_is_the_same_whatever_the_processes_and_after_a_kill(tmp_path: Path, drive: str) -> None:
    asked = f"--users 2 --option {drive} --option nvme-gen5 --quick"
    _code, alone = plan(tmp_path, f"{asked} --workers 1", "a.json")
    # What a plan that was killed leaves: some of its lines, the last one cut off.
    key = "0" * 32
    (tmp_path / "b.json.part").write_text(json.dumps({"key": key, "facts": {}}) + '\n{"key": "1')
    _code, two = plan(tmp_path, f"{asked} --workers 2", "b.json")
    for found in (alone, two):
        del found["command"]
    assert alone == two
    assert not (tmp_path / "b.json.part").exists()


def test_what_was_simulated_before_a_kill_is_not_simulated_again(tmp_path: Path, drive: str) -> None:
    Path(drive).write_text(PROFILE.partition("calibration")[0])
    config = Config(model="tiny-1b", num_users=2, duration=5)
    wanted = Simulation(config, load_profile(drive))
    said: list[str] = []
    (tmp_path / "kept").write_text(json.dumps({"key": wanted.key, "facts": {"passed": 7}}) + "\n")
    pool = Pool(Journal(tmp_path / "kept"), 2, said.append)
    assert pool.all([wanted], "what each holds") == [{"passed": 7}]
    assert (pool.done, said) == (0, [])
    assert Simulation(config.changed(seed=7), load_profile(drive)).key != wanted.key


def test_a_plan_announces_what_it_does_and_each_step_how_far_it_is(
    tmp_path: Path, drive: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said one line in ten of its simulations, and nothing before the first of them."""
    words = [word for word in LOAD.split() if word != "--quiet"]
    asked = ["--users", "2", "--option", drive, "--quick", "--workers", "1"]
    assert main(["plan", *words, *asked, "--output", str(tmp_path / "p.json")]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(
        "plan: at least 2 simulations, 1 at a time, each of up to 2 min of virtual time"
    )
    steps = [line.partition(":")[0] for line in said[1:] if line.endswith("1 simulation")]
    held = f"2 users on {drive}"
    assert steps == ["a device without delay", "what each option holds", "the load of each option", held]


def test_how_far_a_step_is_and_how_long_it_takes_is_said_each_second(
    tmp_path: Path, drive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulations, "_TICK_SECONDS", 0.05)
    said: list[str] = []
    pool = Pool(Journal(tmp_path / "kept"), 1, lambda _text: None, said.append)
    pool.all(several(drive, 2, later_seconds=1_000), "what each holds")
    assert said
    assert re.fullmatch(
        r"what each holds: (0 of 2 done after|1 of 2 done, about) .* (s|min)( left)?", said[0]
    )


@pytest.mark.parametrize(
    ("number", "total", "seconds", "workers", "said"),
    [
        (0, 12, 5, 2, "0 of 12 done after 5 s"),
        (1, 12, 10, 2, "1 of 12 done"),
        (2, 12, 11, 2, "2 of 12 done, about 42 s left"),
        (1, 12, 10, 1, "1 of 12 done, about 2 min left"),
        (1, 12, 10, 16, "1 of 12 done"),
        (12, 12, 60, 2, "12 of 12 done"),
    ],
)
def test_the_time_that_a_step_has_left_counts_what_is_under_way(
    number: int, total: int, seconds: float, workers: int, said: str
) -> None:
    """It was 110 s at the first of 12 by 2 processes, which take 60 s together."""
    assert _how_far(number, total, seconds, workers) == said


def several(drive: str, count: int, later_seconds: int = 5) -> list[Simulation]:
    """So many, of which all but the first simulate so many seconds."""
    Path(drive).write_text(PROFILE.partition("calibration")[0])
    config, profile = Config(model="tiny-1b", num_users=2, duration=5), load_profile(drive)
    later = [config.changed(seed=seed, duration=later_seconds) for seed in range(1, count)]
    return [Simulation(one, profile) for one in (config, *later)]


@pytest.mark.parametrize("length", [250, 251, 255])
def test_a_name_as_long_as_the_file_system_allows_is_taken(tmp_path: Path, drive: str, length: int) -> None:
    """It was refused: what an interrupted plan keeps had a longer one."""
    name = "n" * (length - 5) + ".json"
    code, found = plan(tmp_path, f"--users 4 --option {drive} --quick", name)
    assert code == 0
    assert found["chosen"]["holds"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drive.yaml", name]


def test_a_simulation_that_was_killed_ends_the_plan_and_keeps_the_others(tmp_path: Path, drive: str) -> None:
    """The kernel kills one where memory runs out: that was reported as an error of this program."""

    def kill(text: str) -> None:
        if text.startswith("what each holds: 1 of 9 done"):
            for process in active_children():
                assert process.pid is not None
                os.kill(process.pid, signal.SIGKILL)

    pool = Pool(Journal(tmp_path / "kept"), 2, kill)
    with pytest.raises(KvspillError, match="killed"):
        pool.all(several(drive, 9, later_seconds=20_000), "what each holds")
    assert not left_over()
    assert 0 < len(Journal(tmp_path / "kept").found) < 9


def test_no_process_is_left_where_not_all_could_be_started(
    tmp_path: Path, drive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was started waited for work, and the program at its exit for that one."""
    fork, forks = os.fork, iter(range(9))

    def limited() -> int:
        if next(forks) == 1:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    monkeypatch.setattr(os, "fork", limited)
    with pytest.raises(BlockingIOError):
        Pool(Journal(tmp_path / "kept"), 2, lambda _text: None).all(several(drive, 2), "what each holds")
    assert not left_over()


@pytest.mark.parametrize("planted", ["link", "hard link", "pipe", "folder", "theirs"])
def test_what_somebody_planted_in_place_of_the_kept_simulations_is_refused(
    planted: str, tmp_path: Path
) -> None:
    """A link was followed: what it led to was appended to, and a pipe was waited for."""
    target, kept = tmp_path / "precious", tmp_path / "plan.json.part"
    target.write_text("mine")
    if planted == "link":
        kept.symlink_to(target)
    elif planted == "hard link":
        kept.hardlink_to(target)
    elif planted == "pipe":
        os.mkfifo(kept)
    elif planted == "folder":
        kept.mkdir()
    else:
        if os.geteuid() != 0:
            pytest.skip("only root can give a file to another user")
        kept.write_text(json.dumps({"key": "0" * 32, "facts": {}}))
        os.chown(kept, 65534, 65534)
    with pytest.raises(UsageError, match=r"plan\.json\.part: .*; remove it, or name another --output"):
        Journal(kept)
    kept_later = Journal(tmp_path / "other.part")
    (tmp_path / "other.part").symlink_to(target)
    with pytest.raises(UsageError):
        kept_later.keep("0" * 32, {})
    assert target.read_text() == "mine"


def test_a_bomb_among_the_kept_simulations_is_simulated_again(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("[" * 100_000 + "\n" + json.dumps({"key": "1", "facts": {"passed": 7}}))
    assert Journal(tmp_path / "kept").found == {"1": {"passed": 7}}


def test_what_is_kept_after_a_row_that_was_cut_off_is_found_again(tmp_path: Path) -> None:
    """It stood on the same line, and was simulated again after the next interrupt."""
    kept = tmp_path / "kept"
    kept.write_text('{"key": "1", "facts": {}}\n{"key": "2", "fa')
    Journal(kept).keep("3", {"passed": 7})
    assert Journal(kept).found == {"1": {}, "3": {"passed": 7}}
