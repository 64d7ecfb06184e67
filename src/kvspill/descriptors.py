"""Which descriptors the caller handed over: what is opened later under such a number is ours."""

import contextlib
import os
from pathlib import Path

_LINKS_MAX = 8
_handed: frozenset[int] | None = None


def remember_descriptors() -> None:
    """Called first of all in a process that is ours."""
    global _handed
    # Without /proc there are no such names either.
    with contextlib.suppress(OSError):
        found = [int(name) for name in os.listdir("/proc/self/fd")]
        _handed = frozenset(fd for fd in found if _is_open(fd))


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def was_closed(path: Path) -> bool:
    """Whether it names a descriptor, such as /dev/stdout or /dev/fd/3, that the caller had closed."""
    if _handed is None:
        return False
    for _ in range(_LINKS_MAX):
        parent = os.path.realpath(path.parent)
        if parent == f"/proc/{os.getpid()}/fd":
            return path.name.isdecimal() and int(path.name) not in _handed
        if not path.is_symlink():
            return False
        path = Path(parent, os.readlink(path))
    return False
