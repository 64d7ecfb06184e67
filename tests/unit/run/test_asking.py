"""The question of how many users can be served: what the steps of a search say, and what is held."""

from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.records import GIB, Tier
from kvspill.result.answer import Status
from kvspill.result.schema import Result
from kvspill.result.warnings.devices import STORAGE_STALLED
from kvspill.run import asking, runner
from kvspill.run.asking import (
    Reply,
    _at_twice,
    _limit,
    ask,
    held_text,
    measured_profile,
    question,
    search_limit,
)
from kvspill.run.bandwidth import Bandwidth
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.run.runner import simulate_aside
from kvspill.run.search.slo import SloMode
from kvspill.run.verdict import Bracket, by_most, judge, read_bracket
from kvspill.storage.profiles import PRESETS
from unit.result.sample import built, facts
from unit.run.test_verdict import level


def step(users: int, passes: bool, clear: bool = True, enough: bool = True) -> dict[str, Any]:
    return {"users": users, "passes": passes, "clear": clear, "enough": enough}


def unfinished(*held: dict[str, Any]) -> list[dict[str, Any]]:
    return [*held, {"users": None, "concluded": False}]


def test_a_search_that_concluded_says_both_ends() -> None:
    last = {**step(40, True), "concluded": True, "next_level_that_failed": 42}
    assert read_bracket([step(80, False), step(40, True), last]) == Bracket(40, 42, True)


def test_a_search_cut_short_says_what_it_saw() -> None:
    assert read_bracket(unfinished(step(80, False), step(40, True))) == Bracket(40, 80, False)
    assert read_bracket([]) == Bracket(None, None, False)


def test_windows_in_doubt_decide_nothing() -> None:
    doubtful = (step(8, False, clear=False, enough=False), step(4, True, clear=False, enough=False))
    assert read_bracket(unfinished(*doubtful)) == Bracket(None, None, False)


def test_not_even_one_user_is_a_limit_of_none() -> None:
    found = read_bracket([step(1, False), {**step(1, False), "concluded": True}])
    assert found.about == 0


@pytest.mark.parametrize(
    ("bracket", "status"),
    [
        (Bracket(100, None, True), Status.YES),
        (Bracket(40, 42, True), Status.NO),
        (Bracket(None, 8, False), Status.NO),
        (Bracket(40, None, False), Status.UNDECIDED),
        (Bracket(None, None, False), Status.UNDECIDED),
    ],
)
def test_a_failure_of_fewer_users_answers_for_more(bracket: Bracket, status: Status) -> None:
    assert judge(built(), bracket, 100) is status


def test_a_run_that_did_not_get_to_its_end_answers_nothing() -> None:
    interrupted = built(run=facts(interrupted="stopped by SIGINT"))
    assert judge(interrupted, Bracket(100, None, True), 100) is Status.INVALID


def asked_on(
    monkeypatch: pytest.MonkeyPatch, users: int, modelled: int | None
) -> tuple[Reply, list[Config], list[str]]:
    """The answer of a device that keeps no target, the searches that were held, and what was said."""
    searched: list[Config] = []
    said: list[str] = []
    failed = {
        **step(users, False),
        "concluded": True,
        "levels": [level(users, 0, 1, passes=False, clear=True)],
    }

    def run(plan: Plan, _progress: Progress) -> Result:
        searched.append(plan.config)
        return built().model_copy(update={"autoscaling_stats": [step(users, False), failed]})

    monkeypatch.setattr(asking, "run_trials", run)
    monkeypatch.setattr(asking, "measure_bandwidth", lambda _folders: Bandwidth(2.0, 1.0, "a probe"))
    monkeypatch.setattr(
        asking, "_soon", lambda search, *_given, **_more: modelled if search is _limit else None
    )
    monkeypatch.setattr(Progress, "say", lambda _progress, text: said.append(text))
    plan = Plan(question(Config(num_users=users, duration=300)), False, GIB)
    return ask(plan, Progress(quiet=True)), searched, said


@pytest.mark.parametrize(
    ("users", "modelled", "least"), [(100, None, 1), (100, 50, 1), (100, 49, 100), (100, 0, 100)]
)
def test_users_far_beyond_the_model_are_measured_alone_and_first(
    monkeypatch: pytest.MonkeyPatch, users: int, modelled: int | None, least: int
) -> None:
    """What fewer users do says too little of them, and to look for a limit far below takes minutes."""
    reply, (searched,), said = asked_on(monkeypatch, users, modelled)
    assert reply.status is Status.NO
    assert (searched.num_users, searched.min_users) == (users, least)
    shortened = f"measuring {users} users; the time is cut short if they certainly miss the target"
    assert (shortened in said) is (least == 100)


def test_a_hopeless_load_is_known_to_be_too_much_soon(tmp_path: Path) -> None:
    """Its few answers took five minutes, and who waited for one counted for nothing."""
    profile = tmp_path / "slow.yaml"
    profile.write_text("storage: {read_gib_per_sec: 0.4, write_gib_per_sec: 0.3}\n")
    asked = Config(num_users=100, min_users=100, device_profile=str(profile), cpu_mem_gb=0, duration=300)
    result = simulate_aside(question(asked))
    *_steps, last = result.autoscaling_stats
    assert judge(result, read_bracket(result.autoscaling_stats), 100) is Status.NO
    assert last["concluded"]
    assert last["time_seconds"] <= 45


