"""What the text of an answer says: what it rests on, whose it is, and what would help."""

import re
from dataclasses import replace

import pytest

from kvspill.config import Config
from kvspill.records import GIB, QoS, Tier
from kvspill.report.html.verdicts import verdict_of
from kvspill.report.reply.asked import settings_text
from kvspill.report.reply.document import document
from kvspill.report.reply.text import answered, lines
from kvspill.report.short import short_summary
from kvspill.result.answer import Status
from kvspill.result.warnings.certainty import AUTOSCALING_INCONCLUSIVE, STAGE_NOT_SETTLED
from kvspill.result.warnings.devices import DEVICE_EXCESS, IO_LIMITED, MEMORY_DIRECTORY
from kvspill.result.warnings.faults import INCOMPLETE
from kvspill.result.warnings.loads import LATE_ARRIVALS
from kvspill.run.asking import Reply
from kvspill.run.bandwidth import Bandwidth
from kvspill.run.verdict import Bracket
from unit.measure.rows import ns, op, piece, request
from unit.report.html.pages import build_page
from unit.report.replies import of_level, replied
from unit.result.sample import built, empty_recorder, facts, tier


def test_beside_other_traffic_the_answer_names_it_and_does_not_blame_the_drive() -> None:
    moved = {"devices": ["vda"], "read_bytes": 20 * GIB, "written_bytes": 45 * GIB}
    result = built(probes={"block_device": moved})
    text = replied(result)
    assert text[1] == (
        "Other programs used the device during the measurement, or RAID or the file system multiplied its "
        "traffic: it read 5.00 times what was asked of it (16.00 GiB, 1.60 GiB/s more) and wrote 15.00 times "
        "what was asked of it (42.00 GiB, 4.20 GiB/s more), and the figures are of all that traffic."
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
    warnings = [DEVICE_EXCESS.of(did="read 1.48"), INCOMPLETE.of(reason="interrupted by Ctrl-C", seconds=2.5)]
    changed = {"incomplete": True, "interrupted": "stopped by SIGINT", "warnings": warnings}
    result = built().model_copy(update=changed)
    reply = Reply(Status.INVALID, 5, Config(), result, Bracket(None, None, False), None, None, None)
    text = list(lines(reply))
    assert text[0] == f"INVALID: the run ended early (interrupted by Ctrl-C). {INCOMPLETE.remedy}"
    (said,) = (line for line in text if "Other programs used the device" in line)
    assert said.startswith("! Serious: ")
    assert "Stop the other programs and run it again" in said
    assert not [line for line in text if "only that part" in line], "no figure is shown"
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
    assert not [row.name for row in shown.criteria if "Storage" in row.name]
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


def test_the_answer_says_how_much_the_load_wrote() -> None:
    """Before the load it is a bound that all users asked about could reach."""
    counted = {"storage_written_bytes": 3 * GIB}
    result = built().model_copy(update={"io_model": counted})
    bracket = Bracket(2, 3, True)
    reply = Reply(Status.NO, 5, Config(), result, bracket, None, None, None)
    assert "The load wrote 3.00 GiB to the storage in all." in list(lines(reply))
    assert document(reply, [])["written_bytes"] == 3 * GIB
    simulated = replace(reply, result=result.model_copy(update={"simulated": True}))
    assert not any("wrote" in line for line in lines(simulated)), "nothing was"
    assert document(simulated, [])["written_bytes"] is None


def test_where_the_model_alone_says_the_limit_no_gain_is_said_too() -> None:
    reply = Reply(Status.NO, 20, Config(), built(), Bracket(None, 10, False), None, 7, 7)
    text = " ".join(lines(reply))
    assert "Twice the speed would hold no more (modelled)." in text
    assert "faster device" not in text
    held = " holds fewer than 10 users (measured; "
    assert f"{held}about 7 by the model; --users 7 would measure it)." in text
    few = " ".join(lines(replace(reply, modelled_users=0)))
    assert f"{held}0 to 1 by the model; --users 1 would measure it)." in few, "no model knows one from none"
    near = " ".join(lines(replace(reply, users=3, bracket=Bracket(None, 3, False), modelled_users=2)))
    assert " holds fewer than 3 users (measured; 1 to 2 by the model; " in near, (
        "3 were measured to be too many"
    )


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
        "With 16 users, queue and storage added 290.0 ms to responsive requests (p95 of 900 requests in "
        "6 windows)" in " ".join(text)
    )
    assert [line for line in text if line.startswith("What would help: ")], "as its page says, too"
    assert document(reply, [])["at_the_limit"] is True
    others = [DEVICE_EXCESS.of(did="read 1.48")]
    beside = replace(reply, result=result.model_copy(update={"warnings": others}))
    (first, *_rest) = lines(beside)
    assert "4 of 6 windows kept the target beside other programs that used the device; stop them" in first


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
        "responsive": (25, 9, 683.0, "no verdict"),
        "batch": (31, 1, 153.79, "no verdict"),
    }
    text = replied(of_level(3, **few))
    assert (
        "With 3 users, 9 of 25 responsive requests were late, certainly more than the 5% allowed; "
        "the target is 300 ms." in text
    )
    assert not [line for line in text if "p95 683" in line or "683.0 ms" in line]
    assert not [line for line in text if line.startswith("responsive:")], "said once, as the evidence"
    (target,) = (line for line in text if line.startswith("Target:"))
    assert "not judged" not in target
    assert not [line for line in text if "draws no" in line], "of those asked about some may be interactive"
    assert "batch: 1 of 31 late, not judged (50 needed)." in text
    mixed = {**few, "interactive": (20, 0, 1.0, "no verdict"), "batch": (0, 0, None, "no verdict")}
    text = replied(of_level(3, **mixed))
    assert "interactive: 0 of 20 late, not judged (50 needed)." in text
    assert "batch: no requests with 3 users, not judged; give a longer --duration." in text, "it has users"
    both = {**few, "batch": (31, 12, 2153.79, "no verdict")}
    result = of_level(3, **both)
    waiting = of_level(3, **both)
    for name in ("responsive", "batch"):
        waiting.autoscaling_stats[-1]["levels"][0]["classes"][name]["waiting"] = 7
    whole = " ".join(replied(waiting))
    assert "batch: 12 of 31 late (7 of them still waiting at the end), certainly more than" in whole
    assert (
        "9 of 25 responsive requests were late (7 of them still waiting at the end), certainly more" in whole
    )
    assert "batch: 12 of 31 late, certainly more than the 5% allowed." in replied(result)
    reply = Reply(Status.NO, 5, Config(), result, Bracket(2, 3, True), None, None, None)
    (warning,) = (item for item in answered(reply).warnings if item.code == "not_judged")
    assert "interactive" in warning.message
    assert "responsive" not in warning.message, "the answer rests on it"
    assert "batch" not in warning.message, "and on this class, too"


