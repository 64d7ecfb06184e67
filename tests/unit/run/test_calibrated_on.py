"""What a prediction calls extrapolation (P2)."""

import pytest

from kvspill.config import Config
from kvspill.plan.calibrate import SETTINGS
from kvspill.records import MIB
from kvspill.run.calibrated import extrapolations
from kvspill.storage.profiles import Calibrated

KIB = 1024


def calibrated(config: Config) -> Calibrated:
    settings = {name: getattr(config, name) for name in SETTINGS}
    return Calibrated("d", "today", 0.02, 0.03, settings, (256 * KIB, 32 * MIB), ())


def beyond(config: Config, **sizes: float) -> list[str]:
    return list(extrapolations(config, sizes, calibrated(Config())))


@pytest.mark.parametrize("size", [64 * KIB, MIB, 128 * MIB])
def test_entries_within_four_times_the_measured_ones_are_none(size: int) -> None:
    assert beyond(Config(), read=size) == []


@pytest.mark.parametrize(("size", "said"), [(64 * KIB - 1, "64 KiB"), (512 * MIB, "512 MiB")])
def test_entries_beyond_four_times_the_measured_ones_are_named(size: int, said: str) -> None:
    """P2: in either direction."""
    assert beyond(Config(), read=size) == [f"entries of {said} (calibrated with 256 KiB to 32 MiB)"]


def test_entries_of_several_sizes_are_one_remark() -> None:
    found = beyond(Config(), read=300 * MIB, middle=MIB, write=512 * MIB)
    assert found == ["entries of 300 MiB to 512 MiB (calibrated with 256 KiB to 32 MiB)"]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("io_size", 1 * MIB, "--io-size 1048576 (calibrated with 4194304)"),
        ("io_threads", 8, "--io-threads 8 (calibrated with 32)"),
        ("write_threads", 4, "--write-threads 4 (calibrated with 0)"),
        ("io_engine", "io_uring", "--io-engine io_uring (calibrated with threads)"),
        ("direct", "off", "--direct off (calibrated with auto)"),
        ("sync", "data", "--sync data (calibrated with none)"),
        ("verify", "full", "--verify full (calibrated with stamp)"),
        ("layout", "flat", "--layout flat (calibrated with files)"),
        ("preallocate", "off", "--preallocate off (calibrated with on)"),
        ("rename", "off", "--rename off (calibrated with on)"),
        ("page_cache", "keep", "--page-cache keep (calibrated with drop)"),
        ("dram_threads", 2, "--dram-threads 2 (calibrated with its default)"),
    ],
)
def test_every_setting_that_is_not_the_calibrations_is_named(name: str, value: object, said: str) -> None:
    """P2: where it extrapolates beyond what was measured it says so."""
    assert beyond(Config(**{name: value})) == [said]
