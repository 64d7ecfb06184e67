"""`kvspill can`: yes, no or no verdict, with its exit status, as text and as JSON."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cli.children import left_over
from kvspill.cli.main import main
from kvspill.machine.hardware import look_at
from kvspill.machine.kernel import Kernel
from kvspill.run import asking
from unit.plan.made import calibrated

HASTY = """
autoscaler_interval: 0.1
personas:
  chatbot: {context: [64, 128], generate: [1, 4], think: [0.001, 0.01], weight: 1}
  coding: {context: [64, 128], generate: [1, 4], think: [0.001, 0.01], weight: 1}
  document: {context: [64, 128], generate: [1, 4], think: [0.001, 0.01], weight: 1}
"""
"""Users who hardly think, and a search that looks often, so that a real one takes seconds."""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, other draws of the users are asked."""
    monkeypatch.setattr(asking, "FIRST_SEED_SECONDS_MAX", 600.0)


def can(*words: str) -> int:
    return main(["can", *words])


def test_few_users_on_a_fast_device_are_a_yes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--model", "tiny-1b", "--users", "3", "--simulate", "--device-profile", "nvme-gen5", "--quiet")
    assert can(*asked, "--output", str(tmp_path / "r.json")) == 0
    text = capsys.readouterr().out
    first = " ".join(text.split()[:25])
    assert first.startswith("YES (simulated) for ")
    assert "by 2 of 3 seeds: 3 users of tiny-1b, none of them interactive" in first
    assert "Asked with: closed arrivals, one server per user, 30 ms per token" in text
    assert max(len(line) for line in text.splitlines() if not line.startswith("All figures: ")) <= 80


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_an_answer_that_a_signal_cut_short_says_so(
    form: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ask = ("--model", "tiny-1b", "--users", "3", "--simulate", "--quiet"), asking.ask

    def interrupted(*given: Any) -> Any:
        reply = ask(*given)
        os.kill(os.getpid(), signal.SIGINT)
        return reply

    monkeypatch.setattr(asking, "ask", interrupted)
    assert can(*asked, *form, "--output", str(tmp_path / "r.json")) == 130
    text = capsys.readouterr().out
    if form:
        assert json.loads(text)["interrupted"] == "SIGINT"
    else:
        assert "Interrupted (SIGINT): the answer rests on what was done until then." in text


def test_a_yes_of_one_seed_against_two_is_a_no(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--model", "tiny-1b", "--users", "3", "--simulate", "--device-profile", "nvme-gen5", "--quiet")
    assert can(*asked, "--seed", "44", "--json", "--output", str(tmp_path / "r.json")) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["by_seed"] == {"44": "yes", "45": "no", "46": "no"}
    assert (found["answer"], found["seed"]) == ("no", 45)
    assert found["text"][0].startswith("NO (simulated), by 2 of 3 seeds: 3 users of tiny-1b do not keep")


def test_many_users_are_drawn_by_three_seeds_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("--model", "tiny-1b", "--users", "18", "--simulate", "--device-profile", "nvme-gen5", "--quiet")
    assert can(*asked, "--json", "--output", str(tmp_path / "r.json")) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["by_seed"] == {"42": "yes", "43": "no", "44": "no"}
    assert found["text"][1].startswith("The answer depends on the seed, which draws the users: yes with seed")
    monkeypatch.setattr(asking, "FIRST_SEED_SECONDS_MAX", 0.0)
    assert can(*asked, "--json", "--output", str(tmp_path / "r.json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["by_seed"] == {}
    assert found["text"][1].startswith(
        "One draw of users was simulated and the target is near: another --seed"
    )


def test_too_many_are_a_no_with_the_limit_its_reason_and_what_twice_the_speed_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (
        "--users",
        "12",
        "--simulate",
        "--slo-target-ms",
        "2000",
        "--duration",
        "120",
        "--quiet",
        "--json",
    )
    assert can(*asked, "--output", str(tmp_path / "r.json")) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["answer"], found["users"], found["binds"]) == ("no", 12, "device")
    assert 0 < found["holds_users"] < found["fewest_users_that_failed"] <= 12
    text = " ".join(found["text"])
    assert len(found["held_by_seed"]) == 3
    fewest, most = (choose(found["held_by_seed"].values()) for choose in (min, max))
    assert f"This storage holds {fewest} to {most} users" in text
    assert f"by seed (simulated; {found['holds_users']} with seed {found['seed']}, where " in text
    about = "at least" if found["may_hold_more_at_twice_the_speed"] else "about"
    more = found["modelled_users_at_twice_the_speed"]
    assert more > found["holds_users"]
    assert f"Twice the speed would hold {about} {more} (modelled" in text
    assert found["files"] == [str(tmp_path / "r.json")]


def test_where_twice_the_speed_holds_no_more_no_faster_device_is_advised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--model",
        "llama3.1-8b",
        "--users",
        "40",
        "--simulate",
        "--device-profile",
        "nvme-gen5",
        "--quiet",
        "--json",
    ]
    assert can(*words, "--output", str(tmp_path / "r.json")) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["modelled_users_at_twice_the_speed"] <= found["holds_users"]
    text = " ".join(found["text"])
    assert "Twice the speed would hold no more (modelled" in text
    assert "faster device" not in text


def test_a_question_without_users_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert can("--model", "tiny-1b") == 2
    assert "--users: missing; say how many users" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            "trace: mooncake:sample",
            "trace mooncake:sample of FILE: can asks about users, and a recording has",
        ),
        ("use_burst_trace: true", "use_burst_trace true of FILE: can asks about users, and a recording has"),
        ("request_rate: 5", "request_rate 5.0 of FILE: can asks about users, and a rate has none who wait"),
        ("max_requests: 50", "max_requests 50 of FILE: can asks about users, and its search takes a time"),
    ],
)
def test_another_load_in_the_configuration_is_refused_by_its_name_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, said: str
) -> None:
    file = tmp_path / "load.yaml"
    file.write_text(f"{setting}\n")
    assert can("--users", "4", "--config", str(file), "--simulate") == 2
    text = capsys.readouterr().err
    assert f"error: {said.replace('FILE', str(file))}" in text
    assert "; leave it out, or " in text


