"""The limit finder as a whole, in virtual time: what it changes, what it reports, and what it admits."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.records import NS_PER_SEC, UNLIMITED_BYTES, Observer, QoS, Tier
from kvspill.run.build import build_cache, build_engine, build_workload
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.run.trial import run_trial
from kvspill.serving.engine import Engine
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.profiles import DeviceModel
from kvspill.world import World, run_virtual
from sim.limit_sweep import search, search_config, sweep_config
from unit.run.searching import quick, trace_search

STEP_FIELDS = {
    "time_seconds",
    "users",
    "action",
    "reason",
    "saturation",
    "latency_ms",
    "throughput",
    "storage_throughput",
    "read_p95_ms",
}


@pytest.fixture(scope="module")
def qos_result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return quick(tmp_path_factory.mktemp("device"), "qos")


def test_every_step_says_when_how_many_what_and_why(qos_result: dict[str, Any]) -> None:
    steps = qos_result["autoscaling_stats"]
    assert len(steps) >= 4
    for step in steps:
        assert set(step) >= STEP_FIELDS
        assert 0.0 <= step["saturation"] <= 1.0
    assert [step["time_seconds"] for step in steps] == sorted(step["time_seconds"] for step in steps)
    assert steps[0]["action"] == "start"
    assert [step["action"] for step in steps[-2:]] == ["confirm", "stop"]
    assert qos_result["summary"]["autoscaling_summary"] == steps[-1]


def test_the_answer_has_its_evidence(qos_result: dict[str, Any]) -> None:
    answer = qos_result["autoscaling_stats"][-1]
    assert answer["concluded"]
    assert answer["target_met"]
    assert answer["next_level_that_failed"] > answer["users"]
    low, high = answer["saturation_ci95"]
    assert low <= answer["saturation"] <= high
    failed = [step for step in qos_result["autoscaling_stats"] if step["users"] > answer["users"]]
    assert any(step["saturation"] > 0.8 for step in failed)


def test_the_result_is_the_confirmed_stage_alone(qos_result: dict[str, Any]) -> None:
    *_steps, confirmed, answer = qos_result["autoscaling_stats"]
    window = qos_result["window"]
    assert window["users"] == answer["users"] == confirmed["users"]
    assert window["measured_seconds"] == pytest.approx(confirmed["measured_seconds"])
    assert qos_result["requests_completed"] == confirmed["requests"]
    assert qos_result["summary"]["avg_throughput_tokens_per_sec"] == pytest.approx(confirmed["throughput"])
    requests = qos_result["honesty"]["requests"]
    # Counted from the moment the stage's load was set: its warm-up is in, other stages are not.
    assert confirmed["requests"] <= requests["completed"] < 3 * confirmed["requests"]


def test_equal_searches_are_equal(tmp_path: Path, qos_result: dict[str, Any]) -> None:
    assert quick(tmp_path, "qos")["autoscaling_stats"] == qos_result["autoscaling_stats"]


@pytest.mark.parametrize("mode", ["qos", "capacity", "slo"])
def test_too_little_time_is_admitted_with_how_much_was_missing(tmp_path: Path, mode: str) -> None:
    result = quick(tmp_path, mode, duration=60.0)
    answer = result["autoscaling_stats"][-1]
    assert not answer["concluded"]
    assert answer["missing_seconds"] > 0
    assert f"at least {answer['missing_seconds']:.0f} s more" in answer["reason"]
    assert "autoscaling_inconclusive" in [item["code"] for item in result["warnings"]]


def test_the_time_said_to_be_missing_is_of_the_right_size(tmp_path: Path) -> None:
    whole = quick(tmp_path, "qos")["autoscaling_stats"][-1]["time_seconds"]
    short = quick(tmp_path, "qos", duration=whole * 0.6)["autoscaling_stats"][-1]
    assert not short["concluded"]
    assert 0.1 * whole <= short["missing_seconds"] <= 1.5 * whole


def test_a_run_too_short_for_a_single_stage_still_says_something(tmp_path: Path) -> None:
    result = quick(tmp_path, "capacity", duration=3.0)
    (answer,) = result["autoscaling_stats"]
    assert not answer["concluded"]
    assert "no stage was held to its end" in answer["reason"]


def test_one_user_above_the_target_is_no_answer(tmp_path: Path) -> None:
    result = quick(tmp_path, "slo", slo_target_ms=0.001, num_users=4)
    answer = result["autoscaling_stats"][-1]
    assert answer["users"] == 1
    assert answer["target_met"] in (False, None)
    assert answer["reason"].startswith("Not even the lowest load")


def test_a_bound_is_named_where_it_ends_the_search(tmp_path: Path) -> None:
    answer = quick(tmp_path, "qos", num_users=8, max_users=12)["autoscaling_stats"][-1]
    assert answer["users"] == 12
    assert answer["reason"].startswith("The highest load allowed")


def test_classes_with_few_completions_get_no_verdict(tmp_path: Path) -> None:
    qos = {
        "interactive": {"share": 0.0},
        "responsive": {"share": 0.3},
        "batch": {"share": 0.7},
    }
    result = quick(tmp_path, "slo", qos=qos)
    answer = result["autoscaling_stats"][-1]
    assert answer["no_verdict"] == ["interactive"]
    assert answer["slo"]["classes"]["interactive"]["verdict"] == "no verdict"
    assert answer["slo"]["classes"]["batch"]["verdict"] == "met"
    assert answer["target_met"] is None
    assert answer["reason"].startswith("No verdict")


def test_the_promise_and_its_goodput_are_of_all_windows_that_decided(tmp_path: Path) -> None:
    """One window near the limit can come out otherwise than all of them together."""
    *steps, answer = quick(tmp_path, "slo", slo_classes="batch")["autoscaling_stats"]
    held = [step for step in steps if step["users"] == answer["users"]]
    block, seconds = answer["slo"]["classes"]["batch"], answer["slo"]["measured_seconds"]
    assert len(held) > 1
    assert block["requests"] == sum(step["qos"]["batch"]["requests"] for step in held)
    assert seconds == pytest.approx(sum(step["measured_seconds"] for step in held))
    assert (block["verdict"] == "met") is answer["target_met"] is answer["passes"]
    assert f"over its {len(held)} windows" in answer["reason"] or "highest load" in answer["reason"]
    within = block["requests"] - block["violations"]
    assert answer["goodput_requests_per_sec"] == pytest.approx(within / seconds)
    # The window of the confirmation alone may miss narrowly what all windows of the answer met together.
    assert (block["verdict"] == "met") == (block["actual_ms"] <= block["target_ms"])


def test_capacity_finds_a_peak_behind_which_throughput_falls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that seeks: full speed up to 16 transfers in flight, half of it at 32."""
    real_begin = ModelledBackend._begin

    def slower(self: Any, verb: Any, refs: Any, work_ns: Any, latency_ns: Any) -> Any:
        slowdown = max(1.0, self._device._in_service / 16)
        return real_begin(self, verb, refs, lambda nbytes: work_ns(nbytes) * slowdown, latency_ns)

    monkeypatch.setattr(ModelledBackend, "_begin", slower)
    personas = {"chatbot": {"context": (512, 2048), "generate": (50, 150), "think": (0.5, 1.0)}}
    result = quick(tmp_path, "capacity", num_users=6, personas=personas)
    answer = result["autoscaling_stats"][-1]
    assert answer["reason"] == "Peak capacity found"
    assert answer["peak_confirmed"]
    highest = max(step["storage_throughput"] for step in result["autoscaling_stats"])
    assert answer["peak_throughput"] >= 0.95 * highest
    beyond = [step for step in result["autoscaling_stats"] if step["users"] > answer["users"]]
    assert min(step["storage_throughput"] for step in beyond) < 0.95 * answer["peak_throughput"]


