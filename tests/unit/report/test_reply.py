"""What `kvspill can` answered stands in its result, and every view of that result says the same."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.config import Config
from kvspill.records import GIB, Tier
from kvspill.report.html import page as page_module
from kvspill.report.html.page import build_page
from kvspill.report.reply import lines
from kvspill.report.short import short_summary
from kvspill.result.answer import Status
from kvspill.result.cautions import MEMORY_DIRECTORY
from kvspill.result.reading import load_result
from kvspill.result.schema import Result
from kvspill.run.asking import Bracket, Reply
from kvspill.run.bandwidth import Bandwidth
from kvspill.run.search.controller import Levels
from unit.result.sample import built, facts, tier

FEW = ("--model", "tiny-1b", "--users", "5", "--simulate", "--quiet", "--json")


def asked(
    folder: Path, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, dict[str, Any], Result]:
    path = folder / "answer.json"
    code = main(["can", *FEW, *words, "--output", str(path)])
    return code, json.loads(capsys.readouterr().out), load_result(path)


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their plots, which take seconds to make."""
    monkeypatch.setattr(page_module, "_library", lambda: "")
    monkeypatch.setattr(page_module, "_compiled", lambda spec: spec)


def first_words(result: Result) -> tuple[str, str]:
    """The console's first line, and the page from its verdict on."""
    page = build_page([("answer", result)])
    return str(next(iter(short_summary(result)))), page[page.index("<main>") :]


@pytest.mark.parametrize(("target", "code"), [("1000", 0), ("1", 3)])
def test_the_page_and_the_summary_begin_with_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str, code: int
) -> None:
    found_code, found, result = asked(tmp_path, capsys, "--slo-target-ms", target)
    assert found_code == code
    line, page = first_words(result)
    sentence = found["text"][0]
    assert line == sentence
    assert page.index(sentence) < page.index("banner")
    assert "No verdict:" not in page
    assert "NO VERDICT" not in page
    assert result.question is not None
    assert result.question.answer == found["answer"]
    assert result.question.helps == found["helps"]


def test_a_class_without_requests_is_named_as_not_judged_s11(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found, result = asked(tmp_path, capsys)
    assert (code, found["not_judged"], found["concluded"]) == (0, {"interactive": 0}, True)
    assert "no_verdict" not in found["warnings"]
    assert "not_judged" in found["warnings"]
    assert "keep the latency target of responsive and batch on" in found["text"][0]
    text = " ".join(found["text"])
    assert "interactive: 0 requests, not judged (a verdict needs 50)." in text
    assert "interactive 50.00 ms (not judged)" in text
    assert found["other_seeds"] == {"43": "no", "44": "yes"}
    _line, page = first_words(result)
    assert "interactive: 0 requests, not judged" in page


def replied(result: Result, **more: Any) -> list[str]:
    """The text of a no that rests on this result."""
    probe = Bandwidth(2.36, 1.2, "a probe")
    return list(lines(Reply(Status.NO, 5, Config(), result, Bracket(2, 3, True), probe, None, None, **more)))


def test_beside_other_traffic_the_answer_names_it_and_does_not_blame_the_drive() -> None:
    moved = {"devices": ["vda"], "read_bytes": 20 * GIB, "written_bytes": 45 * GIB}
    result = built(probes={"block_device": moved})
    text = replied(result)
    assert text[1] == (
        "Other programs used the device during the measurement, or RAID or the file system multiplied its "
        "traffic: it read 5.00 and wrote 15.00 times what was asked of it, and the figures are of both."
    )
    whole = " ".join(text)
    assert "What would help: Stop the other programs that use the device, and run it again" in whole
    assert "faster device" not in whole
    assert "device's own time" not in whole
    assert "idle" not in whole
    assert "The directory before the load: read 2.36" in whole
    assert [item.code for item in result.warnings].count("device_excess") == 1
    assert "device_excess" not in whole


def test_a_directory_in_memory_is_named_and_not_advised_to_use_o_direct() -> None:
    buffered = facts(
        tiers=(tier(Tier.STORAGE, direct_io=False, files_opened_direct=0, files_opened_buffered=9),)
    )
    result = built(run=buffered, warnings=[MEMORY_DIRECTORY.of(path="/dev/shm/x")])
    whole = " ".join(replied(result))
    assert "! memory_directory (serious): --cache-dir /dev/shm/x lies in memory" in whole
    assert "not_direct" not in whole
    assert "not_direct" in {item.code for item in built(run=buffered).warnings}


def test_one_user_is_spoken_of_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--users", "1", "--slo-target-ms", "0.5", "--cache-dir", str(tmp_path))
    code, found, _result = asked(tmp_path, capsys, *words)
    assert code == 3
    assert "1 user of tiny-1b does not keep the latency target" in found["text"][0]
    assert "--users" in found["helps"]
    assert "--num-users" not in found["helps"]
    assert f"- --cache-dir {tmp_path} has no effect: --simulate writes nothing." in " ".join(found["text"])


def test_a_device_that_takes_no_time_leaves_nothing_to_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _code, found, _result = asked(tmp_path, capsys, "--device-profile", "null")
    assert found["because"] == "Queue and storage add no measurable time to generation."


def test_a_reader_that_has_seen_enough_changes_no_exit_status(tmp_path: Path) -> None:
    words = ["can", "--model", "tiny-1b", "--users", "3", "--simulate", "--quiet", "--slo-target-ms", "1"]
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "kvspill.cli.main", *words, "--output", str(tmp_path / "r.json")]
    with os.fdopen(write_end, "w") as closed:
        assert subprocess.run(command, stdout=closed, check=False).returncode == 3


