"""Reads of the files backend that end on a card: what arrives, in which order, and what goes wrong."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvspill.errors import UsageError
from kvspill.records import MIB, NS_PER_SEC, Completion
from kvspill.storage.arena import PAGE_BYTES
from kvspill.storage.base import ObjectRef, WriteItem
from kvspill.storage.files.backend import FilesBackend, FilesOptions
from kvspill.storage.files.ring import Ring, RingError
from kvspill.storage.gpu.backend import GpuBackend, Staged
from kvspill.storage.gpu.landing import SLOTS
from kvspill.storage.stamps import identify
from kvspill.testing.objects import IO_SIZE, IO_THREADS, errors, ok, shared_plane, some_refs, written
from unit.storage.fake_gpu import FakeCard

pytestmark = pytest.mark.real
Scenario = Callable[[FilesBackend, GpuBackend, list[FakeCard]], Coroutine[Any, Any, None]]


def run(root: Path, scenario: Scenario, devices: tuple[int, ...] = (0,), **options: Any) -> None:
    """A scenario on files below a fake card; both are closed at its end, and nothing stays registered."""
    cards: list[FakeCard] = []

    def open_card(index: int) -> FakeCard:
        cards.append(FakeCard(index))
        return cards[-1]

    async def main() -> None:
        wanted = {"io_size": IO_SIZE, "io_threads": IO_THREADS, **options}
        files = FilesBackend([root], FilesOptions(**wanted), plane=shared_plane())
        staged = Staged(IO_THREADS, IO_SIZE)
        gpu = GpuBackend(
            32 * PAGE_BYTES,
            devices,
            plane=shared_plane(),
            staged=staged,
            open_card=open_card,
        )
        files.deliver_to(gpu.landing())
        try:
            await files.prepare(lambda *_: None)
            await gpu.prepare(lambda *_: None)
            await scenario(files, gpu, cards)
        finally:
            await files.close()
            await gpu.close()

    asyncio.run(main())
    assert all(card.closed and not card.registered for card in cards)


@pytest.fixture(params=["threads", "io_uring"])
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == "io_uring":
        try:
            Ring(1).close()
        except RingError as error:
            pytest.skip(str(error))
    return str(request.param)


def landed(card: FakeCard, ref: ObjectRef) -> bool:
    """Whether some piece of an object lies in the card's memory."""
    key_hash = identify(ref.key, ref.generation, shared_plane().salt).key_hash
    return any(
        int(memory[at : at + 8].view(np.uint64)[0]) == key_hash
        for memory in card.memory.values()
        for at in range(0, len(memory) - 7, IO_SIZE)
    )


def test_what_is_read_from_files_ends_on_the_card(tmp_path: Path, engine: str) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cards: list[FakeCard]) -> None:
        await written(files, some_refs())
        for ref in some_refs():
            assert not landed(cards[0], ref)
            await ok(files.read([ref]), 1)
            assert landed(cards[0], ref)
        padded = sum(files.stored_bytes(ref.nbytes) for ref in some_refs())
        assert gpu.facts()["pcie_load_bytes"] == padded

    run(tmp_path, scenario, io_engine=engine)


def test_a_piece_travels_on_while_the_next_is_read(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cards: list[FakeCard]) -> None:
        del gpu
        ref = ObjectRef("k", 1, 8 * IO_SIZE)
        await written(files, [ref])
        cards[0].hangs.clear()
        reading = asyncio.ensure_future(files.read([ref]))
        # With no copy over yet, each lane has read as many pieces as it has buffers.
        while cards[0].calls.count("copy_in") < min(8, SLOTS * IO_THREADS):
            await asyncio.sleep(0)
        assert not reading.done()
        cards[0].hangs.set()
        await ok(reading, 1)

    run(tmp_path, scenario)


def test_the_buffers_are_made_before_the_load_and_no_more_of_them(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cards: list[FakeCard]) -> None:
        large = [ObjectRef(f"k{index}", 1, 20 * IO_SIZE) for index in range(4)]
        made, used = list(cards[0].registered), sum(map(len, cards[0].memory.values()))
        await written(files, large)
        # No copy is over before every lane has taken part.
        cards[0].hangs.clear()
        reading = asyncio.ensure_future(files.read(large))
        while cards[0].calls.count("copy_in") < SLOTS * IO_THREADS:
            await asyncio.sleep(0)
        cards[0].hangs.set()
        await ok(reading, 4)
        await written(gpu, large[:2])
        await ok(files.write([WriteItem(ref, gpu.lend(ref)) for ref in large[:2]]), 2)
        assert cards[0].registered == made
        assert sum(map(len, cards[0].memory.values())) == used

    run(tmp_path, scenario)


