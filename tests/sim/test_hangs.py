"""Operations in flight at the end count with their age, and what never returns is stuck (S16)."""

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.records import Completion, Tier
from kvspill.result.bottleneck import bottleneck
from kvspill.result.schema import Result
from kvspill.run import trial
from kvspill.run.backends import open_backends
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.storage.base import Backend, Capabilities, ObjectRef
from sim.hazards import HazardousDevice, Hazards

SECONDS = 60.0


class HangsLate(HazardousDevice):
    """From half of the time on every operation hangs."""

    async def _delayed(self, done: Any) -> Any:
        if self._clock_ns() < SECONDS / 2 * 1e9:
            return done
        return await super()._delayed(done)


class DeletesStall(HazardousDevice):
    """Deletes wait from half of the time on; it counts as a device, so that its standstill is judged."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, modelled=False)

    async def _delete(self, ref: ObjectRef) -> Completion:
        done = await super()._delete(ref)
        if self._clock_ns() < SECONDS / 2 * 1e9:
            return done
        await asyncio.sleep(self._hazards.slow_ns / 1e9)
        return replace(done, finished_ns=self._clock_ns())


def simulated(
    hazards: Hazards | None, device: type[HazardousDevice] = HangsLate, **settings: Any
) -> dict[str, Any]:
    usual = {"model": "tiny-1b", "num_users": 12, "cpu_mem_gb": 0, "generation_mode": "fast"}
    storage_bytes = 1 << 50 if device is HangsLate else 1 << 28
    config = Config(**usual | {"duration": SECONDS} | settings)
    real_open = open_backends

    def open_hanging(given: Config, world: Any, *rest: Any) -> dict[Tier, Backend]:
        backends = dict(real_open(given, world, *rest))
        if hazards is not None:
            inner = backends[Tier.STORAGE]
            backends[Tier.STORAGE] = device(inner, hazards, random.Random(1), world.now_ns)
        return backends

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "open_backends", open_hanging)
        plan = Plan(config, simulated=True, storage_bytes=storage_bytes)
        return trial.run_trial(plan, Progress(quiet=True)).document()


HANG = Hazards(hang=1.0)
STUBBORN = Hazards(hang=1.0, stubborn=True)


@pytest.mark.parametrize("io_model", ["mlperf", "prefix"])
@pytest.mark.parametrize("hazards", [HANG, STUBBORN], ids=["cut off", "never returns"])
def test_a_device_that_hangs_has_no_better_latency_than_a_healthy_one(
    hazards: Hazards, io_model: str
) -> None:
    healthy, hung = simulated(None, io_model=io_model), simulated(hazards, io_model=io_model)
    rows = {(row["tier"], row["verb"]): row for row in hung["in_flight_at_end"]}
    assert rows
    assert all(tier == "storage" for tier, _verb in rows)
    assert max(row["oldest_ms"] for row in rows.values()) > 25_000
    for (_tier, verb), row in rows.items():
        for name in (f"storage_{verb}_max_ms", f"storage_{verb}_device_max_ms"):
            assert hung["metrics"][name]["value"] >= row["oldest_ms"] * 0.99
            assert hung["metrics"][name]["value"] > 2 * healthy["metrics"][name]["value"]


def test_what_never_returns_is_a_fault_and_what_the_end_cuts_off_is_none() -> None:
    assert simulated(HANG)["faulty"] is False
    hung = simulated(STUBBORN)
    assert hung["faulty"] is True
    assert hung["faults"]["stuck_io"]["threads"] > 0
    assert hung["faults"]["stuck_io"]["oldest_seconds"] > 30
    assert hung["window"]["drain_seconds"] <= 5


def test_the_age_of_what_is_in_flight_changes_no_count_and_no_byte() -> None:
    """Operations count when they are done, bytes when they move (S4)."""
    result = simulated(None)
    ops = result["metrics"]["storage_read_ops"]["value"]
    in_flight = {row["verb"]: row["count"] for row in result["in_flight_at_end"]}
    encoded = result["histograms"]["storage_read_total"]
    assert in_flight["read"] > 0
    assert encoded["count"] == ops + in_flight["read"]


@pytest.mark.parametrize("slow_ms", [0, 50, 3000])
def test_requests_that_wait_for_deletes_are_a_standstill_and_slow_deletes_are_none(slow_ms: int) -> None:
    result = simulated(Hazards(slow_ns=slow_ms * 1_000_000), DeletesStall, arrival="closed")
    stalls = slow_ms == 3000
    assert ("storage_stalled" in {warning["code"] for warning in result["warnings"]}) is stalls
    assert result["summary"]["storage_health"]["overall_status"] == ("FAIL" if stalls else "PASS")
    if stalls:
        assert result["honesty"]["storage_delete_still_seconds"] > SECONDS / 3
        # Requests wait for room and meet no slow read or write (S16).
        assert {row["verb"] for row in result["in_flight_at_end"]} == {"delete"}
        assert "--max-concurrent-allocs" not in bottleneck(Result.model_validate(result)).helps
