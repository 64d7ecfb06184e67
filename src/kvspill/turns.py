"""Runs that replace the same file: each in its turn, and none of them what another has written meanwhile."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from functools import partial
from itertools import chain, count
from pathlib import Path

from kvspill.errors import UsageError, reason_of
from kvspill.outputs import WRITING_SECONDS_MAX, StrPath, is_stream, write_new, write_whole
from kvspill.spare import Stamp, kept_in, spare_copy, stamp_of
from kvspill.waiting import within


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


def stamp_before(path: StrPath | None) -> Stamp | None:
    """What stands under a file's name before the work; a UsageError where its disk does not answer."""
    if path is None:
        return None
    try:
        return within(WRITING_SECONDS_MAX, lambda: stamp_of(path))
    except TimeoutError as error:
        raise UsageError(
            f"--output {path}: cannot be reached ({error.strerror}); name a file in a writable directory"
        ) from error


def write_in_turn(path: Path, text: str, before: Stamp | None) -> Path:
    """Write a file; returns where, which is another place where somebody took this one meanwhile."""

    def is_new() -> bool:
        return before is None and not is_stream(path)

    def real_place() -> Path:
        return Path(os.path.realpath(path)) if path.is_symlink() else path

    with contextlib.suppress(Overtaken):
        if not within(WRITING_SECONDS_MAX, is_new):
            return write_whole(path, text, turn=partial(in_turn, before=before))
    place = within(WRITING_SECONDS_MAX, real_place)
    own = write_new(names_from(place), text)
    return path if own == place else own


def names_from(path: Path) -> Iterator[Path]:
    """This name, and then others beside it."""
    return chain([path], (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2)))


def taken_meanwhile(path: StrPath, own: Path, what: str) -> str:
    """What has happened where the file lies in another place than it was to."""
    return f"--output {path}: another program has written it since this run began; {kept_in(own, what)}"


def keep_in_turn(path: StrPath, text: str, before: Stamp | None, what: str) -> tuple[Path | None, str | None]:
    """Write --output in turn, or a copy elsewhere; returns where it is, and what went wrong."""
    asked = Path(path)
    try:
        own = write_in_turn(asked, text, before)
    except OSError as error:
        problem = f"--output {path}: cannot be written ({reason_of(error)}); name another file"
        spare = spare_copy(asked.name, text, asked.suffix)
        return spare, f"{problem}; {kept_in(spare, what)}"
    return own, None if own == asked else taken_meanwhile(path, own, what)
