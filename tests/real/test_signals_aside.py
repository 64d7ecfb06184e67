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


@pytest.mark.parametrize("burst", [False, True], ids=["one", "many"])
@pytest.mark.parametrize("delay_ms", [0, 100, 700])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", COMMANDS)
def test_signals_end_a_measurement_beside_a_run_and_leave_nothing(
    tmp_path: Path, command: str, number: signal.Signals, delay_ms: int, burst: bool
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
        while burst and process.poll() is None:
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
