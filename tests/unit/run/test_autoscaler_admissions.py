"""What a search does not know it does not claim: no confirmation, time or level that was never measured."""

import asyncio
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.measure.oplog import requests_path
from kvspill.records import MIB, NS_PER_SEC, UNLIMITED_BYTES, Observer, Tier
from kvspill.report.autoscaling import answer_lines
from kvspill.report.console import render_summary
from kvspill.report.html.prose import search_sentence
from kvspill.result.schema import Result
from kvspill.run.build import build_cache, build_engine, build_workload
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.run.search.capacity import CapacityMode, _Stage
from kvspill.run.search.monitor import WindowMonitor
from kvspill.run.search.options import Pace, SearchOptions
from kvspill.run.search.stage import StageMeasure
from kvspill.run.signals import Interrupts
from kvspill.run.trial import run_trial
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.profiles import DeviceModel
from kvspill.world import World, run_virtual
from sim.limit_sweep import search, search_config, sweep_config
from unit.run.autoscaler_rows import read
from unit.run.searching import quick, trace_search


class _AfterSeconds(Interrupts):
    """A signal so many seconds of the world's clock after the load began."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def load_begins(self, interrupt: Any) -> None:
        asyncio.get_running_loop().call_later(self._seconds, interrupt, "interrupted by SIGINT")


def test_a_recording_is_not_searched_with_closed_arrivals() -> None:
    asked: dict[str, Any] = {"trace": "mooncake:sample", "enable_autoscaling": True, "duration": 60.0}
    assert Config(**asked).arrival == "open"
    with pytest.raises(UsageError, match=r"--arrival closed: .*leave it out") as refused:
        Config(**asked, arrival="closed")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"io_model": "prefix"}, "wait for each other; use --autoscaler-mode slo"),
        ({"prefill_only": True}, "--prefill-only makes none; use --autoscaler-mode capacity"),
    ],
)
def test_a_saturation_of_single_reads_is_not_asked_of_what_has_none(changes: Any, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        Config(enable_autoscaling=True, duration=60.0, **changes)
    Config(enable_autoscaling=True, duration=60.0, autoscaler_mode="capacity", **changes)


def test_a_peak_that_its_return_refutes_gives_way_to_the_better_level() -> None:
    """One lucky window made 10 users look as good as 20; ten times as long a return does not."""
    mode = CapacityMode(SearchOptions("capacity", 10, 1, 40, Pace(NS_PER_SEC), 0, 9 * NS_PER_SEC))
    mode._stages = [_Stage(10, moving(103, 5)), _Stage(20, moving(103, 5)), _Stage(40, moving(102, 5))]
    mode._descended = True
    lucky = mode._peak()
    assert lucky.level == 10
    returned = _Stage(10, moving(99, 50))
    mode._confirmations = [returned]
    assert mode._agrees(returned, lucky)
    assert not mode._holds(returned)
    assert mode._peak().level == 20
    assert mode._holds(_Stage(20, moving(103, 50)))


def moving(mib_per_sec: int, seconds: int) -> StageMeasure:
    """A window in which the storage moves so much, a little more and a little less from second to second."""
    monitor = WindowMonitor(unloaded=None)
    for second in range(seconds * 10):
        monitor.op(read(second / 10 + 0.05, 1, nbytes=mib_per_sec * MIB // 10 + (second % 2) * MIB // 10))
    return monitor.measure(seconds * NS_PER_SEC, 10)


def test_a_peak_nobody_returned_to_is_not_confirmed(tmp_path: Path) -> None:
    answer = quick(tmp_path, "capacity", duration=60.0)["autoscaling_stats"][-1]
    assert not answer["concluded"]
    assert answer["peak_throughput"] > 0
    assert answer["peak_confirmed"] is False


def test_where_time_is_short_the_peak_is_confirmed_before_fewer_users_are_asked(tmp_path: Path) -> None:
    result = quick(tmp_path, "capacity", num_users=64, duration=300.0)
    *steps, answer = result["autoscaling_stats"]
    assert "descend" not in [step["action"] for step in steps]
    assert (answer["concluded"], answer["peak_confirmed"]) == (True, True)
    assert answer["fewer_users_may_reach_it"]
    assert ("Fewer users", "may reach it too: the time was too short to tell") in list(answer_lines([answer]))


def test_an_interrupted_search_does_not_say_how_much_time_was_missing(tmp_path: Path) -> None:
    config = search_config(tmp_path, "llama3.1-8b", 2.0, "qos")
    result = run_trial(Plan(config, True, UNLIMITED_BYTES), Progress(True), _AfterSeconds(60.0)).document()
    answer = result["autoscaling_stats"][-1]
    assert result["incomplete"]
    assert not answer["concluded"]
    assert answer["missing_seconds"] is None
    assert answer["reason"].endswith("The run was interrupted by SIGINT.")
    (warning,) = [item for item in result["warnings"] if item["code"] == "autoscaling_inconclusive"]
    assert warning["remedy"] == "Let it run to its end."


def test_the_row_log_has_the_rows_of_every_stage(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "ops.parquet"
    result = quick(tmp_path, "qos", log_ops=str(path), max_users=20)
    requests = parquet.read_table(requests_path(path)).to_pylist()
    measured = sum(step["requests"] for step in result["autoscaling_stats"][:-1])
    assert len(requests) >= measured > result["requests_completed"]
    assert min(row["intended_ns"] for row in requests) >= 0
    assert parquet.read_table(path).num_rows > len(requests)


@pytest.mark.parametrize(
    ("mode", "changes"), [("qos", {"num_users": 400}), ("slo", {"slo_target_ms": 0.001})]
)
def test_a_level_that_was_never_held_is_no_answer(tmp_path: Path, mode: str, changes: Any) -> None:
    result = quick(tmp_path, mode, duration=60.0, **changes)
    *steps, answer = result["autoscaling_stats"]
    assert steps
    assert not answer["concluded"]
    assert answer["users"] is None
    assert "did not" in answer["reason"]
    assert dict(answer_lines(result["autoscaling_stats"]))["Answer"] == "none"
    assert "has no answer" in search_sentence(Result.model_validate(result))
    assert answer["reason"] in " ".join(render_summary(Result.model_validate(result)).split())


def test_a_search_without_a_stage_names_no_users(tmp_path: Path) -> None:
    assert quick(tmp_path, "capacity", duration=3.0)["autoscaling_stats"][-1]["users"] is None


def test_a_speed_is_told_as_the_reader_knows_it() -> None:
    config = trace_search(trace_speedup=4.0)
    *steps, answer = search(config)["autoscaling_stats"]
    held = [f"{step['trace_speedup']:g}" for step in steps]
    for before, step in itertools.pairwise(steps):
        if step["action"] in ("scale_up", "scale_down"):
            assert f" at {before['trace_speedup']:g}: " in step["reason"]
        if step["action"] == "bisect":
            match = re.match(r"between (\S+) \(.*\) and (\S+) \(", step["reason"])
            assert match is not None
            low, high = match.groups()
            assert {low, high} <= set(held)
            assert float(low) < step["trace_speedup"] < float(high)
    failed = answer["next_level_that_failed"]
    assert failed is None or failed in [step["trace_speedup"] for step in steps]


@pytest.mark.parametrize(("arrival", "start"), [("closed", 500), ("open", 120)])
def test_capacity_looks_below_its_start_for_the_fewest_users_that_reach_the_peak(
    tmp_path: Path, arrival: str, start: int
) -> None:
    few = quick(tmp_path, "capacity", num_users=8, arrival=arrival)["autoscaling_stats"][-1]
    *steps, many = quick(tmp_path, "capacity", num_users=start, arrival=arrival)["autoscaling_stats"]
    assert many["concluded"]
    assert many["peak_confirmed"]
    assert many["peak_throughput"] == pytest.approx(few["peak_throughput"], rel=0.05)
    assert few["users"] / 2.5 <= many["users"] <= few["users"] * 1.5
    below = [step for step in steps if step["users"] < many["users"]]
    assert below
    assert min(step["storage_throughput"] for step in below) < 0.95 * many["peak_throughput"]


@pytest.mark.parametrize("arrival", ["open", "closed"])
def test_a_user_who_comes_back_goes_on_with_new_conversations(arrival: str) -> None:
    config = sweep_config(
        "tiny-1b", num_users=6, arrival=arrival, duration=200.0, disable_multi_turn=False, max_turns=6
    )
    seen: dict[tuple[int, int, int], int] = {}
    left_at_ns = 100 * NS_PER_SEC

    class Rows(Observer):
        def request(self, record: Any) -> None:
            request = record.request
            name = (request.user, request.conversation, request.turn)
            assert name not in seen, "it was asked before"
            seen[name] = record.intended_ns

    async def main(world: World) -> None:
        rows, limits = Rows(), {Tier.STORAGE: UNLIMITED_BYTES}
        backend = ModelledBackend("modelled", DeviceModel(4.0, 4.0), world.now_ns)
        cache = build_cache(config, world, rows, {Tier.STORAGE: backend}, limits)
        engine = build_engine(config, world, rows, cache, 0, build_workload(config, world, limits))

        async def change() -> None:
            for users, until_seconds in ((6, 40), (2, 80), (6, 100), (1, 101), (6, 200)):
                engine.set_users(users)
                await world.sleep_ns(until_seconds * NS_PER_SEC - world.now_ns())

        changing = asyncio.ensure_future(change())
        await engine.run(lambda: None)
        changing.cancel()

    run_virtual(main, config.seed)
    for user in range(6):
        later = sorted(at_ns for name, at_ns in seen.items() if name[0] == user and at_ns > left_at_ns)
        assert 10 <= len(later) <= 60, "it came back, and asked at its own pace"
        conversations = {name[1] for name in seen if name[0] == user}
        assert all((user, number, 0) in seen for number in conversations)


@pytest.mark.parametrize("mode", ["qos", "slo"])
def test_following_the_advice_about_time_leads_to_an_answer_in_a_few_runs(tmp_path: Path, mode: str) -> None:
    duration = 5.0
    for _run in range(6):
        config = search_config(tmp_path, "llama3.1-8b", 8.0, mode, duration=duration)
        answer = search(config.changed(autoscaler_interval=None))["autoscaling_stats"][-1]
        if answer["concluded"]:
            break
        # A first stage takes a user's round, so that no advice is a matter of a few seconds.
        assert answer["missing_seconds"] >= 4.0
        duration += answer["missing_seconds"]
    assert answer["concluded"]
