"""`kvspill plan`: answer, options, sensitivity, files; resumed, and the same whatever the processes (P4)."""

import errno
import json
import os
import re
import signal
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest

from cli.children import left_over
from kvspill.cli.main import main
from kvspill.config import Config
from kvspill.errors import KvspillError, UsageError
from kvspill.plan import simulations
from kvspill.plan.checking import document
from kvspill.plan.predict import Interval
from kvspill.plan.simulations import Journal, Pool, Simulation, _how_far
from kvspill.run import asking
from kvspill.storage.profiles import load_profile
from unit.plan.made import calibrated

PROFILE = calibrated("read_gib_per_sec: 2, write_gib_per_sec: 2")
LOAD = "--model tiny-1b --tensor-parallel 4 --slo-target-ms 200 --generation-mode fast --duration 8 --quiet"


@pytest.fixture
def drive(tmp_path: Path) -> str:
    path = tmp_path / "drive.yaml"
    path.write_text(PROFILE)
    return str(path)


def plan(tmp_path: Path, words: str, name: str = "plan.json") -> tuple[int, dict[str, Any]]:
    output = tmp_path / name
    code = main(["plan", *LOAD.split(), *words.split(), "--output", str(output)])
    found: dict[str, Any] = json.loads(output.read_text())
    return code, found


