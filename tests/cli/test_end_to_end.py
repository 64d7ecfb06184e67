"""A command line from the shell to the result file, in virtual time."""

import json
from pathlib import Path

import pytest

from kvspill.cli.main import main


def simulate(tmp_path: Path, *argv: str) -> dict[str, object]:
    output = tmp_path / "out" / "result.json"
    given = ["--max-requests", "20", "--num-users", "4", "--generation-mode", "none"]
    assert main(["simulate", *given, *argv, "--quiet", "--output", str(output)]) == 0
    result: dict[str, object] = json.loads(output.read_text())
    return result


def test_simulate_writes_a_result_that_echoes_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVSPILL_SEED", "7")
    (tmp_path / "c.yaml").write_text("decode: {batch_size: 16}\ngpu_backend: {memory_fraction: 0.9}\n")
    result = simulate(tmp_path, "--config", str(tmp_path / "c.yaml"))
    echoed = result["config"]
    assert isinstance(echoed, dict)
    assert (echoed["num_users"], echoed["seed"], echoed["decode_batch_size"]) == (4, 7, 16)
    assert echoed["sources"]["seed"] == "KVSPILL_SEED"
    assert echoed["ignored_keys"] == ["gpu_backend.memory_fraction"]
    assert result["simulated"] is True


def test_simulate_needs_neither_directory_nor_memory(tmp_path: Path) -> None:
    simulate(tmp_path, "--cache-dir", "/nope", "--cpu-mem-gb", "100000")


def test_an_unknown_device_profile_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--device-profile", "floppy", "--max-requests", "1"]) == 2
    assert capsys.readouterr().err.startswith("kvspill: error: --device-profile floppy: neither a preset nor")
