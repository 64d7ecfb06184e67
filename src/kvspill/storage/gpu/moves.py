"""A batch's way through the cards: its objects cut into moves, each issued, landed and checked."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvspill.records import CANCELLED, Completion
from kvspill.storage.arena import Run, RunPool
from kvspill.storage.base import ObjectRef, Source
from kvspill.storage.fastio import check_at
from kvspill.storage.gpu.conveyor import (
    HIT_BYTES,
    MOVE_BYTES,
    ROWS_MAX,
    SLOTS,
    TARGET_BYTES,
    TARGETS,
    Conveyor,
    Move,
    Slot,
)
from kvspill.storage.gpu.cuda import Pinned
from kvspill.storage.gpu.kernels import Row, copy_rows, take_stamps
from kvspill.storage.gpu.program import STAMP_IN_BYTES, STAMP_OUT_BYTES, Command, Program
from kvspill.storage.gpu.source import Ferry, Stretch, stretches
from kvspill.storage.jobs import damage
from kvspill.storage.stamps import BLOCK_BYTES, Identity, Verify, blocks_of, check_stamps, identify

if TYPE_CHECKING:
    from kvspill.storage.gpu.backend import GpuBackend


class Traffic:
    """Bytes and device time of one way through the card, counted by several threads."""

    def __init__(self) -> None:
        self.nbytes = 0
        self.device_ns = 0
        self._lock = threading.Lock()

    def count(self, nbytes: int, device_ns: int) -> None:
        with self._lock:
            self.nbytes += nbytes
            self.device_ns += device_ns


class Bank:
    """One card with its share of the tier."""

    def __init__(
        self, pinned: Pinned, blocks: int, clock_ns: Callable[[], int], out: Traffic, verify: Verify
    ):
        self.card = card = pinned.card
        self.pool = RunPool(blocks)
        card.bind()
        self.base = card.allocate(blocks * BLOCK_BYTES)
        index = card.facts.index
        slots = TARGETS if verify is Verify.FULL else SLOTS
        self.hits = Conveyor(f"kvspill-gpu{index}-hits", pinned, clock_ns, TARGET_BYTES, slots)
        self.puts = Conveyor(f"kvspill-gpu{index}-puts", pinned, clock_ns)
        self.ferry = Ferry(pinned, out.count)

    @property
    def conveyors(self) -> tuple[Conveyor, Conveyor]:
        return self.hits, self.puts


class Share(NamedTuple):
    """What lies of an object on one card."""

    bank: Bank
    runs: list[Run]
    stretches: tuple[Stretch, ...]


class Stored(NamedTuple):
    """An object's place: on one card, or on several where none has room for all of it."""

    shares: tuple[Share, ...]
    """All of its blocks: padded, so that it can be lent to a tier that pads it."""
    identity: Identity

    @classmethod
    def make(cls, banks: Sequence[Bank], ref: ObjectRef, salt: bytes) -> "Stored | None":
        """Room for an object on the emptiest cards, or None where there is not enough on all."""
        left, offset, shares = blocks_of(ref.nbytes), 0, []
        if left > sum(bank.pool.free for bank in banks):
            return None
        for bank in sorted(banks, key=lambda bank: bank.pool.free, reverse=True):
            count = min(left, bank.pool.free)
            runs = bank.pool.take_runs(count) if count else None
            if runs:
                shares.append(Share(bank, runs, stretches(bank.base, runs, offset)))
                left, offset = left - count, offset + count * BLOCK_BYTES
        return cls(tuple(shares), identify(ref.key, ref.generation, salt))

    def give_back(self) -> None:
        """Its room is free again."""
        for share in self.shares:
            share.bank.pool.give_back_runs(share.runs)

    def second_word(self, stretch: Stretch) -> int:
        """The second word of the stamp of a stretch's first block."""
        return (self.identity.generation << 32) | stretch.offset // BLOCK_BYTES