def test_the_answer_comes_first_and_names_the_cheapest_option_that_holds(
    tmp_path: Path, drive: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"--users 4 --option {drive},count=1-2,price=400USD,capacity=1TB,endurance=1000DWPD --quick "
    page = tmp_path / "plan.html"
    code, found = plan(tmp_path, words + f"--option nvme-gen5,price=900USD --page {page}")
    text = capsys.readouterr().out
    assert code == 0
    assert text.startswith("YES (predicted): 4 users of tiny-1b keep the latency target on")
    assert found["chosen"]["name"] == drive
    assert [row["drives"] for row in found["options"]] == [1, 2, 1]
    for row in found["options"]:
        assert row["holds"] >= 4
        assert row["cost"]["per_user_per_month"] == pytest.approx(row["cost"]["per_month"] / 4)
    assert found["options"][0]["wear"]["share_of_endurance"] < 1
    assert "extrapolates: 2 drives (calibrated with one)" in found["options"][1]["doubts"]
    assert "per M tokens" in text
    shown = page.read_text()
    assert f'<div class="answer met"><p class="status">{found["text"][0]}</p>' in shown
    assert shown.count('<span class="bar enough"') == len(found["options"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drive.yaml", "plan.html", "plan.json"]


def test_a_cheaper_option_that_would_wear_out_is_named_and_the_page_shows_all_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worn = "--option nvme-gen4,count=2,price=400USD,capacity=1TB,endurance=0.1DWPD --dram-gib 0.0625 --quick"
    page = tmp_path / "plan.html"
    _code, found = plan(tmp_path, f"--users 4 {worn} --option nvme-gen5,price=2000USD --page {page}")
    text = " ".join(capsys.readouterr().out.split())
    assert found["chosen"]["profile"] == "nvme-gen5"
    name, share = "2 x nvme-gen4 with 0.0625 GiB of DRAM", found["options"][0]["wear"]["share_of_endurance"]
    assert share > 1
    assert f"Left out for wear, though cheaper: {name} ({share:.0%} of its endurance)." in text
    assert f"All figures: {tmp_path / 'plan.json'} Page: {page}" in text
    shown = page.read_text()
    assert f"<dt>{name}: <strong>" in shown
    assert "<th>per M tokens</th>" in shown


def test_help_begins_with_one_usage_and_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--help"]) == 0
    text = capsys.readouterr().out
    assert text.count("usage:") == 1
    parts = ("usage:", "Says which", "\nPlan:", "\noptions:", "\nLoad:", "\nexamples:")
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)


def test_too_many_users_are_a_no_that_says_how_many_it_holds(
    tmp_path: Path, drive: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = plan(tmp_path, f"--users 12 --option {drive} --quick --duration 12")
    assert (code, found["answer"]) == (3, "no")
    chosen = found["chosen"]
    assert 0 < chosen["holds"] < chosen["fewest_that_failed"] <= 12
    assert chosen["binds"] in ("device", "depth")
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("NO (predicted): 12 users of tiny-1b do not keep the latency target on one node")
    assert f"holds about {chosen['holds']} users; {chosen['fewest_that_failed']} would miss" in text


def test_an_answer_says_how_certain_it_is_and_what_it_hangs_on(
    tmp_path: Path, drive: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = plan(tmp_path, f"--users 1 --option {drive},capacity=1TB --dram-gib 1 --duration 20")
    assert code == 0
    assert list(found["other_seeds_and_speeds"]) == ["seed 43", "seed 44", "slower", "faster"]
    low, high = found["holds_between"]
    assert 1 <= low <= found["chosen"]["holds"] <= high
    tried = {(row["figure"], row["factor"]) for row in found["sensitivity"]}
    figures = ("storage read speed", "storage capacity", "DRAM", "context length", "latency target")
    assert {(name, factor) for name in figures for factor in (0.9, 1.1)} <= tried
    assert [row["figure"] for row in found["would_help"]] == ["storage speed", "DRAM"]
    text = capsys.readouterr().out
    assert "Sensitivity: no figure that is 10% off would change the answer" in text
    assert "One figure 10% off" in text


def test_several_nodes_hold_what_one_does_not(tmp_path: Path, drive: str) -> None:
    code, found = plan(tmp_path, f"--users 12 --option {drive} --max-nodes 10 --quick")
    assert (code, found["answer"]) == (0, "yes")
    nodes = found["chosen"]["nodes"]
    assert 1 < nodes <= 10
    assert nodes * found["chosen"]["holds"] >= 12


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


def test_a_load_is_learned_from_a_result(tmp_path: Path, drive: str) -> None:
    learned = tmp_path / "result.json"
    words = "--model tiny-1b --num-users 3 --duration 8 --io-model prefix --generation-mode fast --quiet"
    assert main(["simulate", *words.split(), "--output", str(learned)]) == 0
    output = tmp_path / "plan.json"
    flags = f"--slo-target-ms 500 --duration 8 --quick --quiet --learn {learned} --option {drive}"
    assert main(["plan", *flags.split(), "--output", str(output)]) in (0, 3)
    found = json.loads(output.read_text())
    assert (found["model"], found["asked"]) == ("tiny-1b", 3)
    assert "I/O model prefix" in found["settings"]


def test_a_recording_is_planned_by_its_speed(tmp_path: Path, drive: str) -> None:
    words = f"--trace mooncake:sample --io-model prefix --slo-latency storage-ttft --option {drive} --quick"
    _code, found = plan(tmp_path, f"{words} --slo-target-ms 4000 --duration 60")
    assert found["asked_is"] == "times the recorded speed"
    assert found["chosen"]["holds"] > 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--users 3", "--option: a plan needs something to choose from"),
        ("--option nvme-gen4", "--users: missing"),
        ("--users 3 --option nvme-gen4 --dram-price 3USD", "--dram-price 3USD: a price needs its units"),
        ("--users 3 --option nvme-gen4 --node-price 9000", "--node-price 9000: a price needs its units"),
        ("--users 3 --option nvme-gen4 --max-nodes 0", "--max-nodes 0: not a whole number"),
        ("--users 3 --option nvme-gen4 --dram-gib x", "--dram-gib x: not a list of sizes"),
        ("--users 3 --option nvme-gen4 --dram-gib 1 --cpu-mem-gb 2", "contradicts --cpu-mem-gb"),
        ("--users 3 --option nvme-gen4 --dram-gib 1 --cpu-mem-gb 4", "contradicts --cpu-mem-gb"),
        ("--users 3 --option nvme-gen4 --dram-gib 1 --cpu-mem-gb 0", "contradicts --cpu-mem-gb"),
        ("--users 3 --option nvme-gen4 --check /dev/shm", "--check /dev/shm: lies in memory"),
        ("--users 3 --option nvme-gen4 --check /nowhere", "--check /nowhere: no directory"),
        ("--users 3 --option nvme-gen4,count=2 --check .", "the answer has 2 drives and 1 directories"),
        (
            "--users 3 --option nvme-gen4 --slo-latency end-to-end --slo-target-ms 40",
            "--slo-target-ms 40: no storage can keep it",
        ),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line(
    tmp_path: Path, words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["plan", *LOAD.split(), *words.split(), "--output", str(tmp_path / "p.json")])
    text = capsys.readouterr().err
    assert code == 2
    assert message in text
    assert text.count("\n") == 1


def test_a_check_on_another_kind_of_device_is_refused(
    tmp_path: Path, drive: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(drive).write_text(PROFILE.replace("sda (ssd)", "nvme7n1 (nvme, Model of a drive)"))
    words = f"{LOAD} --users 3 --option {drive} --check {tmp_path}"
    assert main(["plan", *words.split(), "--output", str(tmp_path / "p.json")]) == 2
    assert "was calibrated on ext4 on nvme7n1 (nvme, Model of a drive)" in capsys.readouterr().err


def test_a_promise_is_kept_within_the_interval_and_the_bar() -> None:
    promised = {
        "requests_per_second": Interval(10.0, 9.5, 10.0),
        "storage_read_p95_ms": Interval(10.0, 10.0, 10.0),
        "cache_hit_rate": Interval(0.5, 0.5, 0.5),
    }
    kept = {"requests_per_second": 9.1, "storage_read_p95_ms": 10.9, "cache_hit_rate": 0.509}
    assert document(promised, kept, ["."], 60)["kept"]
    for name, value in {
        "requests_per_second": 8.9,
        "storage_read_p95_ms": 11.1,
        "cache_hit_rate": 0.52,
    }.items():
        assert not document(promised, {**kept, name: value}, ["."], 60)["kept"]


@pytest.mark.real
def test_the_chosen_point_is_run_for_real_and_held_against_what_was_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"--users 2 --slo-target-ms 2000 --option sata-ssd --quick --check {tmp_path} --check-seconds 5"
    code, found = plan(tmp_path, words)
    names = [row["figure"] for row in found["check"]["figures"]]
    assert {"requests_per_second", "storage_read_p95_ms", "end_to_end_p95_ms"} <= set(names)
    assert code == (0 if found["check"]["kept"] else 3)
    assert f"Checked in {tmp_path} for 5 s" in capsys.readouterr().out
    assert (tmp_path / "plan-check.json").is_file()


@pytest.mark.parametrize("users", [4, pytest.param(24, marks=pytest.mark.slow), 38, 50])
def test_plan_and_can_give_the_same_answer_near_the_limit_too(
    tmp_path: Path, users: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All seeds say yes to 4, none has a verdict on 24, each says another thing of 38, most say no to 50."""
    # However busy the machine is: `can` alone asks no other seeds where the first took long.
    monkeypatch.setattr(asking, "FIRST_SEED_SECONDS_MAX", 600.0)
    asked = f"--model tiny-1b --users {users} --slo-target-ms 150 --duration 20 --quiet"
    output = f"--output {tmp_path / 'found.json'}"
    can = ["can", "--simulate", "--json", "--device-profile", "nvme-gen5"]
    code = main([*can, *asked.split(), *output.split()])
    said = json.loads(capsys.readouterr().out)
    words = ["plan", "--json", "--quick", "--option", "nvme-gen5"]
    assert main([*words, *asked.split(), *output.split()]) == code
    planned = json.loads(capsys.readouterr().out)
    assert planned["answer"] == said["answer"]
    assert planned["chosen"]["answer"] == said["answer"]
    each = ", ".join(f"{answer} with seed {seed}" for seed, answer in said["by_seed"].items())
    assert planned["chosen"]["answer_by_seed"] == each


def test_where_most_seeds_say_no_the_next_option_is_tried(tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    options = "--option nvme-gen5 --option nvme-gen5,count=2"
    words = f"--model tiny-1b --users 3 --seed 44 {options} --quick --quiet"
    assert main(["plan", *words.split(), "--output", str(output)]) == 0
    found = json.loads(output.read_text())
    first, second = found["options"]
    assert (first["answer"], second["answer"]) == ("no", "yes")
    assert first["answer_by_seed"] == "yes with seed 44, no with seed 45, no with seed 46"
    assert (first["holds"] or 0) < found["asked"]
    assert (found["answer"], found["chosen"]["name"]) == ("yes", second["name"])
