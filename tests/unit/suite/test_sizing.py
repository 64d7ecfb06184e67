"""Derived parameters: meaningful, safe, and each explained."""

from dataclasses import replace
from pathlib import Path

import pytest

from kvspill.config import Config
from kvspill.machine.hardware import Gpu, Hardware, Place
from kvspill.machine.memory import Available
from kvspill.run.bandwidth import Bandwidth, modelled_bandwidth
from kvspill.storage.profiles import PRESETS
from kvspill.suite.campaign import describe
from kvspill.suite.sizing import Sizes, Wishes, appetite, derive, quick_seconds
from unit.machine.kernel_tree import GIB


def machine(memory_gib: float = 24, free_gib: float = 80, gpus: tuple[Gpu, ...] = ()) -> Hardware:
    place = Place(Path("/x"), "ext4", ("vda",), None, None, None, "virtual disk", int(free_gib * GIB), True)
    return Hardware(
        cpu_count=2,
        memory_total_bytes=int(memory_gib * GIB),
        memory_available=Available(int(memory_gib * GIB), "this machine"),
        gpus=gpus,
        gpu_unusable=None if gpus else "no driver; install it",
        places=(place,),
    )


def sizes(gib_per_sec: float = 3.0, **wishes: object) -> Sizes:
    return derive(Wishes(**wishes), machine(), Bandwidth(gib_per_sec, 1.0, "a probe"))  # type: ignore[arg-type]


def test_budgets_never_exceed_half_of_what_the_machine_has() -> None:
    found = sizes().values
    assert found["cpu_gb"] <= 12
    assert found["storage_gb"] <= 40
    assert found["cpu_small_gb"] <= found["cpu_gb"]


def test_a_store_that_tells_no_limit_is_called_unlimited_and_fits_the_search() -> None:
    """A plan said 524288 GiB, and its search was refused for more users than a run takes."""
    no_place = replace(machine(), places=())
    found = derive(Wishes(), no_place, Bandwidth(3.0, 1.0, "a probe"))
    assert "Storage budget: unlimited, because the storage tells no limit." in found.notes
    assert Config(max_users=found.values["users_room"]).max_users == 1_000_000
    config = Config(storage_capacity_gb=found.values["storage_gb"], cpu_mem_gb=0.0)
    assert describe(config).endswith(", storage unlimited")
    assert describe(config.changed(storage_capacity_gb=40.0)).endswith(", storage 40 GiB")


def test_a_large_file_system_has_a_limit_that_is_named() -> None:
    """Half of 2 PiB was called unlimited."""
    large = machine(free_gib=2 << 20)
    found = derive(Wishes(), large, Bandwidth(3.0, 1.0, "a probe"))
    said = "Storage budget 1,048,576 GiB: half of the 2,097,152.00 GiB that are free."
    assert said in found.notes
    config = Config(storage_capacity_gb=found.values["storage_gb"], cpu_mem_gb=0.0)
    assert describe(config).endswith(", storage 1,048,576 GiB")
    small = derive(Wishes(storage_gb=0.25), large, Bandwidth(3.0, 1.0, "a probe"))
    assert "Storage budget 0.25 GiB: as asked." in small.notes


def test_quick_keeps_at_most_6_gib_on_disk_and_4_in_memory() -> None:
    found = sizes(quick=True).values
    assert (found["storage_gb"], found["cpu_gb"]) == (6.0, 4.0)
    assert found["tier_seconds"] == 30


def test_a_faster_drive_gets_more_users_up_to_fifty() -> None:
    users = [sizes(speed).values["users"] for speed in (1.0, 3.0, 6.0, 50.0)]
    assert users == sorted(users)
    assert users[0] < users[2]
    assert users[-1] <= 50


def test_users_never_need_more_room_than_the_storage_has() -> None:
    found = derive(Wishes(), machine(free_gib=8), Bandwidth(13.0, 9.0, "a probe")).values
    mean_entry = appetite(Config(), 13.0).entry_bytes
    assert found["users_high"] * mean_entry <= found["storage_gb"] * GIB


