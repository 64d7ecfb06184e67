"""The answer of a run: a verdict in words, one cause, and the warnings by how grave they are."""

import re
from typing import Any

import numpy as np
import pytest

from kvspill.config import Config
from kvspill.records import QoS
from kvspill.report.console import render_summary
from kvspill.result.answer import Status, answer
from kvspill.result.bottleneck import Binds
from kvspill.result.classes import reason_of
from kvspill.result.schema import Result, Trials
from kvspill.result.warnings.certainty import AUTOSCALING_INCONCLUSIVE
from kvspill.result.warnings.devices import MEMORY_DIRECTORY
from kvspill.result.warnings.loads import OVERLOAD
from kvspill.run.search.stage import share_interval
from unit.measure.rows import ns, op, request
from unit.result.one_class import many
from unit.result.sample import built, empty_recorder, facts, filled_recorder


def test_every_class_within_its_target_is_a_yes_s11() -> None:
    found = answer(many(config=Config(num_users=10)))
    assert found.verdict == "YES: 10 users of llama3.1-8b keep the latency target of interactive."
    assert found.status is Status.YES


def test_a_class_beyond_its_target_is_a_no_and_named_s11() -> None:
    found = answer(many(storage=0.08, config=Config(num_users=10)))
    assert found.verdict == "NO: 10 users of llama3.1-8b miss the latency target of interactive."
    assert found.bottleneck.binds is Binds.DEVICE
    assert found.because.endswith("of a request's service time, 100% of it the device's own time.")
    assert found.helps.startswith("Use a faster device")


def test_every_target_is_kept_only_where_every_class_had_users_s11() -> None:
    recorder = empty_recorder()
    for number in range(180):
        at = 11 + number / 20
        recorder.request(request(at + 0.01, intended=at, storage=0.01, qos=QoS(number % 3), tokens=10))
    found = answer(built(recorder, config=Config(num_users=10)))
    assert found.verdict == "YES: 10 users of llama3.1-8b keep every latency target."


def test_too_few_requests_have_no_verdict_s11() -> None:
    found = answer(many(count=49))
    assert found.status is Status.UNDECIDED
    assert found.verdict == (
        "NO VERDICT: none of 49 requests was late, but a verdict needs 50 of a class (50 users of "
        "llama3.1-8b)."
    )
    assert found.line == f"{found.verdict} Give --duration 80."


def test_late_requests_without_a_verdict_are_not_laid_to_generation_s11() -> None:
    """Or the same load would be a matter of the storage for `can`, and of the GPUs for `run`."""
    recorder = empty_recorder()
    for number in range(40):
        at = 11 + number / 10
        recorder.request(request(at + 1.1, intended=at, storage=0.1, generation=1.0, qos=QoS.INTERACTIVE))
        recorder.op(op(at + 0.1, started=at, nbytes=1 << 20))
        recorder.cache_call(ns(at), ns(at + 0.1))
    found = answer(built(recorder, config=Config(num_users=10, arrival="closed")))
    assert "all 40 requests were late" in found.verdict
    assert found.because.startswith("Cache I/O takes 9% of a request's service time")
    assert found.because.endswith("; generation takes 91%, which is not part of the target.")


def test_a_share_that_would_be_written_as_nothing_is_left_out() -> None:
    """It said "generation takes 0.0%, which is not part of the target" where no time is generated at all."""
    recorder = empty_recorder()
    for number in range(60):
        at = 11 + number / 10
        recorder.request(request(at + 4, intended=at, storage=4.0, generation=0.001, qos=QoS.INTERACTIVE))
        recorder.op(op(at + 4, started=at, nbytes=1 << 20))
        recorder.cache_call(ns(at), ns(at + 4))
    found = answer(built(recorder, config=Config(num_users=100, arrival="closed")))
    assert found.because.startswith("Cache I/O takes ")
    assert "generation" not in found.because
    assert found.helps.startswith("Use a faster device")


