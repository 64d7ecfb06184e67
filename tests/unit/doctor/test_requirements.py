"""The doctor on what the proposal asks for, and on space and devices: one unit, and how much it matters."""

from dataclasses import replace
from pathlib import Path

import pytest

from kvspill.doctor import storage as doctor_storage
from kvspill.doctor.doctor import Status
from kvspill.doctor.hardware import hardware_checks
from kvspill.doctor.storage import storage_checks
from kvspill.machine.hardware import Gpu, Place
from unit.doctor.test_doctor_checks import machine, named
from unit.machine.kernel_tree import GIB, Tree


def place(kind: str, free_gib: float) -> Place:
    return Place(Path("/x"), "ext4", ("d",), None, False, None, kind, int(free_gib * GIB), True)


def test_hardware_is_held_against_minimum_and_recommended() -> None:
    small = hardware_checks(
        machine(cpu_count=2, memory_total_bytes=24 * GIB, places=(place("virtual disk", 80),))
    )
    assert [check.status for check in small] == [
        Status.WARNING,
        Status.WARNING,
        Status.OK,
        Status.WARNING,
        Status.WARNING,
    ]
    middle = hardware_checks(machine(cpu_count=16, memory_total_bytes=64 * GIB, places=(place("ssd", 500),)))
    assert all(check.status is Status.OK for check in middle)
    assert "enough for the basic workload" in named(middle, "CPU cores").finding
    large = hardware_checks(machine(gpus=(Gpu("H200", 139 * GIB),), places=(place("nvme", 2000),)))
    assert "enough for the full suite" in named(large, "CPU cores").finding
    assert "as recommended" in named(large, "GPU").finding


def test_sizes_have_one_unit_and_say_what_asks_for_them() -> None:
    checks = hardware_checks(machine(memory_total_bytes=24 * GIB, places=(place("virtual disk", 80),)))
    assert not [check for check in checks if " GB" in f"{check.finding}{check.remedy}"]
    space = named(checks, "free space")
    assert space.finding == "80 GiB; the basic workload asks for 238 GiB, the full suite for 931 GiB"
    assert space.remedy == "enough for few users; what does not fit in 64.00 GiB, 80% of it, is evicted"
    assert "(100.00 GiB)" in named(checks, "system memory").remedy


def test_the_free_space_of_a_directory_says_how_much_a_run_fills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_storage, "FULL_SHARE_MAX", 1.0)
    spacious = replace(place("nvme", 100), path=tmp_path)
    check = named(storage_checks(spacious, Tree(tmp_path / "kernel").kernel), "free space")
    assert check.finding == "100.00 GiB, of which a run fills at most 80.00 GiB"


@pytest.mark.parametrize(
    ("kind", "says"),
    [("virtual disk", "its host may limit its speed"), ("network", "its server may be shared")],
)
def test_a_device_that_others_may_share_says_what_that_does_and_how_to_see_how_much(
    tmp_path: Path, kind: str, says: str
) -> None:
    shared = replace(place(kind, 100), path=tmp_path)
    check = named(storage_checks(shared, Tree(tmp_path / "kernel").kernel), "device")
    assert check.status is Status.WARNING
    assert says in check.finding
    assert "--trials 5" in check.remedy


def test_a_machine_sold_with_32_gb_is_not_called_short() -> None:
    check = named(hardware_checks(machine(memory_total_bytes=int(31.1 * GIB))), "system memory")
    assert check.status is Status.OK