def test_capacity_by_generated_tokens_is_the_users_throughput(tmp_path: Path) -> None:
    answer = quick(tmp_path, "capacity", capacity_metric="generated", max_users=48)["autoscaling_stats"][-1]
    assert answer["peak_throughput"] == answer["throughput"]
    assert answer["peak_throughput_metric"] == "avg_throughput_tokens_per_sec"


def test_memory_that_holds_everything_leaves_storage_idle(tmp_path: Path) -> None:
    config = search_config(tmp_path, "tiny-1b", 1.0, "qos", cpu_mem_gb=4000, max_users=64, duration=600)
    config = config.changed(autoscaler_interval=2)
    answer = search(config)["autoscaling_stats"][-1]
    assert (answer["users"], answer["storage_reads"], answer["saturation"]) == (64, 0, None)


def test_closed_arrivals_are_the_default_of_qos_and_slo_alone() -> None:
    assert Config().arrival == "open"
    assert Config(enable_autoscaling=True).arrival == "closed"
    assert Config(enable_autoscaling=True, autoscaler_mode="slo").arrival == "closed"
    assert Config(enable_autoscaling=True, autoscaler_mode="capacity").arrival == "open"
    assert Config(enable_autoscaling=True, arrival="open").arrival == "open"


def test_open_arrivals_do_not_inherit_the_backlog_of_the_stage_before(tmp_path: Path) -> None:
    steps = quick(tmp_path, "slo", arrival="open", slo_classes="batch")["autoscaling_stats"]
    assert steps[-1]["concluded"]
    assert any("backlog grew" in step["reason"] for step in steps)
    assert any(step.get("sent_away") for step in steps), "an overload leaves a backlog that is sent away"


