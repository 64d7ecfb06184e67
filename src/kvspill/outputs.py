"""Files that a user names for results: replaced whole; devices and open pipes are written through."""

import contextlib
import errno
import functools
import hashlib
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TypeVar

from kvspill.errors import KvspillError, reason_of
from kvspill.waiting import within

StrPath = str | os.PathLike[str]
T = TypeVar("T")
Turn = Callable[[Path], contextlib.AbstractContextManager[object]]

RESULTS = Path("kvspill-results")
"""Where results go that nobody named a place for."""
WRITING_SECONDS_MAX = 20.0
"""A disk that has not taken a file by then, and the time that a slow one needs for its bytes, hangs."""
_SLOWEST_BYTES_PER_SEC = 1 << 20
_REMOVING_SECONDS_MAX = 0.2

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._+-]+")
_NAME_PART_CHARACTERS = 100
_NAME_BYTES_MAX = 255


def write_whole(
    path: StrPath, data: str | bytes, *, named: bool = True, turn: Turn = contextlib.nullcontext
) -> Path:
    """Write a file whole or not at all, through links to where they lead; returns the path as given.

    A file that is replaced keeps its mode, and the new one survives a crash. What is no regular file
    (/dev/null, /dev/stdout, a pipe that is open already) is written through and never replaced. Where
    nobody named the file, only its directory, a link or a pipe of that name is replaced: it might lead
    anywhere. A disk that hangs is given up with a TimeoutError. The turn is waited for, with the new file
    at hand, before the old one is replaced.
    """
    given = Path(path)
    raw = data.encode() if isinstance(data, str) else data

    def replace(write: _Write) -> bool:
        if named and is_stream(given):
            return False
        target = _target(given, named=named)
        target.parent.mkdir(parents=True, exist_ok=True)
        with _written(target, raw, write) as temporary, turn(target):
            os.replace(temporary, target)
            _sync_folder(target.parent)
        return True

    if not _in_time(given.parent, len(raw), replace):
        # Its reader takes its time.
        with open(_open_stream(given), "wb") as stream:
            stream.write(raw)
    return given


def write_file(path: StrPath, data: str | bytes, flag: str = "", *, named: bool = True) -> Path:
    """Write what a flag names, or say in one line why not; `named` is as for write_whole."""
    try:
        return write_whole(path, data, named=named)
    except OSError as error:
        said = f"{flag} {path}".lstrip()
        raise KvspillError(f"{said}: cannot be written ({reason_of(error)}); name another file") from error


def write_new(paths: Iterable[Path], data: str) -> Path:
    """Write a file whole under the first of these names that nobody has taken; returns that path.

    Of several processes that try the same names at once each gets a name of its own.
    """
    raw = data.encode()

    def take(path: Path, write: _Write) -> bool:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _written(path, raw, write) as temporary, contextlib.suppress(FileExistsError):
            _give_name(temporary, path)
            _sync_folder(path.parent)
            return True
        return False

    for path in paths:
        if _in_time(path.parent, len(raw), functools.partial(take, path)):
            return path
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


class _Write:
    """A write under way, which may hang."""

    def __init__(self) -> None:
        self.temporary: Path | None = None
        self.given_up = False
        self.over = False

    def check(self) -> None:
        """Go no further where it was given up: the file may have been written anew since."""
        if self.given_up:
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))


_hanging: dict[Path, _Write] = {}
"""The last write to a directory that was given up."""


def _in_time(folder: Path, nbytes: int, work: Callable[[_Write], T]) -> T:
    """Do a write to that directory; a TimeoutError where the disk hangs, at once where it still does."""
    folder = folder.absolute()
    if folder in _hanging and not _hanging[folder].over:
        raise TimeoutError(errno.ETIMEDOUT, "its disk hangs")
    write = _Write()

    def attempt() -> T:
        try:
            return work(write)
        finally:
            write.over = True

    try:
        return within(WRITING_SECONDS_MAX + nbytes / _SLOWEST_BYTES_PER_SEC, attempt)
    except (TimeoutError, KeyboardInterrupt):
        write.given_up = True
        _hanging[folder] = write
        temporary = write.temporary
        if temporary is not None:
            with contextlib.suppress(OSError):
                within(_REMOVING_SECONDS_MAX, lambda: temporary.unlink(missing_ok=True))
        raise