def test_high_load_is_never_below_the_tier_load() -> None:
    for speed in (0.1, 1.0, 10.0, 100.0):
        found = sizes(speed).values
        assert found["users_high"] >= found["users"] >= 1


def test_what_the_user_fixes_is_kept_and_said() -> None:
    found = sizes(
        users=7, users_high=9, cpu_gb=3.0, storage_gb=5.0, gpu_gb=8.0, seconds={"tier_seconds": 11.0}
    )
    wanted = {
        "users": 7,
        "users_high": 9,
        "cpu_gb": 3.0,
        "storage_gb": 5.0,
        "gpu_gb": 8.0,
        "tier_seconds": 11.0,
    }
    assert {name: found.values[name] for name in wanted} == wanted
    assert sum("as asked" in note for note in found.notes) == 4


def test_every_budget_is_explained_with_its_number() -> None:
    found = sizes()
    text = "\n".join(found.notes)
    for name in ("users", "users_high", "cpu_gb", "cpu_small_gb", "gpu_gb", "storage_gb"):
        assert f"{found.values[name]:g}" in text
    assert "MODELLED" in text


def test_a_real_card_gives_its_memory_and_is_not_called_modelled() -> None:
    hardware = machine(gpus=(Gpu("H200", 100 * GIB),))
    found = derive(Wishes(), hardware, Bandwidth(3.0, 1.0, "a probe"))
    assert found.values["gpu_real_gb"] == found.values["gpu_gb"] == 80.0
    assert "MODELLED" not in "\n".join(found.notes)
    assert sizes().values["gpu_real_gb"] == 0


def test_of_a_card_that_others_use_the_free_part_is_taken_or_what_was_asked_for() -> None:
    hardware = machine(gpus=(Gpu("H200", 100 * GIB, 20 * GIB),))
    found = derive(Wishes(), hardware, Bandwidth(3.0, 1.0, "a probe"))
    assert found.values["gpu_gb"] == 16.0
    assert "GPU budget 16 GiB: 80 % of what is free on H200." in found.notes
    asked = derive(Wishes(gpu_gb=18.0), hardware, Bandwidth(3.0, 1.0, "a probe"))
    assert "GPU budget 18 GiB: as asked." in asked.notes


def test_the_knee_is_where_the_device_is_just_busy() -> None:
    # A user alone on the device keeps it busy for this share of its time; so many users fill it.
    wants = appetite(Config(), 3.0)
    assert sizes().values["users"] == round(1 / wants.busy_share)
    assert wants.request_bytes > wants.entry_bytes


@pytest.mark.parametrize(
    ("gib_per_sec", "tier", "production", "flags"),
    [
        (10.0, 30, 45, ()),
        (1.0, 65, 65, ()),
        (0.3, 75, 75, ("--tier-seconds 200", "--production-seconds 200")),
    ],
)
def test_quick_lasts_as_long_as_advice_needs_or_says_before_that_there_will_be_none(
    gib_per_sec: float, tier: float, production: float, flags: tuple[str, ...]
) -> None:
    """Its rows of 30 s completed 18 to 20 requests, and its advice was that 30 are needed."""
    found = sizes(gib_per_sec, quick=True)
    assert (found.values["tier_seconds"], found.values["production_seconds"]) == (tier, production)
    few = [note for note in found.notes if note.startswith("Advice needs 30 requests of a row, and ")]
    assert [note.partition(": give ")[2].rstrip(".") for note in few] == list(flags)
    assert sizes(gib_per_sec, quick=True, seconds={"tier_seconds": 20.0}).values["tier_seconds"] == 20
    assert not [note for note in sizes(gib_per_sec).notes if note.startswith("Advice needs")], "usual sizes"


@pytest.mark.parametrize(("given", "quick"), [(120, 30), (20, 15), (10, 10), (600, 75)])
def test_quick_takes_a_quarter_within_limits(given: float, quick: float) -> None:
    assert quick_seconds(given) == quick


def test_a_profile_stands_for_the_probe_in_simulation() -> None:
    found = modelled_bandwidth(PRESETS["nvme-gen5"], "nvme-gen5")
    assert (found.read_gib_per_sec, found.source) == (13.0, "device profile nvme-gen5")
