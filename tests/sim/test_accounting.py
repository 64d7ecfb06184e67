"""At the end of a run every arrival is completed, failed, shed or unfinished, and never two of them (L3)."""

import pytest

from kvspill.config import Config
from kvspill.records import Tier
from kvspill.storage.profiles import DeviceModel
from sim.hazards import Hazards
from sim.sweep import Scenario, run_scenario


@pytest.mark.parametrize("arrival", ["open", "closed"])
@pytest.mark.parametrize("stubborn", [False, True])
def test_what_happens_while_devices_settle_is_in_no_count(arrival: str, stubborn: bool) -> None:
    """A hanging operation keeps the end waiting; users go on arriving and answers go on being generated."""
    config = Config(
        model="tiny-1b",
        num_users=30,
        servers=12,
        duration=1.0,
        warmup=0,
        arrival=arrival,
        generation_mode="fast",
        cpu_mem_gb=0,
        storage_capacity_gb=100,
    )
    hazards = Hazards(hang=0.02, slow=0.2, slow_ns=300_000_000, stubborn=stubborn)
    devices = {Tier.STORAGE: DeviceModel(4.0, 2.0, 50, 50)}
    outcome = run_scenario(Scenario(1, config, devices, {Tier.STORAGE: hazards}, None))
    assert outcome.hangs > 0
    assert outcome.completed > 0
