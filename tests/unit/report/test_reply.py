"""What `kvspill can` answered stands in its result, and every view of that result says the same."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.config import Config
from kvspill.records import GIB, QoS, Tier
from kvspill.report.html import page as page_module
from kvspill.report.html.verdicts import MISSED, OPEN, verdict_of
from kvspill.report.reply.asked import settings_text
from kvspill.report.reply.document import document
from kvspill.report.reply.text import answered, lines
from kvspill.report.short import short_summary
from kvspill.result.answer import Status, promise_of
from kvspill.result.reading import load_result
from kvspill.result.schema import Result
from kvspill.result.warnings.certainty import AUTOSCALING_INCONCLUSIVE, STAGE_NOT_SETTLED
from kvspill.result.warnings.devices import DEVICE_EXCESS, IO_LIMITED, MEMORY_DIRECTORY
from kvspill.result.warnings.loads import LATE_ARRIVALS
from kvspill.run.asking import Reply
from kvspill.run.bandwidth import Bandwidth
from kvspill.run.search.controller import Levels
from kvspill.run.verdict import Bracket, by_most
from kvspill.texts import duration
from unit.measure.rows import ns, op, piece, request
from unit.report.html.pages import build_page
from unit.result.sample import built, empty_recorder, facts, tier

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
    drawn = "Seed 42 draws no interactive user among 5, so nothing is said of interactive;"
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


def test_a_run_that_was_stopped_has_other_traffic_as_a_warning_and_not_as_its_reason() -> None:
    warnings = [DEVICE_EXCESS.of(did="read 1.48")]
    changed = {"incomplete": True, "interrupted": "stopped by SIGINT", "warnings": warnings}
    result = built().model_copy(update=changed)
    bracket = Bracket(None, None, False)
    reply = Reply(Status.INVALID, 5, Config(), result, bracket, None, None, None)
    text = list(lines(reply))
    assert text[0] == "INVALID: the run ended early (stopped by SIGINT)."
    (said,) = (line for line in text if "Other programs used the device" in line)
    assert said.startswith("! Serious: ")
    assert "Stop the other programs and run it again" in said
    kept = answered(reply).question
    assert kept is not None
    assert not any("Other programs" in reason for reason in kept.reasons)


def test_the_answer_names_the_limit_of_a_control_group_once() -> None:
    limited = built(warnings=[IO_LIMITED.of(limits="200 MiB/s of reads on loop7")])
    text = replied(limited)
    said = [line for line in text if "200 MiB/s of reads on loop7" in line]
    assert said == [text[1]]
    assert "within that limit" in " ".join(text)


def test_what_is_held_while_processors_are_short_is_not_laid_to_storage_alone() -> None:
    recorder = empty_recorder()
    for number in range(60):
        at = 11 + number / 10
        recorder.request(request(at + 0.08, intended=at, storage=0.08, qos=QoS.INTERACTIVE))
        pieces = (piece(at, at + 0.08, 1 << 20),)
        recorder.op(op(at + 0.08, started=at, nbytes=1 << 20, pieces=pieces))
        recorder.cache_call(ns(at), ns(at + 0.08))
    short = built(recorder, probes={"cpu_seconds": 1.0, "cpu_wait_seconds": 4.0})
    text = " ".join(replied(short))
    assert "holds about 2 users (measured with too few processors free; 3 do not keep the target)" in text


def test_a_directory_in_memory_is_named_and_not_advised_to_use_o_direct() -> None:
    buffered = facts(
        tiers=(tier(Tier.STORAGE, direct_io=False, files_opened_direct=0, files_opened_buffered=9),)
    )
    result = built(run=buffered, warnings=[MEMORY_DIRECTORY.of(path="/dev/shm/x")])
    whole = " ".join(replied(result))
    assert "! Serious: --cache-dir /dev/shm/x lies in memory" in whole
    assert "not_direct" not in whole
    shown = verdict_of(result)
    assert shown.assessment.startswith("No storage assessment: the directory lies in memory")
    assert not [row.name for row in shown.criteria if "NVMe" in row.name]
    assert "not_direct" in {item.code for item in built(run=buffered).warnings}


@pytest.mark.parametrize(
    ("modelled", "said"),
    [
        (None, "holds at least 20 users (measured); more were not tried."),
        (12, "holds at least 20 users (measured); more were not tried."),
        (20, "holds at least 20 users (measured); few more or none by the model."),
        (31, "holds at least 20 users (measured); about 31 users by the model."),
        (40, "holds at least 20 users (measured); at least 40 users by the model."),
    ],
)
def test_a_yes_says_how_many_are_held(modelled: int | None, said: str) -> None:
    """It was in --json alone, and there no more than what was asked."""
    probe = Bandwidth(2.36, 1.2, "a probe")
    reply = Reply(Status.YES, 20, Config(), built(), Bracket(20, None, True), probe, modelled, None)
    assert any(said in line for line in lines(reply)), list(lines(reply))


def test_an_answer_shows_latencies_beside_the_sizes_of_their_entries_s15() -> None:
    (line,) = (line for line in replied(built()) if line.startswith("Storage reads"))
    assert re.fullmatch(r"Storage reads.*: .*/s, p95 .* m?s; entries p50 .*, p95 .*B\.", line)


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
    lengths = [found for text in said if (found := re.match(r"measured (\S+) s of at most (\S+) s, ", text))]
    usual = min(float(found[2]) for found in lengths)
    assert any(float(found[1]) > usual for found in lengths), "no stage was held for longer than usual"
    assert all(float(found[1]) <= float(found[2]) for found in lengths)
    assert any(", longer as requests are too few, " in text for text in said)
    assert any(", twice as long to confirm it, " in text for text in said)
    assert "settling, the largest that passed is measured again to confirm it" in said


def test_an_answer_is_said_to_depend_on_the_seed() -> None:
    mixed = replied(built(), by_seed={42: Status.YES, 43: Status.NO, 44: Status.NO})
    said = "The answer depends on the seed, which draws the users"
    assert mixed[0].startswith("NO, by 2 of 3 seeds: ")
    each = "yes with seed 42, no with seed 43, no with seed 44"
    assert mixed[1] == f"{said}: {each}. The figures are of seed 42."
    same = replied(built(), by_seed={42: Status.NO, 43: Status.NO, 44: Status.NO})
    assert same[0].startswith("NO: ")
    assert (
        same[1]
        == "Results by seed (each draws other users): no with seed 42, no with seed 43, no with seed 44."
    )


def test_where_generation_takes_the_time_the_storage_is_not_said_to_hold_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--slo-latency", "end-to-end", "--slo-target-ms", "2000")
    code, found, _result = asked(tmp_path, capsys, *words)
    assert (code, found["binds"]) == (3, "generation")
    assert "This set-up does not hold a single user (simulated)." in found["text"]
    assert "This storage" not in " ".join(found["text"])


def test_where_the_seeds_differ_the_limit_is_that_of_one_of_them() -> None:
    seeds = {42: Status.YES, 43: Status.NO, 44: Status.NO}
    result = built().model_copy(update={"seed": 43})
    reply = Reply(Status.NO, 5, Config(), result, Bracket(None, 1, True), None, 0, 0, by_seed=seeds)
    text = " ".join(lines(reply))
    assert "With seed 43, this storage behind DRAM, " in text
    assert "does not hold a single user" in text
    assert "Twice the speed would hold none either (modelled with seed 43)." in text
    alike = " ".join(lines(replace(reply, by_seed={42: Status.NO, 43: Status.NO, 44: Status.NO})))
    assert "This storage behind DRAM" in alike
    assert "(modelled)." in alike


def test_as_many_seeds_for_as_against_are_no_verdict() -> None:
    seeds = {42: Status.YES, 43: Status.NO, 44: Status.UNDECIDED}
    reply = Reply(
        Status.UNDECIDED, 5, Config(), built(), Bracket(5, None, True), None, None, None, by_seed=seeds
    )
    (first, *_rest) = lines(reply)
    assert first.startswith("NO VERDICT: 5 users")
    assert first.endswith("as many seeds say yes as no; give a longer --duration or another --seed.")


def test_one_seed_beside_two_without_an_answer_is_no_verdict_and_said_to_be_alone() -> None:
    seeds = {42: Status.YES, 43: Status.UNDECIDED, 44: Status.INVALID}
    reply = Reply(
        by_most(seeds), 5, Config(), built(), Bracket(5, None, True), None, None, None, by_seed=seeds
    )
    (first, *_rest) = lines(reply)
    assert first.startswith("NO VERDICT: 5 users")
    assert "only 1 of 3 seeds says yes, and the others have no verdict; give --duration " in first
    most = replied(built(), by_seed={42: Status.NO, 43: Status.UNDECIDED, 44: Status.NO})
    assert most[0].startswith("NO, by 2 of 3 seeds: ")


def test_where_the_model_alone_says_the_limit_no_gain_is_said_too() -> None:
    reply = Reply(Status.NO, 20, Config(), built(), Bracket(None, 10, False), None, 7, 7)
    text = " ".join(lines(reply))
    assert "Twice the speed would hold no more (modelled)." in text
    assert "faster device" not in text
    held = " holds fewer than 10 users (measured; "
    assert f"{held}about 7 by the model, which --users 7 measures)." in text
    assert f"{held}not a single one by the model)." in " ".join(lines(replace(reply, modelled_users=0)))


def of_level(users: int, **classes: tuple[int, int, float | None, str]) -> Result:
    """A result whose search failed clearly at one level: requests, late ones, p95 and verdict by class."""
    targets = {"interactive": 50.0, "responsive": 300.0, "batch": 1000.0}
    judged = {
        name: {
            "requests": requests,
            "violations": late,
            "actual_ms": p95_ms,
            "target_ms": targets[name],
            "verdict": verdict,
        }
        for name, (requests, late, p95_ms, verdict) in classes.items()
    }
    facts = {"passes": False, "clear": True, "enough": False}
    level = {**facts, "level": users, "latency": "added", "percentile": 95.0, "windows": 2, "classes": judged}
    last = {**facts, "users": None, "concluded": False, "levels": [level]}
    return built().model_copy(update={"autoscaling_stats": [{**facts, "users": users}, last]})


def test_where_windows_differ_the_answer_says_that_this_is_the_limit() -> None:
    result = of_level(16, responsive=(900, 41, 290.0, "met"))
    last = result.autoscaling_stats[-1]
    for level in last["levels"]:
        level.update(passes=True, clear=False, enough=True, windows=6, windows_passed=4)
    reply = Reply(Status.UNDECIDED, 16, Config(), result, Bracket(12, 13, True), None, None, None)
    text = list(lines(reply))
    assert text[0].startswith("NO VERDICT: 16 users of llama3.1-8b on ")
    assert "at the limit, where chance decides (4 of 6 windows kept the target); ask about fewer, " in text[0]
    assert text[0].endswith(", or give --duration 150.")
    assert "holds about 12 users (measured; 13 do not keep the target)." in " ".join(text)
    assert (
        "With 16 users, queue and storage added 290.0 ms to responsive requests (p95 of 900 in 6 windows)"
        in " ".join(text)
    )
    assert [line for line in text if line.startswith("What would help: ")], "as its page says, too"
    assert document(reply, [])["at_the_limit"] is True
    others = [DEVICE_EXCESS.of(did="read 1.48")]
    beside = replace(reply, result=result.model_copy(update={"warnings": others}))
    (first, *_rest) = lines(beside)
    assert "4 of 6 windows kept the target beside other programs that used the device; stop them" in first


@pytest.mark.parametrize(("p95_ms", "near"), [(60.0, True), (500.0, False)])
def test_a_measured_answer_near_its_target_doubts_its_seed(p95_ms: float, near: bool) -> None:
    text = " ".join(replied(of_level(3, interactive=(60, 9, p95_ms, "missed"))))
    doubt = "One draw of users was measured and the target is near: another --seed may answer otherwise."
    assert (doubt in text) is near
    shown = "(p95 of 60 in 2 windows); the target is 50 ms."
    assert f"added {duration(p95_ms)} to interactive requests {shown}" in text


def of_few(*, modelled: int | None, **seeds: Status) -> list[str]:
    """The text of a measured yes, beside what a model says of this draw and of others."""
    nobody = (0, 0, None, "no verdict")
    kept = of_level(4, interactive=nobody, responsive=nobody, batch=(90, 0, 10.0, "met"))
    last = kept.autoscaling_stats[-1]
    last["levels"][0].update(passes=True, enough=True)
    others = {int(seed.removeprefix("seed")): said for seed, said in seeds.items()}
    bracket = Bracket(4, None, True)
    reply = Reply(Status.YES, 4, Config(), kept, bracket, None, modelled, None, modelled_by_seed=others)
    return list(lines(reply))


def test_a_measured_answer_says_what_a_model_says_of_other_seeds() -> None:
    text = of_few(modelled=8, seed43=Status.NO, seed44=Status.YES)
    assert text[0].startswith(
        "YES with seed 42, NO with seed 43 by a model: 4 users of llama3.1-8b keep the latency target of "
        "batch on "
    )
    alone = "The seed draws the users and seed 42 alone was measured; by a model of this storage: "
    assert text[1] == f"{alone}no with seed 43, yes with seed 44."
    assert text[2] == (
        "Seed 42 draws no interactive or responsive user among 4, so nothing is said of interactive and "
        "responsive; give another --seed or more --users."
    )
    agreed = of_few(modelled=8, seed43=Status.YES, seed44=Status.YES)
    assert agreed[0].startswith("YES: ")
    assert agreed[1] == f"{alone}yes with seed 43, yes with seed 44."


def test_a_model_that_did_not_get_to_other_seeds_says_so_in_a_line() -> None:
    """It said nothing at all, as if there were no other draws."""
    reply = Reply(Status.YES, 4, Config(), built(), Bracket(4, None, True), None, 8, None)
    alone = "The seed draws the users and seed 42 alone was measured; "
    none = " ".join(lines(replace(reply, seeds_not_modelled=2)))
    assert f"{alone}the 12 s of its model were too few for another." in none
    one = replace(reply, modelled_by_seed={43: Status.YES}, seeds_not_modelled=1)
    said = "by a model of this storage: yes with seed 43 (the 12 s of its model were too few for the others)."
    assert f"{alone}{said}" in " ".join(lines(one))


def test_a_model_that_the_measurement_refutes_puts_nothing_into_the_first_line() -> None:
    text = of_few(modelled=2, seed43=Status.NO, seed44=Status.NO)
    assert text[0].startswith("YES: ")
    assert text[1].endswith(
        "no with seed 43, no with seed 44, but also no with seed 42, which the measurement refutes."
    )


def test_a_class_without_users_puts_the_seed_in_doubt_where_no_model_told_of_others() -> None:
    text = of_few(modelled=None)
    assert text[1] == "One draw of users was measured: another --seed may answer otherwise."


def test_other_runs_of_this_program_on_the_device_are_named() -> None:
    moved = {"devices": ["vda"], "read_bytes": 20 * GIB, "written_bytes": 45 * GIB}
    others = {"runs": 1, "read_bytes": 16 * GIB, "written_bytes": 42 * GIB}
    result = built(probes={"block_device": moved, "neighbours": others})
    said = (
        "1 other run of kvspill used the device in the last window (read 16.00 GiB and wrote 42.00 GiB): "
        "the figures are of both."
    )
    assert said in replied(result)
    assert "Storage bytes read: by other runs of kvspill" in build_page([("answer", result)])
    few = built(probes={"block_device": moved, "neighbours": {**others, "read_bytes": 9, "written_bytes": 9}})
    assert "other run" not in " ".join(replied(few))


def test_many_measured_users_are_one_draw_too() -> None:
    result = of_level(80, interactive=(60, 9, 60.0, "missed"))
    many = Reply(Status.NO, 100, Config(), result, Bracket(60, 80, True), None, None, None)
    assert "One draw of users was measured and the target is near" in " ".join(lines(many))


def test_users_far_from_the_limit_are_not_doubted_for_their_seed() -> None:
    result = of_level(5, interactive=(60, 9, 90.0, "missed"))
    for simulated in (False, True):
        search = result.model_copy(update={"simulated": simulated})
        far = Reply(Status.NO, 100, Config(), search, Bracket(3, 5, True), None, None, None)
        assert "another --seed" not in " ".join(lines(far))
        assert "another --seed may answer otherwise." in " ".join(lines(replace(far, users=6)))


def test_the_cause_names_the_users_that_it_was_seen_with_where_others_were_asked_about() -> None:
    result = of_level(10, responsive=(60, 40, 4950.0, "missed"))
    result = result.model_copy(update={"window": result.window.model_copy(update={"users": 10})})

    def titles(users: int) -> list[str]:
        reply = Reply(Status.NO, users, Config(), result, Bracket(5, 10, True), None, None, None)
        kept = answered(reply)
        shown = [str(part) for part in short_summary(kept)]
        found = [line.partition(":")[0] for line in (*lines(reply), *shown) if line.startswith("Bottleneck")]
        return found + [name for name, _line in verdict_of(kept).lines if name.startswith("Bottleneck")]

    assert titles(100) == 3 * ["Bottleneck with 10 users"]
    assert titles(10) == 3 * ["Bottleneck"]


def test_a_no_of_few_requests_counts_the_late_ones_s11() -> None:
    few = {
        "interactive": (0, 0, None, "no verdict"),
        "responsive": (15, 9, 683.0, "no verdict"),
        "batch": (31, 1, 153.79, "no verdict"),
    }
    text = replied(of_level(3, **few))
    assert (
        "With 3 users, 9 of 15 responsive requests were late: too few for a verdict on the class's latency, "
        "but surely more than the 5% allowed; the target is 300 ms." in text
    )
    assert not [line for line in text if "p95 683" in line or "683.0 ms" in line]
    assert not [line for line in text if line.startswith("responsive:")], "said once, as the evidence"
    (target,) = (line for line in text if line.startswith("Target:"))
    assert "not judged" not in target
    assert (
        "Seed 42 draws no interactive user among 3, so nothing is said of interactive; give another --seed."
    ) in text, "fewer than were asked about"
    assert "batch: 31 requests, 1 late, too few to say that it keeps its target (50)." in text
    mixed = {**few, "interactive": (20, 0, 1.0, "no verdict"), "batch": (0, 0, None, "no verdict")}
    text = replied(of_level(3, **mixed))
    assert "interactive: 20 requests, 0 late, too few to say that it keeps its target (50)." in text
    assert "batch: no requests with 3 users, not judged; give a longer --duration." in text, "it has users"


def test_a_no_rests_on_the_class_whose_late_requests_no_chance_explains_s11() -> None:
    few = {"interactive": (5, 1, 500.0, "no verdict"), "responsive": (13, 4, 683.0, "no verdict")}
    text = replied(of_level(5, **few))
    assert (
        "With 5 users, 4 of 13 responsive requests were late: too few for a verdict on the class's latency, "
        "but surely more than the 5% allowed; the target is 300 ms." in text
    )
    assert sum("responsive" in line for line in text if not line.startswith("Target:")) == 1
    unsure = replied(of_level(5, interactive=few["interactive"]))
    assert "With 5 users, 1 of 5 interactive requests was late (5% allowed); the target is 50 ms." in unsure


def test_a_limit_that_is_open_is_said_with_the_limit() -> None:
    search = of_level(5, responsive=(13, 4, 683.0, "no verdict"))
    known = "Not concluded: 5 did not pass (30.8% of responsive late, 5.0% allowed)"
    last = {**search.autoscaling_stats[-1], "reason": known, "known": known, "missing_seconds": 60.0}
    doubt = AUTOSCALING_INCONCLUSIVE.of(reason=known, remedy="Raise --duration by 60 s.")
    steps = [search.autoscaling_stats[0], last]
    result = search.model_copy(update={"autoscaling_stats": steps, "warnings": [doubt]})
    bracket = Bracket(None, 5, False)
    reply = Reply(Status.NO, 100, Config(duration=60), result, bracket, None, None, None)
    text = list(lines(reply))
    (said,) = (line for line in text if "exact limit" in line)
    assert said.endswith(
        "holds fewer than 5 users (measured); the exact limit is open (--duration 150 should find it)."
    )
    assert "30.8%" not in " ".join(text)
    (limit,) = (item for item in answered(reply).warnings if item.code == "limit_not_exact")
    assert limit.message == "The exact limit is open. 5 users do not keep the target."


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
    shown = [f"(p95 of {block['requests']:,} in {windows} windows)" for block in level["classes"].values()]
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


def test_without_a_verdict_a_duration_is_named_and_warnings_are_counted() -> None:
    search = of_level(5, responsive=(25, 1, 10.0, "no verdict"))
    known = "Not concluded: 5 users: no verdict"
    reason = f"{known}. The time was too short: at least 86 s more were needed."
    last = {**search.autoscaling_stats[-1], "missing_seconds": 86.0, "reason": reason, "known": known}
    result = search.model_copy(
        update={
            "autoscaling_stats": [search.autoscaling_stats[0], last],
            "warnings": [
                AUTOSCALING_INCONCLUSIVE.of(reason=reason, remedy="Raise --duration by 86 s."),
                STAGE_NOT_SETTLED.of(),
            ],
        }
    )
    config = Config(duration=60)
    reply = Reply(Status.UNDECIDED, 5, config, result, Bracket(None, None, False), None, None, None)
    text = list(lines(reply))
    assert text[0].endswith("the time was too short for a verdict; give --duration 210.")
    assert text[1] == (
        "Seed 42 draws no interactive user among 5, so nothing is said of interactive; give another --seed "
        "or more --users."
    ), "the longer time is for the others"
    assert f"{known}." in text
    kept = answered(reply)
    everything = " ".join([*text, build_page([("answer", kept)]), kept.model_dump_json()])
    assert "86 s" not in everything, "one figure in one place"
    assert "doubt-0-stage_not_settled" not in everything, "no badge against who asked"
    assert "A look of 10 s can't show whether its rates have settled." in " ".join(
        str(part).strip() for part in short_summary(kept)
    )
    assert "Give --duration 210." in everything
    steps = [search.autoscaling_stats[0], {**last, "missing_seconds": 10.0}]
    sooner = replace(reply, result=result.model_copy(update={"autoscaling_stats": steps}))
    assert "give --duration 150." in next(lines(sooner)), "25 of 50 requests took the 60 s"
    decided = answered(replace(sooner, status=Status.NO, bracket=Bracket(None, 5, False)))
    (limit,) = (item for item in decided.warnings if item.code == "limit_not_exact")
    assert limit.remedy == "Give --duration 90.", "the search is to end, no class lacks requests"
    assert not [line for line in text if "stage_not_settled" in line], "a note on what the question chose"
    honesty = result.honesty.model_copy(update={"arrival_lateness_ms": {"p99": 12.0}})
    noticed = LATE_ARRIVALS.of(late="12.00 ms", less="fewer --num-users", share="")
    late = result.model_copy(update={"honesty": honesty, "warnings": [noticed]})
    (said,) = (line for line in lines(replace(reply, result=late)) if line.startswith("! Bear in mind: "))
    assert said == (
        "! Bear in mind: Requests were seen up to 12.00 ms (p99) after their intended time; latencies "
        "include that (24.0% of the strictest target, 50 ms). Leave kvspill more processor time."
    ), "the question is about this number of users: fewer of them are no remedy"
    certain = answered(replace(reply, result=late, status=Status.YES)).warnings
    (sure,) = (item for item in certain if item.code == "late_arrivals")
    assert sure.message.endswith("50 ms); the answer stands without that.")


def test_the_answer_says_what_held_and_with_how_much_storage() -> None:
    reply = Reply(Status.NO, 5, Config(storage_capacity_gb=3), built(), Bracket(2, 3, True), None, None, None)
    text = " ".join(lines(reply))
    assert "This storage behind DRAM, which served 20% of the bytes read, holds about 2 users" in text
    assert ", 3 GiB of storage, I/O model" in text


def test_the_settings_say_how_many_servers_the_users_share_where_they_have_not_one_each() -> None:
    given = [settings_text(Config(num_users=20, servers=servers)) for servers in (None, 20, 4, 1)]
    each = "closed arrivals, one server per user"
    assert [text.split(", 30")[0] for text in given] == [
        each,
        each,
        "closed arrivals, 4 servers",
        "closed arrivals, 1 server",
    ]
