"""The GPU tier on a card with streams: nothing is used before its event, and bytes and times add up."""

import asyncio
import resource
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kvspill.records import MIB
from kvspill.storage.arena import PAGE_BYTES
from kvspill.storage.base import DirectSource, Expected, ObjectRef, WriteItem
from kvspill.storage.dram import DramBackend
from kvspill.storage.gpu import backend as backend_module
from kvspill.storage.gpu import cuda, program
from kvspill.storage.gpu.backend import GpuBackend
from kvspill.storage.gpu.direct import DirectFiles
from kvspill.storage.gpu.landing import GpuBerth, GpuLanding
from kvspill.storage.stamps import BLOCK_BYTES, Bytes, Identity, identify, stamp
from kvspill.testing.objects import errors, ok, shared_plane, written
from unit.storage.fake_gpu import StreamCard

pytestmark = pytest.mark.real
Scenario = Callable[[GpuBackend, list[StreamCard]], Coroutine[Any, Any, None]]
TIMES_NS = StreamCard.TIMES_NS
VERIFY = pytest.mark.parametrize("verify", ["off", "stamp", "full"])
PIECE_BYTES = 16 * BLOCK_BYTES


def run(scenario: Scenario, **given: Any) -> None:
    """A scenario on a backend of eight pages."""
    cards: list[StreamCard] = []

    def open_card(index: int) -> StreamCard:
        cards.append(StreamCard(index))
        return cards[-1]

    async def main() -> None:
        backend = GpuBackend(8 * PAGE_BYTES, plane=shared_plane(), open_card=open_card, **given)
        await backend.prepare(lambda *_: None)
        try:
            await scenario(backend, cards)
        finally:
            await backend.close()

    asyncio.run(main())
    assert all(card.closed and not card.registered for card in cards)


def some(count: int = 3) -> list[ObjectRef]:
    return [ObjectRef(f"k{index}", 1, (index + 1) * 5 * BLOCK_BYTES - 7) for index in range(count)]


def counted(backend: GpuBackend) -> dict[str, tuple[Any, Any]]:
    """Bytes and device seconds of each way that something went."""
    facts = backend.facts()
    ways = ("hbm_read", "pcie_in", "pcie_out", "pcie_load")
    found = {way: (facts[f"{way}_bytes"], facts[f"{way}_device_seconds"]) for way in ways}
    return {way: figures for way, figures in found.items() if figures != (0, 0)}


def seconds(**counts: int) -> float:
    return sum(TIMES_NS[name] * count for name, count in counts.items()) / 1e9


@VERIFY
def test_puts_and_hits_are_counted_by_their_bytes_and_the_events_around_their_copies_g1(verify: str) -> None:
    async def scenario(backend: GpuBackend, cards: list[StreamCard]) -> None:
        refs = some()
        padded = sum(backend.stored_bytes(ref.nbytes) for ref in refs)
        await written(backend, refs)
        put = padded, seconds(copy_in=3, stamps_in=3)
        assert counted(backend) == {"pcie_in": put}
        (puts,) = {stream for _, stream in cards[0].ran}
        cards[0].ran.clear()
        await ok(backend.read(refs), 3)
        # Neither the list of rows nor what verification copies is the time of a hit.
        assert counted(backend) == {"pcie_in": put, "hbm_read": (padded, seconds(copy_rows=1))}
        streams = {name: stream for name, stream in cards[0].ran if name != "record"}
        assert puts not in streams.values()
        # Nor is there a copy command that would wait behind those of the puts.
        wanted = {"off": set(), "stamp": {"take_stamps"}, "full": {"copy_out"}}
        assert streams.keys() == {"make_ready", "copy_rows", *wanted[verify]}

    run(scenario, verify=verify)


@pytest.mark.parametrize("verify", ["stamp", "full"])
def test_a_wrong_block_is_found_in_what_landed(verify: str) -> None:
    async def scenario(backend: GpuBackend, cards: list[StreamCard]) -> None:
        refs = some()
        await written(backend, refs)
        await ok(backend.read(refs), 3)
        cards[0].at(backend.place(refs[1]).shares[0].stretches[0].address + BLOCK_BYTES, 4096)[:] = 0
        assert errors(await backend.read(refs)) == [None, "torn", None]

    run(scenario, verify=verify)


