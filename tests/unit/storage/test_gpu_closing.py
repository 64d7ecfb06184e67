"""The end of the GPU tier where a card does not answer: soon, and nothing is released that it still uses."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kvspill.records import MIB
from kvspill.storage.arena import PAGE_BYTES
from kvspill.storage.base import ObjectRef
from kvspill.storage.buffers import map_memory
from kvspill.storage.gpu import backend as backend_module
from kvspill.storage.gpu.backend import GpuBackend
from kvspill.storage.gpu.conveyor import Conveyor
from kvspill.storage.gpu.moves import Hit
from kvspill.testing.objects import items, shared_plane, written
from unit.storage.fake_gpu import FakeCard

pytestmark = pytest.mark.real
Work = Callable[[GpuBackend], Coroutine[Any, Any, object]]
REFS = [ObjectRef("a", 1, MIB), ObjectRef("b", 1, MIB)]


async def hit(backend: GpuBackend) -> object:
    return await backend.read(REFS)


async def put(backend: GpuBackend) -> object:
    return await backend.write(items(REFS))


async def load(backend: GpuBackend) -> object:
    def work() -> None:
        berth = backend.landing().berth()
        berth.send(berth.memory(), None)
        berth.arrive()

    return await asyncio.to_thread(work)


async def demote(backend: GpuBackend) -> object:
    source = backend.lend(REFS[0])
    assert source is not None
    return await asyncio.to_thread(source.copy, 0, [map_memory(MIB)])


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeCard]]:
    """Two cards; no thread that waits for one outlives the test."""
    monkeypatch.setattr(backend_module, "_JOIN_SECONDS", 0.05)
    yield [FakeCard(0), FakeCard(1)]
    mine = [thread for thread in threading.enumerate() if thread.name.startswith("kvspill-gpu")]
    for thread in mine:
        thread.join(5)
        assert not thread.is_alive(), thread.name


@pytest.mark.parametrize("devices", [(0,), (0, 1)])
@pytest.mark.parametrize(
    ("work", "call"), [(hit, "copy_rows"), (put, "copy_in"), (load, "copy_in"), (demote, "copy_out")]
)
def test_what_a_card_that_hangs_still_uses_is_kept(
    cards: list[FakeCard], work: Work, call: str, devices: tuple[int, ...]
) -> None:
    async def main() -> None:
        backend = GpuBackend(
            8 * PAGE_BYTES, devices, plane=shared_plane(), open_card=lambda index: cards[index]
        )
        backend.landing().reserve(1, MIB)
        await backend.prepare(lambda *_: None)
        await written(backend, REFS)
        held = [list(card.registered) for card in cards]
        cards[0].calls.clear()
        cards[0].hangs.clear()
        under_way = asyncio.ensure_future(work(backend))
        while call not in cards[0].calls:
            await asyncio.sleep(0)
        began = time.monotonic()
        await backend.close()
        took_seconds = time.monotonic() - began
        kept = [list(card.registered) for card in cards], cards[0].closed
        cards[0].hangs.set()
        await under_way
        assert kept == (held, False)
        assert took_seconds < 1

    asyncio.run(main())


def test_what_a_move_is_still_looked_at_in_is_kept_although_the_card_answers(
    cards: list[FakeCard], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        backend = GpuBackend(
            8 * PAGE_BYTES, (0, 1), plane=shared_plane(), open_card=lambda index: cards[index]
        )
        await backend.prepare(lambda *_: None)
        await written(backend, REFS[:1])
        held = [list(card.registered) for card in cards]
        looks, gate = threading.Event(), threading.Event()

        def look(*_: object) -> None:
            looks.set()
            gate.wait()

        monkeypatch.setattr(Hit, "land", look)
        under_way = asyncio.ensure_future(backend.read(REFS[:1]))
        while not looks.is_set():
            await asyncio.sleep(0)
        await backend.close()
        kept = [list(card.registered) for card in cards], [card.closed for card in cards]
        gate.set()
        await under_way
        assert kept == (held, [False, False])

    asyncio.run(main())


def test_a_card_that_hangs_while_it_gives_memory_back_holds_nobody_up(
    cards: list[FakeCard], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        backend = GpuBackend(8 * PAGE_BYTES, plane=shared_plane(), open_card=lambda index: cards[index])
        await backend.prepare(lambda *_: None)
        gate, giving_back = threading.Event(), cards[0].unregister
        monkeypatch.setattr(cards[0], "unregister", lambda memory: gate.wait() and giving_back(memory))
        began = time.monotonic()
        await backend.close()
        took_seconds = time.monotonic() - began
        closed = cards[0].closed
        gate.set()
        assert not closed
        assert took_seconds < 1

    asyncio.run(main())


def test_all_cards_that_hang_are_waited_for_together(
    cards: list[FakeCard], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def join(_way: Conveyor, seconds: float) -> bool:
        nonlocal now
        now += seconds
        return False

    async def main() -> None:
        backend = GpuBackend(
            8 * PAGE_BYTES, (0, 1), plane=shared_plane(), open_card=lambda index: cards[index]
        )
        await backend.prepare(lambda *_: None)
        with monkeypatch.context() as patch:
            patch.setattr(backend_module, "_JOIN_SECONDS", 2.0)
            patch.setattr(backend_module, "time", SimpleNamespace(monotonic=lambda: now))
            patch.setattr(Conveyor, "join", join)
            backend.close_now()
        for bank in backend._banks:
            assert all(way.join(5) for way in bank.conveyors)

    asyncio.run(main())
    assert 2.0 <= now < 2.5