class Item:
    """One object of a batch on its way."""

    __slots__ = ("detail", "error", "failures", "landed_ns", "parts", "pieces", "ref", "source", "stored")

    def __init__(self, ref: ObjectRef, source: Source | None = None):
        self.ref = ref
        self.source = source
        self.stored: Stored | None = None
        self.parts = 0
        self.pieces: list[tuple[int, int, int]] = []
        self.failures: list[str] = []
        self.landed_ns = 0
        """When the last of its parts was over."""
        self.error: str | None = None
        self.detail = ""

    def completion(self, submitted_ns: int, now_ns: int) -> Completion:
        finished_ns = self.landed_ns or now_ns
        verdict = damage(self.failures, self.parts)
        if verdict is not None and self.error is None:
            self.error = verdict
            self.detail = f"{len(self.failures)} of {self.parts} parts failed verification"
        first_ns = self.pieces[0][0] if self.pieces else finished_ns
        # Moves of one stream don't overlap; of one move, the parts share the time.
        device_ns = sum(end_ns - start_ns for start_ns, end_ns in {piece[:2] for piece in self.pieces})
        device_ns = min(device_ns, finished_ns - first_ns)
        return Completion(
            submitted_ns, first_ns, finished_ns, device_ns, self.pieces, self.error, self.detail
        )


class Call:
    """A batch under way: answered when all its moves have landed."""

    def __init__(self, backend: "GpuBackend", items: Sequence[Item], put: bool = False):
        self.backend = backend
        self.items = items
        self.put = put
        self.submitted_ns = backend.clock_ns()
        self._left = 1
        self._answer: asyncio.Future[list[Completion]] = asyncio.get_running_loop().create_future()

    async def carry_out(self, kind: "type[Carry]") -> list[Completion]:
        try:
            for bank, parts in _moves(self.items, kind.bytes_max):
                move = kind(self, bank, parts)
                self._left += 1
                await kind.way(bank).send(move)
        except asyncio.CancelledError:
            self._left -= 1
            for item in self.items:
                item.error = item.error or CANCELLED
            raise
        finally:
            self.landed()
        return await self._answer

    def landed(self) -> None:
        """On the loop: one move less to wait for."""
        self._left -= 1
        if self._left:
            return
        now_ns = self.backend.clock_ns()
        answers = [item.completion(self.submitted_ns, now_ns) for item in self.items]
        if self.put:
            for item in self.items:
                self.backend.settle(item)
        if not self._answer.done():
            self._answer.set_result(answers)


Part = tuple[Item, Stored, Stretch]


def _moves(items: Sequence[Item], bytes_max: int) -> Iterator[tuple[Bank, list[Part]]]:
    """The stretches of all items on their banks, in moves of limited size."""
    parts: list[Part] = []
    here: Bank | None = None
    room = 0
    for item in items:
        if item.error is not None or item.stored is None:
            continue
        lying = [(share.bank, stretch) for share in item.stored.shares for stretch in share.stretches]
        for bank, (address, offset, nbytes) in lying:
            done = 0
            while done < nbytes:
                if here is not bank or not room or len(parts) == ROWS_MAX:
                    if here is not None:
                        yield here, parts
                    here, parts, room = bank, [], bytes_max
                length = min(room, nbytes - done)
                parts.append((item, item.stored, Stretch(address + done, offset + done, length)))
                item.parts += 1
                room, done = room - length, done + length
    if here is not None:
        yield here, parts


class Carry(Move):
    """A move of several parts of a call's items."""

    __slots__ = ("bank", "call", "parts")
    bytes_max = MOVE_BYTES

    def __init__(self, call: Call, bank: Bank, parts: list[Part]):
        super().__init__(sum(part[2].nbytes for part in parts))
        self.call = call
        self.parts = parts
        self.bank = bank

    @staticmethod
    def way(bank: Bank) -> Conveyor:
        return bank.hits

    def deliver(self) -> None:
        start_ns = max(self.call.submitted_ns, self.finished_ns - self.device_ns)
        for item, _, stretch in self.parts:
            item.landed_ns = max(item.landed_ns, self.landed_ns)
            if self.error is None:
                item.pieces.append((start_ns, self.finished_ns, stretch.nbytes))
            elif item.error is None:
                item.error, item.detail = self.error, self.detail
        self.call.landed()