@pytest.mark.parametrize(
    ("slow", "fast", "seen"),
    [(41, 0, "all 41 requests were late"), (1, 0, "the only request was late"), (9, 32, "9 of 41 requests")],
)
def test_a_run_without_a_verdict_says_what_it_saw_s11(slow: int, fast: int, seen: str) -> None:
    recorder = empty_recorder()
    for number in range(slow + fast):
        late = number < slow
        recorder.request(request(15, intended=13.0 if late else 14.99))
    found = answer(built(recorder, config=Config(num_users=20)))
    assert found.status is Status.UNDECIDED
    assert found.verdict.startswith(f"NO VERDICT: {seen}")
    assert "but a verdict needs 50 of a class (20 users of llama3.1-8b)." in found.verdict
    assert re.search(r" Give --duration \d+\.$", found.line)
    capped = answer(built(recorder, config=Config(num_users=20, max_requests=41)))
    assert capped.line.endswith("Give more --max-requests.")


@pytest.mark.parametrize(("slow", "fast"), [(41, 0), (9, 32), (3, 38), (1, 0), (0, 41)])
def test_a_run_without_a_verdict_says_what_can_concludes_of_such_a_load(slow: int, fast: int) -> None:
    """`can` says no where few requests leave no doubt, which is no verdict on their class (S11)."""
    recorder = empty_recorder()
    for number in range(slow + fast):
        recorder.request(request(15, intended=13.0 if number < slow else 14.99))
    late = np.array([1] * slow + [0] * fast)
    turns_back = share_interval(late, np.arange(len(late)) % 10, 10)[0] > 0.05
    closed = built(recorder, config=Config(num_users=20, arrival="closed"))
    assert answer(closed).status is Status.UNDECIDED
    needs = "but a verdict needs 50 of a class (20 users of llama3.1-8b)."
    surely = " That is surely more than the 5% allowed: a longer run will most likely say no."
    said = f", {needs}{surely}"
    assert answer(closed).verdict.endswith(said if turns_back else f", {needs}")
    opened = answer(built(recorder, config=Config(num_users=20)))
    assert opened.verdict.endswith(f"{needs}{surely}" if turns_back else needs)


def test_a_no_says_of_a_class_with_few_requests_that_it_is_surely_late_too() -> None:
    recorder = empty_recorder()
    for number in range(94):
        qos = QoS.BATCH if number < 60 else QoS.INTERACTIVE
        recorder.request(request(15, intended=13.0, qos=qos))
    found = answer(built(recorder, config=Config(num_users=20, arrival="closed")))
    assert found.status is Status.NO
    assert found.verdict.endswith(
        "of batch (too few requests of interactive for a verdict (fewer than 50), all 34 late; that is "
        "surely more than the 5% allowed: a longer run will most likely say no)."
    )


def test_a_class_that_only_waits_is_not_said_to_keep_its_target() -> None:
    run = facts(unfinished_ages_ns=(ns(0.01),), unfinished_qos=(QoS.BATCH,))
    found = answer(many(run=run, config=Config(num_users=10)))
    said = (
        "NO VERDICT: too few requests of batch for a verdict (fewer than 50); interactive within the target."
    )
    assert found.verdict == said
    waited = facts(unfinished_ages_ns=(ns(9),) * 7, unfinished_qos=(QoS.BATCH,) * 7)
    found = answer(many(run=waited, config=Config(num_users=10)))
    assert found.verdict == (
        "NO VERDICT: requests of batch waited for a server, 7 of 7 to the end; interactive within the target."
    )
    found = answer(many(run=waited, storage=0.08, config=Config(num_users=10)))
    assert found.verdict.endswith(
        "of interactive (requests of batch waited for a server, 7 of 7 to the end)."
    )


