"""The cause that an answer names, and what it says would help: never what was not to blame."""

from typing import Any

import pytest

from kvspill.config import Config
from kvspill.records import QoS
from kvspill.report.console import render_summary
from kvspill.result.answer import Status, answer
from kvspill.result.bottleneck import Binds
from kvspill.result.honesty import Ceiling
from kvspill.result.load import fewer_at_once, has_server_each, less, lighter
from kvspill.result.result import settings_of
from kvspill.result.schema import RankTable
from kvspill.result.warnings.devices import IO_LIMITED, MEMORY_DIRECTORY
from kvspill.result.warnings.loads import CPU_LIMITED, OVERLOAD
from unit.measure.rows import ns, op, request
from unit.result.one_class import many
from unit.result.sample import built, empty_recorder, facts


@pytest.mark.parametrize(
    ("given", "more"),
    [
        ({"arrival": "closed"}, False),
        ({"arrival": "closed", "servers": 60}, False),
        ({"arrival": "closed", "trace": "mooncake:sample"}, False),
        ({"arrival": "closed", "servers": 5}, True),
        ({"arrival": "open"}, True),
    ],
)
def test_more_servers_help_only_users_who_wait_for_one_l1(given: dict[str, Any], more: bool) -> None:
    recorder = empty_recorder()
    for number in range(60):
        at = 11 + number / 10
        recorder.request(request(at + 0.5, intended=at, generation=0.5, tokens=10))
    found = answer(built(recorder, config=Config(num_users=10, **given)))
    assert found.bottleneck.binds is Binds.GENERATION
    assert ("more --servers" in found.bottleneck.helps) is more
    assert "a lower time per token" in found.bottleneck.helps


def test_each_rank_has_servers_of_its_own_r1() -> None:
    """The warnings count them all, and so must the sentences beside them."""
    table = RankTable(size=4, start_skew_ms=0.0, clock_uncertainty_ms=0.0)
    closed = Config(num_users=1000, arrival="closed")
    whole = many(config=closed, servers=1000, ranks=table)
    assert settings_of(closed, 1000, 1000).server_each
    assert has_server_each(whole)
    assert not has_server_each(whole.model_copy(update={"ranks": None}))


def test_users_of_a_recording_who_wait_are_made_fewer_as_others_are_l2() -> None:
    waiting = Config(trace="mooncake:sample", arrival="closed", num_users=10)
    assert settings_of(waiting).less == less(waiting.model_dump()) == "fewer --num-users"
    assert settings_of(waiting).instead == "more --servers"
    timed = Config(trace="mooncake:sample")
    assert (settings_of(timed).less, settings_of(timed).instead) == (
        "a lower --trace-speedup",
        "--arrival closed",
    )


def test_requests_at_a_rate_are_not_told_to_wait_for_answers_l2() -> None:
    """--arrival closed beside --request-rate is refused, so it helps nobody."""
    rate = settings_of(Config(request_rate=5.0))
    assert (rate.less, rate.instead) == ("a lower --request-rate", "more --servers")
    slow = many(storage=0.08, run=facts(arrived=1000), config=Config(request_rate=5.0, servers=1))
    slow.honesty.offered_load.ratio = 7.7
    slow.warnings.append(OVERLOAD.of(load="7.7 times", less=rate.less, instead=rate.instead))
    assert "--arrival closed" not in answer(slow).helps


def test_a_missed_target_is_not_laid_to_generation_where_each_has_a_server_s11() -> None:
    recorder = empty_recorder()
    for number in range(60):
        at = 11 + number / 10
        recorder.request(
            request(at + 0.9, intended=at, started=at + 0.3, storage=0.1, generation=0.5, qos=QoS.INTERACTIVE)
        )
        recorder.op(op(at + 0.4, started=at + 0.3, nbytes=1 << 20))
        recorder.cache_call(ns(at + 0.3), ns(at + 0.4))
    found = answer(built(recorder, config=Config(num_users=10, arrival="closed")))
    assert found.status is Status.NO
    assert "cache I/O takes 17% of a request's service time" in found.because
    assert found.because.endswith("; generation takes 83%, which is not part of the target.")
    assert found.helps.startswith("Use a faster device")


def test_where_this_program_is_the_limit_no_word_blames_the_device() -> None:
    busy = Ceiling(requests_per_sec=6.0, operations_per_sec=6.0, gib_per_sec=10.0)
    found = answer(many(storage=0.08, ceiling=busy))
    assert found.bottleneck.binds is Binds.CLIENT
    assert "this program" in found.because.lower()
    assert "faster device" not in found.helps


@pytest.mark.parametrize("in_memory", [True, False])
def test_where_the_processors_were_taken_no_word_blames_storage(in_memory: bool) -> None:
    warnings = [MEMORY_DIRECTORY.of(path="/dev/shm")] if in_memory else []
    probes = {"cpu_seconds": 1.0, "cpu_wait_seconds": 4.0}
    found = answer(many(storage=0.08, warnings=warnings, probes=probes))
    assert found.status is Status.NO
    assert found.bottleneck.binds is Binds.PROCESSOR
    assert (
        "this program's threads waited 4.000 s for a processor, more than half of the time" in found.because
    )
    assert "storage" not in found.because + found.helps
    assert not [line for line in found.bottleneck.lines if "missed because" in line]
    idle = answer(many(storage=0.08, warnings=warnings, probes={**probes, "cpu_wait_seconds": 0.4}))
    assert idle.bottleneck.binds is (Binds.MEMORY if in_memory else Binds.DEVICE)


