"""Removes a run's files once its process has ended, in a process of its own that needs only Python.

It runs in isolated mode (-I -S): neither the current directory nor the environment can give it a module.
"""

import os
import select
import subprocess
import sys
import time
from pathlib import Path

_PACKAGES = str(Path(__file__).resolve().parents[2])
_CODE = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from kvspill.run.cleaner import main; sys.exit(main(int(sys.argv[2]), sys.argv[3]))"
)
_READY = b"ready\n"
_READY_SECONDS_MAX = 3.0
_LOOK_SECONDS = 0.05


def start_cleaner(directory: Path) -> str | None:
    """Have the runs that this process leaves in a directory removed after its end; returns why not."""
    words = [sys.executable, "-I", "-S", "-c", _CODE, _PACKAGES, str(os.getpid()), os.path.abspath(directory)]
    try:
        child = subprocess.Popen(
            words,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return f"{sys.executable or 'the interpreter'}: {error.strerror or error}"
    assert child.stdout is not None
    with child.stdout as said:
        if not select.select([said], [], [], _READY_SECONDS_MAX)[0]:
            child.kill()
            return f"it said nothing for {_READY_SECONDS_MAX:g} s"
        first = said.readline()
        if first == _READY:
            return None
        # It ends with an error, the last line of which says most.
        last = [first, *said.read().splitlines()][-1].decode(errors="replace").strip()
        return last or "it ended at once"


def main(pid: int, directory: str) -> int:
    """Wait for the end of the process and remove what it left."""
    from kvspill.storage.rundir import clean

    os.write(1, _READY)
    # A reader of our output must not wait for the end of the removal.
    silent = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(silent, number)
    wait_for_end(pid)
    kept: list[str] = []
    clean(Path(directory), kept)
    return 1 if kept else 0


def wait_for_end(pid: int) -> None:
    """A process that is no child of ours can only be looked at."""
    from kvspill.machine.kernel import process_exists

    while process_exists(pid):
        time.sleep(_LOOK_SECONDS)
