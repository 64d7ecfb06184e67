"""The validation command of the specification on our sample equals a short independent count, exactly."""

import sys
from pathlib import Path

import pytest

from kvspill.cli.main import main

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import sharegpt_ratio
from sharegpt_ratio import COMMAND, counted, first_requests, independent_count


def test_the_validation_command_moves_what_an_independent_count_of_the_sample_gives(
    tmp_path: Path,
) -> None:
    output = tmp_path / "result.json"
    assert main(["simulate", *COMMAND.split(), "--quiet", "--output", str(output)]) == 0
    assert counted(output) == independent_count(first_requests(users=50, requests=500, seed=42))


def test_the_ratio_is_printed_beside_the_published_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert sharegpt_ratio.main() == 0
    printed = capsys.readouterr()
    assert "; published for this command: 12.4, because" in printed.out + printed.err


@pytest.mark.real
def test_a_real_run_moves_the_same_bytes(tmp_path: Path) -> None:
    # The smallest model keeps this within seconds on any disk.
    output = tmp_path / "result.json"
    small = f"--model tiny-1b --max-requests 100 --storage-capacity-gb 2 --cache-dir {tmp_path}"
    assert main(["run", *COMMAND.split(), *small.split(), "--quiet", "--output", str(output)]) == 0
    assert counted(output) == independent_count(first_requests(50, 100, 42), bytes_per_token=24_576)
