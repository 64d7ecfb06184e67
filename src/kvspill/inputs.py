"""How much may be read of a file that a user names: bytes, values, depth and time, by the kind of file."""

import errno
import io
import json
import os
import select
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

StrPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Kind:
    """What a file is taken for, and the most that one of them can be."""

    name: str
    max_bytes: int
    streams: bool = False
    """Whether a pipe or a device may stand for the file, as /dev/stdin does."""


MIB = 1 << 20
CONFIGURATION = Kind("a configuration", MIB, streams=True)
RESULT = Kind("a result", 64 * MIB)
SUMMARY = Kind("a summary", 16 * MIB)
"""A table in CSV; of a workbook it bounds each part, unpacked."""
MANIFEST = Kind("the state of a suite", 16 * MIB)
SESSION = Kind("a session", 64 * MIB, streams=True)
"""A recording that is one document; those of many rows are streamed and may be of any size."""

ROW_BYTES_MAX = 64 * MIB
"""A longer row is no row of any trace, and must not take the memory for one."""
IDLE_ROWS_MAX = 1_000_000
IDLE_BYTES_MAX = 256 * MIB
"""Rows and bytes of a trace that may follow one another without a single request among them."""
HISTOGRAM_BYTES_MAX = MIB
"""A histogram unpacked; two days at three digits take a third of it at most."""
VALUES_MAX = 4_000_000
"""Values of one JSON document. Each takes up to two hundred bytes of memory."""
YAML_VALUES_MAX = 50_000
"""Values of a YAML file, those that aliases and merges repeat counted each time."""
TABLE_ROWS_MAX = 100_000
TABLE_CELLS_MAX = 2_000_000
DEPTH_MAX = 50
"""Lists and objects inside one another; no file of ours or of other programs comes near."""
DIGITS_MAX = 300
"""A number of more digits does not fit a float."""
WAIT_SECONDS = 10
"""How long a pipe may stay silent."""
WRITER_SECONDS = 1
"""How long a named pipe may have nobody who writes to it."""


class TooMuch(ValueError):  # noqa: N818 - says what is wrong with the text
    """A document with more in it than a file of its kind can have."""


class _Stream(io.RawIOBase):
    """A pipe or a device that is read as long as it has something to say."""

    def __init__(self, fd: int):
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        ready = self._poll.poll(WRITER_SECONDS * 1000)
        try:
            data = os.read(self._fd, len(buffer))
        except BlockingIOError:
            # Somebody can still write to it.
            ready = self._poll.poll((WAIT_SECONDS - WRITER_SECONDS) * 1000)
            if not ready:
                silent = f"a pipe into which nothing came for {WAIT_SECONDS} s"
                raise TimeoutError(errno.ETIMEDOUT, silent) from None
            data = os.read(self._fd, len(buffer))
        # A pipe whose writer has gone says so, also where that was a moment after the wait for it.
        if not data and not ready and not self._poll.poll(0):
            raise OSError(errno.EPIPE, "a named pipe to which nobody writes")
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()


def open_input(path: StrPath, *, streams: bool = False) -> IO[bytes]:
    """A file for reading. What else stands there is an OSError, and none of it is waited for without end."""
    try:
        # Without O_NONBLOCK a pipe that nobody writes to would hold us here.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from error
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return open(fd, "rb")
    if stat.S_ISDIR(mode) or not streams:
        os.close(fd)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        raise OSError(errno.ENODEV, "neither a file nor a directory")
    return io.BufferedReader(_Stream(fd))


def read_input(path: StrPath, kind: Kind) -> bytes:
    """All bytes of a file, which has no more of them than its kind can have."""
    with open_input(path, streams=kind.streams) as file:
        return read_bounded(file, kind)


def read_bounded(file: IO[bytes], kind: Kind) -> bytes:
    """What is left of a file, as far as its kind goes; an OSError where it goes on beyond that."""
    raw = file.read(kind.max_bytes + 1)
    if len(raw) > kind.max_bytes:
        raise OSError(errno.EFBIG, f"larger than {kind.name} can be ({kind.max_bytes // MIB} MiB)")
    return raw


def parse_json(text: str | bytes) -> Any:
    """The document in a text; TooMuch where its values, its depth or its numbers go beyond all bounds."""
    check_values(text)
    try:
        document = json.loads(text, parse_int=_whole_number)
    except RecursionError:
        raise TooMuch("nested too deeply") from None
    check_depth(document)
    return document


def check_values(text: str | bytes) -> None:
    """Refuse, before it is parsed, a JSON text of too many values."""
    if len(text) <= VALUES_MAX:
        return
    marks: Sequence[Any] = ",[{" if isinstance(text, str) else (b",", b"[", b"{")
    if sum(text.count(mark) for mark in marks) > VALUES_MAX:
        raise TooMuch(f"more than {VALUES_MAX:,} values")


def check_depth(document: Any) -> None:
    """Refuse a document whose lists and objects stand too deep inside one another."""
    layer = [document]
    for _ in range(DEPTH_MAX):
        layer = [
            inner
            for item in layer
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, dict | list)
        ]
        if not layer:
            return
    raise TooMuch("nested too deeply")


def _whole_number(digits: str) -> int:
    if len(digits) > DIGITS_MAX:
        raise TooMuch(f"a number of {len(digits):,} digits")
    return int(digits)
