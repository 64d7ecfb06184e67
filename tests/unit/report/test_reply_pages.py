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
from kvspill.report.html import page as page_module
from kvspill.report.html.verdicts import MISSED, OPEN, verdict_of
from kvspill.report.reply.text import answered
from kvspill.report.short import short_summary
from kvspill.result.answer import Status, promise_of
from kvspill.result.reading import load_result
from kvspill.result.schema import Result
from kvspill.result.warnings.certainty import AUTOSCALING_INCONCLUSIVE
from kvspill.run.asking import Reply
from kvspill.run.search.controller import Levels
from kvspill.run.verdict import Bracket
from unit.measure.rows import op
from unit.report.html.pages import build_page
from unit.report.replies import of_level, replied
from unit.result.sample import built, filled_recorder

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
    drawn = "No seed that says yes draws any interactive user among 5, so this class is not covered;"
    assert f"{drawn} give another --seed or more --users." in text
    assert "--duration" not in text
    assert found["other_seeds"] == {"43": "no", "44": "yes"}
    _line, page = first_words(result)
    assert drawn in page
    (unjudged,) = (item for item in result.warnings if item.code == "not_judged")
    assert unjudged.message.endswith("needs: interactive (no user with seed 42).")
    assert unjudged.remedy == (
        "Give another --seed or more --users, or leave the class out of --slo-classes."
    )


def test_one_user_is_spoken_of_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--users", "1", "--slo-target-ms", "0.5", "--cache-dir", str(tmp_path))
    code, found, _result = asked(tmp_path, capsys, *words)
    assert code == 3
    assert "1 user of tiny-1b does not keep the latency target" in found["text"][0]
    assert "This storage does not hold a single user" in " ".join(found["text"])
    assert found["helps"] == "Use a faster device or more DRAM in front of it (--cpu-mem-gb)."
    assert "would hold about 0" not in " ".join(found["text"])
    assert f"! Bear in mind: --cache-dir {tmp_path} has no effect: --simulate writes nothing." in " ".join(
        found["text"]
    )


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
    lengths = [
        found for text in said if (found := re.match(r"(\S+) s measured, up to (\S+) s(?:,| as)", text))
    ]
    usual = min(float(found[2]) for found in lengths)
    assert any(float(found[1]) > usual for found in lengths), "no stage was held for longer than usual"
    assert all(float(found[1]) <= float(found[2]) for found in lengths)
    assert any(" as requests are few, " in text for text in said)
    assert any(" to confirm it, " in text for text in said)
    assert "settling, the largest that passed is measured again to confirm it" in said


def test_the_sentence_has_the_figure_that_was_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _code, found, result = asked(tmp_path, capsys)
    assert result.question is not None
    assert result.question.judged is not None
    level, last = result.question.judged, result.autoscaling_stats[-1]
    assert level["classes"] == last["slo"]["classes"] == promise_of(result)["classes"]  # type: ignore[index]
    assert level["windows"] > 1, "the answer was judged by one window alone"
    windows = level["windows"]
    shown = [
        f"(p95 of {block['requests']:,} requests in {windows} windows)" for block in level["classes"].values()
    ]
    assert any(count in " ".join(found["text"]) for count in shown)


def test_a_question_with_an_answer_is_not_called_inconclusive_by_its_page() -> None:
    search = of_level(10, responsive=(15, 9, 683.0, "missed"), batch=(31, 1, 153.79, "no verdict"))
    doubt = AUTOSCALING_INCONCLUSIVE.of(reason="Not concluded.", remedy="Wait.")
    config = {**search.config, "num_users": 20}
    result = search.model_copy(update={"warnings": [doubt], "config": config})
    reply = Reply(Status.NO, 100, Config(), result, Bracket(None, 10, False), None, None, None)
    kept = answered(reply)
    assert [item.code for item in kept.warnings] == ["limit_not_exact", "not_judged"]
    assert {item.severity for item in kept.warnings} == {"note"}
    page = build_page([("answer", kept)])
    assert "the exact limit was not found" in page
    assert "no answer yet" not in page
    assert "(asked: 100)" in page
    assert (
        "Service classes: what queue and storage add to generation, p95, with 10 users in 2 windows" in page
    )
    verdicts = {row.name: row.state for row in verdict_of(kept).classes}
    assert verdicts == {"responsive": MISSED, "batch": OPEN}


def test_where_generation_takes_the_time_the_storage_is_not_said_to_hold_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--slo-latency", "end-to-end", "--slo-target-ms", "2000")
    code, found, _result = asked(tmp_path, capsys, *words)
    assert (code, found["binds"]) == (3, "generation")
    assert "This set-up does not hold a single user (simulated)." in found["text"]
    assert "This storage" not in " ".join(found["text"])


def test_the_operations_of_a_request_stand_beside_the_latency_of_one() -> None:
    """22 ms of a read beside 225 ms of a request looked like a contradiction."""
    said = "A request makes about 2 reads and 1 write of entries on the storage: what these take adds up."
    recorder = filled_recorder()
    assert said not in replied(built(recorder))
    for second in (15, 16, 17):
        recorder.op(op(second, started=second - 0.1))
    assert said in replied(built(recorder))
