"""What threads do for one object, wherever it lies: read it, write it, or remove it."""

import os
import time
from collections.abc import Callable

from kvspill.records import Completion
from kvspill.storage import fastio
from kvspill.storage.base import DirectSource, Expected, Landing, Source
from kvspill.storage.directio import preallocate
from kvspill.storage.fastio import Answer, Span, Status
from kvspill.storage.files.place import Place, Spot
from kvspill.storage.files.site import Site
from kvspill.storage.jobs import RemovalJob, SpanJob, Worker, errno_name
from kvspill.storage.stamps import Identity, Verify, block_padded

_BURST_BYTES = 64 << 20
"""A lane writes this much from one leased buffer before it takes the next: large entries are made of several
parts of the base, but each change needs the interpreter, and too many make the queue uneven."""


class FileJob(SpanJob):
    """One object's bytes on their way between memory and its spot."""

    __slots__ = ("fd", "handle", "place", "site", "spot")
    verb, doing = "", ""
    site: Site
    """Known once the job has begun."""

    def __init__(self, place: Place, identity: Identity, nbytes: int):
        super().__init__(Span(identity, nbytes, place.padded(nbytes), place.piece_bytes))
        self.place = place
        self.spot: Spot | None = None
        self.fd = -1
        self.handle: int | None = None
        """The file's handle of a device that reads or writes it itself."""

    def open(self, spot: Spot, flags: int) -> None:
        self.spot, self.site = spot, spot.site
        if spot.parts:
            self.span.places = spot.places(self.span)
        self.fd = spot.fd if spot.fd >= 0 else spot.site.open(spot.file, flags, bool(spot.parts))

    def open_direct(self) -> None:
        """Let the device open the file as well, where it reads and writes files itself."""
        landing, spot = self.site.landing, self.spot
        if landing is not None and landing.direct and spot is not None:
            self.handle = landing.open_file(self.fd, stays_open=spot.fd >= 0)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if self.spot is None or fd < 0:
            return
        try:
            if self.handle is not None and self.spot.fd < 0 and self.site.landing is not None:
                self.site.landing.close_file(self.handle)
            calls = self.span.resumed_calls
            if calls:
                self.site.tally.resumed(calls)
        finally:
            if self.spot.fd < 0:
                os.close(fd)

    def drop_pages(self) -> None:
        if self.spot is not None and self.site.access.drop_cache:
            for offset, nbytes in self.spot.ranges(self.span.total_bytes):
                self.site.drop_pages(self.fd, offset, nbytes)

    def each_piece(
        self, move: Callable[[int, int], int], look: Callable[[int], None] = lambda _piece: None
    ) -> Answer:
        """Move pieces by a call that answers how many bytes went, until none is left or one is short."""
        span = self.span
        while (piece := span.take()) is not None:
            _, nbytes = span.extent(piece)
            start_ns = span.begin(piece)
            moved = move(piece, nbytes)
            end_ns = time.monotonic_ns()
            if moved < nbytes:
                return Status.SHORT, piece, moved
            span.note(piece, start_ns, end_ns, nbytes)
            look(piece)
        return Status.EXHAUSTED, -1, 0

    def fail_answer(self, answer: Answer) -> None:
        """Fail as a transfer's answer says."""
        status, piece, value = answer
        if status == Status.EXHAUSTED:
            return
        assert self.spot is not None
        if status == Status.FAILED:
            self.fail(errno_name(value), f"{self.doing} {self.spot.file}")
        elif status == Status.SHORT:
            offset, nbytes = self.span.extent(piece)
            self.fail(f"short_{self.verb}", f"{value} of {nbytes} bytes at {offset} of {self.spot.file}")


class ReadJob(FileJob):
    """Reads an object and checks it."""

    __slots__ = ()
    verb, doing = "read", "reading"

    def begin(self) -> int:
        self.open(self.place.find(self.span.identity), os.O_RDONLY)
        self.open_direct()
        return self.helpers()

    def move(self, worker: Worker) -> None:
        span, site = self.span, self.site
        if site.landing is not None:
            by = self._move_on if self.handle is None else self._move_direct
            self.fail_answer(by(site.landing))
            return
        memory, base = worker.memory(span.piece_bytes), site.plane.base
        while (answer := fastio.transfer(self.fd, False, memory, span, site.verify, base))[0] == (
            Status.MISMATCH
        ):
            self.mismatch(memory, answer[1], site.verify, base)
        self.fail_answer(answer)

    def expected(self, piece: int) -> Expected | None:
        """What a piece must hold on a device, or None where nothing is to be looked at."""
        span, verify = self.span, self.site.verify
        nbytes = span.checked_bytes(piece)
        if verify is Verify.OFF or not nbytes:
            return None
        base = self.site.plane.base if verify is Verify.FULL else None
        return Expected(span.identity, span.extent(piece)[0], nbytes, base)

    def _move_on(self, landing: Landing) -> Answer:
        """Read pieces and let each travel on, to be looked at where it arrives, while the next is read."""
        span, berth = self.span, landing.berth()
        try:
            while True:
                memory = berth.memory()
                answer = fastio.transfer(self.fd, False, memory, span, Verify.OFF, fastio.NOTHING, 1)
                status, piece, _ = answer
                if status != Status.MORE:
                    return answer
                berth.send(memory[: span.extent(piece)[1]], self.expected(piece))
        finally:
            self.failures += berth.arrive()

    def _move_direct(self, landing: Landing) -> Answer:
        """Let the device read pieces itself and look at what came."""
        span, berth = self.span, landing.berth()

        def move(piece: int, nbytes: int) -> int:
            assert self.handle is not None, "the device has not opened the file"
            return berth.read_file(self.handle, span.place(piece), nbytes)

        def look(piece: int) -> None:
            expected = self.expected(piece)
            wrong = berth.wrong(expected) if expected is not None else None
            if wrong is not None:
                self.failures.append(wrong)

        return self.each_piece(move, look)

    def end(self) -> None:
        try:
            if self.fd >= 0:
                self.drop_pages()
        finally:
            self.close()


