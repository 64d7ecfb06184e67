"""Calibrating this machine's disk: a profile that simulate reads, and nothing left behind."""

import io
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from kvspill.cli.main import main
from kvspill.config import Config
from kvspill.plan import schedule
from kvspill.plan.calibrate import calibrate, document
from kvspill.plan.schedule import Length, Schedule
from kvspill.records import GIB, MIB, Tier
from kvspill.run.progress import Progress
from kvspill.storage.jobs import LANES_PER_ENTRY
from kvspill.storage.profiles import load_calibration, load_profile

pytestmark = pytest.mark.real
SHORT = Length(5, 0.4, 0.4, 0.2, 1, 2, (1, 4), GIB, 4, 8, (("1:1", 0.5),))


def test_a_calibration_writes_a_profile_and_leaves_nothing_behind(tmp_path: Path) -> None:
    drive = tmp_path / "drive"
    drive.mkdir()
    said = io.StringIO()
    config = Config(io_threads=8, io_size=MIB, cache_dir=(str(drive),))
    found = calibrate(config, (drive,), SHORT, Progress(quiet=False, stream=said))
    assert list(drive.iterdir()) == []
    assert found.written_bytes <= Schedule(8, 0, MIB, LANES_PER_ENTRY, SHORT).written_at_most_bytes()
    assert "writing the entries to be read" in said.getvalue()
    assert found.left == []
    path = tmp_path / "drive.yaml"
    path.write_text(yaml.safe_dump(document(found)))
    profile, known = load_profile(str(path)), load_calibration(str(path))
    assert known is not None
    assert profile[Tier.STORAGE].lanes == 8
    assert known.settings["io_size"] == MIB
    assert profile[Tier.STORAGE].read_gib_per_sec > 0
    assert profile[Tier.CPU].read_gib_per_sec > profile[Tier.STORAGE].read_gib_per_sec / 100
    assert {row.tier for row in found.rows} == {Tier.STORAGE, Tier.CPU}


def test_a_profile_that_its_place_does_not_take_is_kept_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(schedule, "QUICK", replace(SHORT, total_seconds=4))
    (tmp_path / "drive.yaml").symlink_to("/dev/full")
    (tmp_path / "drive").mkdir()
    words = ["calibrate", "--quick", "--cache-dir", str(tmp_path / "drive"), "--io-threads", "8"]
    assert main([*words, "--output", str(tmp_path / "drive.yaml")]) == 1
    captured = capsys.readouterr()
    (kept,) = tmp_path.glob("kvspill-*/drive.yaml")
    lost = "cannot be written (No space left on device); name another file; the profile is in"
    assert f"{lost} {kept}" in captured.err
    assert f"Files written:\n  {kept}\n" in captured.out
    assert "predicted from 64 KiB to 64 MiB; others are extrapolated" in captured.out
    assert load_calibration(str(kept)) is not None
