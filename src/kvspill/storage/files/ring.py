"""One io_uring through the liburing binding: submit vectors, wait without the GIL, reap completions."""

import ctypes
import errno
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from kvspill.errors import KvspillError

_RETRY_SECONDS = 0.001
_BUSY = frozenset({errno.EAGAIN, errno.EBUSY, errno.EINTR})
_VIEWS_MAX = 1 << 16
_NEEDED = (
    "Cqe",
    "Iovec",
    "Ring",
    "io_uring_cq_advance",
    "io_uring_cq_ready",
    "io_uring_get_sqe",
    "io_uring_peek_cqe",
    "io_uring_prep_readv",
    "io_uring_prep_writev",
    "io_uring_queue_exit",
    "io_uring_queue_init",
    "io_uring_register_eventfd",
    "io_uring_sqe_set_data64",
    "io_uring_submit",
)


class RingError(KvspillError):
    """Why no ring can be had here, and what would change that."""

    def __init__(self, reason: str, remedy: str):
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


class Ring:
    """A ring and the eventfd that tells of completions and of new work. The binding's own waiting calls
    hold the GIL, so they are not used: a read of the eventfd waits in their place."""

    def __init__(self, entries: int):
        self._lib = _binding()
        self._ring = self._lib.Ring()
        self._cqe = self._lib.Cqe()
        self._views: dict[tuple[int, int], memoryview] = {}
        self._closing = threading.Lock()
        self._fd = -1
        self._open = False
        try:
            self._lib.io_uring_queue_init(entries, self._ring)
        except OSError as error:
            raise RingError(
                f"the kernel refuses io_uring ({error.strerror})",
                "allow it with sysctl kernel.io_uring_disabled=0, or in the container's seccomp profile",
            ) from error
        self._open = True
        try:
            self._fd = os.eventfd(0, os.EFD_CLOEXEC)
            self._lib.io_uring_register_eventfd(self._ring, self._fd)
        except OSError as error:
            self.close()
            raise RingError(
                f"io_uring cannot signal its completions ({error.strerror})", "use --io-engine threads"
            ) from error

    def submit(self, fd: int, write: bool, buffers: Sequence[Any], offset: int, tag: int) -> None:
        """Hand one transfer to the kernel. The caller keeps the buffers until the tag was reaped; after
        an error the kernel may still take them, so neither they nor the ring may be used again."""
        lib = self._lib
        vectors = lib.Iovec([self._view(buffer) for buffer in buffers])
        entry = lib.io_uring_get_sqe(self._ring)
        if entry is None:
            raise OSError(errno.EBUSY, "the submission queue is full")
        prepare = lib.io_uring_prep_writev if write else lib.io_uring_prep_readv
        prepare(entry, fd, vectors, offset)
        lib.io_uring_sqe_set_data64(entry, tag)
        while True:
            try:
                lib.io_uring_submit(self._ring)
                return
            except OSError as error:
                if error.errno not in _BUSY:
                    raise
            time.sleep(_RETRY_SECONDS)

    def _view(self, buffer: Any) -> memoryview:
        """The buffer as the binding takes it. The binding never lets go of what it was given: a view by
        address costs a few bytes then, where the buffer itself would stay in memory for good."""
        array = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, dtype=np.uint8)
        key = array.__array_interface__["data"][0], array.nbytes
        view = self._views.get(key)
        if view is None:
            if len(self._views) >= _VIEWS_MAX:
                self._views.clear()
            view = self._views[key] = memoryview((ctypes.c_ubyte * key[1]).from_address(key[0])).cast("B")
        return view

    def wait(self) -> None:
        """Block until something has completed or wake was called."""
        with suppress(InterruptedError):
            os.eventfd_read(self._fd)

    def wake(self) -> None:
        """From any thread: let wait return."""
        with self._closing:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def reap(self) -> list[tuple[int, int]]:
        """Tag and answer (bytes, or a negative errno) of everything that has completed."""
        ready = self._lib.io_uring_cq_ready(self._ring)
        if not ready:
            return []
        self._lib.io_uring_peek_cqe(self._ring, self._cqe)
        found = []
        for _ in range(ready):
            # The queue wraps around: only its head may be looked at, one by one.
            found.append(_answer(self._cqe[0]))
            self._lib.io_uring_cq_advance(self._ring, 1)
            if len(found) < ready:
                self._lib.io_uring_peek_cqe(self._ring, self._cqe)
        return found

    def close(self) -> None:
        """Give the ring back; nothing may be in flight. Safe to call twice."""
        with self._closing:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)
            was_open, self._open = self._open, False
            if was_open:
                self._lib.io_uring_queue_exit(self._ring)


def _answer(entry: Any) -> tuple[int, int]:
    try:
        return entry.user_data, entry.res
    except OSError as error:
        return entry.user_data, -(error.errno or errno.EIO)


def _binding() -> Any:
    try:
        import liburing
    except ImportError as error:
        raise RingError(
            f"the liburing package cannot be used ({error})", 'install it with pip install "kvspill[uring]"'
        ) from error
    missing = [name for name in _NEEDED if not hasattr(liburing, name)]
    if missing:
        raise RingError(
            f"the liburing package lacks {', '.join(missing)}",
            'install it anew with pip install -U "kvspill[uring]"',
        )
    return liburing