def test_lanes_are_spread_over_the_cards(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cards: list[FakeCard]) -> None:
        del gpu
        refs = [ObjectRef(f"k{index}", 1, 16 * IO_SIZE) for index in range(8)]
        await written(files, refs)
        # Both lanes of a card hold a piece before any goes on, so that all four take part.
        for card in cards:
            card.hangs.clear()
        reading = asyncio.ensure_future(files.read(refs))
        while any(card.calls.count("copy_in") < SLOTS for card in cards):
            await asyncio.sleep(0)
        for card in cards:
            card.hangs.set()
        await ok(reading, 8)

    run(tmp_path, scenario, devices=(0, 1))


@pytest.mark.parametrize("name", ["copy_in", "wait"])
def test_a_card_that_fails_fails_the_read_by_its_own_name(tmp_path: Path, engine: str, name: str) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cards: list[FakeCard]) -> None:
        del gpu
        await written(files, some_refs())
        cards[0].fails[name] = "CUDA_ERROR_DEVICE_LOST"
        assert set(errors(await files.read(some_refs()))) == {"CUDA_ERROR_DEVICE_LOST"}
        cards[0].fails.clear()
        await ok(files.read(some_refs()), len(some_refs()))

    run(tmp_path, scenario, io_engine=engine)


def test_a_lost_card_fails_a_demotion_to_files(tmp_path: Path, engine: str) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cards: list[FakeCard]) -> None:
        ref = ObjectRef("k", 1, 5 * MIB)
        await written(gpu, [ref])
        cards[0].fails["copy_out"] = "CUDA_ERROR_DEVICE_LOST"
        answers = await files.write([WriteItem(ref, gpu.lend(ref))])
        assert errors(answers) == ["CUDA_ERROR_DEVICE_LOST"]
        assert errors(await files.read([ref])) == ["ENOENT"]

    run(tmp_path, scenario, io_engine=engine)


def test_a_card_that_does_not_answer_is_stuck(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cards: list[FakeCard]) -> None:
        await written(files, some_refs())
        cards[0].hangs.clear()
        reading: asyncio.Future[list[Completion]] = asyncio.ensure_future(files.read(some_refs()))
        while not gpu.stuck(time.monotonic_ns(), 0):
            await asyncio.sleep(0)
        assert gpu.stuck(time.monotonic_ns() + 9 * NS_PER_SEC, 5 * NS_PER_SEC)
        cards[0].hangs.set()
        await ok(reading, len(some_refs()))
        assert not gpu.stuck(time.monotonic_ns(), 0)

    run(tmp_path, scenario)


def test_a_wrong_block_is_found_although_it_travels_on(tmp_path: Path, engine: str) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cards: list[FakeCard]) -> None:
        del gpu, cards
        ref = ObjectRef("k", 1, 6 * IO_SIZE)
        await written(files, [ref])
        (path,) = (path for path in tmp_path.rglob("*-1") if path.is_file())
        with path.open("r+b") as file:
            file.seek(3 * IO_SIZE + 4096)
            file.write(bytes(4096))
        assert errors(await files.read([ref])) == ["torn"]

    run(tmp_path, scenario, io_engine=engine)


@pytest.mark.parametrize("verify", ["stamp", "full"])
def test_a_copy_to_the_card_that_moves_nothing_is_found(tmp_path: Path, engine: str, verify: str) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cards: list[FakeCard]) -> None:
        del gpu
        ref = ObjectRef("k", 1, IO_SIZE)
        await written(files, [ref])
        # The same has landed everywhere before.
        for _ in range(SLOTS * IO_THREADS):
            await ok(files.read([ref]), 1)
        cards[0].idle.add("copy_in")
        assert errors(await files.read([ref])) == ["corrupt"]
        cards[0].idle.clear()
        await ok(files.read([ref]), 1)

    run(tmp_path, scenario, io_engine=engine, verify=verify)


def test_a_card_without_room_for_the_buffers_is_said_with_the_remedy(tmp_path: Path) -> None:
    async def main() -> None:
        card = FakeCard()
        gpu = GpuBackend(32 * PAGE_BYTES, plane=shared_plane(), open_card=lambda _index: card)
        files = FilesBackend([tmp_path], FilesOptions(io_size=IO_SIZE, io_threads=2), plane=shared_plane())
        files.deliver_to(gpu.landing())
        card.fails["allocate"] = "CUDA_ERROR_OUT_OF_MEMORY"
        try:
            with pytest.raises(
                UsageError, match=r"^--load-to gpu: 4 buffers .*OUT_OF_MEMORY.*--load-to host"
            ):
                await files.prepare(lambda *_: None)
        finally:
            await gpu.close()
        assert not card.registered

    asyncio.run(main())