def test_a_hit_ends_at_its_own_event_not_at_the_last_of_those_it_was_issued_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over_ns = 50_000_000_000
    cards: list[StreamCard] = []

    def clock_ns() -> int:
        return over_ns if cards and cards[0].ran else 0

    async def scenario(backend: GpuBackend, opened: list[StreamCard]) -> None:
        cards.extend(opened)
        first, second = some(2)
        await written(backend, [first, second])
        monkeypatch.setattr(program, "time", SimpleNamespace(monotonic_ns=lambda: over_ns))
        cards[0].ran.clear()
        answers = await asyncio.gather(ok(backend.read([first]), 1), ok(backend.read([second]), 1))
        took_ns, verified_ns = TIMES_NS["copy_rows"], TIMES_NS["take_stamps"]
        # The second's blank stamps and list of rows, and its copy, lie between.
        between_ns = verified_ns + TIMES_NS["make_ready"] + took_ns
        for (answer,), ended_ns in zip(
            answers, (over_ns - verified_ns - between_ns, over_ns - verified_ns), strict=True
        ):
            assert [piece[:2] for piece in answer.pieces] == [(ended_ns - took_ns, ended_ns)]
            assert answer.device_ns == took_ns

    run(scenario, clock_ns=clock_ns)


@pytest.mark.parametrize("verify", ["off", "stamp"])
def test_an_operation_ends_when_its_thread_has_seen_it_however_late_the_loop_is(
    monkeypatch: pytest.MonkeyPatch, verify: str
) -> None:
    seen_ns, late_ns = 50_000_000_000, 99_000_000_000
    now_ns = 0

    async def scenario(backend: GpuBackend, _cards: list[StreamCard]) -> None:
        nonlocal now_ns
        monkeypatch.setattr(program, "time", SimpleNamespace(monotonic_ns=lambda: seen_ns))
        refs = some()
        for call in (written, lambda backend, refs: backend.read(refs)):
            now_ns = 0
            task = asyncio.ensure_future(call(backend, refs))
            await asyncio.sleep(0)
            now_ns = late_ns
            assert {answer.finished_ns for answer in await task} == {seen_ns}

    run(scenario, verify=verify, clock_ns=lambda: now_ns)


def test_a_demotion_is_counted_by_its_bytes_and_its_copies_and_checked_below() -> None:
    async def scenario(backend: GpuBackend, cards: list[StreamCard]) -> None:
        refs, memory = some(), DramBackend(8 * PAGE_BYTES, plane=shared_plane())
        try:
            await written(backend, refs)
            put = counted(backend)
            cards[0].ran.clear()
            await ok(memory.write([WriteItem(ref, backend.lend(ref)) for ref in refs]), 3)
            await ok(memory.read(refs), 3)
        finally:
            await memory.close()
        padded = sum(backend.stored_bytes(ref.nbytes) for ref in refs)
        copies = [name for name, _ in cards[0].ran].count("copy_out")
        assert copies >= 3
        assert counted(backend) == {**put, "pcie_out": (padded, seconds(copy_out=copies))}

    run(scenario)


def content(identity: Identity, offset: int) -> Bytes:
    """A piece of an object."""
    memory = shared_plane().base[:PIECE_BYTES].copy()
    stamp(memory, identity, offset, PIECE_BYTES)
    return memory


def expect(identity: Identity, offset: int, verify: str) -> Expected:
    return Expected(identity, offset, PIECE_BYTES, shared_plane().base if verify == "full" else None)


def berth_of(backend: GpuBackend) -> GpuBerth:
    landing = backend.landing()
    landing.reserve(1, PIECE_BYTES)
    berth = landing.berth()
    assert isinstance(berth, GpuBerth)
    return berth


@VERIFY
def test_what_is_loaded_arrives_before_its_buffer_is_used_again(verify: str) -> None:
    async def scenario(backend: GpuBackend, cards: list[StreamCard]) -> None:
        berth, identity = berth_of(backend), identify("k", 1)
        pieces = [content(identity, index * PIECE_BYTES) for index in range(5)]
        for index, piece in enumerate(pieces):
            memory = berth.memory()
            memory[:] = piece
            expected = None if verify == "off" else expect(identity, index * PIECE_BYTES, verify)
            berth.send(memory, expected)
        assert berth.arrive() == []
        assert counted(backend) == {"pcie_load": (5 * PIECE_BYTES, seconds(copy_in=5))}
        landed = [part.tobytes() for memory in cards[0].memory.values() for part in _cut(memory)]
        assert {piece.tobytes() for piece in pieces[-2:]} <= set(landed)
        assert not backend.stuck(time.monotonic_ns(), 0)

    run(scenario, verify=verify)