def test_a_class_of_which_nobody_is_drawn_is_refused_and_not_measured_for_longer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert can("--users", "4", "--model", "tiny-1b", "--slo-classes", "interactive", "--simulate") == 2
    error = capsys.readouterr().err
    assert "seed 42 draws no interactive user among 4, " in error
    assert "give another --seed or more --users" in error
    assert "--duration" not in error


@pytest.mark.parametrize(
    ("words", "least"),
    [(("1",), "1.4"), (("1.4",), "1.4"), (("4", "--warmup", "3"), "4.2")],
)
def test_a_time_in_which_nothing_can_be_measured_is_refused_before_any_io(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    least: str,
) -> None:
    monkeypatch.setattr(asking, "measure_bandwidth", lambda _dirs: pytest.fail("it was probed"))
    asked = ("--users", "2", "--model", "tiny-1b", "--cache-dir", str(tmp_path), "--duration", *words)
    assert can(*asked) == 2
    said = f"--duration {words[0]}: too short to measure anything, which takes more than {least} s; leave"
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_recorded_conversations_leave_the_users_to_the_question(tmp_path: Path) -> None:
    file = tmp_path / "load.yaml"
    file.write_text("trace: sharegpt:sample\n")
    asked = ("--users", "4", "--model", "tiny-1b", "--config", str(file), "--simulate", "--quiet")
    assert can(*asked, "--output", str(tmp_path / "r.json")) == 0


def test_memory_alone_is_not_called_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--model", "tiny-1b", "--users", "3", "--simulate", "--storage-tier", "off", "--quiet")
    can(*asked, "--cpu-mem-gb", "8", "--json", "--output", str(tmp_path / "r.json"))
    found = json.loads(capsys.readouterr().out)
    assert found["storage"] == "memory alone (--storage-tier off)"
    assert "on memory alone" in found["text"][0]


