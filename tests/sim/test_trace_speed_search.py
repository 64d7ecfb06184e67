"""The speed of a recording that the limit finder names, against runs at fixed speeds on the same device."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kvspill.config import Config
from kvspill.records import MIB, NS_PER_SEC, UNLIMITED_BYTES, QoS, Request, Tier
from kvspill.run.backends import open_backends
from kvspill.run.build import build_cache, build_engine, build_workload, tier_limits
from kvspill.run.search.baseline import probe_unloaded
from kvspill.run.search.monitor import WindowMonitor
from kvspill.run.search.stage import StageMeasure
from kvspill.serving.population import LoadLimits, OpenPopulation
from kvspill.workload.base import Workload
from kvspill.world import World, run_virtual
from sim.limit_sweep import search

TARGET = 0.8
FIXED_SECONDS = 1800.0


def replay(tmp_path: Path, **changes: Any) -> Config:
    path = tmp_path / "device.yaml"
    path.write_text(
        "storage: {read_gib_per_sec: 3.0, write_gib_per_sec: 1.7, read_latency_us: 120, "
        "write_latency_us: 40, delete_latency_us: 20, concurrency: 64}\n"
    )
    values: dict[str, Any] = {
        "model": "llama3.1-8b",
        "trace": "mooncake:sample",
        "device_profile": str(path),
        "quiet": True,
    }
    return Config(**values, **changes)


def at_fixed_speed(config: Config, speed: float) -> StageMeasure:
    """All of a long run at one speed but its first tenth."""
    config = config.changed(enable_autoscaling=False, trace_speedup=speed, duration=FIXED_SECONDS)

    async def main(world: World) -> StageMeasure:
        limits = tier_limits(config, UNLIMITED_BYTES)
        workload = build_workload(config, world, limits)
        backends = open_backends(config, world, limits, (), True)
        monitor = WindowMonitor(await probe_unloaded(backends[Tier.STORAGE], 64 * MIB))
        cache = build_cache(config, world, monitor, backends, limits)
        engine = build_engine(config, world, monitor, cache, world.now_ns(), workload)
        loop = asyncio.get_running_loop()
        loop.call_later(FIXED_SECONDS / 10, lambda: monitor.begin(world.now_ns()))
        found = []
        await engine.run(lambda: found.append(monitor.measure(world.now_ns(), 10)))
        return found[0]

    return run_virtual(main, config.seed)


@pytest.mark.parametrize(
    ("cpu_mem_gb", "start_speed"),
    [
        (0, 50.0),
        (4, 1.0),
        pytest.param(0, 0.2, marks=pytest.mark.slow),
        pytest.param(4, 5.0, marks=pytest.mark.slow),
    ],
)
def test_the_speed_found_is_the_limit_of_runs_at_fixed_speeds(
    tmp_path: Path, cpu_mem_gb: int, start_speed: float
) -> None:
    config = replay(
        tmp_path,
        cpu_mem_gb=cpu_mem_gb,
        duration=1800.0,
        trace_speedup=start_speed,
        enable_autoscaling=True,
        autoscaler_mode="qos",
    )
    answer = search(config)["autoscaling_stats"][-1]
    assert answer["concluded"], answer["reason"]
    below = at_fixed_speed(config, answer["trace_speedup"] * 0.88).saturation
    above = at_fixed_speed(config, answer["trace_speedup"] * 1.12).saturation
    assert below is not None
    assert above is not None
    assert below.mean <= TARGET < above.mean


class _EverySecond:
    """One session that asks once a second."""

    users = 1

    def session(self, user: int, _start_ns: int = 0) -> Iterator[Any]:
        for turn in range(20):
            yield Request(
                user=user,
                conversation=turn,
                turn=0,
                qos=QoS.BATCH,
                intended_ns=turn * NS_PER_SEC,
                think_ns=0,
                context_tokens=1,
                generate_tokens=1,
            )


def test_a_recording_that_is_held_back_goes_on_where_it_stood_still() -> None:
    async def main(world: World) -> list[float]:
        came: list[float] = []

        def arrive(_request: Request, at_ns: int) -> bool:
            came.append(at_ns / NS_PER_SEC)
            return True

        async def always_idle() -> None:
            return None

        limits = LoadLimits(0, 100 * NS_PER_SEC, None)
        population = OpenPopulation(world, cast(Workload, _EverySecond()), limits, arrive, always_idle)
        running = asyncio.ensure_future(population.run())
        await world.sleep_ns(round(2.5 * NS_PER_SEC))
        population.hold_back()
        await world.sleep_ns(10 * NS_PER_SEC)
        population.take_in(world.now_ns())
        population.set_speed(2.0)
        population.let_in()
        await world.sleep_ns(NS_PER_SEC)
        running.cancel()
        assert not population.exhausted
        return came

    assert run_virtual(main, 1) == [0.0, 1.0, 2.0, 12.75, 13.25]