def _cut(memory: Bytes) -> list[Bytes]:
    """A small allocation in pieces: berths' targets."""
    return [memory[:PIECE_BYTES], memory[PIECE_BYTES:]] if len(memory) == 2 * PIECE_BYTES else []


@pytest.mark.parametrize("verify", ["stamp", "full"])
def test_a_piece_of_another_object_is_found_where_it_landed(verify: str) -> None:
    async def scenario(backend: GpuBackend, cards: list[StreamCard]) -> None:
        del cards
        berth, identity = berth_of(backend), identify("k", 1)
        for key in ("k", "other", "k"):
            memory = berth.memory()
            memory[:] = content(identify(key, 1), 0)
            berth.send(memory, expect(identity, 0, verify))
        assert berth.arrive() == ["misdirected"]
        assert berth.arrive() == []

    run(scenario)


@pytest.mark.parametrize("verify", ["stamp", "full"])
def test_what_a_file_was_read_into_is_looked_at_once_and_then_cleared(verify: str) -> None:
    async def scenario(backend: GpuBackend, cards: list[StreamCard]) -> None:
        berth, identity = berth_of(backend), identify("k", 1)

        def read(handle: int, address: int, nbytes: int, offset: int) -> int:
            cards[0].at(address, nbytes)[:] = content(identity, offset)
            return nbytes + handle

        berth.files = cast(DirectFiles, SimpleNamespace(read=read))
        for index in range(3):
            expected = expect(identity, index * PIECE_BYTES, verify)
            assert berth.read_file(0, index * PIECE_BYTES, PIECE_BYTES) == PIECE_BYTES
            assert berth.wrong(expected) is None
            # Nothing has been read since: what is found there must not be the last read's.
            assert berth.wrong(expected) == "corrupt"

    run(scenario)


def test_a_short_direct_write_ends_there_although_more_lies_on_the_next_card() -> None:
    async def scenario(backend: GpuBackend, cards: list[StreamCard]) -> None:
        del cards
        ref = ObjectRef("k", 1, 6 * PAGE_BYTES)
        await written(backend, [ref])
        first, second = (share.stretches[0] for share in backend.place(ref).shares)
        landing, source = backend.landing(), backend.lend(ref)
        assert isinstance(landing, GpuLanding)
        assert isinstance(source, DirectSource)
        wrote: list[tuple[int, ...]] = []
        short_by = 0

        def write(*given: int) -> int:
            wrote.append(given)
            return given[2] - short_by

        landing.files = cast(DirectFiles, SimpleNamespace(write=write, close=lambda: None))
        both = [
            (7, first.address, first.nbytes, 100),
            (7, second.address, second.nbytes, 100 + first.nbytes),
        ]
        assert source.write_file(7, 100, 0, ref.nbytes) == ref.nbytes
        assert wrote == both
        wrote.clear()
        short_by = BLOCK_BYTES
        assert source.write_file(7, 100, 0, ref.nbytes) == first.nbytes - BLOCK_BYTES
        assert wrote == both[:1]

    run(scenario, devices=(0, 1))


def test_host_memory_is_touched_and_registered_on_the_cards_own_node(monkeypatch: pytest.MonkeyPatch) -> None:
    near: list[tuple[str, int, int]] = []
    cards: list[StreamCard] = []

    @contextmanager
    def near_device(pci_address: str) -> Iterator[None]:
        faults, calls = _faults(), cards[0].calls.count("register") if cards else 0
        yield
        made = cards[0].calls.count("register") - calls if cards else 0
        near.append((pci_address, _faults() - faults, made))

    monkeypatch.setattr(cuda, "near_device", near_device)
    monkeypatch.setattr(backend_module, "near_device", near_device)

    def open_card(index: int) -> StreamCard:
        cards.append(StreamCard(index))
        return cards[-1]

    async def main() -> None:
        backend = GpuBackend(8 * PAGE_BYTES, plane=shared_plane(), open_card=open_card)
        try:
            await backend.prepare(lambda *_: None)
            # Registering the data plane touches it.
            assert near[-1][2] == 1
            near.clear()
            backend.landing().buffer(16 * MIB)
            ((address, faults, _),) = near
            assert address == cards[0].facts.pci_address
            assert faults >= 16 * MIB // (2 * MIB), "touched elsewhere"
        finally:
            await backend.close()

    asyncio.run(main())


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