def ask_for_real(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    settings = folder / "hasty.yaml"
    settings.write_text(HASTY)
    asked = (
        "--config",
        str(settings),
        "--model",
        "tiny-1b",
        "--generation-mode",
        "none",
        "--quiet",
        "--json",
    )
    room = ("--storage-capacity-gb", "0.5", "--duration", "8", "--output", str(folder / "r.json"))
    code = can(*asked, *room, "--cache-dir", str(folder), *words)
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.real
def test_a_directory_is_asked_for_real_and_left_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = ask_for_real(tmp_path, capsys, "--users", "3", "--slo-target-ms", "60000")
    assert (code, found["answer"], found["simulated"]) == (0, "yes", False)
    assert found["idle_read_gib_per_sec"] > 0
    assert found["other_seeds_by_model"] == {"43": "yes", "44": "yes"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hasty.yaml", "r.json"]
    code, found = ask_for_real(tmp_path, capsys, "--users", "3", "--slo-target-ms", "0.001")
    assert (code, found["answer"], found["modelled_users"]) == (3, "no", 0)


def test_more_capacity_is_not_advised_where_a_saturated_device_makes_writes_wait_for_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any capacity holds as many: entries are in use for long because the drive is slow to serve them."""
    words = "--model llama3.1-8b --users 100 --storage-capacity-gb 11 --simulate --quiet --json"
    assert can(*words.split(), "--output", str(tmp_path / "r.json")) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["modelled_users_with_more_capacity"] == found["holds_users"] == 5
    assert found["binds"] == "device"
    assert found["because"].startswith("The device is saturated (")
    assert found["helps"].endswith("; more capacity would not help (modelled).")
    assert "Raise" not in found["helps"]
    assert "crowded" in found["warnings"], "C3"


def endless(*_given: object) -> int:
    time.sleep(30)
    return 1


@pytest.mark.real
def test_a_model_that_takes_too_long_does_not_hold_up_the_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a fast device holds many users, simulating them took longer than the whole announced time."""
    monkeypatch.setattr(asking, "MODEL_SECONDS_MAX", 0.5, raising=False)
    monkeypatch.setattr(asking, "_limit", endless)
    began = time.monotonic()
    code, found = ask_for_real(tmp_path, capsys, "--users", "3", "--slo-target-ms", "60000")
    assert time.monotonic() - began < 25
    assert (code, found["answer"]) == (0, "yes")
    assert not left_over()


DRIVE = "read_gib_per_sec: 1, write_gib_per_sec: 1, lanes: 32"


@pytest.mark.real
def test_a_calibration_takes_the_place_of_the_look_at_the_idle_drive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "drive.yaml"
    profile.write_text(calibrated(DRIVE, look_at(tmp_path, Kernel()).describe()))
    words = ("--users", "2", "--slo-target-ms", "60000", "--device-profile", str(profile))
    code, found = ask_for_real(tmp_path, capsys, *words)
    assert (code, found["answer"], found["simulated"]) == (0, "yes", False)
    assert found["idle_read_gib_per_sec"] is None
    assert found["calibrated"]["date"] == "2026-01-01T00:00:00+00:00"
    assert any("it had predicted at least 4 users" in line for line in found["text"])


def test_a_simulated_answer_says_where_it_leaves_the_calibration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """P2: a search says so as a single simulation does."""
    profile = tmp_path / "drive.yaml"
    profile.write_text(calibrated(DRIVE, "ext4 on x (nvme)") + "  warnings: [measured once only]\n")
    words = f"--users 2 --model tiny-1b --duration 20 --device-profile {profile} --quiet"
    can("--simulate", *words.split(), "--io-threads", "8", "--output", str(tmp_path / "r.json"))
    text = " ".join(capsys.readouterr().out.split())
    assert "was calibrated on: --io-threads 8 (calibrated with 32)." in text
    assert "The calibration of its device profile had warnings: measured once only." in text
    found = {item["code"] for item in json.loads((tmp_path / "r.json").read_text())["warnings"]}
    assert {"extrapolated", "calibration_doubted"} <= found


def test_a_calibration_of_another_kind_of_device_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "drive.yaml"
    profile.write_text(calibrated(DRIVE, "ext4 on x (nvme, Model of a drive)"))
    words = ("--users", "2", "--cache-dir", str(tmp_path), "--device-profile", str(profile), "--quiet")
    assert can(*words, "--output", str(tmp_path / "r.json")) == 2
    error = capsys.readouterr().err
    assert "was calibrated on ext4 on x (nvme, Model of a drive); name a directory there" in error
    assert error.count("\n") == 1


# What is seen of a directory in memory and said of it has quicker tests, each for itself.
@pytest.mark.slow
@pytest.mark.real
@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no memory file system here")
def test_a_directory_in_memory_is_answered_as_memory(capsys: pytest.CaptureFixture[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        code, found = ask_for_real(Path(folder), capsys, "--users", "3", "--slo-target-ms", "60000")
    assert code == 0
    assert found["in_memory"]
    said = "YES (in memory, not a drive) for batch users only: 3 users of tiny-1b, none of them interactive"
    assert found["text"][0].startswith(said)


@pytest.mark.real
def test_a_backend_without_a_directory_is_asked_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVSPILL_STORAGE_BACKEND", "null")
    settings = tmp_path / "hasty.yaml"
    settings.write_text(HASTY)
    words = "--model tiny-1b --generation-mode none --users 3 --slo-target-ms 60000 --duration 8 --quiet"
    assert can("--config", str(settings), *words.split(), "--output", str(tmp_path / "r.json")) == 0
    assert capsys.readouterr().out.startswith("YES")


def test_the_command_in_the_result_asks_the_same_question_again(tmp_path: Path) -> None:
    first, second, settings = tmp_path / "1.json", tmp_path / "2.json", tmp_path / "f.yaml"
    settings.write_text("qos: {batch: {p95_ms: 7000}}\narrival: open")
    words = ("--model", "tiny-1b", "--users", "12", "--duration", "20", "--simulate", "--quiet")
    code = can(*words, "--config", str(settings), "--output", str(first))
    found = json.loads(first.read_text())
    assert (
        " | kvspill can --simulate --num-users 12 --duration 20 --model tiny-1b --config" in found["command"]
    )
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    again = f"{found['command']} --quiet --output {shlex.quote(str(second))}"
    assert subprocess.run(again, shell=True, env=environ, check=False, capture_output=True).returncode == code
    repeated = json.loads(second.read_text())
    for key in ("command", "question", "digest", "summary"):
        assert repeated[key] == found[key]


def test_the_command_leaves_out_what_can_chooses_itself(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    assert can("--model", "tiny-1b", "--users", "3", "--simulate", "--quiet", "--output", str(path)) == 0
    command = json.loads(path.read_text())["command"]
    assert command == "kvspill can --simulate --num-users 3 --model tiny-1b"
