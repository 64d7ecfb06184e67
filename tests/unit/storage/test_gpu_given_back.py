"""A GPU tier that fails while it is made: all memory and every card that it took are given back."""

import asyncio
from contextlib import nullcontext

import pytest

from kvspill.errors import UsageError
from kvspill.machine.gpu import DeviceError
from kvspill.records import GIB
from kvspill.storage.arena import PAGE_BYTES
from kvspill.storage.gpu.backend import GpuBackend, Staged
from kvspill.testing.objects import shared_plane
from unit.storage.fake_gpu import FakeCard


class Failing(FakeCard):
    """A card whose Nth call of a name fails."""

    def __init__(self, index: int, name: str, number: int):
        super().__init__(index)
        self._failing = name, number

    def _called(self, name: str) -> None:
        super()._called(name)
        if (name, self.calls.count(name)) == self._failing:
            raise DeviceError("CUDA_ERROR_OUT_OF_MEMORY", name)


def made(devices: tuple[int, ...], name: str = "", number: int = 0) -> list[FakeCard]:
    """The cards after a tier was made and closed, where the last one's Nth call of a name failed."""
    cards: list[FakeCard] = []

    def open_card(index: int) -> FakeCard:
        cards.append(Failing(index, name, number) if index == devices[-1] else FakeCard(index))
        return cards[-1]

    async def main() -> None:
        backend = GpuBackend(
            32 * PAGE_BYTES, devices, plane=shared_plane(), staged=Staged(2, PAGE_BYTES), open_card=open_card
        )

        async def prepare() -> None:
            await backend.prepare(lambda *_: None)
            backend.landing().reserve(2, PAGE_BYTES)

        refused = pytest.raises(UsageError, match="CUDA_ERROR_OUT_OF_MEMORY") if name else nullcontext()
        try:
            with refused:
                await prepare()
        finally:
            await backend.close()

    asyncio.run(main())
    return cards


@pytest.mark.parametrize("devices", [(0,), (0, 1)])
@pytest.mark.parametrize("name", ["allocate", "register"])
def test_a_failure_of_any_call_gives_all_memory_back(devices: tuple[int, ...], name: str) -> None:
    calls = made(devices)[-1].calls.count(name)
    assert calls >= 5
    for number in range(1, calls + 1):
        for card in made(devices, name, number):
            assert (card.registered, card.closed) == ([], True), number


def test_a_second_card_that_does_not_open_leaves_the_first_one_closed() -> None:
    cards: list[FakeCard] = []

    def open_card(index: int) -> FakeCard:
        if index:
            raise DeviceError("CUDA_ERROR_INVALID_DEVICE", "cuDeviceGet")
        cards.append(FakeCard(index))
        return cards[-1]

    with pytest.raises(UsageError, match="CUDA_ERROR_INVALID_DEVICE"):
        GpuBackend(32 * PAGE_BYTES, (0, 1), plane=shared_plane(), open_card=open_card)
    assert [card.closed for card in cards] == [True]


def test_a_second_card_without_room_leaves_both_closed() -> None:
    cards: list[FakeCard] = []

    def open_card(index: int) -> FakeCard:
        cards.append(FakeCard(index, 4 * GIB if not index else GIB // 4))
        return cards[-1]

    with pytest.raises(UsageError, match=r"on GPU 1 .*give less"):
        GpuBackend(32 * PAGE_BYTES, (0, 1), plane=shared_plane(), open_card=open_card)
    assert [card.closed for card in cards] == [True, True]
