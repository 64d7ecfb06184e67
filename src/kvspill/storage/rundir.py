"""A run's private directory: made new, locked for the run's life, removed without touching others' files."""

import contextlib
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from kvspill.errors import UsageError

MARKER = ".kvspill-run"
_MARKER_TEXT = b"kvspill run directory: removed by the run, or by the next one here\n"
_RUN_NAME = re.compile(r"kvspill-\d+-[0-9a-f]{8}")
_SUBDIR_NAME = re.compile(r"[0-9a-f]{2}")
_FILE_NAME = re.compile(r"[0-9a-f]{32}-\d+(\.tmp)?|probe(\.tmp)?")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class RunDir:
    """One private directory under a root the user named. Paths in it are given relative to `fd`."""

    def __init__(self, root: Path):
        self.root = root
        self.name = f"kvspill-{os.getpid()}-{secrets.token_hex(4)}"
        with _usage_errors(root):
            root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.mkdir(self.name, 0o700, dir_fd=root_fd)
                self.fd = os.open(self.name, _DIRECTORY, dir_fd=root_fd)
                try:
                    self._lock_fd = _make_marker(self.fd)
                except OSError:
                    os.close(self.fd)
                    _remove_unmarked(root_fd, self.name)
                    raise
            finally:
                os.close(root_fd)
        self._made: set[str] = set()
        self._open = True

    @property
    def path(self) -> Path:
        return self.root / self.name

    def make_subdir(self, name: str) -> None:
        """Make one of the 256 subdirectories when its first file comes."""
        if name not in self._made:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=self.fd)
            self._made.add(name)

    def remove(self, keep_fds: bool = False) -> list[str]:
        """Remove all that the run made; returns what is not the run's and was left. Safe to call twice."""
        if not self._open:
            return []
        self._open = False
        with contextlib.suppress(FileNotFoundError):
            root_fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                return _remove_run(root_fd, self.name, self.fd)
            finally:
                os.close(root_fd)
                if not keep_fds:
                    os.close(self.fd)
                    os.close(self._lock_fd)
        return []


def clean(root: Path) -> list[Path]:
    """Remove the run directories under root that killed runs left; returns those removed.

    Ours is only what has our name, our owner and our marker, is a real directory, and is locked by nobody.
    """
    removed = []
    with _usage_errors(root):
        root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(root_fd) as entries:
            names = [
                e.name for e in entries if _RUN_NAME.fullmatch(e.name) and e.is_dir(follow_symlinks=False)
            ]
        for name in sorted(names):
            if _remove_if_stale(root_fd, name):
                removed.append(root / name)
    finally:
        os.close(root_fd)
    return removed


@contextlib.contextmanager
def _usage_errors(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"cache directory {root}: {reason}; name a writable directory with --cache-dir"
        ) from error


def _make_marker(run_fd: int) -> int:
    """Write and lock the marker before it gets its name, so that no other run sees it unlocked."""
    fd = os.open(MARKER + ".new", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=run_fd)
    with contextlib.suppress(OSError):
        # Without flock (some network file systems) cleaning finds no lock to take either and leaves us alone.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(fd, _MARKER_TEXT)
    os.rename(MARKER + ".new", MARKER, src_dir_fd=run_fd, dst_dir_fd=run_fd)
    return fd


def _remove_unmarked(root_fd: int, name: str) -> None:
    """Take back a directory whose marker could not be made, on a full disk for one."""
    run_fd = os.open(name, _DIRECTORY, dir_fd=root_fd)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(MARKER + ".new", dir_fd=run_fd)
    finally:
        os.close(run_fd)
    os.rmdir(name, dir_fd=root_fd)


def _remove_if_stale(root_fd: int, name: str) -> bool:
    try:
        run_fd = os.open(name, _DIRECTORY, dir_fd=root_fd)
    except OSError:
        return False
    try:
        if os.fstat(run_fd).st_uid != os.getuid():
            return False
        lock_fd = _lock_marker(run_fd)
        if lock_fd is None:
            return False
        try:
            return not _remove_run(root_fd, name, run_fd)
        finally:
            os.close(lock_fd)
    finally:
        os.close(run_fd)


def _lock_marker(run_fd: int) -> int | None:
    try:
        fd = os.open(MARKER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=run_fd)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ours = stat.S_ISREG(os.fstat(fd).st_mode) and os.read(fd, len(_MARKER_TEXT) + 1) == _MARKER_TEXT
    except OSError:
        ours = False
    if not ours:
        os.close(fd)
        return None
    return fd


def _remove_run(root_fd: int, name: str, run_fd: int) -> list[str]:
    """Remove a run directory through its descriptors; returns what was not ours and therefore stays."""
    foreign = []
    for entry_name, is_dir in _entries(run_fd):
        if is_dir and _SUBDIR_NAME.fullmatch(entry_name):
            foreign += _remove_subdir(run_fd, entry_name)
        elif not is_dir and _FILE_NAME.fullmatch(entry_name):
            os.unlink(entry_name, dir_fd=run_fd)
        elif entry_name not in (MARKER, MARKER + ".new"):
            foreign.append(entry_name)
    if foreign:
        return foreign
    # The marker goes last: a removal that is itself killed can be finished by the next run.
    os.unlink(MARKER, dir_fd=run_fd)
    os.rmdir(name, dir_fd=root_fd)
    return []


def _remove_subdir(run_fd: int, name: str) -> list[str]:
    fd = os.open(name, _DIRECTORY, dir_fd=run_fd)
    foreign = []
    try:
        for entry_name, is_dir in _entries(fd):
            if is_dir or not _FILE_NAME.fullmatch(entry_name):
                foreign.append(f"{name}/{entry_name}")
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry_name, dir_fd=fd)
    finally:
        os.close(fd)
    if not foreign:
        try:
            os.rmdir(name, dir_fd=run_fd)
        except OSError:
            # A thread stuck in a system call made one more file: the marker stays, the next run finishes.
            foreign.append(f"{name}/")
    return foreign


def _entries(fd: int) -> list[tuple[str, bool]]:
    with os.scandir(fd) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
