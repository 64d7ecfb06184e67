"""Signals, one or many, end what measures beside runs in one line, within 3 s, and nothing is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from real.rig import left_over, run_dirs, wait_until

pytestmark = pytest.mark.real
SMALL = ("--model", "tiny-1b", "--cpu-mem-gb", "0", "--quiet")
COMMANDS = {
    "calibrate": ("calibrate", "--quick", "--quiet", "--output", "profile.yaml", "--cache-dir", "o"),
    "can": ("can", *SMALL, "--users", "1", "--output", "can.json", "--cache-dir", "o"),
}


USUAL = {(signal.SIGINT, False), (signal.SIGTERM, True)}
"""Both signals have one handler: the quick tests send one once and the other many times."""
CASES = [
    pytest.param(
        *(command, number, delay_ms, many),
        id=f"{command}-{number.name}-{delay_ms}-{'many' if many else 'one'}",
        marks=() if (number, many) in USUAL else pytest.mark.slow,
    )
    for command in COMMANDS
    for number in (signal.SIGINT, signal.SIGTERM)
    for delay_ms in (0, 100, 700)
    for many in (False, True)
]


@pytest.mark.parametrize(("command", "number", "delay_ms", "many"), CASES)
def test_signals_end_a_measurement_beside_a_run_and_leave_nothing(
    tmp_path: Path, command: str, number: signal.Signals, delay_ms: int, many: bool
) -> None:
    """The second one cut off the removal of what the first had ended."""
    for name in ("o", "tmp"):
        (tmp_path / name).mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "kvspill", *COMMANDS[command]],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    try:
        wait_until(lambda: run_dirs(tmp_path / "o"))
        time.sleep(delay_ms / 1000)
        began = time.monotonic()
        process.send_signal(number)
        while many and process.poll() is None:
            time.sleep(0.002)
            process.send_signal(number)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert time.monotonic() - began < 3
    assert process.returncode == 130, said
    assert said.count("kvspill: error: ") == 1
    assert "Traceback" not in said
    assert left_over(tmp_path / "o") == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o", "tmp"]
    assert list((tmp_path / "tmp").iterdir()) == []
