"""Run directories without their marker, as a power loss leaves them: looked at, offered, removed if asked."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kvspill.storage.rundir import (
    DIRECTORY,
    MARKER,
    MARKER_TEXT,
    MOUNTED,
    Mount,
    close_quietly,
    held,
    is_of_a_run,
    list_entries,
    mount_of,
    remove_run,
    run_names,
    usage_errors,
)
from kvspill.storage.running import process_of

_MODE = 0o700
_LOCK_SECONDS = 1.0
_OF_OTHERS = "it belongs to another user, who can remove it"


@dataclass(frozen=True, slots=True)
class Leftover:
    """A directory with the name of a run's and no whole marker."""

    path: Path
    nbytes: int | None
    """What its files take; None where nobody may look."""
    doubt: str | None
    """Why it may not be a run's: then it is left alone. None where all in it is as a run makes it."""
    of_others: bool = False
    """It belongs to another user, or to a run that goes on: that it stays is no failure."""


def leftovers(root: Path) -> list[Leftover]:
    """Directories under root that a run may have left without its marker."""
    with _opened(root) as root_fd:
        found = (_look(root_fd, root, name) for name in run_names(root_fd))
        return [leftover for leftover in found if leftover is not None]


def remove_leftover(leftover: Leftover) -> list[str] | None:
    """Remove one that is beyond doubt; returns what of it stays, and why.

    None where it has gone by now, or another process is removing it: nothing is left to us then.
    """
    root, name = leftover.path.parent, leftover.path.name
    with _opened(root) as root_fd, ExitStack() as opened:
        # A run that is being made holds this lock until its marker is there.
        with held(root_fd, fcntl.LOCK_EX, _LOCK_SECONDS) as alone:
            again = _look(root_fd, root, name)
            if again is None:
                return None
            if not alone or again.doubt is not None:
                return [f". ({again.doubt or 'a run is starting here; try again'})"]
            try:
                run_fd = os.open(name, DIRECTORY, dir_fd=root_fd)
            except FileNotFoundError:
                return None
            opened.callback(close_quietly, run_fd)
            if _is_being_removed(run_fd):
                return None
        try:
            return remove_run(root_fd, name, run_fd)
        except FileNotFoundError:
            return None


def _is_being_removed(run_fd: int) -> bool:
    """Whether another process removes a directory; else it is ours to remove until it is closed."""
    try:
        fcntl.flock(run_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # Without locks two may remove it at once; each takes for removed what it finds gone.
        return False
    return False


@contextmanager
def _opened(root: Path) -> Iterator[int]:
    with usage_errors(root):
        root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield root_fd
        finally:
            close_quietly(root_fd)


def _look(root_fd: int, root: Path, name: str) -> Leftover | None:
    """What stands under that name; None where a marker says all that is to be known, or it has gone."""
    try:
        fd = os.open(name, DIRECTORY, dir_fd=root_fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        # A run's directory is closed to other users: only its entry in the root tells whose it is.
        if _is_of_others(root_fd, name):
            return Leftover(root / name, None, _OF_OTHERS, True)
        return Leftover(root / name, None, f"it cannot be opened ({error.strerror})")
    try:
        status = os.fstat(fd)
        if status.st_uid != os.getuid():
            return Leftover(root / name, None, _OF_OTHERS, True)
        if _has_odd_marker(fd):
            return Leftover(root / name, None, f"its {MARKER} is not a file")
        if _is_marked(fd):
            return None
        pid = process_of(name, fd)
        if pid is not None:
            return Leftover(root / name, None, f"its run has not ended (process {pid})", True)
        mount = mount_of(root_fd)
        if mount_of(fd) != mount:
            return Leftover(root / name, 0, MOUNTED)
        sizes: list[int] = []
        doubt = _foreign(fd, (), mount, sizes)
        if doubt is None and status.st_mode & 0o777 != _MODE:
            doubt = f"its mode is {status.st_mode & 0o777:o}, not {_MODE:o}"
        return Leftover(root / name, sum(sizes), doubt)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Leftover(root / name, None, f"it cannot be read ({error.strerror})")
    finally:
        close_quietly(fd)


def _is_of_others(root_fd: int, name: str) -> bool:
    try:
        return os.stat(name, dir_fd=root_fd, follow_symlinks=False).st_uid != os.getuid()
    except OSError:
        return False


def _has_odd_marker(run_fd: int) -> bool:
    """True where a link, a pipe or a directory stands in the marker's place: no run makes that."""
    try:
        return not stat.S_ISREG(os.stat(MARKER, dir_fd=run_fd, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _is_marked(run_fd: int) -> bool:
    """True where the marker is whole, another's, or locked: then it is not for us to judge."""
    try:
        # A pipe that took the file's place since would be waited for.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(MARKER, flags, dir_fd=run_fd)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        text = os.read(fd, len(MARKER_TEXT) + 1)
    except OSError:
        return True
    finally:
        close_quietly(fd)
    # A crash cuts a file's end off, or leaves zeros in its place.
    return text == MARKER_TEXT or not MARKER_TEXT.startswith(text.rstrip(b"\0"))


def _foreign(fd: int, above: tuple[str, ...], mount: Mount, sizes: list[int]) -> str | None:
    """The first thing in a directory that no run makes, or None; adds up the sizes of the files."""
    for name, is_dir in list_entries(fd):
        shown = "/".join((*above, name))
        if not is_of_a_run(name, is_dir, above):
            return f"{shown} is not a run's"
        try:
            if not is_dir:
                sizes.append(os.stat(name, dir_fd=fd, follow_symlinks=False).st_blocks * 512)
                continue
            inner = os.open(name, DIRECTORY, dir_fd=fd)
        except FileNotFoundError:
            # Another process is removing it.
            continue
        try:
            if mount_of(inner) != mount:
                return f"in {shown} {MOUNTED}"
            doubt = _foreign(inner, (*above, name), mount, sizes)
        finally:
            close_quietly(inner)
        if doubt is not None:
            return doubt
    return None
