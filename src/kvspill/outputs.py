"""Files that a user names for results: a file is replaced whole, a device or a pipe is written through."""

import contextlib
import os
import stat
import sys
from pathlib import Path
from typing import IO

from kvspill.errors import UsageError

StrPath = str | os.PathLike[str]


def write_whole(path: StrPath, data: str | bytes, *, durable: bool = False) -> Path:
    """Write a file whole or not at all, through links to where they lead; returns the path as given.

    What is no regular file (/dev/null, /dev/stdout, a FIFO) is written through and never replaced.
    durable: make sure that it survives a crash.
    """
    given = Path(path)
    raw = data.encode() if isinstance(data, str) else data
    if _is_stream(given):
        with open(_open_stream(given), "wb") as stream:
            stream.write(raw)
        return given
    target = _real(given)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(target)
    try:
        with open(temporary, "wb") as file:
            file.write(raw)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(target)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    return given


def check_place(path: StrPath, label: str) -> None:
    """Refuse a file that could not be written later; leaves nothing behind, makes no directory."""
    remedy = "name a file in a writable directory"
    given = Path(path)
    try:
        if given.is_dir():
            raise UsageError(f"{label}: is a directory; name a file in it")
        if given.exists() and not os.access(given, os.W_OK):
            raise UsageError(f"{label}: is not writable; {remedy}")
        if _is_stream(given):
            # Not opened before its time: a FIFO would wait for its reader.
            return
        target = _real(given)
        folder = next(above for above in target.parents if above.exists())
        if not folder.is_dir():
            raise UsageError(f"{label}: {folder} is not a directory; {remedy}")
        _try_writing(_temporary(folder / target.name), label, remedy)
    except (OSError, ValueError) as error:
        raise UsageError(f"{label}: cannot be reached ({_reason(error)}); {remedy}") from error


def _try_writing(probe: Path, label: str, remedy: str) -> None:
    # Permission bits don't tell: root is refused in /proc and /sys all the same, as anyone on a full disk is.
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        probe.unlink()
    except OSError as error:
        raise UsageError(f"{label}: {probe.parent} takes no file ({_reason(error)}); {remedy}") from error


def _is_stream(path: Path) -> bool:
    """Whether something stands there that is to be written through; false for files, new ones included."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    if _own_output(found) is not None or stat.S_ISCHR(found.st_mode) or stat.S_ISFIFO(found.st_mode):
        return True
    if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
        return False
    raise OSError("a disk or a socket, and no file")


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


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.tmp")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def mute(stream: IO[str]) -> None:
    """Send what a stream still holds, and all that follows, nowhere: its reader is gone."""
    try:
        fd = stream.fileno()
    except ValueError:
        # Closed, or without a descriptor: it keeps nothing that could fail later.
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, fd)
    finally:
        os.close(nowhere)
