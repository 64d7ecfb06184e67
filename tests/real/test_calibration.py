"""Calibrating this machine's disk: a profile that simulate reads, and nothing left behind."""

from pathlib import Path

import pytest
import yaml

from kvspill.config import Config
from kvspill.plan.calibrate import calibrate, document
from kvspill.plan.schedule import Length
from kvspill.records import GIB, MIB, Tier
from kvspill.storage.profiles import load_calibration, load_profile

pytestmark = pytest.mark.real
SHORT = Length(5, 0.4, 0.4, 0.2, 1, 2, (1, 4), 4 * GIB, 4, (("1:1", 0.5),))


def test_a_calibration_writes_a_profile_and_leaves_nothing_behind(tmp_path: Path) -> None:
    drive = tmp_path / "drive"
    drive.mkdir()
    said: list[str] = []
    found = calibrate(
        Config(io_threads=8, io_size=MIB, cache_dir=(str(drive),)), (drive,), SHORT, said.append
    )
    assert list(drive.iterdir()) == []
    assert found.written_bytes <= SHORT.write_bytes_max
    assert any("saturated" in text for text in said)
    path = tmp_path / "drive.yaml"
    path.write_text(yaml.safe_dump(document(found)))
    profile, known = load_profile(str(path)), load_calibration(str(path))
    assert known is not None
    assert profile[Tier.STORAGE].lanes == 8
    assert known.settings["io_size"] == MIB
    assert profile[Tier.STORAGE].read_gib_per_sec > 0
    assert profile[Tier.CPU].read_gib_per_sec > profile[Tier.STORAGE].read_gib_per_sec / 100
    assert {row.tier for row in found.rows} == {Tier.STORAGE, Tier.CPU}
