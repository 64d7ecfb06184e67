"""One of several ranks: how they stay in touch, begin and end together, and gather what they measured."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kvspill.errors import KvspillError
from kvspill.records import NS_PER_MS
from kvspill.result.parts import Part, unpacked
from kvspill.run.ranks import Gathered, LeaderLost, RankFailed, Ranks, Start
from kvspill.run.ranks.checkpoint import Keeper
from kvspill.run.signals import by_signal
from kvspill.run.status import LoadStatus
from kvspill.world import World

T = TypeVar("T")
R = TypeVar("R")

_POLL_SECONDS = 0.002
_LOAD_POLL_SECONDS = 0.01
"""While a load is measured the event loop is disturbed as little as possible."""
_ALIVE_SECONDS = 1.0
CHECKPOINT_SECONDS = 10.0
_PINGS = 10
_LEAD_NS = 100 * NS_PER_MS
_LEAD_PER_RANK_NS = NS_PER_MS
"""The start lies so far ahead that every rank has heard of it."""
_LAUNCHER_PATIENCE_SECONDS = 0.4
"""A launcher that ends the job kills what is left a second later."""

_UNHEARD = "did not answer at the end"


class Box(Protocol):
    """Messages between ranks, in order, by calls that never wait."""

    def send(self, to: int, kind: str, content: Any = None) -> None: ...

    def poll(self) -> list[tuple[int, str, Any]]:
        """What has come since: from whom, its kind and its content."""
        ...

    def clean_up(self, directories: Sequence[Path]) -> None:
        """Should this process be killed, what it leaves in these directories is removed."""
        ...


class Together(Ranks):
    """One of several ranks. Rank 0 hears all others; these hear rank 0 alone."""

    def __init__(self, box: Box, index: int, size: int, timeout_seconds: float):
        super().__init__()
        self._box = box
        self.index = index
        self.size = size
        self.timeout_seconds = timeout_seconds
        self.hosts: list[str] = []
        self._peers = list(range(1, size)) if index == 0 else [0]
        now = time.monotonic()
        self._heard = dict.fromkeys(self._peers, now)
        self._turned = now
        self._said = 0.0
        self._number = 0
        self._words: dict[tuple[int, int], Any] = {}
        self._decisions: dict[int, Any] = {}
        self._pongs: deque[tuple[int, int]] = deque()
        self._start: Start | None = None
        self._ready: set[int] = set()
        self._goodbye = False
        self._orders: list[tuple[str, int]] = []
        self._reports: dict[int, Any] = {}
        self.lost: dict[int, str] = {}
        """Ranks that hang or are gone, and how they are known to be."""
        self.failures: dict[int, str] = {}
        """Ranks that could not go on, and why."""
        self.ended: str | None = None
        """Why the present load, or all, ends early."""
        self._stop: Callable[[str], None] | None = None
        self._so_far: Callable[[], bytes | None] = lambda: None
        self._keeper: Keeper | None = None
        self._kept = 0.0
        self._look: Callable[[], LoadStatus]
        self._statuses: dict[int, LoadStatus] = {}
        self._latest: dict[int, bytes] = {}
        """What each rank had measured when it last said so."""
        self._parts: dict[int, Part] = {}
        self._now_ns: Callable[[], int] = time.monotonic_ns

    def name(self, rank: int) -> str:
        host = f" on {self.hosts[rank]}" if rank < len(self.hosts) else ""
        return f"rank {rank}{host}"

    # Being in touch

    def _turn(self) -> None:
        """Take what has come, say what is due, and look who is silent; never waits."""
        now = time.monotonic()
        if now - self._turned > self.timeout_seconds / 2:
            # This process was busy or stopped itself: nobody else is to blame for that.
            self._heard = dict.fromkeys(self._peers, now)
        self._turned = now
        for source, kind, content in self._box.poll():
            self._heard[source] = now
            self._take(source, kind, content)
        if now - self._said >= _ALIVE_SECONDS:
            self._said = now
            looking = self.index != 0 and self._stop is not None
            self._tell("alive", self._look() if looking else None)
        for peer in self._peers:
            if peer not in self.lost and now - self._heard[peer] > self.timeout_seconds:
                self.lost[peer] = f"has not answered for {self.timeout_seconds:g} s"
                self._end(f"{self.name(peer)} {self.lost[peer]}")

    def _tell(self, kind: str, content: Any = None) -> None:
        for peer in self._peers:
            if peer not in self.lost:
                self._box.send(peer, kind, content)

    def _take(self, source: int, kind: str, content: Any) -> None:
        if kind == "word":
            number, word = content
            self._words[number, source] = word
        elif kind == "decision":
            number, decision = content
            self._decisions[number] = decision
        elif kind == "part":
            self._parts[source] = content
        elif kind == "alive":
            if content is not None:
                self._statuses[source] = content
        elif kind == "so far":
            self._latest[source] = content
        elif kind == "failed":
            self.failures[source] = content
            self._end(f"{self.name(source)}: {content}")
        elif kind == "stopped":
            self._end(named(content, self.name(source)))
        elif kind == "end":
            self._end(content)
        elif kind == "order":
            self._orders.append(content)
        elif kind == "report":
            self._reports[source] = content
        elif kind == "ready":
            self._ready.add(source)
        elif kind == "ping":
            self._box.send(source, "pong", self._now_ns())
        elif kind == "pong":
            self._pongs.append((source, content))
        elif kind == "start":
            self._start = content
        elif kind == "goodbye":
            self._goodbye = True

    def _end(self, reason: str) -> None:
        """The load is over everywhere."""
        if self.ended is not None:
            return
        self.ended = reason
        if self.index == 0:
            self._tell("end", reason)
        if self._stop is not None:
            self._stop(reason)

    def anew(self) -> None:
        if not self.lost:
            self.ended = None
            self.failures.clear()
            self._ready.clear()
            self._orders.clear()

    async def attend(self) -> None:
        while True:
            self._turn()
            if self._stop is not None and time.monotonic() - self._kept >= CHECKPOINT_SECONDS:
                self._keep()
            await asyncio.sleep(_POLL_SECONDS if self._stop is None else _LOAD_POLL_SECONDS)

    def _keep(self) -> None:
        """Tell rank 0 what was measured so far; it keeps what all have told."""
        self._kept = time.monotonic()
        raw = self._so_far()
        if raw is None:
            return
        if self.index != 0:
            self._box.send(0, "so far", raw)
            return
        self._latest[0] = raw
        if self._keeper is not None:
            self._keeper.keep(self._latest)

    def load_begins(
        self,
        stop: Callable[[str], None],
        so_far: Callable[[], bytes | None],
        look: Callable[[], LoadStatus],
        keeper: Keeper | None,
    ) -> None:
        self._stop, self._so_far, self._look, self._keeper = stop, so_far, look, keeper
        # The others tell theirs a moment before rank 0 keeps what it has.
        self._kept = time.monotonic() - (self.index != 0)
        self._latest.clear()
        self._statuses.clear()
        self._said = 0.0
        if self.ended is not None:
            stop(self.ended)

    def statuses(self) -> list[LoadStatus]:
        return list(self._statuses.values())

    def uses(self, directories: Sequence[Path]) -> None:
        self._box.clean_up(directories)

    def stopped(self, reason: str) -> None:
        if self.ended is not None:
            return
        if self.index == 0:
            self._end(named(reason, self.name(0)))
        else:
            self._box.send(0, "stopped", reason)

    def failed(self, reason: str) -> None:
        if self.index == 0:
            self._end(f"{self.name(0)}: {reason}")
        else:
            self._box.send(0, "failed", reason)

    # Decisions

    def agree(self, mine: T, decide: Callable[[list[T]], R]) -> R:
        self._number += 1
        number = self._number
        self._words[number, self.index] = mine
        if self.index != 0:
            self._box.send(0, "word", (number, mine))
            while number not in self._decisions:
                self._turn_or_fail()
                time.sleep(_POLL_SECONDS)
            decision: R | Exception = self._decisions.pop(number)
            return _opened(decision)
        while not all((number, rank) in self._words for rank in range(self.size)):
            self._turn_or_fail()
            time.sleep(_POLL_SECONDS)
        words = [self._words.pop((number, rank)) for rank in range(self.size)]
        return self._decide(number, lambda: decide(words))

    def _decide(self, number: int, decide: Callable[[], R]) -> R:
        """Tell all ranks what was decided, or why nothing was."""
        decision: R | Exception
        try:
            decision = decide()
        except KvspillError as error:
            decision = error
        self._tell("decision", (number, decision))
        return _opened(decision)

    def _turn_or_fail(self, after_load: bool = False) -> None:
        """Only where no load was measured, its early end is all that there is to say."""
        self._turn()
        if self.lost.get(0) is not None:
            raise LeaderLost(f"{self.name(0)} {self.lost[0]}; look at that machine and its devices")
        if self._goodbye or (self.ended is not None and not after_load):
            raise RankFailed(self.ended or f"{self.name(0)} has ended")

    async def others_ready(self) -> None:
        while self.index == 0 and len(self._ready) < self.size - 1:
            self._turn_or_fail()
            await asyncio.sleep(_POLL_SECONDS)

    def order(self, what: str, value: int = 0) -> None:
        if self.index == 0:
            self._tell("order", (what, value))

    async def orders(self) -> list[tuple[str, int]]:
        while not self._orders:
            await asyncio.sleep(_POLL_SECONDS)
        found, self._orders = self._orders, []
        return found

    def report(self, content: Any) -> None:
        self._box.send(0, "report", content)

    async def reports(self) -> dict[int, Any]:
        self._reports.clear()
        self.order("report")
        while self.ended is None and len(self._reports) < self.size - 1:
            self._turn()
            await asyncio.sleep(_POLL_SECONDS)
        return dict(self._reports)

    async def begin(self, world: World) -> Start:
        self._start, self._now_ns = None, world.now_ns
        if self.index != 0:
            self._box.send(0, "ready")
            while self._start is None:
                self._turn_or_fail()
                # Pings are answered at once, or the clocks could not be compared.
                await asyncio.sleep(0)
            return self._start
        await self.others_ready()
        self._ready.clear()
        offsets_ns = {rank: await self._offset_ns(world, rank) for rank in self._peers}
        at_ns = world.now_ns() + _LEAD_NS + _LEAD_PER_RANK_NS * self.size
        for rank, (offset_ns, error_ns) in offsets_ns.items():
            self._box.send(rank, "start", Start(at_ns + offset_ns, error_ns))
        return Start(at_ns)

    async def _offset_ns(self, world: World, rank: int) -> tuple[int, int]:
        """What a rank's clock shows more than ours, by the fastest of some answers, and how sure that is."""
        found: list[tuple[int, int]] = []
        for _ping in range(_PINGS):
            asked_ns = world.now_ns()
            self._box.send(rank, "ping")
            while not self._pongs:
                self._turn_or_fail()
                await asyncio.sleep(0)
            _source, there_ns = self._pongs.popleft()
            round_ns = world.now_ns() - asked_ns
            found.append((round_ns, there_ns - asked_ns - round_ns // 2))
        round_ns, offset_ns = min(found)
        return offset_ns, round_ns // 2

    # After the load

    def hand_in(self, part: Part) -> None:
        part.rank, part.host = self.index, self.hosts[self.index]
        self._stop = None
        if self._keeper is not None:
            self._keeper.finish()
        if self.index == 0:
            self._parts[0] = part
        else:
            self._box.send(0, "part", part)

    async def gather(self, word: T, decide: Callable[[Gathered], R]) -> R:
        self._number += 1
        number = self._number
        self._words[number, self.index] = word
        if self.index != 0:
            self._box.send(0, "word", (number, word))
            while number not in self._decisions:
                self._turn_or_fail(after_load=True)
                await asyncio.sleep(_POLL_SECONDS)
            decision: R | Exception = self._decisions.pop(number)
            return _opened(decision)
        patient_until = time.monotonic() + _LAUNCHER_PATIENCE_SECONDS
        while missing := self._missing(number):
            self._turn()
            if by_signal(self.ended or "") and time.monotonic() >= patient_until:
                self.lost |= dict.fromkeys(missing, _UNHEARD)
                self.ended = f"{self.ended}; {', '.join(map(self.name, missing))} {_UNHEARD}"
                break
            await asyncio.sleep(_POLL_SECONDS)
        for rank in range(self.size):
            # Of a rank that is gone, what it had measured when it last said so is kept.
            if rank not in self._parts and rank in self._latest:
                self._parts[rank] = unpacked(self._latest[rank])
        there = [rank for rank in range(self.size) if rank in self._parts]
        gathered = Gathered(
            [self._parts.pop(rank) for rank in there],
            [self._words.pop((number, rank), None) for rank in there],
            {**self.lost, **self.failures},
            self.ended,
        )
        if not gathered.missing:
            self.ended = None
        return self._decide(number, lambda: decide(gathered))

    def _missing(self, number: int) -> list[int]:
        return [
            rank
            for rank in range(self.size)
            if (number, rank) not in self._words and rank not in self.lost and rank not in self.failures
        ]

    def say_goodbye(self) -> bool:
        """Wait for the end of rank 0, or tell the others of it; False where some cannot be waited for."""
        if self.index == 0:
            self._turn()
            self._tell("goodbye")
            return not self.lost
        while not self._goodbye and not self.lost:
            self._turn()
            time.sleep(_POLL_SECONDS)
        return not self.lost


def named(reason: str, name: str) -> str:
    """A rank's reason as all ranks say it; that of a signal still begins with its words."""
    return f"{reason} ({name})" if by_signal(reason) else f"{name}: {reason}"


def _opened(decision: R | Exception) -> R:
    if isinstance(decision, Exception):
        raise decision
    return decision