def test_a_limit_of_processors_is_named_where_threads_waited_for_them() -> None:
    found = answer(
        many(
            storage=0.08,
            warnings=[CPU_LIMITED.of(processors=0.5, usable=2)],
            environment={"cpu_limit": 0.5},
            probes={"cpu_seconds": 1.0, "cpu_wait_seconds": 4.0},
        )
    )
    assert found.because.endswith("a control group allows it the time of 0.5.")
    assert "raise the control group's limit" in found.helps


def test_a_directory_in_memory_is_no_storage_that_binds() -> None:
    found = answer(many(storage=0.08, warnings=[MEMORY_DIRECTORY.of(path="/dev/shm")]))
    assert found.bottleneck.binds is Binds.MEMORY
    assert "100% of it copies to and from a directory in memory" in found.because
    assert "in storage" not in found.because


def test_the_limit_of_a_control_group_is_not_blamed_on_the_device() -> None:
    limit = "200 MiB/s of reads on loop7"
    warnings, directory = [IO_LIMITED.of(limits=limit)], {"path": "/mnt/nvme", "io_limits": [limit]}
    result = many(storage=0.08, warnings=warnings, environment={"directories": [directory]})
    plain, found = answer(many(storage=0.08)), answer(result)
    assert (found.status, found.verdict) == (plain.status, plain.verdict), "a verdict stays as it is"
    assert found.bottleneck.binds is plain.bottleneck.binds is Binds.DEVICE
    assert found.because.endswith(f"of it time at the device, where a control group allows {limit}.")
    assert found.helps.startswith("Raise that limit, or use ")
    assert "faster device" not in found.helps
    shown = " ".join(render_summary(result, verbose=False).split())
    assert f"- A control group limits what this process may move: {limit}. " in shown


@pytest.mark.parametrize(
    ("given", "who", "less"),
    [
        ({"num_users": 10}, "10 users of llama3.1-8b", "fewer --num-users"),
        ({"request_rate": 5.0, "num_users": 10}, "10 users of llama3.1-8b", "a lower --request-rate"),
        (
            {"trace": "mooncake:sample"},
            "the requests of mooncake:sample to llama3.1-8b",
            "a lower --trace-speedup",
        ),
    ],
)
def test_a_verdict_names_who_asked_and_the_setting_that_makes_it_less(
    given: dict[str, Any], who: str, less: str
) -> None:
    found = answer(many(storage=0.08, config=Config(**given)))
    assert found.verdict == f"NO: {who} miss the latency target of interactive."
    assert found.helps.endswith(f"or {less}.")


@pytest.mark.parametrize(
    ("given", "helps"),
    [
        ({"num_users": 1}, "a --request-rate that the servers can keep up with"),
        ({"num_users": 500}, "a --request-rate that the servers can keep up with"),
        ({"num_users": 501}, "fewer --num-users"),
        ({"num_users": 4, "servers": 2}, "fewer --num-users"),
        ({"num_users": 4, "request_rate": 9.0}, "a lower --request-rate"),
    ],
)
def test_fewer_users_are_not_advised_where_each_brings_a_server_along(
    given: dict[str, Any], helps: str
) -> None:
    """One user who asks 12 times what a server does was told to use fewer users, and none are left."""
    config = Config(**given)
    asked = settings_of(config)
    assert asked.lighter == lighter(config.model_dump()) == helps
    slow = many(storage=0.08, run=facts(arrived=1000), config=config)
    slow.honesty.offered_load.ratio = 11.9
    slow.warnings.append(OVERLOAD.of(load="11.9 times", less=asked.lighter, instead=asked.instead))
    assert answer(slow).helps.startswith(f"Use {helps}, or {asked.instead}")


def test_no_device_is_advised_where_none_could_serve_the_load() -> None:
    slow = many(storage=0.08, run=facts(arrived=1000), config=Config(num_users=10, servers=1))
    slow.honesty.offered_load.ratio = 7.7
    slow.warnings.append(OVERLOAD.of(load="7.7 times", less="fewer --num-users", instead="--arrival closed"))
    found = answer(slow)
    assert found.because.endswith(
        "; 10 users of llama3.1-8b ask 7.7 times what the servers could do without any storage."
    )
    assert found.helps == "Use fewer --num-users, or --arrival closed: no device could serve this load."
    slow.honesty.offered_load.ratio = 1.02
    assert "ask a little more than what the servers could do without" in answer(slow).because


@pytest.mark.parametrize(
    ("others", "in_memory", "binds", "helps"),
    [
        (0.6, True, Binds.PROCESSOR, "Stop other programs, "),
        (0.6, False, Binds.PROCESSOR, "Stop other programs, "),
        (0.05, True, Binds.MEMORY, "Name a directory on a drive"),
        (0.05, False, Binds.PROCESSOR, "Use fewer --io-threads, more processors or "),
    ],
)
def test_other_programs_are_blamed_only_where_they_used_the_processors(
    others: float, in_memory: bool, binds: Binds, helps: str
) -> None:
    """Thirty-two threads on two processors wait for each other, too."""
    warnings = [MEMORY_DIRECTORY.of(path="/dev/shm")] if in_memory else []
    probes = {"cpu_seconds": 1.0, "cpu_wait_seconds": 4.0, "cpu_others_share": others}
    found = answer(many(storage=0.08, warnings=warnings, probes=probes)).bottleneck
    assert found.binds is binds
    assert found.helps.startswith(helps)
    assert ("others had 60% of the processors' time" in found.sentence) is (others > 0.5)


def test_fewer_requests_at_once_say_what_the_flag_does_that_nobody_gave() -> None:
    assert fewer_at_once("fewer --num-users", each=True) == "fewer --num-users"
    assert fewer_at_once("fewer --num-users", each=False) == "fewer requests at once (--servers)"
