"""Opening recorded files for reading: plain, packed by gzip or by zstd."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn, cast

from kvspill.errors import UsageError, reason_of
from kvspill.inputs import open_input

_PACKED_BYTES = 1 << 16
_ZSTD_WINDOW_MAX = 1 << 27
"""More memory for unpacking than the format's own tools take without being asked is refused."""


class BrokenFrameError(EOFError):
    """A zstd file whose bytes are cut off or altered."""


BROKEN_PACKING = (EOFError, zlib.error)
"""What reading a packed file raises where its bytes are cut off or altered."""


@contextmanager
def open_bytes(path: Path, flag: str) -> Iterator[io.BufferedReader]:
    """The file's bytes, unpacked where its name ends in .gz or .zst."""
    try:
        file = open_input(path, streams=True)
    except OSError as error:
        unreadable(path, flag, error)
    with file:
        suffix = path.suffix.lower()
        if suffix == ".zst":
            yield io.BufferedReader(_Frames(file, path, flag))
        else:
            yield cast(io.BufferedReader, gzip.GzipFile(fileobj=file) if suffix == ".gz" else file)


class _Frames(io.RawIOBase):
    """Unpacks a zstd file, and says where it ends or breaks in the middle."""

    def __init__(self, file: IO[bytes], path: Path, flag: str):
        try:
            import zstandard
        except ImportError:
            raise UsageError(
                f"{flag} {path}: needs zstandard, not installed here; `pip install 'kvspill[zstd]'`, "
                "or unpack the file"
            ) from None
        self._file = file
        self._error = zstandard.ZstdError
        self._new = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX).decompressobj
        self._frame = self._new()
        self._begun = False
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            packed = self._frame.unused_data or self._file.read(_PACKED_BYTES)
            if not packed:
                if self._begun and not self._frame.eof:
                    raise BrokenFrameError("the file ends within a frame")
                return 0
            if self._frame.eof:
                # One file may be made of several frames.
                self._frame = self._new()
            self._begun = True
            try:
                self._ready = self._frame.decompress(packed)
            except self._error as error:
                raise BrokenFrameError(str(error)) from error
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


def unreadable(path: Path, flag: str, error: OSError) -> NoReturn:
    """Say in one line why a file can't be read."""
    reason = reason_of(error)
    raise UsageError(f"{flag} {path}: cannot be read ({reason}); name a readable file") from error
