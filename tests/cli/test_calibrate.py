"""`kvspill calibrate` and what `simulate` says of a calibrated profile."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main

PROFILE = """\
storage: {read_gib_per_sec: 0.4, write_gib_per_sec: 0.4, lanes: 32, read_duplex: 1, write_duplex: 1}
calibration:
  device: ext4 on sda (ssd)
  date: '2026-01-01T00:00:00+00:00'
  spread: {read: 0.02, write: 0.03}
  settings: {io_size: 4194304, io_threads: 32, write_threads: 0}
  entry_bytes: [262144, 33554432]
"""
LOAD = "--model tiny-1b --num-users 5 --duration 30 --cpu-mem-gb 0 --arrival closed --generation-mode none"


def line(capsys: pytest.CaptureFixture[str]) -> str:
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    return text


def test_a_directory_in_memory_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--cache-dir", "/dev/shm", "--output", "drive.yaml"]) == 2
    assert "--cache-dir /dev/shm: lies in memory" in line(capsys)


def test_the_page_cache_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--cache-dir", str(tmp_path), "--direct", "off", "--quiet", "--output", str(tmp_path / "d.yaml")]
    assert main(["calibrate", *words]) == 2
    assert "no direct I/O" in line(capsys)
    assert list(tmp_path.iterdir()) == []


def test_without_a_file_to_write_nothing_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--cache-dir", "."]) == 2
    assert "--output: a calibration writes a profile; name it" in line(capsys)


def simulated(tmp_path: Path, profile: str, more: str = "") -> dict[str, Any]:
    path, output = tmp_path / "drive.yaml", tmp_path / "result.json"
    path.write_text(profile)
    words = [*f"{LOAD} {more}".split(), "--device-profile", str(path), "--output", str(output)]
    assert main(["simulate", *words]) == 0
    result: dict[str, Any] = json.loads(output.read_text())
    return result


def test_a_prediction_says_between_what_it_lies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """P2: from the calibration's spread and from seeds."""
    prediction = simulated(tmp_path, PROFILE)["prediction"]
    for one in prediction["intervals"].values():
        assert one["low"] <= one["value"] <= one["high"]
    bandwidth = prediction["intervals"]["tier_storage_read_bandwidth_gbps"]
    assert bandwidth["low"] < bandwidth["value"] < bandwidth["high"]
    assert prediction["extrapolates"] == []
    assert "### PREDICTION ###" in capsys.readouterr().out


def test_settings_beyond_the_calibration_are_said_to_extrapolate(tmp_path: Path) -> None:
    result = simulated(tmp_path, PROFILE, "--io-threads 8")
    assert result["prediction"]["extrapolates"] == ["--io-threads 8 (calibrated with 32)"]
    assert "extrapolated" in {caution["code"] for caution in result["warnings"]}


def test_figures_that_somebody_wrote_have_no_interval(tmp_path: Path) -> None:
    assert simulated(tmp_path, PROFILE.split("calibration:")[0])["prediction"] is None


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        (
            "storage: {read_gib_per_sec: 1, write_gib_per_sec: 1, read_duplex: 1}",
            "counts only for a device",
        ),
        ("storage: {read_gib_per_sec: 1, write_gib_per_sec: 1, lanes: 8, read_duplex: 2}", "from -20 to 1"),
        ("storage: {read_gib_per_sec: 1, write_gib_per_sec: 1, lanes: 8, piece_mib: 0}", "piece_mib is 0"),
        (PROFILE.replace("spread", "spred"), "its calibration block is damaged"),
        (
            PROFILE.replace("entry_bytes: [262144, 33554432]", "entry_bytes: 3"),
            "block is damaged",
        ),
    ],
)
def test_a_wrong_profile_is_refused_in_one_line(
    tmp_path: Path, profile: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "drive.yaml"
    path.write_text(profile)
    words = ["--device-profile", str(path), "--output", str(tmp_path / "o.json"), "--quiet"]
    assert main(["simulate", *LOAD.split(), *words]) == 2
    assert message in line(capsys)


@pytest.mark.parametrize(
    ("flags", "profile", "said"),
    [
        ("--io-engine io_uring", "nvme-gen4", "--io-engine io_uring has no effect"),
        ("--sync data", "nvme-gen4", "--sync data has no effect"),
        ("--layout tree", "nvme-gen4", "--layout tree has no effect"),
        ("--io-threads 8", "nvme-gen4", "--io-threads 8 has no effect"),
        ("--io-threads 8", "", None),
        ("--sync none", "", None),
    ],
)
def test_flags_that_the_device_profile_does_not_know_say_so(
    tmp_path: Path, flags: str, profile: str, said: str | None
) -> None:
    path, output = tmp_path / "drive.yaml", tmp_path / "result.json"
    path.write_text(PROFILE.replace("write_threads: 0", "write_threads: 0, sync: none"))
    words = f"{LOAD} {flags} --quiet --device-profile".split()
    assert main(["simulate", *words, profile or str(path), "--output", str(output)]) == 0
    messages = [caution["message"] for caution in json.loads(output.read_text())["warnings"]]
    unused = [text for text in messages if "the device profile does not know it" in text]
    assert [text.split(":")[0] for text in unused] == ([] if said is None else [said])