def test_a_no_rests_on_the_class_whose_late_requests_no_chance_explains_s11() -> None:
    few = {"interactive": (5, 1, 500.0, "no verdict"), "responsive": (26, 8, 683.0, "no verdict")}
    text = replied(of_level(5, **few))
    assert (
        "With 5 users, 8 of 26 responsive requests were late, certainly more than the 5% allowed; "
        "the target is 300 ms." in text
    )
    assert sum("responsive" in line for line in text if not line.startswith("Target:")) == 1
    unsure = replied(of_level(5, interactive=few["interactive"]))
    assert (
        "With 5 users, 1 of 5 interactive requests was late, 5% are allowed; the target is 50 ms." in unsure
    )


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
        "Seed 42 draws no interactive user among 5, so this class is not covered; give another --seed "
        "or more --users."
    ), "the longer time is for the others"
    assert f"{known}." in text
    kept = answered(reply)
    everything = " ".join([*text, build_page([("answer", kept)]), kept.model_dump_json()])
    assert "86 s" not in everything, "one figure in one place"
    assert "doubt-0-stage_not_settled" not in everything, "no badge against who asked"
    assert "A measurement of 10 s can't show whether the load before it still shows." in " ".join(
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
        "! Bear in mind: kvspill noticed requests up to 12.00 ms (p99) after their intended time; latencies "
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


def test_no_percentile_is_of_the_few_that_completed_beside_those_that_wait_s11() -> None:
    """It would be the 51 late requests' latency without the 38 that are the latest."""
    result = of_level(5, responsive=(51, 51, 18461.7, "missed"), batch=(11, 11, 20276.0, "no verdict"))
    level = result.autoscaling_stats[-1]["levels"][0]
    level["classes"]["responsive"]["waiting"] = 38
    level.update(measured_seconds=18.9, windows=1, certain=True)
    text = replied(result)
    assert (
        "With 5 users, 51 of 51 responsive requests were late (38 of them still waiting at the end), 5% "
        "are allowed; the target is 300 ms. That was measured for 19 s, and no longer: so many were late "
        "that more time would change nothing." in text
    )
    assert "batch: 11 of 11 late, not judged (50 needed)." in text


def test_a_class_of_which_nobody_was_answered_can_be_the_evidence_s16() -> None:
    result = of_level(5, interactive=(40, 40, None, "no verdict"), batch=(60, 9, 1100.0, "missed"))
    result.autoscaling_stats[-1]["levels"][0]["classes"]["interactive"]["waiting"] = 40
    text = replied(of_level(5, interactive=(40, 40, None, "no verdict")))
    assert [line for line in text if line.startswith("With 5 users, 40 of 40 interactive requests were late")]
    assert [
        line for line in replied(result) if line.startswith("interactive: 40 of 40 late (40 of them still")
    ]


@pytest.mark.parametrize(
    ("status", "windows", "p95_ms", "said"),
    [
        (
            Status.YES,
            [816.0, 966.0],
            938.0,
            "At the limit: the p95 of batch is 938.0 ms of 1 s, rising from window to window "
            "(816.0 ms, 966.0 ms); another run may say no.",
        ),
        (
            Status.NO,
            [1060.0],
            1060.0,
            "At the limit: the p95 of batch is 1.060 s of 1 s; another run may say yes.",
        ),
        (Status.YES, [500.0, 600.0], 550.0, None),
    ],
)
def test_an_answer_near_its_target_says_so_below_its_first_line(
    status: Status, windows: list[float], p95_ms: float, said: str | None
) -> None:
    verdict = "met" if status is Status.YES else "missed"
    result = of_level(4, batch=(137, 4, p95_ms, verdict))
    for level in result.autoscaling_stats[-1]["levels"]:
        level.update(passes=status is Status.YES, clear=False, enough=True, windows=len(windows))
        level["classes"]["batch"]["by_window_ms"] = windows
    bracket = Bracket(4, None, True) if status is Status.YES else Bracket(None, 4, True)
    reply = Reply(status, 4, Config(), result, bracket, None, None, None)
    found = [line for line in list(lines(reply))[:2] if line.startswith("At the limit")]
    assert found == ([] if said is None else [said])
    assert document(reply, [])["near_the_limit"] is (said is not None)
    result.autoscaling_stats[-1]["levels"][0]["clear"] = True
    assert not document(reply, [])["near_the_limit"], "no chance decides"
