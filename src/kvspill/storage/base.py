"""What a backend is: batches of reads, writes and deletes, each item answered by a Completion."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

from kvspill.errors import KvspillError
from kvspill.records import Completion, Tier

if TYPE_CHECKING:
    from kvspill.storage.buffers import DataPlane
    from kvspill.storage.stamps import Bytes, Identity

Progress = Callable[[str, int, int], None]
"""Called with what is being prepared, bytes done and bytes in all."""

DROPPED_ENTRIES: Final = "store_dropped_entries"
"""Fact of a backend: objects that the store gave up by itself, and whose reads ended as DROPPED."""
STORE_RESTARTS: Final = "store_restarts"
"""Fact of a backend: how often servers were started anew during the run."""
SERVER_FACTS: Final = "server_"
"""How the names of facts begin that a server says of itself."""


def is_of_server(name: str) -> bool:
    """Whether a fact is the server's own: every rank that asks it hears the same, so they are not added."""
    return name == STORE_RESTARTS or name.startswith(SERVER_FACTS)


class ObjectRef(NamedTuple):
    """One stored version of one entry. Its content follows from it, so every block can be checked."""

    key: str
    generation: int
    nbytes: int


class Source(Protocol):
    """Memory that already holds an object's bytes, lent for the time of a write (E5)."""

    def buffers(self, offset: int, nbytes: int) -> Sequence[Any]:
        """The buffers that hold [offset, offset + nbytes), in order; offset is a multiple of 4 KiB."""
        ...

    def copy(self, offset: int, targets: "Sequence[Bytes]") -> None:
        """Fill the targets, one behind the other, with what lies at offset, a multiple of 4 KiB."""
        ...

    @property
    def pieces_at_once(self) -> int:
        """How many pieces a lane should copy in one go."""
        ...


DIRECT: Final = "direct"
COMPATIBILITY: Final = "compatibility mode"
"""How a device reads and writes files itself: past host memory, or after all by copies there."""


class DirectError(KvspillError):
    """Why a device can't read and write files itself: one clause."""


class Expected(NamedTuple):
    """What a piece of an object must hold where it has landed."""

    identity: "Identity"
    offset: int
    nbytes: int
    base: "Bytes | None"
    """Where it is given every byte is compared, else the stamps."""


class Berth(Protocol):
    """One thread's part of a landing: while the bytes of one buffer travel on, the next is filled."""

    def memory(self) -> "Bytes":
        """A buffer to read a piece into, free once what was sent from it has arrived."""
        ...

    def send(self, memory: "Bytes", expected: Expected | None) -> None:
        """Let these bytes travel on, without waiting for their arrival; then look at what is there."""
        ...

    def arrive(self) -> list[str]:
        """Wait until all that was sent is there: how pieces failed verification."""
        ...

    def read_file(self, handle: int, offset: int, nbytes: int) -> int:
        """Read a piece of a file that the device itself has opened; how many bytes came."""
        ...

    def wrong(self, expected: Expected) -> str | None:
        """How the piece that read_file brought fails verification, or None."""
        ...


class Landing(Protocol):
    """Where reads of a tier below end: the memory of a device, behind buffers that it has registered."""

    def reserve(self, lanes: int, piece_bytes: int) -> None:
        """Before the load: buffers and room for so many threads with pieces of this size."""
        ...

    def buffer(self, nbytes: int) -> "Bytes":
        """One more registered buffer, for a caller that keeps several pieces in flight."""
        ...

    def berth(self) -> Berth:
        """The calling thread's own."""
        ...

    @property
    def direct(self) -> bool:
        """Whether the device reads and writes files itself, past host memory."""
        ...

    def go_direct(self, wanted: str, fd: int) -> str:
        """Let the device read and write files itself and try it with this one: DIRECT or COMPATIBILITY.

        Raises a DirectError where it can't.
        """
        ...

    def open_file(self, fd: int, stays_open: bool) -> int:
        """The device's handle of an open file."""
        ...

    def close_file(self, handle: int) -> None:
        """Give the handle of a file that does not stay open back, before the file is closed."""
        ...

    def close_files(self) -> None:
        """Give back the handles of those that stayed open."""
        ...


@runtime_checkable
class DirectSource(Protocol):
    """A source whose device can write files itself."""

    def write_file(self, handle: int, place: int, offset: int, nbytes: int) -> int:
        """Write what lies at offset of the object at a place of the file; how many bytes went."""
        ...


