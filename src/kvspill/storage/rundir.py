"""A run's private directory: made new, locked for the run's life, removed without touching others' files."""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from kvspill.errors import UsageError, reason_of
from kvspill.machine.kernel import mount_id, path_of
from kvspill.storage.running import process_of

MARKER = ".kvspill-run"
CLAIM = ".kvspill-claim"
"""What the run will hold at most, for other runs on the same file system (see neighbours.py)."""
MARKER_TEXT = b"kvspill run directory: removed by the run, or by the next one here\n"
_RUN_NAME = re.compile(r"kvspill-\d+-[0-9a-f]{8}")
OF_ANY_NAME = "validation"
"""A subdirectory in which all is the run's, however it is named: an engine's files in a validation."""
_SUBDIR_NAME = re.compile(r"[0-9a-f]{2,3}")
_INNER_NAME = re.compile(r"[0-9a-f]{2}")
_FILE_NAME = re.compile(r"[0-9a-f]{32}-\d+(\.tmp)?|probe(\.tmp)?")
_OWN_NAMES = (MARKER, MARKER + ".new", CLAIM)
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOUNTED = "something else is mounted there; unmount it, and run `kvspill clean` again"
Mount = tuple[str | None, int]

_SPARE_FDS = 3
_CREATION_WAIT_SECONDS = 1.0


class RunDir:
    """One private directory under a root the user named. Paths in it are given relative to `fd`."""

    def __init__(self, root: Path):
        self.root = root
        self.name = new_run_name()
        with usage_errors(root), contextlib.ExitStack() as undo:
            # The root stays open: its path may lead elsewhere by the end of the run, or nowhere.
            self._root_fd = _open_until(undo, root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._spare_fds = [_open_until(undo, os.devnull, os.O_RDONLY) for _ in range(_SPARE_FDS)]
            with held(self._root_fd, fcntl.LOCK_SH, _CREATION_WAIT_SECONDS):
                os.mkdir(self.name, 0o700, dir_fd=self._root_fd)
                try:
                    self.fd = _open_until(undo, self.name, DIRECTORY, dir_fd=self._root_fd)
                    self._lock_fd = _make_marker(self.fd, undo)
                    # Before any data: after a power loss the marker must tell whose the files are.
                    _sync(self.fd, self._root_fd)
                except OSError:
                    _take_back(self._root_fd, self.name)
                    raise
            undo.pop_all()
        self._made: set[str] = set()
        self._open = True

    @property
    def path(self) -> Path:
        return self.root / self.name

    def make_subdir(self, name: str) -> None:
        """Make a subdirectory, and the one around it, when its first file comes."""
        if name in self._made:
            return
        around = name.rpartition("/")[0]
        if around:
            self.make_subdir(around)
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=self.fd)
        if not around:
            # Inner ones may be a million: too many to remember, so each is asked for again.
            self._made.add(name)

    def remove(self, keep_fds: bool = False) -> list[str]:
        """Remove all that the run made. Returns what was left: what is not the run's, and what the file
        system would not remove, with its reason. Never raises, and is safe to call twice."""
        if not self._open:
            return []
        self._open = False
        # Removing needs descriptors, also where something else has used up all that there are.
        _close_all(self._spare_fds)
        try:
            return remove_run(self._root_fd, self.name, self.fd)
        except OSError as error:
            return [_reason(".", error)]
        finally:
            _close_all([self._root_fd] if keep_fds else [self._root_fd, self.fd, self._lock_fd])


def clean(root: Path, kept: list[str] | None = None) -> list[Path]:
    """Remove the run directories under root that killed runs left; returns those removed.

    Ours is only what has our name, our owner and our marker, is a real directory, and is locked by nobody:
    nothing is removed without its marker here (see leftovers.py).
    What of it could not be removed, or is not ours, is added to `kept`.
    """
    removed = []
    with usage_errors(root), contextlib.ExitStack() as opened:
        root_fd = _open_until(opened, root, os.O_RDONLY | os.O_DIRECTORY)
        for name in run_names(root_fd):
            left = _remove_if_stale(root_fd, name)
            if left is None:
                continue
            if left:
                (kept if kept is not None else []).extend(str(root / name / entry) for entry in left)
            else:
                removed.append(root / name)
    return removed


def run_names(root_fd: int) -> list[str]:
    """The directories under a root that are named as those of runs."""
    return sorted(name for name, is_dir in list_entries(root_fd) if is_dir and is_run_name(name))


def new_run_name() -> str:
    """The name under which one run keeps all that it stores."""
    return f"kvspill-{os.getpid()}-{secrets.token_hex(4)}"


