"""What this machine offers and how busy others keep it; plain tables for the terminal."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_LOOK_SECONDS = 0.25


def tool_missing(name: str, package: str) -> str | None:
    """Why a program cannot be used, or None."""
    if shutil.which(name):
        return None
    return f"{name} is not installed (package {package})"


def skip(reason: str) -> int:
    """Say why nothing was measured; the exit code is that of a skipped test."""
    print(f"SKIPPED: {reason}")
    return 77


def end_orderly() -> None:
    """Let SIGTERM and SIGINT, also in the background, end by an exception: devices and files must go."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def _interrupt(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


def is_memory(path: Path) -> bool:
    """True where the directory lies on tmpfs or ramfs."""
    wanted = os.stat(path).st_dev
    mine = f"{os.major(wanted)}:{os.minor(wanted)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[2] == mine:
            return fields[fields.index("-") + 1] in ("tmpfs", "ramfs")
    return False


def busy_share() -> float:
    """Share of the processors' time that others take now; the caller is idle meanwhile."""
    before = _processor_ticks()
    time.sleep(_LOOK_SECONDS)
    after = _processor_ticks()
    total = sum(after) - sum(before)
    idle = after[3] + after[4] - before[3] - before[4]
    return 1 - idle / total if total else 0.0


def prefer(niceness: int) -> None:
    """Give this process and its children a priority; the kernel may weigh sessions before processes."""
    os.setsid()
    os.setpriority(os.PRIO_PROCESS, 0, niceness)
    group = Path("/proc/self/autogroup")
    if group.exists():
        group.write_text(str(niceness))


def _processor_ticks() -> list[int]:
    return [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]


def wait_quiet(limit: float, patience_seconds: float) -> float:
    """Wait until others take less than this share, or patience ends; returns the share seen last."""
    until = time.monotonic() + patience_seconds
    while (share := busy_share()) > limit and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    return share


def say(text: str) -> None:
    """Progress, apart from the tables."""
    print(text, file=sys.stderr, flush=True)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned with two blanks between."""
    every = [head, *rows]
    widths = [max(len(row[at]) for row in every) for at in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in every]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)
