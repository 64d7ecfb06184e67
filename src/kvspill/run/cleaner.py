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
_READY = b"ready"
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
    with child.stdout as pipe:
        said, end_seconds = b"", time.monotonic() + _READY_SECONDS_MAX
        # Complaints of the dynamic linker can come before the word.
        while _READY not in said.splitlines():
            if not select.select([pipe], [], [], max(0.0, end_seconds - time.monotonic()))[0]:
                child.kill()
                return f"it was not ready after {_READY_SECONDS_MAX:g} s"
            more = os.read(pipe.fileno(), 1 << 16)
            if not more:
                # It ended with an error, the last line of which says most.
                last = said.strip().splitlines()[-1:]
                return last[0].decode(errors="replace").strip() if last else "it ended at once"
            said += more
    return None


def main(pid: int, directory: str) -> int:
    """Wait for the end of the process and remove what it left."""
    from kvspill.storage.rundir import clean

    os.write(1, _READY + b"\n")
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