def is_run_name(name: str) -> bool:
    return _RUN_NAME.fullmatch(name) is not None


LIMITS_OF_THE_PROCESS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Refusals that no other directory would change."""


@contextlib.contextmanager
def usage_errors(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in LIMITS_OF_THE_PROCESS:
            raise
        reason = reason_of(error)
        raise UsageError(
            f"cache directory {root}: {reason}; name a writable directory with --cache-dir"
        ) from error


def _make_marker(run_fd: int, undo: contextlib.ExitStack) -> int:
    """Write and lock the marker before it gets its name, so that no other run sees it unlocked."""
    fd = os.open(MARKER + ".new", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=run_fd)
    undo.callback(close_quietly, fd)
    with contextlib.suppress(OSError):
        # Without flock (some network file systems) cleaning finds no lock to take either and leaves us alone.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(fd, MARKER_TEXT)
    _sync(fd)
    os.rename(MARKER + ".new", MARKER, src_dir_fd=run_fd, dst_dir_fd=run_fd)
    return fd


_NOT_WRITTEN = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ENXIO, errno.ENODEV, errno.ESTALE)
"""Answers of a sync that tell of a write that failed, not of a file system that syncs no such thing."""


def _sync(*fds: int) -> None:
    for fd in fds:
        try:
            os.fsync(fd)
        except OSError as error:
            # Some network file systems sync no directory; they keep names by themselves.
            if error.errno in _NOT_WRITTEN:
                raise OSError(error.errno, f"its marker could not be synced ({error.strerror})") from error


def _take_back(root_fd: int, name: str) -> None:
    """Remove a directory whose marker could not be made or synced, as on a full disk."""
    for marker in (MARKER, MARKER + ".new"):
        _tried(name, os.unlink, f"{name}/{marker}", root_fd)
    _tried(name, os.rmdir, name, root_fd)


@contextlib.contextmanager
def held(root_fd: int, how: int, wait_seconds: float) -> Iterator[bool]:
    """Hold a lock on the root for a moment, so that nobody takes a directory in the making for a left-over.

    Waits only so long: the user may hold a lock of their own, and some file systems have none.
    """
    until = time.monotonic() + wait_seconds
    held = False
    while not held:
        try:
            fcntl.flock(root_fd, how | fcntl.LOCK_NB)
            held = True
        except OSError:
            if time.monotonic() >= until:
                break
            time.sleep(0.001)
    try:
        yield held
    finally:
        if held:
            fcntl.flock(root_fd, fcntl.LOCK_UN)


def _remove_if_stale(root_fd: int, name: str) -> list[str] | None:
    """Remove what a killed run left; returns what of it stays, or None where there is no such run."""
    try:
        run_fd = os.open(name, DIRECTORY, dir_fd=root_fd)
    except OSError:
        return None
    try:
        if os.fstat(run_fd).st_uid != os.getuid():
            return None
        try:
            lock_fd = _lock_marker(run_fd)
        except OSError as error:
            return [_reason(MARKER, error)]
        if lock_fd is None:
            return None
        try:
            return None if process_of(name, run_fd) else remove_run(root_fd, name, run_fd)
        finally:
            close_quietly(lock_fd)
    finally:
        close_quietly(run_fd)


_NO_MARKER = (errno.ENOENT, errno.ELOOP, errno.EISDIR, errno.ENXIO)
"""Answers where nothing, or nothing that a run makes, stands in the marker's place."""

