"""Kills runs with SIGKILL at random moments and looks at what the next start leaves of them.

`python tests/real/killing.py 100` kills a hundred; `--seed N` chooses other moments.
"""

import argparse
import asyncio
import hashlib
import io
import random
import signal
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kvspill.cli.main import main as main_command
from kvspill.storage.files.backend import FilesBackend, FilesOptions
from kvspill.storage.rundir import MARKER
from real.rig import entries, run_dirs, start, wait_until

RUN_SECONDS = 1.6
"""Longer than the load lasts: any moment from the first import to the last unlink may be hit."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What many kills came to."""

    kills: int
    killed_alive: int
    """Those that met a running process; the others came after its end."""
    left_by_the_kill: int
    entries_left_by_the_kill: int
    left_after_the_next_start: int
    foreign_touched: int


def plant_foreign(root: Path) -> dict[Path, str]:
    """Files of somebody else, some of which look much like a run's."""
    others = root / "kvspill-results"
    for folder in (root / "ab", root / "kvspill-1-0123abcd" / "ab", others):
        folder.mkdir(parents=True)
    names = (
        "data.npy",
        f"ab/{'ab' * 16}-1",
        "kvspill-notes.txt",
        f"kvspill-1-0123abcd/ab/{'ab' * 16}-1",
        "kvspill-results/result.json",
        ".kvspill-run",
    )
    for name in names:
        (root / name).write_text(f"foreign {name}")
    (root / "kvspill-2-0123abcd").symlink_to(others)
    return fingerprint(root)


def fingerprint(root: Path) -> dict[Path, str]:
    """Every foreign file and what is in it."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            found[path] = f"-> {path.readlink()}"
        elif path.is_file():
            found[path] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def alone_without_marker(path: Path) -> bool:
    """Of a run that was killed while its marker was synced: nothing is removed unasked without one."""
    return path.name == f"{MARKER}.new" and list(path.parent.iterdir()) == [path]


def kill_runs(count: int, seed: int, where: Path) -> Tally:
    """Start and kill so many runs in one directory; after each comes a next start, or `kvspill clean`."""
    root = where / "cache"
    root.mkdir()
    foreign = plant_foreign(root)
    foreign_dirs = set(run_dirs(root))
    rng = random.Random(seed)
    alive = left = entries_left = after = touched = 0
    for number in range(count):
        run = start(where / "out", root, "--duration", "1", "--storage-capacity-gb", "0.06", "--quiet")
        if number % 4:
            # The moments that matter lie between the making of the directory and its removal.
            wait_until(lambda: set(run_dirs(root)) - foreign_dirs, seconds=30)
        time.sleep(rng.uniform(0, RUN_SECONDS))
        alive += run.process.poll() is None
        run.send(signal.SIGKILL)
        run.process.communicate()
        left += len(set(run_dirs(root)) - foreign_dirs)
        entries_left += sum(path not in foreign for path in entries(root))
        if number % 2:
            with redirect_stdout(io.StringIO()):
                assert main_command(["clean", str(root)]) == 0
        else:
            asyncio.run(next_start(root))
        # A run that was about to end may have left the rest of its removal to a process of its own.
        deadline = time.monotonic() + 10
        while set(run_dirs(root)) - foreign_dirs and time.monotonic() < deadline:
            time.sleep(0.02)
        after += sum(not alone_without_marker(path) for path in set(fingerprint(root)) - set(foreign))
        # A run killed before its marker was there leaves a directory without it, which is removed if asked.
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            # What plant_foreign made looks like a run's, and stays though all was to go.
            assert main_command(["clean", "--yes", str(root)]) == 1
        after += len(set(run_dirs(root)) - foreign_dirs)
        touched += any(fingerprint(root).get(path) != text for path, text in foreign.items())
    return Tally(count, alive, left, entries_left, after, touched)


async def next_start(root: Path) -> None:
    """What a run does to the directory before its load and after it."""
    backend = FilesBackend([root], FilesOptions(io_threads=1))
    await backend.prepare(lambda _what, _done, _total: None)
    await backend.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        tally = kill_runs(options.count, options.seed, Path(directory))
    print(tally)
    return 1 if tally.left_after_the_next_start or tally.foreign_touched else 0


if __name__ == "__main__":
    sys.exit(main())