class Requests(Observer):
    """An observer that hands on the requests alone."""

    def __init__(self, request: Callable[[Any], None]):
        self._request = request

    def request(self, record: Any) -> None:
        self._request(record)


def run_with(
    config: Config,
    gib_per_sec: float,
    request: Callable[[Any], None],
    change: Callable[[World, Engine], Coroutine[Any, Any, None]],
) -> None:
    """Run a load on a modelled device while something changes it."""

    async def main(world: World) -> None:
        rows = Requests(request)
        limits = {Tier.STORAGE: UNLIMITED_BYTES}
        backend = ModelledBackend("modelled", DeviceModel(gib_per_sec, gib_per_sec), world.now_ns)
        cache = build_cache(config, world, rows, {Tier.STORAGE: backend}, limits)
        engine = build_engine(config, world, rows, cache, 0, build_workload(config, world, limits))
        changing = asyncio.ensure_future(change(world, engine))
        await engine.run(lambda: None)
        changing.cancel()
        assert engine.failed == 0

    run_virtual(main, config.seed)


@pytest.mark.parametrize("arrival", ["open", "closed"])
def test_users_really_come_and_go_and_take_their_servers_with_them(arrival: str) -> None:
    config = sweep_config("tiny-1b", num_users=6, arrival=arrival, duration=60.0)
    seen: dict[str, set[int]] = {}
    phase, since_ns = "first", 0

    def request(record: Any) -> None:
        assert record.failure is None
        if record.intended_ns >= since_ns:
            seen.setdefault(phase, set()).add(record.request.user)

    async def change(world: World, engine: Engine) -> None:
        nonlocal phase, since_ns
        for name, users in (("first", None), ("more", 12), ("fewer", 3), ("again", 8)):
            if users is not None:
                engine.set_users(users)
                assert engine.users == users
            phase, since_ns = name, world.now_ns()
            await world.sleep_ns(14 * NS_PER_SEC)

    run_with(config, 4.0, request, change)
    assert seen["first"] == set(range(6))
    assert seen["more"] == set(range(12))
    assert seen["fewer"] == set(range(3))
    assert seen["again"] == set(range(8))


def test_closed_users_who_leave_take_no_server_from_those_who_stay() -> None:
    config = sweep_config("tiny-1b", num_users=40, arrival="closed", duration=60.0)
    waits: dict[bool, list[int]] = {False: [], True: []}
    fewer = False

    def request(record: Any) -> None:
        waits[fewer].append(record.started_ns - record.intended_ns)

    async def change(world: World, engine: Engine) -> None:
        nonlocal fewer
        await world.sleep_ns(20 * NS_PER_SEC)
        engine.set_users(8)
        assert engine.leaving > 8, "their last answers take long on this device"
        fewer = True

    run_with(config, 0.05, request, change)
    assert len(waits[True]) > 20
    assert max(waits[True]) == max(waits[False]) == 0


def test_a_trace_is_searched_by_its_speed() -> None:
    config = trace_search(slo_classes="batch,interactive,responsive")
    assert config.arrival == "open"
    result = run_trial(Plan(config, True, UNLIMITED_BYTES), Progress(True)).document()
    steps = result["autoscaling_stats"]
    assert all("trace_speedup" in step for step in steps)
    assert len({step["trace_speedup"] for step in steps}) > 1
    assert QoS.BATCH.name.lower() in steps[-1]["qos"]