@pytest.mark.parametrize(("users", "gib_per_sec"), [(25, 2.6), (25, 8.0), (8, 2.1)])
def test_no_load_that_keeps_its_target_over_whole_stages_is_given_up_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, users: int, gib_per_sec: float
) -> None:
    profile = tmp_path / "device.yaml"
    profile.write_text(
        f"storage: {{read_gib_per_sec: {gib_per_sec}, write_gib_per_sec: {0.7 * gib_per_sec}}}\n"
    )
    asked = Config(model="tiny-1b", num_users=users, min_users=users, device_profile=str(profile))
    config = question(asked.changed(cpu_mem_gb=0, duration=300, slo_target_ms=3000, seed=1))
    early = simulate_aside(config).autoscaling_stats
    monkeypatch.setattr(SloMode, "_is_certain", lambda *_given: False)
    whole = simulate_aside(config).autoscaling_stats
    assert early[-1]["passes"] is whole[-1]["passes"]


@pytest.mark.parametrize(
    ("answers", "most"),
    [
        ((Status.YES, Status.NO, Status.NO), Status.NO),
        ((Status.NO, Status.YES, Status.YES), Status.YES),
        ((Status.YES, Status.UNDECIDED, Status.INVALID), Status.UNDECIDED),
        ((Status.YES, Status.UNDECIDED, Status.YES), Status.YES),
        ((Status.NO, Status.UNDECIDED, Status.UNDECIDED), Status.UNDECIDED),
        ((Status.YES, Status.UNDECIDED), Status.UNDECIDED),
        ((Status.YES,), Status.YES),
        ((Status.YES, Status.NO, Status.UNDECIDED), Status.UNDECIDED),
    ],
)
def test_more_than_half_of_the_seeds_decide(answers: tuple[Status, ...], most: Status) -> None:
    assert by_most(dict(enumerate(answers))) is most


def test_the_question_is_of_users_who_wait_and_have_a_server_each() -> None:
    asked = question(Config(num_users=800))
    assert (asked.arrival, asked.autoscaler_mode, asked.max_users, asked.server_count) == (
        "closed",
        "slo",
        800,
        800,
    )
    assert question(Config(num_users=100)).server_count == 100


def test_the_model_is_as_fast_as_the_probe() -> None:
    profile = measured_profile(Bandwidth(2.0, 1.0, "a probe"), Config(io_threads=8))
    device = profile[Tier.STORAGE]
    assert (device.read_gib_per_sec, device.write_gib_per_sec, device.concurrency) == (2.0, 1.0, 8)


def test_a_model_of_a_slow_drive_tells_the_limit_though_the_last_user_leaves_doubt() -> None:
    """Two users clearly fail and one neither passes nor fails: "no model told how many it holds"."""
    config = question(Config(model="llama3.1-8b", num_users=100))
    profile = measured_profile(Bandwidth(0.6, 0.4, "a probe"), config)
    assert _limit(config, profile, 200, 8) == 1
    assert held_text(1, 100) == "; by a model of that it holds 0 to 2 such users"


def test_a_model_that_ran_out_of_time_tells_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer users than those that failed were not tried: one fewer was given as the limit."""
    cut_short = built().model_copy(update={"autoscaling_stats": unfinished(step(50, False))})
    monkeypatch.setattr(asking, "search_limit", lambda *_given: cut_short)
    assert _limit(Config(), PRESETS["nvme-gen4"], 200, 8) is None


@pytest.mark.parametrize(("modelled", "users", "most"), [(8, 4, "at least"), (7, 4, "about")])
def test_a_model_that_was_asked_for_no_more_says_so(modelled: int, users: int, most: str) -> None:
    assert held_text(0, users) == "; by a model of that it holds 0 to 1 such users"
    assert held_text(modelled, users) == f"; by a model of that it holds {most} {modelled} such users"
    assert held_text(None, users) == "; how many users that holds could not be modelled within 12 s"


def test_a_signal_ends_the_command_and_not_only_the_simulation_on_the_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or the search on the drive would begin after it, and last for minutes."""
    stopped = built(run=facts(interrupted="stopped by SIGTERM"))
    monkeypatch.setattr(runner, "run_trials", lambda *_given: stopped)
    with pytest.raises(KeyboardInterrupt):
        search_limit(Config(), 8, 8)
    assert _at_twice(Config(), PRESETS["nvme-gen4"], 8, 8) is None


def test_where_storage_stood_still_nothing_is_answered_with_yes_s16() -> None:
    kept = Bracket(40, None, True)
    assert judge(built(), kept, 40) is Status.YES
    still = built(
        warnings=[
            STORAGE_STALLED.of(
                seconds=3.0, how="in a row", window=20.0, in_flight="operations", suspects="the device"
            )
        ]
    )
    assert judge(still, kept, 40) is Status.UNDECIDED


def test_servers_that_were_given_stay_as_many_in_every_search() -> None:
    config = question(Config(num_users=4, servers=2, sources={"servers": "--servers"}))
    longer = config.changed(model="tiny-1b", duration=0.5)
    assert search_limit(longer, 8, 4).config["servers"] == 2
    assert search_limit(longer.changed(servers=None, sources={}), 800, 4).config["servers"] == 800
