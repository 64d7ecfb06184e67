"""A table of faults under real runs: each system call of each layout hangs, waits, fails or moves less.

    python tests/real/faulting.py DIR [--share 1.0] [--only read]

runs every cell on files below DIR and prints the table; a preloaded library makes the faults.
"""

import argparse
import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from real.rig import Finished, left_over, start

SOURCE = Path(__file__).parent / "shim" / "faultshim.c"
LAYOUTS = ("files", "tree", "slots", "buckets")
EIO = 5
DELAY_MS = 40
PAUSE_MS = 3000
"""A call that hangs and comes back before it is called stuck."""
SECONDS = 2.5
HEALTHY_SECONDS = 0.8
"""The load is undisturbed for so long, so that a fault meets entries that are there."""
END_SECONDS_MAX = 5.0
"""A run ends by its duration and this (S3), whatever hangs."""
START_SECONDS = 2.5
"""What starting Python and writing the result may take on a busy machine."""


@dataclass(frozen=True)
class Cell:
    """One fault: which calls of which layout, what happens to them, and to what share."""

    verb: str
    kind: str
    layout: str
    share: float = 1.0

    def __str__(self) -> str:
        return f"{self.verb}-{self.kind}-{self.layout}-{self.share:g}"

    @property
    def rule(self) -> str:
        argument = {"fail": f":{EIO}", "delay": f":{DELAY_MS}", "pause": f":{PAUSE_MS}"}.get(self.kind, "")
        return f"{self.verb}:{'delay' if self.kind == 'pause' else self.kind}:{self.share}{argument}"

    @property
    def happens(self) -> bool:
        """False where the layout never makes that call while a load is on."""
        quiet = {
            "slots": ("open", "rename", "unlink", "allocate"),
            "buckets": ("rename", "unlink"),
        }
        return self.verb not in quiet.get(self.layout, ()) and (self.verb != "sync" or self.kind != "short")


VERBS_AND_KINDS = (
    *((verb, kind) for verb in ("read", "write") for kind in ("hang", "pause", "delay", "fail", "short")),
    *((verb, kind) for verb in ("open", "sync", "rename", "unlink") for kind in ("hang", "delay", "fail")),
    ("unlink", "pause"),
)


def cells(share: float = 1.0) -> list[Cell]:
    found = [Cell(verb, kind, layout, share) for verb, kind in VERBS_AND_KINDS for layout in LAYOUTS]
    return [cell for cell in found if cell.happens]


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


@cache
def shim() -> Path:
    """The library, built once for all cells of this process."""
    folder = tempfile.mkdtemp(prefix="faultshim-")
    atexit.register(shutil.rmtree, folder)
    library = Path(folder) / "faultshim.so"
    subprocess.run([str(compiler()), "-shared", "-fPIC", "-O2", "-o", library, SOURCE, "-ldl"], check=True)
    return library


@contextmanager
def faulty(where: Path, rule: str, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """A command of Python for whose calls below the directory `o` that rule holds."""
    for name in ("o", "tmp"):
        (where / name).mkdir()
    environ = {
        **os.environ,
        "LD_PRELOAD": str(shim()),
        "KVSPILL_SHIM": rule,
        "KVSPILL_SHIM_UNDER": str(where / "o"),
        "KVSPILL_SHIM_COUNT": str(where / "count"),
        "TMPDIR": str(where / "tmp"),
    }
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, *words], cwd=where, env=environ, **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def faults(where: Path) -> int:
    """How many such calls met the rule so far."""
    count = where / "count"
    return count.stat().st_size if count.exists() else 0