@pytest.mark.parametrize(
    ("ended", "waiting", "why"),
    [
        (40, 1, "too few requests of batch for a verdict (fewer than 50), 1 of 41 late"),
        (20, 20, "too few requests of batch for a verdict (fewer than 50), 20 of 40 late"),
        (20, 21, "requests of batch waited for a server, 21 of 41 to the end"),
        (0, 1, "requests of batch waited for a server, 1 of 1 to the end"),
    ],
)
def test_a_few_requests_are_said_to_have_waited_only_where_most_did(
    ended: int, waiting: int, why: str
) -> None:
    recorder = empty_recorder()
    for number in range(60 + ended):
        qos = QoS.INTERACTIVE if number < 60 else QoS.BATCH
        recorder.request(request(15, intended=14.99, qos=qos))
    left = facts(unfinished_ages_ns=(ns(9),) * waiting, unfinished_qos=(QoS.BATCH,) * waiting)
    found = built(recorder, left, Config(num_users=100))
    surely = " (that is surely more than the 5% allowed: a longer run will most likely say no)"
    load = surely if "20 of 40" in why else ""
    assert answer(found).verdict == f"NO VERDICT: {why}{load}; interactive within the target."
    shown = " ".join(render_summary(found, verbose=True).split())
    assert f"no verdict: {why}" in shown


def test_the_verbose_form_gives_the_reason_that_holds_and_no_list_of_reasons() -> None:
    every = " ".join(render_summary(many(), verbose=True).split())
    assert "no verdict:" not in every, "a class without requests lacks no verdict"
    over = many(run=facts(arrived=1000), config=Config(num_users=10, servers=1))
    over.warnings.append(OVERLOAD.of(load="7.7 times", less="", instead=""))
    over.honesty.offered_load.ratio = 7.7
    entry = over.summary.qos_metrics["interactive"]
    assert entry.sla is not None
    entry.sla.met = None
    shown = " ".join(render_summary(over, verbose=True).split())
    assert "no verdict: 10 users of llama3.1-8b ask 7.7 times what the servers could do" in shown


def test_a_class_missed_by_failures_says_so_s13() -> None:
    recorder = filled_recorder()
    for number in range(60):
        failure = "decode read" if number < 9 else None
        recorder.request(request(15, intended=14.99, qos=QoS.INTERACTIVE, failure=failure))
    entry = built(recorder).summary.qos_metrics["interactive"]
    assert entry.sla is not None
    assert entry.sla.verdict == "missed"
    said = "interactive: 52 requests completed, 9 failed; a class with failed requests misses its target."
    assert reason_of("interactive", entry) == said
    for verbose in (False, True):
        assert said in " ".join(render_summary(built(recorder), verbose=verbose).split())


def test_the_throughput_profile_is_judged_by_its_own_target_s10() -> None:
    def verdict(target: float | None) -> tuple[Status, str]:
        config = Config(performance_profile="throughput", min_tokens_per_sec=target, num_users=2)
        found = answer(built(config=config))
        return found.status, found.verdict

    assert verdict(39) == (
        Status.YES,
        "YES: 2 users of llama3.1-8b get 40 tok/s, the target is 39 tok/s.",
    )
    assert verdict(41)[0] is Status.NO
    assert verdict(None)[0] is Status.UNDECIDED


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (built(run=facts(interrupted="stopped by SIGINT")), "INVALID: the run ended early"),
        (built(empty_recorder()), "NO VERDICT: no request completed in the measured window."),
        (many(run=facts(simulated=True)), "YES (simulated): "),
        (many(warnings=[MEMORY_DIRECTORY.of(path="/dev/shm")]), "YES (in memory, not a drive): "),
    ],
)
def test_a_verdict_says_what_it_is_of(result: Result, said: str) -> None:
    assert answer(result).verdict.startswith(said)


def test_a_fault_is_never_a_yes_s13() -> None:
    recorder = filled_recorder()
    recorder.op(op(13, error="EIO"))
    found = answer(built(recorder))
    assert found.verdict == "INVALID: the result is faulty and is not ranked: 1 storage read EIO."