class WriteItem(NamedTuple):
    """An object to write; without a source the backend makes its content."""

    ref: ObjectRef
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend is and can do, echoed into the result."""

    name: str
    modelled: bool
    """True where times come from a model and no byte moves: said wherever its numbers appear."""
    direct_io: bool = False
    verifies: bool = False
    description: str = ""
    files_opened_direct: int = 0
    files_opened_buffered: int = 0
    """Files opened so far with and without O_DIRECT, as the descriptors themselves say."""


@dataclass(frozen=True, slots=True)
class BackendContext:
    """All that a backend may need to be made; a plug-in's `make` gets one of these."""

    tier: Tier
    clock_ns: Callable[[], int]
    """The run's clock; in a real run the monotonic one."""
    limit_bytes: int
    """Size of the tier."""
    usable_bytes: int
    """What entries may take of it (C1)."""
    unit_bytes: int
    """The usual object: a block of KV."""
    settings: Mapping[str, Any]
    """Every setting of the run by its name."""
    roots: tuple[Path, ...] = ()
    """Checked directories, for one that needs directories."""
    addresses: tuple[str, ...] = ()
    """What --cache-dir named, for one that needs an address."""
    plane: "DataPlane | None" = None
    """Data that objects are made of, shared by the tiers; None in virtual time."""
    host_memory: "tuple[Bytes, ...]" = ()
    """What the tiers below keep objects in, for one that must register it with a device."""
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """The plug-in's own options by name."""
    claimed_bytes: int | None = None
    """What the run can come to hold in the tier at most; None where that is all of it."""
    ranks: int = 1
    """Of one launch that keep entries at the same addresses; each of them may fill a tier of such a size."""


LEFT_BEHIND = "left_behind"
PLUGIN_FAILED: Final = "plugin_failed"
"""The code of a note that says what a plug-in of another package did against its contract."""
_NAMED_MAX = 5


class Note(NamedTuple):
    """Something about a backend that a reader of the result must know."""

    code: str
    message: str
    remedy: str


def left_behind(left: Sequence[str], place: str = "DIR") -> list[Note]:
    """The note about what could not be removed from a place, where there is such."""
    if not left:
        return []
    more = f" and {len(left) - _NAMED_MAX:,} more" if len(left) > _NAMED_MAX else ""
    return [
        Note(
            LEFT_BEHIND,
            f"Not removed at the end: {', '.join(left[:_NAMED_MAX])}{more}.",
            "Files that are not the run's are yours to keep; for the others run "
            f"`kvspill clean {place}` later.",
        )
    ]


def forgotten(
    batch: Sequence[ObjectRef], forget: Callable[[ObjectRef], bool], clock_ns: Callable[[], int]
) -> list[Completion]:
    """Completions of deletes that only strike objects off a book; forget says whether one was there."""
    answers = []
    for ref in batch:
        now_ns = clock_ns()
        error = None if forget(ref) else "ENOENT"
        answers.append(Completion(now_ns, now_ns, clock_ns(), 0, error=error))
    return answers


class Backend(ABC):
    """One place to keep entries. All methods run on the event loop; threads are the backend's own."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What it is and what it did so far."""

    @abstractmethod
    def stored_bytes(self, nbytes: int) -> int:
        """Bytes that an entry of nbytes takes here, padding included (C7)."""

    async def prepare(self, progress: Progress) -> None:  # noqa: B027 - nothing to prepare is usual
        """Get ready before the load begins: touch memory, make directories."""

    @abstractmethod
    async def read(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        """Read every object and check it; one completion each, in order."""

    @abstractmethod
    async def write(self, batch: Sequence[WriteItem]) -> list[Completion]:
        """Write every object; only one without an error can be read."""

    @abstractmethod
    async def delete(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        """Remove every object; one that is not there is answered ENOENT."""

    def lend(self, ref: ObjectRef) -> Source | None:  # noqa: ARG002 - most have no memory to lend
        """The object's own memory for a write elsewhere, or None where it has none to lend."""
        return None

    def landing(self) -> Landing | None:
        """Where reads of the tiers below are to end, for one that is a device with memory of its own."""
        return None

    def deliver_to(self, landing: Landing) -> None:  # noqa: B027 - most leave what they read in host memory
        """Before prepare: let everything that is read end there."""

    def host_memory(self) -> "Sequence[Bytes]":
        """The memory of this process that objects lie in for the whole run, where they do."""
        return ()

    @abstractmethod
    def cancel(self) -> None:
        """The run is over: what is in flight ends early, its completions carry what was moved and
        error "cancelled"; whatever is asked afterwards is answered "cancelled" at once."""

    def stuck(self, now_ns: int, older_than_ns: int) -> list[int]:  # noqa: ARG002 - without threads
        """Ages of the system calls that have not returned for at least older_than_ns, oldest first."""
        return []

    def hanging(self, now_ns: int, older_than_ns: int) -> list[str]:  # noqa: ARG002 - storage needs no name
        """Where the calls of `stuck` hang, where that is no storage, such as GPU 0 (hit)."""
        return []

    def facts(self) -> Mapping[str, int | float | str]:
        """Counters of its own for the result, by name with the unit: requests, retries, bytes sent.

        They are added over ranks, but not those of which `is_of_server` says that they are the server's.
        """
        return {}

    def notes(self) -> list[Note]:
        """What went otherwise than asked: a fallback, files that stay behind. Asked after prepare and
        again after close."""
        return []

    async def close(self) -> None:
        """Stop threads, free memory, remove what this backend created. Safe to call twice."""
        self.close_now()

    def close_now(self) -> None:  # noqa: B027 - without threads and files there is nothing to do
        """Close without a loop, for a signal or exception path. Safe to call twice; never waits long."""
