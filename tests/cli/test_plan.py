"""`kvspill plan`: answer, options, sensitivity and files, what it refuses, and its check (P4)."""

import json
from pathlib import Path

import pytest

from cli.planned import LOAD, PROFILE, plan
from kvspill.cli.main import main
from kvspill.plan.checking import document
from kvspill.plan.predict import Interval
from kvspill.run import asking


@pytest.fixture
def drive(tmp_path: Path) -> str:
    path = tmp_path / "drive.yaml"
    path.write_text(PROFILE)
    return str(path)


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
