"""What the kernel was asked for, as strace saw it: a process's calls on the files of a directory (V2)."""

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kvspill.errors import UsageError

READS: Final = ("read", "readv", "pread64", "preadv", "preadv2")
WRITES: Final = ("write", "writev", "pwrite64", "pwritev", "pwritev2")
HASHED: Final = "directories made"
OTHERS: Final = {
    "opened": ("open", "openat", "openat2", "creat"),
    "renamed": ("rename", "renameat", "renameat2", "link", "linkat"),
    "synced": ("fsync", "fdatasync", "sync_file_range", "msync"),
    "reserved": ("fallocate",),
    "advised": ("fadvise64",),
    "looked up": ("access", "faccessat", "faccessat2", "stat", "lstat", "newfstatat", "statx"),
    HASHED: ("mkdir", "mkdirat"),
    "removed": ("unlink", "unlinkat"),
    "truncated": ("truncate", "ftruncate"),
}
"""Other calls, by what the table says of them."""
_TRACED = ",".join((*READS, *WRITES, *(name for names in OTHERS.values() for name in names), "mmap"))
_ESCAPED = re.compile(rb"\\(?:([0-3]?[0-7]{1,2})|(.))")
_LETTERS: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"v": b"\v", b"f": b"\f"}
_CALL = re.compile(r"(\d+\.\d+) (\w+)\((.*)\) += (-?\d+)(.*?)(?: <(\d+\.\d+)>)?$")


@dataclass(slots=True)
class Seen:
    """The calls of one round, by kind."""

    read_sizes: Counter[int] = field(default_factory=Counter)
    write_sizes: Counter[int] = field(default_factory=Counter)
    read_seconds: list[float] = field(default_factory=list)
    """How long each read took inside the kernel."""
    direct: int = 0
    """Openings with O_DIRECT."""
    others: Counter[str] = field(default_factory=Counter)


def find_strace() -> str:
    """The program that watches."""
    found = shutil.which("strace")
    if found is None:
        raise UsageError(
            "validate: strace is not installed, which watches the engine and the preset from the kernel; "
            "install it, as with: apt-get install strace"
        )
    return found


def watched(command: Sequence[str], into: Path) -> list[str]:
    """The command under a witness that writes a file per thread."""
    return [
        *(find_strace(), "-ff", "-qq", "-y", "-ttt", "-T", "-s", "0", "--seccomp-bpf"),
        *("-e", f"trace={_TRACED}", "-e", "signal=none", "-o", str(into / "thread"), *command),
    ]


def seen(into: Path, directory: Path) -> Seen:
    """What the witness wrote of the round in that directory."""
    calls = [call for path in into.glob("thread.*") for call in _calls(path, str(directory))]
    marks = {
        name: at
        for at, _kind, text, _answer, _seconds in calls
        for name in ("begin", "end")
        if f'{directory}/{name}"' in text
    }
    if set(marks) != {"begin", "end"}:
        raise UsageError(
            f"validate: strace wrote nothing of the round in {directory}; check that it may trace processes "
            "(kernel.yama.ptrace_scope, seccomp of a container)"
        )
    found = Seen()
    for at, kind, text, answer, seconds in calls:
        if marks["begin"] < at < marks["end"]:
            _count(found, kind, text, answer, seconds)
    return found


def _calls(path: Path, directory: str) -> Iterator[tuple[float, str, str, int, float]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            match = _CALL.match(line.rstrip("\n")) if directory in _unescaped(line) else None
            if match is not None:
                at, kind, text, answer, _more, seconds = match.groups()
                yield float(at), kind, _unescaped(text), int(answer), float(seconds or 0.0)


def _unescaped(text: str) -> str:
    """Names as they are: strace writes numbers for letters that are not of ASCII."""
    if "\\" not in text:
        return text
    raw = _ESCAPED.sub(
        lambda found: bytes([int(found[1], 8)]) if found[1] else _LETTERS.get(found[2], found[2]),
        text.encode(),
    )
    return os.fsdecode(raw)


def _count(found: Seen, kind: str, text: str, answer: int, seconds: float) -> None:
    if kind in READS and answer > 0:
        found.read_sizes[answer] += 1
        found.read_seconds.append(seconds)
    elif kind in WRITES and answer > 0:
        found.write_sizes[answer] += 1
    for name, kinds in OTHERS.items():
        if kind in kinds and not _is_other(name, text, answer):
            found.others[name] += 1
            found.direct += name == "opened" and "O_DIRECT" in text


def _is_other(name: str, text: str, answer: int) -> bool:
    """Calls that are not what their name says: a failed opening, a directory's, the state of an open file."""
    if name == "opened":
        return answer < 0 or "O_DIRECTORY" in text
    return name == "looked up" and "AT_EMPTY_PATH" in text
