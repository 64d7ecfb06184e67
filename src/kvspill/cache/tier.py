"""One tier: its ledger of bytes, its entries' order of eviction, and the line of those who need room."""

import asyncio
from dataclasses import dataclass
from enum import Enum

from kvspill.cache.policies import EvictionPolicy
from kvspill.records import Completion, Tier
from kvspill.storage.base import Backend, ObjectRef


class State(Enum):
    """Where an entry stands. Only a READY entry can be read, chosen as a victim or removed at once."""

    WRITING = "writing"
    READY = "ready"
    MOVING = "moving"
    GONE = "gone"


_READY = State.READY


@dataclass(slots=True, eq=False)
class Entry:
    """One cached entry. While `pins` is above zero it stays where it is."""

    ref: ObjectRef
    tier: "TierState"
    stored_bytes: int
    state: State = State.WRITING
    pins: int = 0
    doomed: bool = False
    """Replaced or found broken: unreachable, and deleted with its last pin."""
    claim: object | None = None
    """Who means to demote it next; a hit takes the claim away and so rescues the entry."""
    settled: asyncio.Future[None] | None = None
    """Resolved when a write or a move under way has ended; made when somebody waits for it."""
    parent: str | None = None
    """The key of the block that this one continues."""
    tokens: int = 0
    """Context tokens that it holds."""
    uses: int = 0
    """How often it was used, after it was made for the first time."""

    @property
    def idle(self) -> bool:
        """True where it could be chosen as a victim."""
        return self.state is State.READY and self.pins == 0 and self.claim is None and not self.doomed


Victim = tuple[Entry, object]
"""An entry that is to go, and the claim under which it was chosen: a hit may take that away."""


class TierState:
    """The ledger of one tier. Bytes count as stored, from the reservation until the delete is done (C7)."""

    def __init__(
        self,
        name: Tier,
        backend: Backend,
        limit_bytes: int,
        usable_bytes: int,
        policy: EvictionPolicy,
        evicts: bool = True,
    ):
        self.name = name
        self.backend = backend
        self.limit_bytes = limit_bytes
        self.usable_bytes = usable_bytes
        self.policy = policy
        self.evicts = evicts
        """False where the policy gives nothing up, so that the tier is full one day and takes no more."""
        self.used_bytes = 0
        self.peak_bytes = 0
        self.idle_bytes = 0
        """Bytes of the entries that could be chosen as victims now."""
        self.lost_bytes = 0
        """Bytes of what could not be removed: they stay used for ever."""
        self.crowded_puts = 0
        """Writes that had to wait because all that was kept was in use; of a batch each one (E12)."""
        self.residents: dict[str, Entry] = {}
        self.turn = asyncio.Lock()
        """Reservations are served in the order of their coming (C4)."""
        self._changed: asyncio.Future[None] | None = None

    @property
    def free_bytes(self) -> int:
        return self.usable_bytes - self.used_bytes

    @property
    def busy_bytes(self) -> int:
        """Bytes that are in use now and will be idle or free later; none where nothing is ever given up."""
        return self.used_bytes - self.idle_bytes - self.lost_bytes if self.evicts else 0

    def take(self, nbytes: int) -> None:
        """Book bytes (or return some, where negative)."""
        self.used_bytes += nbytes
        assert 0 <= self.used_bytes <= self.usable_bytes, (self.name, self.used_bytes, self.usable_bytes)
        if nbytes < 0:
            self._notify()
        elif self.used_bytes > self.peak_bytes:
            self.peak_bytes = self.used_bytes

    def take_back(self, nbytes: int, failed: Completion) -> None:
        """Return the bytes of a write that failed, unless what it wrote could not be removed (C7)."""
        if failed.keeps_room:
            self.lose(nbytes)
        else:
            self.take(-nbytes)

    def lose(self, nbytes: int) -> None:
        """Bytes could not be freed; those who wait for them must know."""
        self.lost_bytes += nbytes
        self._notify()

    def settle_in(self, entry: Entry) -> None:
        """An entry has arrived and may be found, kept and evicted."""
        assert entry.state is State.READY, entry.state
        assert entry.ref.key not in self.residents, entry.ref
        self.residents[entry.ref.key] = entry
        self.policy.insert(entry.ref.key, entry.stored_bytes, entry.parent)
        self._note_idle(entry, 1)

    def take_out(self, entry: Entry, evicted: bool) -> None:
        """An entry is no longer kept here; its bytes stay booked until its delete is done."""
        self._note_idle(entry, -1)
        del self.residents[entry.ref.key]
        self.policy.remove(entry.ref.key, evicted)

    def _claim(self, entry: Entry) -> object:
        """Mark an idle entry as chosen; it can still be rescued until its move begins."""
        assert entry.idle
        self._note_idle(entry, -1)
        entry.claim = object()
        return entry.claim

    def rescue(self, entry: Entry) -> None:
        """Take the entry away from the one that claimed it."""
        entry.claim = None
        self._note_idle(entry, 1)

    def pin(self, entry: Entry) -> None:
        assert entry.state in (State.READY, State.WRITING)
        self._note_idle(entry, -1)
        entry.pins += 1

    def unpin(self, entry: Entry) -> None:
        assert entry.pins > 0
        entry.pins -= 1
        self._note_idle(entry, 1)

    def _note_idle(self, entry: Entry, sign: int) -> None:
        # As `entry.idle` says; written out because it is asked several times for every operation.
        if entry.pins or entry.claim is not None or entry.doomed or entry.state is not _READY:
            return
        self.idle_bytes += sign * entry.stored_bytes
        assert self.idle_bytes >= 0
        if sign > 0:
            self._notify()

    def claim_victims(self, short_bytes: int) -> list[Victim] | None:
        """Claim the coldest idle entries that together free short_bytes; None where they don't suffice."""
        if self.idle_bytes < short_bytes:
            return None
        victims: list[Victim] = []
        while short_bytes > 0:
            key = self.policy.victim(lambda key: self.residents[key].idle)
            if key is None:
                # The policy keeps what is idle: nothing, or blocks whose children are in use.
                self._give_back(victims)
                return None
            entry = self.residents[key]
            victims.append((entry, self._claim(entry)))
            short_bytes -= entry.stored_bytes
        return victims

    def _give_back(self, victims: list[Victim]) -> None:
        for entry, _claim in victims:
            # No _notify here: nothing has changed for those who wait, this one included.
            entry.claim = None
            self.idle_bytes += entry.stored_bytes
            self.policy.touch(entry.ref.key)

    async def wait_for_change(self) -> None:
        """Wait until bytes were freed or an entry became idle."""
        self._changed = asyncio.get_running_loop().create_future()
        await self._changed

    def _notify(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
