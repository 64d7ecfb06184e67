"""The watch over a load sees when memory runs out, before nothing works any more."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kvspill.config import Config
from kvspill.records import GIB, MIB
from kvspill.run import health as health_module
from kvspill.run.health import Health
from kvspill.world import World, run_real


@pytest.mark.parametrize(("left_bytes", "ends"), [(None, False), (GIB, False), (MIB, True), (-MIB, True)])
def test_a_load_ends_while_there_is_memory_for_its_end(
    left_bytes: int | None, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_module, "_INTERVAL_NS", 1000)
    monkeypatch.setattr(health_module, "address_space_left", lambda: left_bytes)
    reasons: list[str] = []

    async def main(world: World) -> None:
        cache = SimpleNamespace(tiers=(), errors=Counter())
        health = Health(world, Config(), cast(Any, cache))
        try:
            await asyncio.wait_for(health.watch(reasons.append), 30 if ends else 0.05)
        except TimeoutError:
            assert not ends

    run_real(main, seed=1)
    assert [reason.partition(":")[0] for reason in reasons] == ["out of memory"] * ends
