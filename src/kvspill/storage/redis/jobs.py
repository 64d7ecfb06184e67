"""What threads do for one object on a server: send its values, ask for them, or remove them."""

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from kvspill.records import DROPPED
from kvspill.storage.base import Source
from kvspill.storage.buffers import DataPlane
from kvspill.storage.fastio import Span
from kvspill.storage.files.place import Name, missing, name_of
from kvspill.storage.jobs import RemovalJob, SpanJob, Worker
from kvspill.storage.redis.link import Link, ServerError, command
from kvspill.storage.redis.runs import Names
from kvspill.storage.redis.server import Servers
from kvspill.storage.stamps import Bytes, Identity, Verify, block_padded, stamp

_MOVED = ("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN")
"""Answers of a cluster whose servers are changing places."""
_AWAY_SECONDS = 10.0
_NAP_SECONDS = 0.1


class _MovedError(OSError):
    """The key is on another server now."""


@dataclass(slots=True)
class Store:
    """Where objects are kept and how, and which there are. Used by many threads."""

    servers: Servers
    names: Names
    plane: DataPlane
    verify: Verify
    piece_bytes: int
    pieces_per_value: int
    depth: int
    """Values asked for or sent before the first of them is answered, on each connection."""
    kept: dict[Name, int] = field(default_factory=dict)
    """Objects that are whole, with the number of their values."""
    remains: dict[Name, int] = field(default_factory=dict)
    """Objects of which the server may keep some values: their write or their removal failed."""
    dropped: set[Name] = field(default_factory=set)
    """Objects that the server was found to have given up, until they are removed."""
    dropped_count: int = 0
    retries: int = 0
    _lock: Lock = field(default_factory=Lock)

    def value_count(self, span: Span) -> int:
        return -(-span.piece_count // self.pieces_per_value)

    def keys(self, name: Name, count: int) -> list[str]:
        return [self.names.value(*name, index) for index in range(count)]

    def count_dropped(self, name: Name) -> None:
        """The server gave up an object, or part of it."""
        with self._lock:
            if name not in self.dropped:
                self.dropped.add(name)
                self.dropped_count += 1

    def carried(self, key: str, use: Callable[[Link], None]) -> None:
        """Use a link to a key's server; where it is lost, once more with a new one (S13)."""
        for last in (False, True):
            try:
                with self.servers.link(key) as link:
                    use(link)
                return
            except _MovedError:
                if last:
                    raise
                self.servers.find_again()
            except ConnectionError:
                if last:
                    raise
            with self._lock:
                self.retries += 1


class ValueJob(SpanJob):
    """An object's values on their way, several at a time on each connection."""

    __slots__ = ("name", "store")

    def __init__(self, store: Store, identity: Identity, nbytes: int):
        super().__init__(Span(identity, nbytes, block_padded(nbytes), store.piece_bytes))
        self.store = store
        self.name = name_of(identity)

    def helpers(self) -> int:
        return min(super().helpers(), max(0, self.store.value_count(self.span) - 1))

    def move(self, worker: Worker) -> None:
        store, under_way = self.store, deque[range]()
        if not self.span.piece_count:
            return
        memory = worker.memory(store.piece_bytes)

        def use(link: Link) -> None:
            for value in under_way:
                self.ask(link, value)
            while True:
                while len(under_way) < store.depth and (value := self.span.take_some(store.pieces_per_value)):
                    under_way.append(value)
                    self.ask(link, value)
                if not under_way:
                    return
                try:
                    self.take_answer(link, under_way[0], memory)
                except ServerError as error:
                    if str(error).startswith(_MOVED):
                        raise _MovedError(str(error)) from error
                    self.fail(error.kind, str(error))
                under_way.popleft()

        store.carried(self.key(range(1)), use)

    def key(self, value: range) -> str:
        return self.store.names.value(*self.name, value.start // self.store.pieces_per_value)

    def value_bytes(self, value: range) -> int:
        return sum(self.span.extent(piece)[1] for piece in value)

    @abstractmethod
    def ask(self, link: Link, value: range) -> None:
        """Send the command for a value; it may be sent again where the connection is lost."""

    @abstractmethod
    def take_answer(self, link: Link, value: range, memory: Bytes) -> None:
        """Take the answer to it."""


class ReadJob(ValueJob):
    """Asks for the values of an object and checks them."""

    __slots__ = ()

    def begin(self) -> int:
        if self.name not in self.store.kept:
            raise missing(self.span.identity)
        return self.helpers()

    def ask(self, link: Link, value: range) -> None:
        for piece in value:
            self.span.begin(piece)
        link.send([command(b"GET", self.key(value).encode())])

    def take_answer(self, link: Link, value: range, memory: Bytes) -> None:
        span, store = self.span, self.store
        nbytes, wanted = link.answer(), self.value_bytes(value)
        if nbytes is None:
            store.count_dropped(self.name)
            self.fail(DROPPED, f"the server no longer has {self.key(value)}")
            return
        if nbytes != wanted:
            self.fail("short_read", f"{nbytes} of {wanted} bytes in {self.key(value)}")
            link.discard(nbytes, memory)
            return
        start_ns = int(span.log[value.start + 1, 0])
        for piece in value:
            _, length = span.extent(piece)
            link.receive(memory[:length])
            end_ns = time.monotonic_ns()
            span.note(piece, start_ns, end_ns, length)
            start_ns = end_ns
            self.check(memory, piece, store.verify, store.plane.base)


class WriteJob(ValueJob):
    """Sends the values of an object, made from base data or from the memory that a source lends (E5)."""

    __slots__ = ("source",)

    def __init__(self, store: Store, identity: Identity, nbytes: int, source: Source | None):
        super().__init__(store, identity, nbytes)
        self.source = source

    def begin(self) -> int:
        self.store.remains[self.name] = self.store.value_count(self.span)
        return self.helpers()

    def ask(self, link: Link, value: range) -> None:
        head = b"*3\r\n$3\r\nSET\r\n"
        key = self.key(value).encode()
        head += b"$%d\r\n%s\r\n$%d\r\n" % (len(key), key, self.value_bytes(value))
        for piece in value:
            self.span.begin(piece)
        for piece in value:
            tail = b"\r\n" if piece == value[-1] else b""
            end_ns = self._send(link, piece, head, tail)
            head = b""
            if not tail:
                self.span.note(piece, int(self.span.log[piece + 1, 0]), end_ns, self.span.extent(piece)[1])

    def _send(self, link: Link, piece: int, head: bytes, tail: bytes) -> int:
        offset, nbytes = self.span.extent(piece)
        if self.source is not None:
            link.send(_around(head, self.source.buffers(offset, nbytes), tail))
            return time.monotonic_ns()
        with self.store.plane.lease(nbytes) as memory:
            stamp(memory, self.span.identity, offset, nbytes)
            link.send(_around(head, [memory], tail))
            return time.monotonic_ns()

    def take_answer(self, link: Link, value: range, memory: Bytes) -> None:
        del memory
        if not link.answer():
            self.fail("EPROTO", f"the server does not say that it stored {self.key(value)}")
            return
        last = value[-1]
        start_ns = int(self.span.log[last + 1, 0])
        self.span.note(last, start_ns, time.monotonic_ns(), self.span.extent(last)[1])

    def end(self) -> None:
        self.source, store = None, self.store
        if self.error is None:
            store.kept[self.name] = store.value_count(self.span)
            store.remains.pop(self.name, None)
            store.dropped.discard(self.name)
            return
        store.kept.pop(self.name, None)
        keys = store.keys(self.name, store.value_count(self.span))
        if not keys or not self.started_ns:
            return

        def use(link: Link) -> None:
            link.send([command(b"DEL", *(key.encode() for key in keys))])
            link.answer()

        try:
            store.carried(keys[0], use)
        except (OSError, ServerError):
            # The server is gone: what it may keep is removed at the end of the run, or by `clean`.
            return
        store.remains.pop(self.name, None)


def _around(head: bytes, buffers: Sequence[Any], tail: bytes) -> list[Any]:
    return [part for part in (head, *buffers, tail) if len(part)]


class DeleteJob(RemovalJob):
    """Removes the values of an object."""

    __slots__ = ("name", "store")

    def __init__(self, store: Store, identity: Identity):
        super().__init__()
        self.store = store
        self.name = name_of(identity)

    def move(self, worker: Worker) -> None:
        del worker
        store = self.store
        count = store.kept.pop(self.name, None)
        if count is None:
            self.fail("ENOENT", f"no object {self.name[0]}-{self.name[1]}")
            return
        if not count:
            return
        store.remains[self.name] = count
        keys = store.keys(self.name, count)

        def use(link: Link) -> None:
            start_ns = time.monotonic_ns()
            link.send([command(b"DEL", *(key.encode() for key in keys))])
            found = link.answer()
            self.device_ns = time.monotonic_ns() - start_ns
            if (found or 0) < count:
                store.count_dropped(self.name)

        try:
            self._carry(keys[0], use)
        except ServerError as error:
            self.fail(error.kind, str(error))
            return
        store.dropped.discard(self.name)
        store.remains.pop(self.name, None)

    def _carry(self, key: str, use: Callable[[Link], None]) -> None:
        """A removal waits for a server that is away: the room of one that failed would be lost for good."""
        until = time.monotonic() + _AWAY_SECONDS
        while True:
            try:
                return self.store.carried(key, use)
            except ConnectionError:
                if self.error is not None or time.monotonic() > until:
                    raise
            time.sleep(_NAP_SECONDS)
