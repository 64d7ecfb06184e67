"""One stream of a card: moves are issued on the event loop, and one thread waits for their end."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

import numpy as np

from kvspill.machine.gpu import DeviceError
from kvspill.records import CANCELLED
from kvspill.storage.gpu.cuda import Card, Pinned
from kvspill.storage.gpu.kernels import ROW_BYTES, Table
from kvspill.storage.gpu.program import STAMP_OUT_BYTES, Command, Program
from kvspill.storage.lanes import or_starve, post, start_thread
from kvspill.storage.stamps import BLOCK_BYTES, Bytes
from kvspill.threads import Daemon

MOVE_BYTES = 64 << 20
"""At most so much goes over the link in one move, which takes it a millisecond."""
HIT_BYTES = 256 << 20
"""At most so much is read on the card in one move: it takes less time than to issue and await it."""
TARGET_BYTES = 512 << 20
"""Device memory that hits land in: far more than the card's own cache keeps."""
ROWS_MAX = 512
"""Stretches of one move."""
_TOGETHER_BYTES = 64 << 20
"""Smaller moves share a call to the driver, up to this."""
SLOTS = 8
"""Moves under way on a stream. The next ones are issued while the thread still looks at the last."""
TARGETS = TARGET_BYTES // HIT_BYTES
"""Places that hits land in by turns: with as many slots, what landed stays until it was looked at."""


class Slot:
    """What one move holds while it is under way."""

    __slots__ = ("begin", "end", "last", "mapped", "stamps", "table", "target")

    def __init__(self, card: Card, stamps: Bytes, mapped: int, table: Table, target: int):
        self.begin, self.end, self.last = (card.new_event() for _ in range(3))
        self.stamps = stamps
        self.mapped = mapped
        """The address of these as the card knows it."""
        self.table = table
        self.target = target
        """Device memory that a hit is copied into."""


