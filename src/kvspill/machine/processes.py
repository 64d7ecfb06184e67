"""Other processes as /proc shows them: who holds locks, what they have open, the bytes they moved."""

import os
from pathlib import Path

from kvspill.machine.kernel import Kernel, field_of, names_in, read_text

Counters = dict[str, int]
_DELETED = " (deleted)"


def lock_holders(kernel: Kernel) -> dict[int, set[int]]:
    """The processes, this one left out, that hold locks by flock, each with the inodes of what it locked."""
    found: dict[int, set[int]] = {}
    for line in (read_text(kernel.proc / "locks") or "").splitlines():
        words = line.split()
        # 1: FLOCK ADVISORY WRITE pid major:minor:inode 0 EOF
        if len(words) > 5 and words[1] == "FLOCK" and words[4].isdecimal():
            inode = words[5].rpartition(":")[2]
            found.setdefault(int(words[4]), set()).add(int(inode) if inode.isdecimal() else -1)
    return {pid: inodes for pid, inodes in found.items() if pid not in (os.getpid(), 0)}


def open_files(pid: int, kernel: Kernel) -> list[tuple[Path, str]]:
    """What a process has open: a path that leads to each, and its name; nothing where we may not look."""
    folder = kernel.proc / str(pid) / "fd"
    found = []
    try:
        for number in os.listdir(folder):
            name = os.readlink(folder / number)
            if not name.endswith(_DELETED):
                found.append((folder / number, name))
    except OSError:
        # It ended, or closed one of them just now: what was seen is true all the same.
        return found
    return found


def has_locked_a_file(pid: int, kernel: Kernel) -> bool:
    """Whether a process holds an exclusive lock by flock on a file, which may have been deleted since."""
    folder = kernel.proc / str(pid)
    for number in names_in(folder / "fdinfo") or ():
        words = (field_of(folder / "fdinfo" / number, "lock") or "").split()
        # 1: FLOCK ADVISORY WRITE pid major:minor:inode 0 EOF
        if words[1:2] == ["FLOCK"] and words[3:4] == ["WRITE"] and (folder / "fd" / number).is_file():
            return True
    return False


def process_io(pid: int | str, kernel: Kernel) -> Counters | None:
    """Bytes and calls of a process so far; None where it is gone or closed to us."""
    text = read_text(kernel.proc / str(pid) / "io")
    pairs = (line.partition(":") for line in (text or "").splitlines())
    fields = {name.strip(): value.strip() for name, colon, value in pairs if colon}
    if not fields:
        return None
    return {
        "read_bytes": int(fields["read_bytes"]),
        "written_bytes": int(fields["write_bytes"]),
        "read_calls": int(fields["syscr"]),
        "write_calls": int(fields["syscw"]),
        "asked_read_bytes": int(fields["rchar"]),
        "asked_written_bytes": int(fields["wchar"]),
    }
