"""One connection to a server: commands go out and values come in without a copy on their way."""

import errno
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from typing import Any

from kvspill.storage.fastio import rest_of
from kvspill.storage.stamps import Bytes

_AHEAD_BYTES = 4096
"""Answers are short lines; what is read of a value behind such a line is copied to its place."""
_END = b"\r\n"


class ServerError(Exception):
    """The server answered a command with an error; the text begins with its kind, such as OOM."""

    @property
    def kind(self) -> str:
        """As errors are counted: an errno name where one says the same."""
        word = str(self).partition(" ")[0]
        return _KINDS.get(word) or f"redis_{word.lower()}"


_KINDS = {
    **{"OOM": "ENOSPC", "READONLY": "EROFS", "MISCONF": "EIO"},
    **dict.fromkeys(("NOAUTH", "WRONGPASS", "NOPERM"), "EACCES"),
}


class Link:
    """A connection that redis-py made (address, TLS, password, database); its socket is used directly.

    Its parser would read a value in parts of 64 KiB and put them together twice.
    """

    def __init__(self, connection: Any, timeout_seconds: float):
        self._connection = connection
        connection.connect()
        self._socket: socket.socket = connection._sock
        self._plain = not isinstance(self._socket, ssl.SSLSocket)
        self._flags = socket.MSG_WAITALL if self._plain else 0
        if self._plain:
            # The kernel's own timeout: with Python's, a call would return with whatever is there.
            self._socket.settimeout(None)
            limit = struct.pack("@ll", int(timeout_seconds), int(timeout_seconds % 1 * 1e6))
            for which in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._socket.setsockopt(socket.SOL_SOCKET, which, limit)
        else:
            self._socket.settimeout(timeout_seconds)
        self._timeout_seconds = timeout_seconds
        self._ahead = memoryview(bytearray(_AHEAD_BYTES))
        self._first = self._last = 0
        self._unread_end = False

    def send(self, buffers: Sequence[Any]) -> None:
        """Send buffers one behind the other."""
        if not self._plain:
            for buffer in buffers:
                self._timed(self._socket.sendall, buffer)
            return
        left = sum(len(buffer) for buffer in buffers)
        while left:
            moved = self._timed(self._socket.sendmsg, buffers)
            left -= moved
            if left:
                buffers = rest_of(buffers, moved)

    def answer(self) -> int | None:
        """The next answer: a number, the length of a value that follows, or None for no value.

        A plain text such as OK is the number 1. An error raises ServerError.
        """
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return 1
        if kind == b"-":
            raise ServerError(rest.decode(errors="replace"))
        if kind not in (b"$", b":"):
            raise OSError(errno.EPROTO, f"an answer that begins with {line[:20]!r}")
        try:
            number = int(rest)
        except ValueError:
            raise OSError(errno.EPROTO, f"an answer without a number: {line[:20]!r}") from None
        self._unread_end = kind == b"$" and number >= 0
        return None if kind == b"$" and number < 0 else number

    def receive(self, memory: Bytes) -> None:
        """Fill memory with the next bytes of the value that was announced."""
        view = memory.data
        done = min(len(view), self._last - self._first)
        view[:done] = self._ahead[self._first : self._first + done]
        self._first += done
        while done < len(view):
            done += self._timed(self._socket.recv_into, view[done:], 0, self._flags)

    def discard(self, nbytes: int, memory: Bytes) -> None:
        """Let go of a value that is not wanted."""
        while nbytes:
            part = min(nbytes, len(memory))
            self.receive(memory[:part])
            nbytes -= part

    def _line(self) -> bytes:
        if self._unread_end:
            self._unread_end = False
            while self._last - self._first < len(_END):
                self._read_ahead()
            self._first += len(_END)
        while True:
            ahead = bytes(self._ahead[self._first : self._last])
            length = ahead.find(_END)
            if length >= 0:
                self._first += length + len(_END)
                return ahead[:length]
            self._read_ahead()

    def _read_ahead(self) -> None:
        waiting = bytes(self._ahead[self._first : self._last])
        if len(waiting) == _AHEAD_BYTES:
            raise OSError(errno.EPROTO, "an answer without an end")
        self._ahead[: len(waiting)] = waiting
        self._first, self._last = 0, len(waiting)
        self._last += self._timed(self._socket.recv_into, self._ahead[self._last :])

    def _timed(self, call: Callable[..., Any], *words: Any) -> int:
        """A call that moves bytes; one that moves none in time, or finds the other end closed, raises."""
        try:
            moved = call(*words)
        except (BlockingIOError, TimeoutError, ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            text = f"nothing moved for {self._timeout_seconds:g} s"
            raise TimeoutError(errno.ETIMEDOUT, text) from error
        if moved == 0:
            raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")
        return moved or 0

    def close(self) -> None:
        self._connection.disconnect()

    def wake(self) -> None:
        """Called from another thread: end the call that a thread is in."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


def command(*words: bytes) -> bytes:
    """A command as it is sent."""
    return b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)])