class Move:
    """Something to be copied; `land` runs on the waiting thread, `deliver` on the loop after it."""

    __slots__ = ("detail", "device_ns", "error", "finished_ns", "issued_ns", "landed_ns", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.issued_ns = 0
        self.finished_ns = 0
        """When the card had ended it."""
        self.landed_ns = 0
        """When what came back had been looked at: its end, whatever holds the loop."""
        self.device_ns = 0
        self.error: str | None = None
        self.detail = ""

    def fail(self, error: Exception, now_ns: int) -> None:
        """By the driver's name for it; anything else is a fault of the program."""
        self.error = error.kind if isinstance(error, DeviceError) else "internal"
        self.detail = str(error) if isinstance(error, DeviceError) else repr(error)
        self.finished_ns = self.landed_ns = now_ns

    def issue(self, program: Program, slot: Slot) -> None:
        """Add the copies, between the slot's two events."""

    def look(self, program: Program, slot: Slot) -> None:
        """Add what is to be looked at when they are over."""

    def land(self, program: Program, slot: Slot) -> None:
        """The move is over and its times are known: what did the look find?"""

    def deliver(self) -> None:
        """Tell those who wait."""


_Loaded = tuple[Move, Slot]


class Conveyor:
    """A stream with a bounded number of moves under way.

    Small moves that are sent in one turn of the loop go out together: the stream then has the next one before
    it has ended the last, and what it costs to call the driver and to be woken up is shared.
    """

    def __init__(
        self,
        name: str,
        pinned: Pinned,
        clock_ns: Callable[[], int],
        target_bytes: int = 0,
        slots: int = SLOTS,
    ):
        self.card = card = pinned.card
        self.stream = card.new_stream()
        self._clock_ns = clock_ns
        stamps_bytes = (HIT_BYTES if target_bytes else MOVE_BYTES) // BLOCK_BYTES * STAMP_OUT_BYTES
        table_bytes = ROWS_MAX * ROW_BYTES
        self._memory = pinned.new(slots * (stamps_bytes + table_bytes))
        mapped = card.mapped(self._memory)
        tables = card.allocate(slots * table_bytes)
        target = card.allocate(target_bytes) if target_bytes else 0
        self._free: deque[Slot] = deque()
        for index in range(slots):
            start = index * (stamps_bytes + table_bytes)
            stamps, table = np.split(self._memory[start:][: stamps_bytes + table_bytes], [stamps_bytes])
            # One stream, so that moves may share it: they land one after another.
            landing = target + index % TARGETS * HIT_BYTES
            rows = Table(table, mapped + start + stamps_bytes, tables + index * table_bytes)
            self._free.append(Slot(card, stamps, mapped + start, rows, landing))
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._loading: list[_Loaded] = []
        self._issued: set[Move] = set()
        self._todo: SimpleQueue[list[_Loaded] | None] = SimpleQueue()
        self._landed: list[_Loaded] = []
        self._posted = False
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.stopped = False
        self._thread = Daemon(partial(or_starve, self._wait, lambda: self._loop), name)

    def start(self) -> None:
        start_thread(self._thread)

    async def send(self, move: Move) -> None:
        """Let a move go, as soon as there is a slot for it."""
        while not self._free and not self.stopped:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._wake_one()
                raise
        if self.stopped:
            move.error = CANCELLED
            move.deliver()
            return
        if not self._loading:
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._depart)
        self._loading.append((move, self._free.popleft()))

    def stop(self) -> None:
        """Issue nothing more; what is under way ends by itself."""
        self.stopped = True
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(None)

    def join(self, seconds: float) -> bool:
        """End the waiting thread; False where the card holds it."""
        self.stopped = True
        if not self._thread.is_alive():
            return True
        self._todo.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def ages_ns(self, now_ns: int) -> list[int]:
        """How long each move has been under way."""
        return [now_ns - move.issued_ns for move in tuple(self._issued)]

    def _depart(self) -> None:
        """On the loop: issue all that was sent in this turn, small moves together."""
        loaded, self._loading = self._loading, []
        group: list[_Loaded] = []
        for move, slot in loaded:
            group.append((move, slot))
            if sum(other.nbytes for other, _ in group) >= _TOGETHER_BYTES:
                self._issue(group)
                group = []
        if group:
            self._issue(group)

    def _issue(self, loaded: list[_Loaded]) -> None:
        now_ns = self._clock_ns()
        try:
            program = self.card.begin()
            for move, slot in loaded:
                move.issued_ns = now_ns
                move.issue(program, slot)
            program.add(Command.RECORD, loaded[-1][1].last, self.stream)
            self.card.run(program)
        except Exception as error:
            for move, slot in loaded:
                move.fail(error, self._clock_ns())
                self._give_back(slot)
                move.deliver()
            return
        self._issued.update(move for move, _ in loaded)
        self._todo.put(loaded)

    def _wait(self) -> None:
        while (loaded := self._todo.get()) is not None:
            self._await(loaded)
            with self._lock:
                self._landed += loaded
                posted, self._posted = self._posted, True
            if not posted and self._loop is not None:
                post(self._loop, self._deliver)

    def _await(self, loaded: list[_Loaded]) -> None:
        try:
            program, last = self.card.begin(), loaded[-1][1]
            program.add(Command.WAIT, last.last)
            over = program.add(Command.NOW)
            times = []
            for move, slot in loaded:
                took = program.add(Command.ELAPSED, slot.begin, slot.end)
                times.append((took, program.add(Command.ELAPSED, slot.end, last.last)))
                move.look(program, slot)
            looked = program.add(Command.NOW)
            self.card.run(program)
            for (move, slot), (took, before) in zip(loaded, times, strict=True):
                move.device_ns = program.answer(took)
                move.finished_ns = program.answer(over) - program.answer(before)
                move.landed_ns = program.answer(looked)
                move.land(program, slot)
        except Exception as error:
            for move, _ in loaded:
                move.fail(error, self._clock_ns())

    def _deliver(self) -> None:
        """On the loop: one wake-up for all moves that have landed by then."""
        with self._lock:
            landed, self._landed, self._posted = self._landed, [], False
        for move, slot in landed:
            self._issued.discard(move)
            self._give_back(slot)
            move.deliver()

    def _give_back(self, slot: Slot) -> None:
        self._free.append(slot)
        self._wake_one()

    def _wake_one(self) -> None:
        while self._free and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
