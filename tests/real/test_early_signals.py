"""A signal in the first moments, amid the imports, ends in one line and 130, as it does later."""

import shutil
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from real.rig import left_over

pytestmark = pytest.mark.real

HEEDED = """\
import runpy, signal, sys
real = signal.signal
def told(number, handler):
    before = real(number, handler)
    if number == signal.SIGHUP:
        print("heeded", flush=True)
    return before
signal.signal = told
"""
"""Says when signals are heeded: on a busy machine that may take a while."""
KVSPILL = f"{HEEDED}import kvspill.cli.main as m; sys.argv[1:1] = ['simulate']; sys.exit(m.main())"
DROP_IN = HEEDED + "sys.argv[0] = {path!r}; runpy.run_path({path!r}, run_name='__main__')"
LONG = ("--duration", "600", "--num-users", "150", "--output", "/dev/null", "--quiet")


NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EARLY = [
    pytest.param(
        *(command, delay_ms, number),
        id=f"{command}-{delay_ms}-{number.name}",
        # All have one handler: each moment is tried with one of them, and all of them in turn.
        marks=() if number is NUMBERS[place % 3] else pytest.mark.slow,
    )
    for place, (command, delay_ms) in enumerate(product(("kvspill", "kv-cache.py"), (80, 150, 250, 400)))
    for number in NUMBERS
]


@pytest.mark.parametrize(("command", "delay_ms", "number"), EARLY)
def test_a_signal_amid_the_imports_is_one_line_and_130(
    tmp_path: Path, number: Any, delay_ms: int, command: str
) -> None:
    path = str(Path(__file__).parents[2] / "kv-cache.py")
    script = KVSPILL if command == "kvspill" else DROP_IN.format(path=path)
    process = subprocess.Popen(
        [sys.executable, "-c", script, *LONG, *(("--cache-dir", ".") if command != "kvspill" else ())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        # A child of nohup or of a shell's background ignores a signal, as it should.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "heeded\n"
        time.sleep(delay_ms / 1000)
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert len(said.splitlines()) <= 1
    # On a busy machine another process removes what was made by then.
    assert left_over(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


AMID_AN_IMPORT = """\
import os, signal, sys
import kvspill.cli.main as m
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGTERM)
module = sys.argv.pop()
sys.meta_path.insert(0, Finder())
sys.exit(m.main())
"""


@pytest.mark.parametrize("module", ["datetime", "pydantic_core", "numpy", "asyncio", "kvspill.run.trial"])
def test_a_signal_is_not_raised_into_an_import(tmp_path: Path, module: str) -> None:
    """An extension module that imports another one made a panic and a traceback of the exception."""
    finished = subprocess.run(
        [sys.executable, "-c", AMID_AN_IMPORT, "simulate", *LONG, module],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert (finished.returncode, finished.stderr) == (130, "kvspill: error: interrupted\n")


AMID_THE_FIRST_IMPORTS = """\
import os, runpy, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
program, module = sys.argv.pop(), sys.argv.pop()
sys.meta_path.insert(0, Finder())
if program == "kvspill":
    runpy.run_module("kvspill", run_name="__main__", alter_sys=True)
else:
    runpy.run_path(program, run_name="__main__")
"""


@pytest.mark.parametrize("module", ["kvspill.cli.main", "kvspill.texts", "kvspill.machine.hung_main"])
@pytest.mark.parametrize("program", ["kvspill", str(Path(__file__).parents[2] / "kv-cache.py")])
def test_the_first_import_of_all_is_that_of_the_signals(tmp_path: Path, module: str, program: str) -> None:
    """Ctrl-C before the command's own modules were there ended in a traceback."""
    finished = subprocess.run(
        [sys.executable, "-c", AMID_THE_FIRST_IMPORTS, "--help", module, program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert (finished.returncode, finished.stderr) == (130, "kvspill: error: interrupted\n")


SERIALIZED = """\
import os, signal, sys
from pydantic import BaseModel, field_serializer
import kvspill.cli.main as m
class One(BaseModel):
    values: list[int] = [1]
    @field_serializer("values")
    def written(self, values):
        os.kill(os.getpid(), signal.SIGTERM)
        return sorted(values)
def dispatch(argv):
    return len(One().model_dump_json())
m.dispatch = dispatch
sys.exit(m.main())
"""


def test_an_interrupt_that_a_library_makes_another_error_of_is_one_line_and_130(tmp_path: Path) -> None:
    """While a result was written out, Ctrl-C ended in an internal error."""
    finished = subprocess.run(
        [sys.executable, "-c", SERIALIZED, "models"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert (finished.returncode, finished.stderr) == (130, "kvspill: error: interrupted\n")


PLAN = ["plan", "--model", "tiny-1b", "--num-users", "8", "--option", "nvme-gen5", "--workers", "1"]
REPORT = ["report", "one.json", "--output", "page.html"]
FAST = f"{HEEDED}import kvspill.cli.main as m; sys.exit(m.main())"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("result") / "one.json"
    small = ("--model", "tiny-1b", "--num-users", "2", "--max-requests", "40", "--cpu-mem-gb", "0.25")
    subprocess.run(
        [sys.executable, "-m", "kvspill", "simulate", *small, "--output", str(path)],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return path


QUICK = ((PLAN, 0.3), (REPORT, 2), (PLAN, 10))
BURSTS = [
    pytest.param(
        command,
        pause_ms,
        id=f"{command[0]}-{pause_ms}",
        marks=() if (command, pause_ms) in QUICK else pytest.mark.slow,
    )
    for command in (PLAN, REPORT)
    for pause_ms in (0.3, 2, 10)
]


@pytest.mark.parametrize(("command", "pause_ms"), BURSTS)
def test_a_burst_of_signals_is_one_line_and_130(
    tmp_path: Path, result: Path, command: list[str], pause_ms: float
) -> None:
    """The second was raised into what the first had begun, and one at the very end killed the process."""
    shutil.copy(result, tmp_path / "one.json")
    for delay_ms in (30, 200, 400, 700):
        process = subprocess.Popen(
            [sys.executable, "-c", FAST, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "heeded\n"
            time.sleep(delay_ms / 1000)
            while process.poll() is None:
                process.send_signal(signal.SIGTERM)
                time.sleep(pause_ms / 1000)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
        assert process.returncode == 130, (delay_ms, said)
        assert "Traceback" not in said
        assert said.count("kvspill: error:") == 1


IN_A_CALLBACK = """\
import os, signal, sys, weakref
from kvspill.cli.main import as_program
from kvspill.run.signals import Interrupts
class Thing:
    pass
def two_signals(_):
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
def command(_argv):
    with Interrupts().handled():
        thing = Thing()
        reference = weakref.ref(thing, two_signals)
        del thing
    return 0
sys.exit(as_program(command))
"""


def test_an_interrupt_in_a_callback_of_the_interpreter_prints_no_traceback() -> None:
    """A storm of signals met one of a weak reference now and then: "Exception ignored in", and no end."""
    finished = subprocess.run(
        [sys.executable, "-c", IN_A_CALLBACK], capture_output=True, text=True, timeout=60
    )
    assert (finished.returncode, finished.stderr) == (130, "kvspill: error: interrupted\n")