def test_warnings_stand_by_their_severity() -> None:
    found = answer(many(run=facts(interrupted="x"), warnings=[MEMORY_DIRECTORY.of(path="/dev/shm")]))
    assert [item.code for item in found.grave] == ["incomplete", "memory_directory"]
    assert "few_trials" in [item.code for item in found.notes]


def test_a_search_that_did_not_conclude_has_no_answer() -> None:
    step = {
        "mode": "slo",
        "users": None,
        "reason": "Not concluded: nothing was measured.",
        "concluded": False,
    }
    doubt = AUTOSCALING_INCONCLUSIVE.of(reason=step["reason"], remedy="Raise --duration by 9 s.")
    result = built(autoscaling=[step], warnings=[doubt])
    found = answer(result)
    assert found.status is Status.UNDECIDED
    assert found.verdict == "NO VERDICT: the search did not conclude: nothing was measured."
    shown = render_summary(result, verbose=False)
    assert shown.count("nothing was measured") == 1, "said once"
    assert "Raise --duration by 9 s." in shown


def test_a_search_with_thin_evidence_is_no_answer() -> None:
    """As the suite's advice has it: a number of users whose latency is not known is none."""
    step = {"mode": "qos", "users": 14, "reason": "Largest load", "concluded": True, "target_met": True}
    thin = {**step, "qos": {"batch": {}}, "no_verdict": ["batch"]}
    assert answer(built(autoscaling=[thin])).verdict == (
        "NO VERDICT: the search ended at 14 users of llama3.1-8b, but no service class had the 50 requests "
        "that a verdict on its latency needs. Largest load."
    )
    assert answer(built(autoscaling=[{**thin, "no_verdict": []}])).status is Status.FOUND
    assert answer(built(autoscaling=[{**thin, "mode": "capacity"}])).status is Status.FOUND


def test_a_search_by_saturation_says_which_latency_targets_its_users_miss_s11() -> None:
    step: dict[str, Any] = {"mode": "qos", "users": 14, "reason": "Largest load", "concluded": True}
    step |= {"target_met": True, "no_verdict": [], "qos": {"batch": {"sla_verdict": "missed"}}}
    assert answer(built(autoscaling=[step])).verdict == (
        "FOUND: 14 users of llama3.1-8b. Largest load. These users miss the latency target of batch."
    )


def test_storage_that_stood_still_has_no_yes_s16() -> None:
    probes = {"event_loop_lag_ms": {"p99": 0.5, "max": 5988.0}}
    found = answer(many(config=Config(num_users=10), probes=probes))
    assert found.verdict == "NO VERDICT: this program stood still for a part of the run."


@pytest.mark.parametrize(("late", "needs"), [(0, False), (2, True)])
def test_where_no_request_was_late_nothing_needs_help(late: int, needs: bool) -> None:
    """Of a directory in memory: "faster GPUs would help", though targets leave generation out."""
    recorder = empty_recorder()
    for number in range(20):
        recorder.request(request(15, intended=13.0 if number < late else 14.99))
    found = answer(built(recorder, config=Config(num_users=20, arrival="closed")))
    assert found.status is Status.UNDECIDED
    assert (found.helps != "Nothing; no request was late.") is needs


def test_of_several_trials_nobody_says_that_nothing_needs_help() -> None:
    """The classes shown are those of one trial; the others may have been late."""
    recorder = empty_recorder()
    for _ in range(60):
        recorder.request(request(15, intended=14.99))
    one = built(recorder, config=Config(num_users=60, arrival="closed"))
    assert answer(one).helps == "Nothing; no request was late."
    several = one.model_copy(update={"trials": Trials(count=3, complete=3)})
    assert answer(several).helps != "Nothing; no request was late."


def test_only_who_ended_a_run_is_told_to_let_it_run() -> None:
    few = built(filled_recorder())
    stopped = few.model_copy(update={"incomplete": True, "interrupted": "stopped by SIGINT"})
    assert answer(stopped).helps == "Let it run to its end."
    failed = few.model_copy(update={"incomplete": True, "interrupted": None})
    assert answer(failed).helps != "Let it run to its end."
