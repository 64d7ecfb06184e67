"""The redis backend: objects as values on a server, moved by threads with a connection each."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kvspill.errors import KvspillError
from kvspill.records import MIB
from kvspill.storage.base import (
    DROPPED_ENTRIES,
    LEFT_BEHIND,
    STORE_RESTARTS,
    Capabilities,
    Note,
    ObjectRef,
    Source,
)
from kvspill.storage.buffers import DataPlane
from kvspill.storage.jobs import Job
from kvspill.storage.lease import RENEW_SECONDS, Renewal
from kvspill.storage.mover import by_threads
from kvspill.storage.redis.jobs import DeleteJob, ReadJob, Store, WriteJob
from kvspill.storage.redis.runs import Names, clean, end, remove, renew
from kvspill.storage.redis.server import Access, Said, Servers, refusals
from kvspill.storage.rundir import new_run_name
from kvspill.storage.stamps import BLOCK_BYTES, Verify
from kvspill.storage.threaded import JOIN_NS, ThreadedBackend
from kvspill.texts import size_text

_LOOK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """How the redis backend stores objects."""

    io_threads: int = 32
    """Connections; --write-threads more where writes have their own."""
    write_threads: int = 0
    verify: str = "stamp"
    value_bytes: int = 4 * MIB
    """A longer object is stored as several values."""
    depth: int = 2


class RedisBackend(ThreadedBackend):
    """Objects under the keys of one run. Deletes have connections of their own."""

    def __init__(
        self,
        access: Access,
        options: RedisOptions,
        plane: DataPlane,
        limit_bytes: int,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        ranks: int = 1,
    ):
        mover = by_threads(options.io_threads, options.write_threads, clock_ns)
        super().__init__(mover, plane, clock_ns, (access.address, 1))
        self._access = access
        self._options = options
        self._limit_bytes = ranks * limit_bytes
        """Of all ranks that store there: what the server has room for is for all of them."""
        self._piece_bytes = min(plane.io_size, _whole_blocks(options.value_bytes))
        self._pieces_per_value = max(1, options.value_bytes // self._piece_bytes)
        self._store: Store | None = None
        self._renewal = Renewal(self._look, _LOOK_SECONDS)
        self._renewed_seconds = 0.0
        self._first: Said | None = None
        self._last: Said | None = None
        self._boots: set[str] = set()
        self._left: str | None = None

    @property
    def store(self) -> Store:
        """Where objects are; complete after prepare."""
        assert self._store is not None, "prepare was called"
        return self._store

    @property
    def capabilities(self) -> Capabilities:
        value_mib = self._piece_bytes * self._pieces_per_value / MIB
        about = f"values of at most {value_mib:g} MiB, {self._options.depth} under way on each connection"
        server = "" if self._first is None else f"{self._first.describe()}; "
        return Capabilities(
            "redis",
            modelled=False,
            verifies=Verify[self._options.verify.upper()] is not Verify.OFF,
            description=f"{server}{about}",
        )

    def _prepare(self) -> None:
        """Connect, remove what killed runs left, and take a lease on keys of our own."""
        servers = Servers(self._access)
        with refusals(self._access.address):
            said = self._first = self._last = servers.ask()
            clean(servers)
            names = Names(new_run_name())
            with self._closing:
                if self._closed:
                    servers.close()
                    return
                renew(servers, names)
                self._store = Store(
                    servers=servers,
                    names=names,
                    plane=self.plane,
                    verify=Verify[self._options.verify.upper()],
                    piece_bytes=self._piece_bytes,
                    pieces_per_value=self._pieces_per_value,
                    depth=self._options.depth,
                )
        self._boots |= said.boots
        self._renewed_seconds = time.monotonic()
        self._renewal.start()
        self._start(self._piece_bytes)

    def _look(self) -> None:
        """From time to time: what the server says of itself; every 30 s the lease."""
        store = self.store
        self._last = store.servers.ask()
        self._boots |= self._last.boots
        if time.monotonic() - self._renewed_seconds >= RENEW_SECONDS:
            renew(store.servers, store.names)
            self._renewed_seconds = time.monotonic()

    def facts(self) -> Mapping[str, int | float | str]:
        store, first, last = self._store, self._first, self._last
        if store is None or first is None or last is None:
            return {}
        return {
            "connections_made": store.servers.links_made,
            "retries": store.retries,
            "lease_renewals_missed": self._renewal.failed,
            DROPPED_ENTRIES: store.dropped_count,
            "server_evicted_keys": max(0, last.evicted_keys - first.evicted_keys),
            STORE_RESTARTS: len(self._boots) - first.servers,
            "server_maxmemory_bytes": last.maxmemory_bytes,
            "server_used_bytes": last.used_bytes,
        }

    def notes(self) -> list[Note]:
        notes = []
        if self._left is not None:
            remedy = f"Run `kvspill clean {self._access.address}` once the server answers."
            notes.append(Note(LEFT_BEHIND, f"Not removed at the end: {self._left}.", remedy))
        said = self._first
        if said is not None and said.maxmemory_bytes and self._limit_bytes > said.room_bytes:
            then = "drops others" if said.evicts else "refuses more"
            message = (
                f"The run may hold {size_text(self._limit_bytes)}, but the server ({said.policy}) has "
                f"room for {size_text(said.room_bytes)} and then {then}."
            )
            remedy = "Give a smaller --storage-capacity-gb, or raise the server's maxmemory."
            notes.append(Note("store_memory", message, remedy))
        return notes

    def read_job(self, ref: ObjectRef) -> Job:
        return ReadJob(self.store, self.identify(ref), ref.nbytes)

    def write_job(self, ref: ObjectRef, source: Source | None) -> Job:
        return WriteJob(self.store, self.identify(ref), ref.nbytes, source)

    def delete_job(self, ref: ObjectRef) -> Job:
        return DeleteJob(self.store, self.identify(ref))

    def close_now(self) -> None:
        with self._closing:
            closed, self._closed = self._closed, True
            store = self._store
        if closed:
            return
        self._renewal.stop()
        if store is None:
            self._mover.join(self.clock_ns())
            return
        hangs = self._mover.join(self.clock_ns() + JOIN_NS) > 0
        if hangs:
            # Threads that wait for a server that does not answer: nobody wants the answer any more.
            store.servers.wake()
            self._mover.join(self.clock_ns() + JOIN_NS)
        self._remove(store, hangs)
        store.servers.close()

    def _remove(self, store: Store, hangs: bool) -> None:
        objects = {**store.remains, **store.kept}
        keys = [key for name, count in objects.items() for key in store.keys(name, count)]
        if hangs:
            self._left = f"{len(keys):,} values of {store.names.run} (the server does not answer)"
            return
        try:
            with refusals(self._access.address):
                renew(store.servers, store.names, over=True)
                remove(store.servers, keys)
                end(store.servers, store.names)
        except KvspillError as error:
            self._left = f"{len(keys):,} values of {store.names.run} ({error})"


def _whole_blocks(nbytes: int) -> int:
    return max(BLOCK_BYTES, nbytes // BLOCK_BYTES * BLOCK_BYTES)