def start_seconds() -> float:
    """About how long a run takes to begin its load just now: what fails before that is another cell."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import kvspill.cli.measuring"], check=True)
    return max(START_SECONDS / 2, 1.5 * (time.monotonic() - began))


def run(cell: Cell | None, where: Path, cache_dir: Path) -> tuple[Finished, int]:
    """One run under that fault, or a healthy one; returns what it left and how many faults it met."""
    count = where / "count"
    where.mkdir(parents=True, exist_ok=True)
    under: tuple[str, ...] = ()
    started = start_seconds()
    if cell is not None:
        under = (
            "env",
            f"LD_PRELOAD={shim()}",
            f"KVSPILL_SHIM={cell.rule}",
            f"KVSPILL_SHIM_UNDER={cache_dir}/kvspill-",
            # Whatever waits does so from the start: a figure of the whole window must show it.
            f"KVSPILL_SHIM_AFTER={0 if cell.kind == 'delay' else started + HEALTHY_SECONDS}",
            f"KVSPILL_SHIM_COUNT={count}",
        )
    layout = "files" if cell is None else cell.layout
    process = start(
        where,
        cache_dir,
        *("--duration", str(SECONDS + started), "--storage-capacity-gb", "0.12", "--max-errors", "1000000"),
        *("--layout", layout, "--sync", "data", "--quiet"),
        under=under,
    )
    try:
        finished = process.finish(timeout=SECONDS + started + END_SECONDS_MAX + 20)
    except subprocess.TimeoutExpired:
        finished = Finished(-signal.SIGKILL, "", "it did not end by itself", None)
    return finished, count.stat().st_size if count.exists() else 0


def compared(healthy: Path, faulty: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "kvspill.cli.main", "compare", str(healthy), "--", str(faulty)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def cleaned(cache_dir: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "kvspill.cli.main", "clean", "--yes", str(cache_dir)],
        capture_output=True,
        timeout=60,
    )


def complaints(cell: Cell, finished: Finished, faults: int, healthy: Path, output: Path) -> list[str]:
    """What of the promises does not hold, in words; none where all is well."""
    result = finished.result
    if result is None:
        return [f"no result: {finished.err.strip()[-200:]}"]
    found = [] if faults else ["the fault never happened"]
    if cell.kind == "delay":
        return found + _slower(cell, result) + _sound(finished)
    if cell.kind == "pause" and not result["faulty"]:
        return found + _sound(finished) + _no_rank(result, healthy, output)
    if cell.kind == "short" and not result["faulty"]:
        # What was moved in several calls is whole: nothing is wrong with that.
        return found + _sound(finished)
    if finished.code != 1:
        found.append(f"exit code {finished.code}")
    if not result["faulty"]:
        found.append("not marked faulty")
    if not _kinds(result):
        found.append("no fault counted by kind")
    return found + _no_rank(result, healthy, output)


def _no_rank(result: Any, healthy: Path, output: Path) -> list[str]:
    passes = "PASS" in str(result["summary"]["storage_health"].get("overall_status"))
    found = ["the assessment passes"] if passes else []
    answer = compared(healthy, output)
    verdicts = [line.split("|")[-2].strip() for line in answer.stdout.splitlines() if "x |" in line]
    # What is faulty is refused; what only stood still is shown, and better in nothing.
    if answer.returncode == (0 if result["faulty"] else 1) or any("better" in word for word in verdicts):
        found.append(f"compare ranks it (exit code {answer.returncode})")
    return found


def _sound(finished: Finished) -> list[str]:
    found = [] if finished.code == 0 else [f"exit code {finished.code}: {finished.err.strip()[-200:]}"]
    return [*found, "marked faulty"] if finished.result["faulty"] else found


def _slower(cell: Cell, result: Any) -> list[str]:
    verb = {"read": "read", "write": "write", "sync": "write", "open": "read"}.get(cell.verb)
    p95_ms = result["summary"]["cache_stats"].get(f"storage_{verb}_p95_ms")
    if verb is None or cell.share < 1 or (p95_ms is not None and p95_ms >= DELAY_MS):
        return []
    return [f"a delay of {DELAY_MS} ms does not show: p95 {p95_ms} ms"]


def _kinds(result: Any) -> list[str]:
    faults = result["faults"]
    kinds = [f"{row['verb']} {row['kind']}: {row['count']}" for row in faults["operations"]]
    stuck = faults["stuck_io"]["threads"]
    return kinds + ([f"stuck: {stuck}"] if stuck else [])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--only", default="", help="cells whose name contains this")
    args = parser.parse_args()
    wrong = 0
    # Each run has a current directory of its own: relative paths would lead elsewhere.
    with tempfile.TemporaryDirectory(dir=args.directory.resolve()) as folder:
        where = Path(folder)
        (where / "cache").mkdir()
        healthy, _ = run(None, where / "healthy", where / "cache")
        if healthy.code != 0:
            print(f"the healthy run failed: {healthy.err.strip()}")
            return 1
        for cell in cells(args.share):
            if args.only not in str(cell):
                continue
            finished, faults = run(cell, where / str(cell), where / "cache")
            output = where / str(cell) / "result.json"
            found = complaints(cell, finished, faults, where / "healthy" / "result.json", output)
            cleaned(where / "cache")
            found += [f"left behind: {name}" for name in left_over(where / "cache")]
            kinds = ", ".join(_kinds(finished.result)) if finished.result else ""
            print(
                f"| {cell} | {faults} | {finished.code} | {kinds} | {'; '.join(found) or 'ok'} |", flush=True
            )
            wrong += bool(found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
