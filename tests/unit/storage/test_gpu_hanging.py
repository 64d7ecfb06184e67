"""A card that does not answer is named, with the way that hangs; a disk that hangs is not taken for it."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from kvspill.records import MIB, NS_PER_SEC, Completion
from kvspill.storage.arena import PAGE_BYTES
from kvspill.storage.base import ObjectRef, WriteItem
from kvspill.storage.dram import DramBackend
from kvspill.storage.gpu.backend import GpuBackend
from kvspill.testing.objects import items, ok, shared_plane, written
from unit.storage.fake_gpu import FakeCard

pytestmark = pytest.mark.real
REF = ObjectRef("k", 1, 5 * MIB)
Ask = Callable[[GpuBackend, DramBackend], Awaitable[list[Completion]]]


@pytest.mark.parametrize(
    ("way", "ask"),
    [
        ("hit", lambda gpu, _: gpu.read([REF])),
        ("put", lambda gpu, _: gpu.write(items([ObjectRef("other", 1, MIB)]))),
        ("demotion", lambda gpu, dram: dram.write([WriteItem(REF, gpu.lend(REF))])),
    ],
)
def test_the_card_and_the_way_that_hang_are_named(way: str, ask: Ask) -> None:
    async def main() -> None:
        card = FakeCard(3)
        gpu = GpuBackend(32 * PAGE_BYTES, (3,), plane=shared_plane(), open_card=lambda _: card)
        dram = DramBackend(64 * MIB, plane=shared_plane())
        await gpu.prepare(lambda *_: None)
        try:
            await written(gpu, [REF])
            assert gpu.hanging(time.monotonic_ns(), 0) == []
            card.hangs.clear()
            asking = asyncio.ensure_future(ask(gpu, dram))
            while not gpu.stuck(time.monotonic_ns(), 0):
                await asyncio.sleep(0)
            later_ns = time.monotonic_ns() + 9 * NS_PER_SEC
            assert gpu.hanging(later_ns, 5 * NS_PER_SEC) == [f"GPU 3 ({way})"]
            card.hangs.set()
            await ok(asking, 1)
            assert gpu.stuck(time.monotonic_ns(), 0) == []
        finally:
            card.hangs.set()
            await dram.close()
            await gpu.close()

    asyncio.run(main())


def test_a_piece_that_was_sent_while_the_disk_hangs_is_not_the_cards() -> None:
    card = FakeCard()
    gpu = GpuBackend(32 * PAGE_BYTES, plane=shared_plane(), open_card=lambda _: card)
    berth = gpu.landing().berth()
    berth.send(berth.memory()[:4096], None)
    assert gpu.hanging(time.monotonic_ns() + 9 * NS_PER_SEC, NS_PER_SEC) == []
    berth.arrive()
    gpu.close_now()
    assert card.registered == []
