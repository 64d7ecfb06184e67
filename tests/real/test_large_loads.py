"""A load beyond the machine is refused or ends at the first signal, at whatever stage it is."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

ENDS_WITHIN_SECONDS = 3.0
MANY = ["--num-users", "150000", "--cpu-mem-gb", "0.1", "--model", "tiny-1b", "--max-queue", "300000"]


def cpu_seconds(pid: int) -> float:
    """What a process has used so far: on a busy machine the wall clock would count others, too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def end(command: list[str], after_cpu_seconds: float, folder: Path) -> tuple[int, float]:
    """Send SIGTERM once a command has computed for so long; its exit code, and what it used afterwards."""
    words = [sys.executable, "-m", "kvspill", *command, "--output", str(folder / "r.json"), "--quiet"]
    process = subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 300
    while cpu_seconds(process.pid) < after_cpu_seconds and time.monotonic() < deadline:
        time.sleep(0.02)
        assert process.poll() is None, process.communicate()
    before = cpu_seconds(process.pid)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    text = process.stderr.read().decode()
    process.stderr.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert "Traceback" not in text
    return process.returncode, usage.ru_utime + usage.ru_stime - before


@pytest.mark.parametrize(
    ("after_cpu_seconds", "arrival"),
    [
        pytest.param(2.5, "open", id="joining-open", marks=pytest.mark.slow),
        pytest.param(2.5, "closed", id="joining-closed"),
        pytest.param(5.0, "open", id="loaded-open"),
        pytest.param(5.0, "closed", id="loaded-closed", marks=pytest.mark.slow),
    ],
)
def test_many_simulated_users_end_at_the_first_signal(
    tmp_path: Path, arrival: str, after_cpu_seconds: float
) -> None:
    command = ["simulate", *MANY, "--duration", "600", "--arrival", arrival]
    code, seconds = end(command, after_cpu_seconds, tmp_path)
    assert code == 130
    assert seconds < ENDS_WITHIN_SECONDS


def test_a_high_rate_ends_at_the_first_signal(tmp_path: Path) -> None:
    rate = ["--request-rate", "1e6", "--max-queue", "100000"]
    code, seconds = end(["simulate", *rate, "--duration", "600"], 4.0, tmp_path)
    assert code == 130
    assert seconds < ENDS_WITHIN_SECONDS
    assert json.loads((tmp_path / "r.json").read_text())["honesty"]["requests"]["shed"] > 0


def test_many_users_join_before_the_load_of_a_run_and_it_ends_on_time(tmp_path: Path) -> None:
    """Their start took a part of the measured time, and that of the software ceiling all of them again."""
    words = ["run", *MANY, "--duration", "2", "--storage-capacity-gb", "0.5", "--storage-backend", "null"]
    command = [sys.executable, "-m", "kvspill", *words, "--output", "r.json", "--quiet"]
    process = subprocess.Popen(command, cwd=tmp_path)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["honesty"]["requests"]["arrived"] > 1000
    assert usage.ru_utime + usage.ru_stime < 20


def test_users_and_waiting_requests_take_no_more_memory_than_the_preflight_counts(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "load_memory.py"
    measured = subprocess.run(
        [sys.executable, str(script), "10000"], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert measured.returncode == 0, measured.stdout + measured.stderr
