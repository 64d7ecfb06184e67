"""A path that hangs before the load holds up no end: the first signal ends every command within 3 s."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvspill.storage.rundir import MARKER, MARKER_TEXT
from real.faulting import compiler, shim
from real.rig import wait_until

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(compiler() is None, reason="no C compiler to build the library that makes the faults"),
]
END_SECONDS_MAX = 3.0
DEAD = (1 << 22) + 1
"""The number of no process."""
SMALL = ("--num-users", "1", "--max-requests", "3")
COMMANDS = {
    "run": ("run", *SMALL, "--cache-dir", "{hung}"),
    "run-output": ("run", *SMALL, "--cache-dir", ".", "--output", "{hung}/r.json"),
    "simulate": ("simulate", *SMALL, "--output", "{hung}/r.json"),
    "config": ("simulate", "--config", "{hung}/c.yaml"),
    "report": ("report", "{hung}/r.json"),
    "doctor": ("doctor", "--cache-dir", "{hung}"),
    "clean": ("clean", "{hung}"),
    "suite": ("suite", "--output-dir", "{hung}/s", "--cache-dir", "."),
}


@pytest.mark.parametrize(
    "name",
    [name if name in ("run", "clean") else pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS],
)
def test_a_signal_ends_a_command_that_hangs_in_a_system_call(tmp_path: Path, name: str) -> None:
    hung, count = tmp_path / "hung", tmp_path / "count"
    hung.mkdir()
    environ = {
        **os.environ,
        "LD_PRELOAD": str(shim()),
        "KVSPILL_SHIM": "path:hang:1",
        "KVSPILL_SHIM_UNDER": str(hung),
        "KVSPILL_SHIM_COUNT": str(count),
    }
    words = [sys.executable, "-m", "kvspill.cli.main", *(word.format(hung=hung) for word in COMMANDS[name])]
    process = subprocess.Popen(words, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: count.exists() and count.stat().st_size)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
        took = time.monotonic() - began
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert took < END_SECONDS_MAX
    assert said.splitlines()[-1].startswith("kvspill: error: ")


def test_what_a_killed_run_left_on_a_device_that_hangs_holds_up_no_start(tmp_path: Path) -> None:
    left = tmp_path / "o" / f"kvspill-{DEAD}-00000000"
    left.mkdir(parents=True)
    (left / MARKER).write_bytes(MARKER_TEXT)
    environ = {
        **os.environ,
        "LD_PRELOAD": str(shim()),
        "KVSPILL_SHIM": "path:hang:1",
        "KVSPILL_SHIM_UNDER": str(left),
    }
    command = ["run", *SMALL, "--cache-dir", "o", "--max-stall", "0.5"]
    words = [sys.executable, "-m", "kvspill.cli.main", *command]
    ended = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1, ended.stderr
    where = f"cache directory {left.parent}: "
    assert f"{where}what killed runs left there was not removed within 0.5 s" in ended.stderr.splitlines()[-1]


IN_ORDER = """\
import os, signal, sys, time
from kvspill.machine.hung_main import end_unheard, heard
signal.signal(signal.SIGTERM, lambda _number, _frame: heard())
end_unheard()
for _ in range(20):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.001)
if os.fork() == 0:
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    os.kill(os.getpid(), signal.SIGTERM)
os.wait()
time.sleep(3)
"""


def test_what_ends_in_order_is_not_cut_off() -> None:
    """A handler has seen the signals, also where several came at once, and a child's are its own."""
    finished = subprocess.run([sys.executable, "-c", IN_ORDER], capture_output=True, text=True, timeout=30)
    assert (finished.returncode, finished.stderr) == (0, "")