@contextlib.contextmanager
def _written(target: Path, raw: bytes, write: _Write) -> Iterator[Path]:
    """The data in a synced file beside the target, under a name that nobody can foresee; gone afterwards."""
    temporary = write.temporary = temporary_beside(target)
    file = _open_new(temporary, target)
    try:
        with file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        write.check()
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _open_new(temporary: Path, target: Path) -> IO[bytes]:
    """A new file with the mode of the one that it will replace, if any."""
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with contextlib.suppress(FileNotFoundError):
            found = target.lstat()
            if stat.S_ISREG(found.st_mode):
                os.fchmod(fd, stat.S_IMODE(found.st_mode))
        return open(fd, "wb")
    except OSError:
        for undo in (functools.partial(os.close, fd), functools.partial(os.unlink, temporary)):
            with contextlib.suppress(OSError):
                undo()
        raise


class Growing:
    """A file that grows during a run: it gets its name once it is whole. `named` is as for write_whole."""

    def __init__(self, path: StrPath, *, named: bool = True):
        given = Path(path)
        self._target = _target(given, named=named)
        self._temporary: Path | None = None
        if named and is_stream(given):
            self.file: IO[bytes] = os.fdopen(_open_stream(given), "wb")
            return
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self._temporary = temporary_beside(self._target)
        self.file = _open_new(self._temporary, self._target)

    def keep(self) -> None:
        """Give the file its name; a disk that hangs is given up with a TimeoutError."""
        self.file.flush()
        if self._temporary is not None:
            temporary, self._temporary = self._temporary, None
            _in_time(self._target.parent, self.file.tell(), functools.partial(self._give_name, temporary))
        self.file.close()

    def _give_name(self, temporary: Path, write: _Write) -> None:
        write.temporary = temporary
        try:
            os.fsync(self.file.fileno())
            write.check()
            os.replace(temporary, self._target)
            _sync_folder(self._target.parent)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def drop(self, *, hangs: bool = False) -> None:
        """Leave nothing of it, unless it is kept already. What hangs in a write cannot be closed."""
        with contextlib.suppress(OSError):
            if hangs:
                within(_REMOVING_SECONDS_MAX, self._remove)
            else:
                within(WRITING_SECONDS_MAX, self._drop)

    def _drop(self) -> None:
        with contextlib.suppress(OSError):
            self.file.close()
        self._remove()

    def _remove(self) -> None:
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)


def _give_name(temporary: Path, path: Path) -> None:
    """A second name for the file; FileExistsError where somebody has that name."""
    try:
        os.link(temporary, path, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        # Without hard links: take the name first, then put the file there.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        os.replace(temporary, path)


def _sync_folder(folder: Path) -> None:
    """Make a new name survive a crash, where the file system can."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)


def file_name(text: str) -> str:
    """A text such as a model's name as part of a file's name: never another directory, never too long."""
    return _NOT_IN_NAMES.sub("_", text)[:_NAME_PART_CHARACTERS]


def beside(path: Path, ending: str) -> Path:
    """A file that is named after another; where that is too long, by a part of the name and its hash."""
    name = os.fsencode(path.name)
    if len(name) + len(ending) > _NAME_BYTES_MAX:
        return path.with_name(f"{file_name(path.name)}-{hashlib.sha256(name).hexdigest()[:16]}{ending}")
    return path.with_name(f"{path.name}{ending}")


def is_stream(path: Path) -> bool:
    """Whether something stands there that is to be written through; false for files, new ones included."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    if _own_output(found) is not None or stat.S_ISCHR(found.st_mode):
        return True
    # A pipe that we were handed, such as /dev/fd/63, has no name; to open one with a name waits for a reader.
    if stat.S_ISFIFO(found.st_mode) and not real_path(path).exists():
        return True
    if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
        return False
    raise OSError("a named pipe, a disk or a socket, and no file")


def _open_stream(path: Path) -> int:
    own = _own_output(path.stat())
    if own is None:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY)
    # Opened by its name, a file that the shell redirected to would be written from its start again.
    sys.stdout.flush()
    return os.dup(own)


def _own_output(found: os.stat_result) -> int | None:
    """The descriptor of our standard output or error that is this very file."""
    for fd, stream in ((1, sys.__stdout__), (2, sys.__stderr__)):
        with contextlib.suppress(OSError):
            if stream is not None and os.path.samestat(found, os.fstat(fd)):
                return fd
    return None


def _target(given: Path, *, named: bool) -> Path:
    """What is replaced: where a link leads, or the link itself where nobody named it."""
    return real_path(given) if named else real_path(given.parent) / given.name


def real_path(path: Path) -> Path:
    """Through all links, whether the file exists or not."""
    return Path(os.path.realpath(path))


def temporary_beside(target: Path) -> Path:
    """A name that nobody can foresee, short enough for any file system whose names the target's own fits."""
    return target.with_name(f".kvspill-{secrets.token_hex(8)}.tmp")
