"""A search says of its answer's stage all that a plain run says of itself."""

import asyncio
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from kvspill.cache.cache import Cache
from kvspill.config import Config
from kvspill.records import UNLIMITED_BYTES, Eviction, Tier
from kvspill.run import load as load_module
from kvspill.run.build import build_cache, build_engine, build_workload
from kvspill.run.health import Health
from kvspill.run.load import Load
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.run.ranks import Ranks
from kvspill.run.stages import Stages
from kvspill.run.trial import run_trial
from kvspill.serving.engine import Engine
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.profiles import DeviceModel
from kvspill.world import World, run_virtual
from sim.limit_sweep import search_config


@cache
def trial(search: bool) -> dict[str, Any]:
    config = Config(
        num_users=10,
        duration=60.0,
        cpu_mem_gb=0,
        io_model="prefix",
        generation_mode="realistic",
        quiet=True,
        enable_autoscaling=search,
        **({"autoscaler_mode": "capacity"} if search else {}),
    )
    return run_trial(Plan(config, True, UNLIMITED_BYTES), Progress(True)).document()


def test_a_search_has_the_account_of_its_io_model() -> None:
    plain, found = trial(False)["io_model"], trial(True)["io_model"]
    assert found.keys() == plain.keys()
    assert found["name"] == "prefix"
    assert found["blocks_asked"] > 0
    assert found["storage_ttft_ms"]["mean"] > 0
    assert found["hit_rate_bounds"] is not None


def test_the_timeline_of_a_search_has_users_and_queue() -> None:
    plain, found = trial(False)["timeline"]["columns"], trial(True)["timeline"]["columns"]
    assert {"users", "queued", "in_service", "storage_in_flight", "storage_read_ops"} <= plain.keys()
    assert max(plain["storage_in_flight"]) > 0
    assert plain.keys() - {"misses"} <= found.keys()
    assert set(found["users"]) == {trial(True)["window"]["users"]}


def test_a_search_whose_requests_were_half_done_says_so() -> None:
    result = trial(True)
    stages = [step for step in result["autoscaling_stats"] if "stage_seconds" in step]
    assert stages, "a stage was held"
    assert result["honesty"]["requests"]["unfinished"] > 0.05 * result["requests_completed"]
    assert "half_done" in {warning["code"] for warning in result["warnings"]}


def idle_load(world: World, stages: Stages) -> tuple[Engine, Cache]:
    config = Config(model="tiny-1b", num_users=2, max_requests=4, cpu_mem_gb=0)
    limits = {Tier.STORAGE: UNLIMITED_BYTES}
    backend = ModelledBackend("modelled", DeviceModel(4.0, 4.0), world.now_ns)
    cache = build_cache(config, world, stages.observer, {Tier.STORAGE: backend}, limits)
    workload = build_workload(config, world, limits)
    return build_engine(config, world, stages.observer, cache, 0, workload), cache


def test_a_stage_that_outlives_the_load_changes_nothing() -> None:
    """A signal ends the load between a stage's last look and its close."""

    async def main(world: World) -> Stages:
        stages = Stages(world, None)
        stages.load_begins(*idle_load(world, stages))
        stages.open(0)
        stages.close(10)
        stages.open(20)
        stages.end(30)
        stages.close(40)
        stages.begin(50)
        stages.open(60)
        return stages

    recorder = run_virtual(main, 1).answer.recorder
    assert (recorder.window_start_ns, recorder.window_end_ns) == (0, 10)


@pytest.mark.parametrize("reason", ["interrupted by SIGINT", None])
@pytest.mark.parametrize("searching", [True, False])
def test_nothing_is_measured_after_an_interrupt(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, searching: bool, reason: str | None
) -> None:
    measured = []

    async def ceiling(*_arguments: Any) -> None:
        measured.append("ceiling")

    monkeypatch.setattr(load_module, "null_ceiling", ceiling)
    monkeypatch.setattr(load_module, "environment", lambda _dirs: None)
    config = search_config(tmp_path, "tiny-1b", 1.0, "qos")
    trial: Any = Load(Plan(config, False, UNLIMITED_BYTES), World(1), {}, {}, Progress(True), Ranks())
    facts = SimpleNamespace(interrupted=reason, workload={}, io_model={})
    stage = SimpleNamespace(users=3, recorder=SimpleNamespace(lanes=list), probes=None)
    asyncio.run(trial._part(stage, facts, SimpleNamespace(planned=None), searching))
    assert measured == ([] if reason else ["ceiling"])


def test_what_closing_does_is_in_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    stages_made: list[Stages] = []
    real = Stages

    def made(*arguments: Any) -> Stages:
        stages_made.append(real(*arguments))
        return stages_made[-1]

    monkeypatch.setattr(load_module, "Stages", made)
    config = Config(model="tiny-1b", num_users=3, max_requests=9, cpu_mem_gb=0, quiet=True)
    result = run_trial(Plan(config, True, UNLIMITED_BYTES), Progress(True))
    assert result.requests_completed == 9
    (stages,) = stages_made
    counted = stages.answer.recorder.evictions.total()
    # A tier that is closed at the very end of the window drops entries at a time that is still inside of it.
    at_ns = stages.answer.recorder.window_end_ns
    stages.observer.eviction(Eviction(at_ns, Tier.STORAGE, None, 1))
    assert stages.answer.recorder.evictions.total() == counted


def test_a_watch_over_a_load_that_fails_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the watch nobody would see a device that hangs."""

    async def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(Health, "watch", fail)
    config = Config(num_users=1, duration=60.0, cpu_mem_gb=0, quiet=True)
    with pytest.raises(MemoryError):
        run_trial(Plan(config, True, UNLIMITED_BYTES), Progress(True))


def test_the_figures_are_of_the_last_stage_with_the_users_that_were_asked_about() -> None:
    """Beside a no, those of fewer users who were measured later would show another cause."""

    async def main(world: World) -> tuple[Stages, Stages]:
        kept = []
        for asked_users in (2, None):
            stages = Stages(world, None)
            engine, cache = idle_load(world, stages)
            stages.load_begins(engine, cache, asked_users)
            for number, users in enumerate((2, 2, 1)):
                engine.set_users(users)
                stages.open(20 * number)
                stages.close(20 * number + 10)
            stages.end(90)
            kept.append(stages)
        return kept[0], kept[1]

    asked, plain = run_virtual(main, 1)
    assert (asked.answer.users, asked.answer.recorder.window_end_ns) == (2, 30)
    assert (plain.answer.users, plain.answer.recorder.window_end_ns) == (1, 50)
    assert plain.answer_is_last
    assert not asked.answer_is_last