def test_the_help_shows_no_default_for_what_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["can", "--help"]) == 0
    users = capsys.readouterr().out.partition("--num-users N, --users N")[2].partition("--duration")[0]
    assert users.split() == ["simulated", "users"]


def test_the_progress_of_a_stage_never_passes_its_own_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(Levels, "_say", lambda _levels, _level, text: said.append(text))
    asked(tmp_path, capsys, "--users", "2", "--seed", "1")
    counts = [found for text in said if (found := re.match(r"measured (\d+) of (\d+)-(\d+) ", text))]
    assert any(int(found[1]) > 24 for found in counts), "no stage was held for longer than usual"
    assert all(int(found[1]) <= int(found[3]) for found in counts)


def test_few_users_are_said_to_hang_on_the_seed() -> None:
    mixed = replied(built(), other_seeds={43: Status.NO, 44: Status.YES})
    said = "With so few users the answer hangs on the seed, which draws them"
    assert mixed[1] == f"{said}: no with seed 43, yes with seed 44."
    same = replied(built(), other_seeds={43: Status.NO, 44: Status.NO})
    assert same[1].startswith("Other seeds draw other users and give the same answer: no with seed 43")


@pytest.mark.parametrize(("p95_ms", "near"), [(60.0, True), (500.0, False)])
def test_a_measured_answer_near_its_target_doubts_its_seed(p95_ms: float, near: bool) -> None:
    qos = {"interactive": {"requests": 60, "added_ms": {"p95": p95_ms}}}
    step = {"users": 3, "passes": False, "clear": True, "enough": True, "qos": qos}
    result = built().model_copy(update={"autoscaling_stats": [step, {**step, "concluded": True}]})
    text = " ".join(replied(result))
    assert ("another --seed may answer otherwise" in text) is near
    assert f"added {p95_ms:.2f} ms to interactive requests (p95); the target is 50.00 ms." in text


def test_the_few_requests_that_a_no_rests_on_were_judged() -> None:
    qos = {
        "interactive": {"requests": 0, "added_ms": None},
        "responsive": {"requests": 9, "added_ms": {"p95": 1.0}},
        "batch": {"requests": 3, "added_ms": {"p95": 9000.0}},
    }
    step = {"users": 3, "passes": False, "clear": True, "enough": False, "qos": qos}
    result = built().model_copy(update={"autoscaling_stats": [step, {**step, "concluded": False}]})
    text = replied(result)
    assert (
        "With 3 users, queue and storage added 9.00 s to batch requests (p95); the target is 1.00 s." in text
    )
    assert [line for line in text if "not judged (a" in line] == [
        "interactive: 0 requests, not judged (a verdict needs 50).",
        "responsive: 9 requests, not judged (a verdict needs 50).",
    ]
