"""Which descriptors the caller handed over: what is opened later under such a number is ours."""

import os
from pathlib import Path

_LINKS_MAX = 8
_NUMBERS = 256
"""How many are looked at: a caller that hands over one with a higher number is taken at its word."""
_handed: frozenset[int] | None = None


def remember_descriptors() -> None:
    """Called first of all in a process that is ours."""
    global _handed
    _handed = frozenset(fd for fd in range(_NUMBERS) if _is_open(fd))


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
        if parent == os.path.realpath("/dev/fd"):
            return path.name.isdecimal() and int(path.name) < _NUMBERS and int(path.name) not in _handed
        if not path.is_symlink():
            return False
        path = Path(parent, os.readlink(path))
    return False