_ALIVE_OR_UNKNOWN = (errno.EWOULDBLOCK, errno.EINTR, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Answers to the wish for a lock where a run holds it, or where there are no locks."""


def _open_marker(run_fd: int) -> int | None:
    """Raises where a marker is there and cannot be opened."""
    # A lock on a network file system needs write access; a read-only one and an immutable file give none.
    for access in (os.O_RDWR, os.O_RDONLY):
        try:
            flags = access | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(MARKER, flags, dir_fd=run_fd)
        except OSError as error:
            if error.errno in _NO_MARKER:
                return None
            if access != os.O_RDWR or error.errno not in (errno.EROFS, errno.EPERM, errno.EACCES):
                raise
    return None


def _lock_marker(run_fd: int) -> int | None:
    """The marker of a killed run, locked; None where it is none. Raises where that cannot be told."""
    fd = _open_marker(run_fd)
    if fd is None:
        return None
    with contextlib.ExitStack() as undo:
        undo.callback(close_quietly, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _ALIVE_OR_UNKNOWN:
                return None
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode) or os.read(fd, len(MARKER_TEXT) + 1) != MARKER_TEXT:
            return None
        undo.pop_all()
        return fd


def is_of_a_run(name: str, is_dir: bool, above: tuple[str, ...] = ()) -> bool:
    """Whether a run makes things of that name at that place below its directory."""
    if above[:1] == (OF_ANY_NAME,):
        return True
    if not is_dir:
        return _FILE_NAME.fullmatch(name) is not None or (not above and name in _OWN_NAMES)
    if not above:
        return _SUBDIR_NAME.fullmatch(name) is not None or name == OF_ANY_NAME
    return len(above) == 1 and len(above[0]) == 3 and _INNER_NAME.fullmatch(name) is not None


def remove_run(root_fd: int, name: str, run_fd: int) -> list[str]:
    """Remove a run directory through its descriptors; returns what stays."""
    left, mount = [], mount_of(root_fd)
    if mount_of(run_fd) != mount:
        return [f". ({MOUNTED})"]
    for entry_name, is_dir in list_entries(run_fd):
        if not is_of_a_run(entry_name, is_dir):
            left.append(entry_name)
        elif is_dir:
            left += _remove_subdir(run_fd, (entry_name,), mount)
        elif entry_name != MARKER:
            left += _tried(entry_name, os.unlink, entry_name, run_fd)
    # The marker goes last: a removal that is itself killed can be finished by the next run.
    left = left or _tried(".", os.unlink, MARKER, run_fd)
    if not _is_anothers(root_fd, name, run_fd):
        left = left or _tried(".", os.rmdir, name, root_fd)
    # What was removed from the upper layer of an overlay keeps its links in the lower one, and has no path.
    if not left and os.fstat(run_fd).st_nlink and (moved := path_of(run_fd)) is not None:
        left.append(f". (the directory was moved to {moved}, empty now)")
    return left


def mount_of(fd: int) -> Mount:
    """Tells apart mounts, also those of one file system, and its subvolumes, which are no mounts."""
    return mount_id(fd), os.fstat(fd).st_dev


def _is_anothers(root_fd: int, name: str, run_fd: int) -> bool:
    """True where the run's directory was moved and something else, which is not ours, took its name."""
    try:
        there = os.stat(name, dir_fd=root_fd, follow_symlinks=False)
    except OSError:
        return False
    return not os.path.samestat(there, os.fstat(run_fd))


def _remove_subdir(around_fd: int, path: tuple[str, ...], mount: Mount) -> list[str]:
    """Remove one subdirectory with its files; one of three letters may hold others of two.

    What is mounted there is not the run's, whatever its files are named.
    """
    name, shown = path[-1], "/".join(path)
    try:
        fd = os.open(name, DIRECTORY, dir_fd=around_fd)
    except FileNotFoundError:
        return []
    except OSError as error:
        return [_reason(f"{shown}/", error)]
    left = []
    try:
        if mount_of(fd) != mount:
            return [f"{shown}/ ({MOUNTED})"]
        for entry_name, is_dir in list_entries(fd):
            inside = f"{shown}/{entry_name}"
            if not is_of_a_run(entry_name, is_dir, path):
                left.append(inside)
            elif is_dir:
                left += _remove_subdir(fd, (*path, entry_name), mount)
            else:
                left += _tried(inside, os.unlink, entry_name, fd)
    except FileNotFoundError:
        # Another process removes it, too.
        return left
    except OSError as error:
        left.append(_reason(f"{shown}/", error))
    finally:
        close_quietly(fd)
    # It is not empty where a thread stuck in a system call made one more file: the marker stays then, and
    # the next run finishes.
    return left or _tried(f"{shown}/", os.rmdir, name, around_fd)


def _tried(shown: str, remove: Callable[..., None], path: str, dir_fd: int) -> list[str]:
    """Remove something; returns what stays, and why, where that fails."""
    try:
        remove(path, dir_fd=dir_fd)
    except FileNotFoundError:
        return []
    except OSError as error:
        return [_reason(shown, error)]
    return []


def _reason(shown: str, error: OSError) -> str:
    return f"{shown} ({reason_of(error)})"


def list_entries(fd: int) -> list[tuple[str, bool]]:
    with os.scandir(fd) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]


def _open_until(undo: contextlib.ExitStack, path: str | Path, flags: int, dir_fd: int | None = None) -> int:
    """Open a descriptor that is closed again where what follows fails."""
    fd = os.open(path, flags | os.O_CLOEXEC, dir_fd=dir_fd)
    undo.callback(close_quietly, fd)
    return fd


def _close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        close_quietly(fd)


def close_quietly(fd: int) -> None:
    """Close a directory, a lock or a marker: the descriptor is gone in any case, and no data went by it."""
    with contextlib.suppress(OSError):
        os.close(fd)
