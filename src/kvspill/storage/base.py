"""What a backend is: batches of reads, writes and deletes, each item answered by a Completion."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from kvspill.records import Completion

Progress = Callable[[str, int, int], None]
"""Called with what is being prepared, bytes done and bytes in all."""


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


class Backend(Protocol):
    """One place to keep entries. All methods run on the event loop; threads are the backend's own."""

    @property
    def capabilities(self) -> Capabilities: ...

    def stored_bytes(self, nbytes: int) -> int:
        """Bytes that an entry of nbytes takes here, padding included (C7)."""
        ...

    async def prepare(self, progress: Progress) -> None:
        """Get ready before the load begins: touch memory, make directories."""
        ...

    async def read(self, batch: Sequence[ObjectRef]) -> list[Completion]: ...

    async def write(self, batch: Sequence[WriteItem]) -> list[Completion]: ...

    async def delete(self, batch: Sequence[ObjectRef]) -> list[Completion]: ...

    def lend(self, ref: ObjectRef) -> Source | None:
        """The object's own memory for a write elsewhere, or None where it has none to lend."""
        ...

    def cancel(self) -> None:
        """The run is over: what is in flight ends early, its completions carry what was moved and
        error "cancelled"; whatever is asked afterwards is answered "cancelled" at once."""
        ...

    async def close(self) -> None:
        """Stop threads, free memory, remove what this backend created. Safe to call twice."""
        ...