class WriteJob(FileJob):
    """Writes an object, made from base data or from the memory that a source lends (E5)."""

    __slots__ = ("keeps_room", "opened", "source")
    verb, doing = "write", "writing"

    def __init__(self, place: Place, identity: Identity, nbytes: int, source: Source | None):
        super().__init__(place, identity, nbytes)
        self.source = source
        self.opened = False
        self.keeps_room = False

    def begin(self) -> int:
        spot = self.spot = self.place.allot(self.span.identity, self.span.total_bytes)
        self.open(spot, os.O_RDWR | spot.flags)
        self.opened = True
        if isinstance(self.source, DirectSource):
            self.open_direct()
        if spot.reserve_bytes and spot.site.access.preallocates:
            preallocate(self.fd, spot.reserve_bytes)
        # Buffered writes hold the inode's lock: more lanes on one file would only spin on it.
        return self.helpers() if spot.site.access.direct else 0

    def move(self, worker: Worker) -> None:  # noqa: ARG002 - writes use leased base data
        if self.source is not None:
            self.fail_answer(self._move_lent(self.source))
            return
        span, plane = self.span, self.site.plane
        burst = max(1, _BURST_BYTES // span.piece_bytes)
        nbytes = min(span.piece_bytes, block_padded(span.total_bytes))
        answer: Answer = (Status.MORE, -1, 0)
        while answer[0] == Status.MORE:
            with plane.lease(nbytes) as memory:
                answer = fastio.transfer(self.fd, True, memory, span, Verify.OFF, fastio.NOTHING, burst)
        self.fail_answer(answer)

    def _move_lent(self, source: Source) -> Answer:
        handle, span = self.handle, self.span
        if handle is None or not isinstance(source, DirectSource):
            return fastio.transfer_lent(self.fd, source, span)
        return self.each_piece(
            lambda piece, nbytes: source.write_file(handle, span.place(piece), span.extent(piece)[0], nbytes)
        )

    def end(self) -> None:
        self.source = None
        if self.spot is None:
            return
        published = False
        try:
            self._finish()
            if self.error is None:
                self.place.publish(self.span.identity, self.spot)
                published = True
        except OSError as error:
            self.fail_os(error)
        finally:
            if not published:
                self._abandon(self.spot)

    def _abandon(self, spot: Spot) -> None:
        try:
            self.place.abandon(spot, self.opened)
        except FileNotFoundError:
            # Somebody was quicker; the room is free all the same.
            return
        except OSError as error:
            self.keeps_room = True
            self.fail_os(error)

    def complete(self, finished_ns: int) -> Completion:
        done = super().complete(finished_ns)
        done.keeps_room = self.keeps_room
        return done

    def _finish(self) -> None:
        """Have the bytes written and let go of the file, while it can still be abandoned.

        A network file system or a quota may tell only when it is closed that the bytes were not taken.
        """
        try:
            if self.error is None:
                self._make_durable()
        except OSError as error:
            self.fail_os(error)
        finally:
            self.close()

    def _make_durable(self) -> None:
        if self.site.sync or self.site.access.drop_cache:
            start_ns = time.monotonic_ns()
            os.fdatasync(self.fd)
            self.sync_ns = time.monotonic_ns() - start_ns
        self.drop_pages()


class DeleteJob(RemovalJob):
    """Removes an object from where it lies."""

    __slots__ = ("identity", "place")

    def __init__(self, place: Place, identity: Identity):
        super().__init__()
        self.place = place
        self.identity = identity

    def move(self, worker: Worker) -> None:  # noqa: ARG002 - no bytes move
        start_ns = time.monotonic_ns()
        try:
            self.place.remove(self.identity)
        finally:
            if not self.place.frees_by_mark:
                self.device_ns = time.monotonic_ns() - start_ns