class Hit(Carry):
    """Reads parts on the card, and then brings back what is to be looked at of the copy."""

    __slots__ = ("checks",)
    bytes_max = HIT_BYTES

    def issue(self, program: Program, slot: Slot) -> None:
        card, stream, verify = self.bank.card, self.bank.hits.stream, self.call.backend.verify
        blocks, target = self.nbytes // BLOCK_BYTES, slot.target
        rows = []
        for _, _, stretch in self.parts:
            rows.append(Row(stretch.address, target, stretch.nbytes))
            target += stretch.nbytes
        blank = 0 if verify is Verify.OFF else blocks
        copy_rows(card, program, rows, slot.table, blank, slot.begin, stream)
        program.add(Command.RECORD, slot.end, stream)
        if verify is Verify.STAMP:
            take_stamps(card, program, slot.mapped, slot.target, blocks, stream)

    def look(self, program: Program, slot: Slot) -> None:
        self.checks: list[int] = []
        if self.call.backend.verify is not Verify.STAMP:
            return
        at = slot.stamps.ctypes.data
        for _, stored, stretch in self.parts:
            blocks = stretch.nbytes // BLOCK_BYTES
            expected = stored.identity.key_hash, stored.second_word(stretch)
            check = program.stamps(Command.CHECK_STAMPS, at, STAMP_OUT_BYTES, blocks, *expected)
            self.checks.append(check)
            at += blocks * STAMP_OUT_BYTES

    def land(self, program: Program, slot: Slot) -> None:
        backend, at = self.call.backend, 0
        backend.hbm.count(self.nbytes, self.device_ns)
        if backend.verify is Verify.FULL:
            self._look_at_all(slot)
            self.landed_ns = backend.clock_ns()
            return
        for check, (item, stored, stretch) in zip(self.checks, self.parts, strict=bool(self.checks)):
            nbytes = stretch.nbytes // BLOCK_BYTES * STAMP_OUT_BYTES
            if program.answer(check):
                columns = slot.stamps[at : at + nbytes].view(np.uint64).reshape(-1, STAMP_OUT_BYTES // 8)
                wrong = check_stamps(columns, stored.identity, stretch.offset // BLOCK_BYTES)
                item.failures.append(wrong or "corrupt")
            at += nbytes

    def _look_at_all(self, slot: Slot) -> None:
        """Copy what landed back through the slot's registered memory and compare every byte."""
        target, base = slot.target, self.call.backend.plane.base
        piece_bytes = len(slot.stamps) // BLOCK_BYTES * BLOCK_BYTES
        for item, stored, stretch in self.parts:
            pieces = range(stretch.offset, stretch.offset + stretch.nbytes, piece_bytes)
            failures = []
            for offset in pieces:
                nbytes = min(piece_bytes, pieces.stop - offset)
                memory = slot.stamps[:nbytes]
                self.bank.ferry.copy_out([Stretch(target, offset, nbytes)], [memory])
                blocks = (offset + nbytes) // BLOCK_BYTES
                wrong = check_at(memory, stored.identity, offset, nbytes, blocks, base)
                failures += [wrong] if wrong is not None else []
                target += nbytes
            verdict = damage(failures, len(pieces))
            item.failures += [verdict] if verdict is not None else []


class Put(Carry):
    """Writes parts from registered memory: base data and then its stamps, or what a source lends."""

    __slots__ = ()

    @staticmethod
    def way(bank: Bank) -> Conveyor:
        return bank.puts

    def issue(self, program: Program, slot: Slot) -> None:
        stream, stamps = self.bank.puts.stream, slot.stamps.ctypes.data
        copies, stamping = Program(), Program()
        for item, stored, stretch in self.parts:
            if item.source is not None:
                self._add_lent(copies, item.source, stretch, stream)
                continue
            sample = self.call.backend.plane.sample(stretch.nbytes)
            copies.add(Command.COPY_IN, stretch.address, sample.ctypes.data, stretch.nbytes, stream)
            blocks = stretch.nbytes // BLOCK_BYTES
            expected = stored.identity.key_hash, stored.second_word(stretch)
            program.stamps(Command.MAKE_STAMPS, stamps, STAMP_IN_BYTES, blocks, *expected)
            stamping.add(Command.STAMPS_IN, stretch.address, stamps, STAMP_IN_BYTES, blocks, stream)
            stamps += blocks * STAMP_IN_BYTES
        # All stamps are made first, so that the stream does not wait for them between its events.
        program.add(Command.RECORD, slot.begin, stream)
        program.rows += copies.rows + stamping.rows
        program.add(Command.RECORD, slot.end, stream)

    @staticmethod
    def _add_lent(copies: Program, source: Source, stretch: Stretch, stream: int) -> None:
        address = stretch.address
        for part in source.buffers(stretch.offset, stretch.nbytes):
            view = np.frombuffer(part, dtype=np.uint8)
            copies.add(Command.COPY_IN, address, view.ctypes.data, view.nbytes, stream)
            address += view.nbytes

    def land(self, program: Program, slot: Slot) -> None:  # noqa: ARG002 - nothing came back
        self.call.backend.inward.count(self.nbytes, self.device_ns)
