"""Runs that replace the same file: each in its turn, and none of them what another has written meanwhile."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from kvspill.spare import Stamp, stamp_of


class Overtaken(FileExistsError):  # noqa: N818 - says what has happened
    """Another program has written the file first."""


@contextlib.contextmanager
def in_turn(target: Path, before: Stamp | None) -> Iterator[None]:
    """While a file is replaced: what stood there before still does, and no other run replaces it.

    Runs take turns by a lock on the file itself. Where a file system has no locks, and for other programs,
    the look directly before the replacement must do.
    """
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            # To write: a network file system gives the lock for no less.
            fd = os.open(target, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            held.callback(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_EX)
        # After the lock, which whoever came first kept until the file had another stamp.
        if stamp_of(target) != before:
            raise Overtaken(errno.EEXIST, os.strerror(errno.EEXIST))
        yield
