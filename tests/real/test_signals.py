"""However a run ends, nothing is left: Ctrl-C, SIGTERM, a closed terminal, twice in a row, an exception."""

import contextlib
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kvspill.errors import SIGNALS
from real.rig import left_over, run_dirs, start, wait_for_entries, wait_until

pytestmark = pytest.mark.real

LONG = ("--duration", "60", "--storage-capacity-gb", "0.06")


@pytest.mark.parametrize("number", SIGNALS, ids=lambda n: n.name)
def test_a_signal_ends_the_load_keeps_the_partial_result_and_leaves_nothing(
    tmp_path: Path, number: Any
) -> None:
    run = start(tmp_path, tmp_path, *LONG)
    wait_for_entries(tmp_path, 20)
    run.send(number)
    finished = run.finish()
    assert finished.code == 130
    assert finished.result["incomplete"] is True
    assert finished.result["interrupted"] == f"stopped by {number.name}"
    assert finished.result["requests_completed"] > 0
    assert left_over(tmp_path) == []
    assert "Traceback" not in finished.err


def limit_cpu_time() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (3, 60))


def test_a_run_beyond_its_cpu_time_ends_in_order_though_it_is_told_so_each_second(tmp_path: Path) -> None:
    run = start(tmp_path, tmp_path, *LONG, preexec=limit_cpu_time)
    finished = run.finish(60)
    assert finished.code == 130
    assert finished.result["interrupted"] == "stopped by SIGXCPU"
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGQUIT], ids=lambda n: n.name)
def test_a_signal_that_was_ignored_at_the_start_stays_ignored(tmp_path: Path, number: Any) -> None:
    """Whoever starts a run so may signal a whole group of processes and mean others."""
    short = ("--duration", "1.5", "--storage-capacity-gb", "0.06")
    run = start(tmp_path, tmp_path, *short, preexec=lambda: signal.signal(number, signal.SIG_IGN))
    wait_for_entries(tmp_path, 1)
    run.send(number)
    finished = run.finish()
    assert finished.code == 0
    assert finished.result["incomplete"] is False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1], ids=lambda n: n.name)
def test_a_signal_that_was_blocked_at_the_start_ends_the_run_in_order(tmp_path: Path, number: Any) -> None:
    """A service that takes its own signals by signalfd leaves them blocked in what it starts."""
    run = start(tmp_path, tmp_path, *LONG, preexec=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [number]))
    wait_for_entries(tmp_path, 20)
    run.send(number)
    finished = run.finish()
    assert finished.code == 130
    assert finished.result["interrupted"] == f"stopped by {number.name}"
    assert left_over(tmp_path) == []


def test_a_run_under_nohup_survives_the_closed_terminal(tmp_path: Path) -> None:
    run = start(tmp_path, tmp_path, "--duration", "1.5", "--storage-capacity-gb", "0.06", under=("nohup",))
    wait_for_entries(tmp_path, 1)
    run.send(signal.SIGHUP)
    finished = run.finish()
    assert finished.code == 0
    assert finished.result["incomplete"] is False


@pytest.mark.parametrize("delay_ms", [0, 5, 50])
def test_a_second_signal_ends_the_program_and_still_leaves_nothing(tmp_path: Path, delay_ms: int) -> None:
    run = start(tmp_path, tmp_path, *LONG)
    wait_for_entries(tmp_path, 5)
    run.send(signal.SIGINT)
    time.sleep(delay_ms / 1000)
    run.send(signal.SIGINT)
    finished = run.finish()
    assert finished.code == 130
    assert left_over(tmp_path) == []
    assert "Traceback" not in finished.err


@pytest.mark.parametrize("pause_ms", [0, 1, 10])
def test_many_quick_signals_leave_nothing(tmp_path: Path, pause_ms: int) -> None:
    run = start(tmp_path, tmp_path, *LONG)
    wait_for_entries(tmp_path, 20)
    for _ in range(30):
        with contextlib.suppress(ProcessLookupError):
            run.send(signal.SIGTERM)
        time.sleep(pause_ms / 1000)
    finished = run.finish()
    assert finished.code == 130
    assert left_over(tmp_path) == []
    assert "Traceback" not in finished.err


@pytest.mark.parametrize("after_ms", [0, 30])
def test_a_signal_while_the_run_is_being_prepared_leaves_nothing(tmp_path: Path, after_ms: int) -> None:
    """The arena takes a while to touch; the run directory may be in the making."""
    run = start(tmp_path, tmp_path, *LONG, "--cpu-mem-gb", "0.25")
    wait_until(lambda: run_dirs(tmp_path))
    time.sleep(after_ms / 1000)
    run.send(signal.SIGTERM)
    finished = run.finish()
    assert finished.code == 130
    assert left_over(tmp_path) == []
    assert "Traceback" not in finished.err


PROBED = """\
import os, signal, sys
import kvspill.cli.main as m
import kvspill.run.asking as asking
from kvspill.storage.files.backend import FilesBackend
when = sys.argv.pop()
where, name = (FilesBackend, "write") if when == "probe" else (asking, "measured_profile")
real = getattr(where, name)
def signalled(*args):
    os.kill(os.getpid(), signal.SIGTERM)
    return real(*args)
setattr(where, name, signalled)
sys.exit(m.main())
"""


@pytest.mark.parametrize("when", ["probe", "model"])
def test_a_signal_before_the_load_of_can_ends_it(tmp_path: Path, when: str) -> None:
    """It was noted and forgotten: the search went on for minutes."""
    asked = ("can", "--users", "10", "--cache-dir", ".", "--storage-capacity-gb", "1.2", when)
    finished = subprocess.run(
        [sys.executable, "-c", PROBED, *asked], capture_output=True, text=True, cwd=tmp_path, timeout=30
    )
    assert finished.returncode == 130
    assert finished.stderr.endswith("\nkvspill: error: interrupted\n")
    assert "holds at most" not in finished.stderr
    assert list(tmp_path.iterdir()) == []


FAILING = """\
import sys
from kvspill.serving.io_models.mlperf import MlperfModel
from kvspill.cli.main import main
serve, served = MlperfModel.serve, []
async def fail_later(self, service, cache):
    served.append(service)
    if len(served) > 30:
        raise ZeroDivisionError("a defect")
    await serve(self, service, cache)
MlperfModel.serve = fail_later
sys.exit(main(sys.argv[1:]))
"""


def test_an_exception_in_the_middle_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    run = start(tmp_path, tmp_path, *LONG, program=(sys.executable, "-c", FAILING))
    finished = run.finish()
    assert finished.code == 1
    assert finished.err.splitlines()[-1].startswith(
        "kvspill: error: internal error: ZeroDivisionError: a defect"
    )
    assert "Traceback" not in finished.err
    assert left_over(tmp_path) == []
