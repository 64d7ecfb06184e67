"""`kvspill calibrate` and what `simulate` says of a calibrated profile."""

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from kvspill.cli.calibrate import print_calibration
from kvspill.cli.main import COMMANDS, main
from kvspill.config import Config
from kvspill.plan.calibrate import Calibration, Row, misfits
from kvspill.plan.fit import Fit
from kvspill.plan.predict import lines
from kvspill.records import MIB, Tier, Verb
from kvspill.storage.profiles import DeviceModel
from unit.plan.made import calibrated

PROFILE = calibrated(
    "read_gib_per_sec: 0.4, write_gib_per_sec: 0.4, lanes: 32, read_duplex: 1, write_duplex: 1"
)
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


def test_a_predicted_value_is_the_middle_of_like_simulations(tmp_path: Path) -> None:
    """One simulation of a load whose users run into each other is one of many that could be."""
    result = simulated(tmp_path, PROFILE)
    plain = PROFILE.partition("calibration:")[0]
    alike = [
        simulated(tmp_path, plain.replace("0.4", f"{0.4 * (1 + 0.005 * share / 6):.12g}"))
        for share in (-5, -3, -1, 1, 3, 5)
    ]
    for name in ("requests_per_second", "avg_throughput_tokens_per_sec"):
        value = result["prediction"]["intervals"][name]["value"]
        assert value == pytest.approx(median(one["summary"][name] for one in (result, *alike)))


def test_settings_beyond_the_calibration_are_said_to_extrapolate(tmp_path: Path) -> None:
    result = simulated(tmp_path, PROFILE, "--io-threads 8")
    assert result["prediction"]["extrapolates"] == ["--io-threads 8 (calibrated with 32)"]
    assert "extrapolated" in {caution["code"] for caution in result["warnings"]}


def test_a_device_that_was_not_steady_at_all_still_has_an_interval(tmp_path: Path) -> None:
    """P2: a spread of all its speed leaves a slow device, not one without speed."""
    prediction = simulated(tmp_path, PROFILE.replace("read: 0.02", "read: 1.5"))["prediction"]
    bandwidth = prediction["intervals"]["tier_storage_read_bandwidth_gbps"]
    assert bandwidth["low"] < bandwidth["value"]


def test_what_the_calibration_doubted_stands_beside_the_prediction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    doubt = "measured once only: the spread is assumed to be 5 %"
    result = simulated(tmp_path, PROFILE + f"  warnings: ['{doubt}']\n")
    assert result["prediction"]["calibration_warnings"] == [doubt]
    assert [item["message"] for item in result["warnings"] if item["code"] == "calibration_doubted"] == [
        f"The calibration of its device profile had warnings: {doubt}."
    ]
    assert f"calibration: {doubt}" in capsys.readouterr().out


def test_a_value_that_is_an_end_of_its_interval_is_said_to_be_one() -> None:
    values = {"a": (2.0, 2.0, 3.0), "b": (2.0, 1.0, 2.0), "c": (2.0, 2.0, 2.0), "d": (2.0, 1.0, 3.0)}
    intervals = {
        name: {"value": value, "low": low, "high": high} for name, (value, low, high) in values.items()
    }
    known = {"device": "d", "calibrated": "today", "extrapolates": [], "calibration_warnings": []}
    _title, _device, *rows = lines({**known, "intervals": intervals})
    assert [row.partition(" to ")[2] for row in rows] == [
        "3, none was lower",
        "2, none was higher",
        "2, the same in all simulations",
        "3",
    ]


def test_cells_that_the_model_does_not_fit_are_named() -> None:
    rows = [
        Row(Tier.STORAGE, "saturated reads", Verb.READ, 32 * MIB, 100.0, 110.0, 1.0, 9.0),
        Row(Tier.STORAGE, "depth 4", Verb.READ, 4 * MIB, 100.0, 150.0, 1.0, 1.0),
        Row(Tier.STORAGE, "depth 4", Verb.READ, 4 * MIB, 100.0, 187.0, 1.0, 1.0),
        Row(Tier.CPU, "paced writes", Verb.WRITE, MIB, 100.0, 100.0, 2.0, 1.0),
    ]
    assert misfits(rows) == [
        "the model does not fit: storage reads of 4 MiB, depth 4, are off by +87% (speed)",
        "the model does not fit: cpu writes of 1 MiB, paced writes, are off by -50% (p50)",
    ]


def test_the_summary_says_what_was_assumed_and_which_figure_is_off(
    capsys: pytest.CaptureFixture[str],
) -> None:
    drive = DeviceModel(2.5, 2.5, 0.0, 20.0, lanes=32, read_duplex=-0.04, write_duplex=-0.04)
    rows = [
        Row(Tier.STORAGE, "saturated reads", Verb.READ, 32 * MIB, 100.0 * MIB, 110.0 * MIB, 1.0, 9.0),
        Row(Tier.STORAGE, "paced reads", Verb.READ, 32 * MIB, 100.0 * MIB, 100.0 * MIB, 2.0, 1.0),
    ]
    fits = {Tier.STORAGE: Fit(drive, 0.05, 0.05), Tier.CPU: Fit(DeviceModel(9, 9), 0.0, 0.0)}
    found = Calibration(fits, rows, [], "sda", 20.0, 1, Config(), rounds=1)
    print_calibration(found, None)
    text = " ".join(capsys.readouterr().out.split())
    assert "assumed 5.0%: measured once" in text
    assert "below 0: they disturb each other" in text
    assert "read 2.5 GiB/s, write 2.5 GiB/s + 20 us" in text
    assert "+10.0%" in text
    assert "(p50)" in text


@pytest.mark.parametrize("command", ["calibrate", "plan"])
def test_the_help_shows_no_options_of_plug_ins_that_cannot_be_chosen(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help-all"]) == 0
    text = capsys.readouterr().out
    assert not re.findall(r"--(?:nixl|redis|s3)-\S+", text)


def test_the_help_names_only_commands_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    named = set(re.findall(r"kvspill ([a-z]+)", text)) - {"--help"}
    assert named <= set(COMMANDS)


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
            PROFILE.replace("read: 0.02", "read: .nan"),
            "drive.yaml: its calibration block is damaged (spread.read",
        ),
        (
            PROFILE.replace("write: 0.03", "write: -2"),
            "drive.yaml: its calibration block is damaged (spread.write",
        ),
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
