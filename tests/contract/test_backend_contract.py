"""What every backend promises, whatever it is made of. A new backend is one more line in BACKENDS."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kvspill.records import MIB, Completion
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import Backend, ObjectRef, WriteItem
from kvspill.storage.buffers import DataPlane
from kvspill.storage.dram import DramBackend
from kvspill.storage.files.backend import FilesBackend, FilesOptions
from kvspill.storage.files.ring import Ring, RingError
from kvspill.storage.profiles import NULL, DeviceModel
from kvspill.world import World, run_real, run_virtual

Clock = Callable[[], int]
SIZES = [1, 100, 4096, 5000, MIB, MIB + 1, 9 * MIB + 513]


def files(path: Path, clock_ns: Clock, **options: str) -> Backend:
    wanted = FilesOptions(io_size=MIB, io_threads=4, **options)  # type: ignore[arg-type]
    return FilesBackend([path], wanted, clock_ns, plane())


def laid_out(name: str, path: Path, clock_ns: Clock, **options: str) -> Backend:
    wanted = FilesOptions(
        io_size=MIB,
        io_threads=2,
        write_threads=2,
        layout=name,
        unit_bytes=3 * MIB // 2,
        capacity_bytes=256 * MIB,
        **options,  # type: ignore[arg-type]
    )
    return FilesBackend([path], wanted, clock_ns, plane())


def ring_files(path: Path, clock_ns: Clock, **options: str) -> Backend:
    try:
        Ring(1).close()
    except RingError as error:
        pytest.skip(str(error))
    return files(path, clock_ns, io_engine="io_uring", **options)


@functools.cache
def plane() -> DataPlane:
    """Filled once: base data is the same for all."""
    return DataPlane(MIB, 4)


BACKENDS: dict[str, tuple[bool, Callable[[Path, Clock], Backend]]] = {
    # name: (real clock and threads, maker)
    "files": (True, lambda path, clock: files(path, clock)),
    "files-full": (True, lambda path, clock: files(path, clock, verify="full")),
    "files-buffered": (True, lambda path, clock: files(path, clock, direct="off")),
    "files-synced": (True, lambda path, clock: files(path, clock, sync="data")),
    "files-uring": (True, lambda path, clock: ring_files(path, clock)),
    "files-uring-full": (True, lambda path, clock: ring_files(path, clock, verify="full")),
    "files-split": (True, lambda path, clock: laid_out("files", path, clock)),
    "tree": (True, lambda path, clock: laid_out("tree", path, clock)),
    "slots": (True, lambda path, clock: laid_out("slots", path, clock)),
    "slots-buffered": (True, lambda path, clock: laid_out("slots", path, clock, direct="off")),
    "buckets": (True, lambda path, clock: laid_out("buckets", path, clock)),
    "buckets-full": (True, lambda path, clock: laid_out("buckets", path, clock, verify="full")),
    "dram": (True, lambda _path, clock: DramBackend(64 * MIB, "stamp", clock, plane())),
    "dram-full": (True, lambda _path, clock: DramBackend(64 * MIB, "full", clock, plane())),
    "modelled": (
        False,
        lambda _path, clock: ModelledBackend("modelled", DeviceModel(1.0, 0.5, 90, 30), clock),
    ),
    "null": (False, lambda _path, clock: ModelledBackend("null", NULL, clock)),
}

Scenario = Callable[[Backend], Coroutine[Any, Any, None]]
Run = Callable[[Scenario], None]


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.real if real else ()) for name, (real, _) in BACKENDS.items()
    ]
)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a scenario on one prepared backend and closes it."""
    real, make = BACKENDS[request.param]

    def go(scenario: Scenario) -> None:
        async def main(world: World) -> None:
            backend = make(tmp_path, world.now_ns)
            try:
                await backend.prepare(lambda _what, _done, _total: None)
                await scenario(backend)
            finally:
                await backend.close()

        (run_real if real else run_virtual)(main, seed=1)

    return go


def refs(generation: int = 1) -> list[ObjectRef]:
    return [ObjectRef(f"u{index}_c0_t0", generation, nbytes) for index, nbytes in enumerate(SIZES)]


def items(objects: list[ObjectRef]) -> list[WriteItem]:
    return [WriteItem(ref) for ref in objects]


def errors(completions: list[Completion]) -> list[str | None]:
    return [completion.error for completion in completions]


async def ok(answer: Awaitable[list[Completion]], count: int) -> list[Completion]:
    completions = await answer
    assert errors(completions) == [None] * count
    return completions


def test_what_was_written_can_be_read_as_often_as_wanted(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        await ok(backend.write(items(refs())), len(SIZES))
        for _ in range(3):
            await ok(backend.read(refs()), len(SIZES))

    run(scenario)


def test_a_read_of_what_was_never_written_is_an_error_and_never_a_hit(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        assert errors(await backend.read(refs())) == ["ENOENT"] * len(SIZES)

    run(scenario)


def test_a_deleted_object_is_gone(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        await ok(backend.write(items(refs())), len(SIZES))
        await ok(backend.delete(refs()), len(SIZES))
        assert errors(await backend.read(refs())) == ["ENOENT"] * len(SIZES)
        assert errors(await backend.delete(refs())) == ["ENOENT"] * len(SIZES)

    run(scenario)


def test_generations_of_a_key_are_objects_of_their_own(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        await ok(backend.write(items(refs(1)) + items(refs(2))), 2 * len(SIZES))
        await ok(backend.delete(refs(1)), len(SIZES))
        await ok(backend.read(refs(2)), len(SIZES))
        assert errors(await backend.read(refs(1))) == ["ENOENT"] * len(SIZES)

    run(scenario)


def test_an_object_can_be_written_again(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        for _ in range(2):
            await ok(backend.write(items(refs())), len(SIZES))
        await ok(backend.read(refs()), len(SIZES))

    run(scenario)


def test_an_empty_batch_has_an_empty_answer(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        assert await backend.read([]) == await backend.write([]) == await backend.delete([]) == []

    run(scenario)


def test_one_bad_item_of_a_batch_does_not_touch_the_others(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        here, missing, there = ObjectRef("a", 1, 5000), ObjectRef("b", 1, 5000), ObjectRef("c", 1, 5000)
        await ok(backend.write(items([here, there])), 2)
        assert errors(await backend.read([here, missing, there])) == [None, "ENOENT", None]

    run(scenario)


def test_times_are_in_order_and_queue_device_and_host_add_up(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        for completion in await backend.write(items(refs())) + await backend.read(refs()):
            assert completion.submitted_ns <= completion.started_ns <= completion.finished_ns
            assert 0 <= completion.device_ns <= completion.finished_ns - completion.started_ns
            assert completion.device_ns + completion.host_ns == completion.total_ns

    run(scenario)


def test_pieces_lie_within_the_operation_and_move_at_least_the_object(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        for ref, completion in zip(refs() * 2, await _both(backend), strict=True):
            if not completion.pieces:
                assert backend.capabilities.modelled
                continue
            moved = sum(nbytes for _, _, nbytes in completion.pieces)
            assert ref.nbytes <= moved <= backend.stored_bytes(ref.nbytes)
            for start_ns, end_ns, _ in completion.pieces:
                assert completion.started_ns <= start_ns <= end_ns <= completion.finished_ns

    run(scenario)


async def _both(backend: Backend) -> list[Completion]:
    return await backend.write(items(refs())) + await backend.read(refs())


def test_stored_bytes_never_fall_short_and_grow_with_the_object(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        stored = [backend.stored_bytes(nbytes) for nbytes in SIZES]
        assert stored == sorted(stored)
        assert all(padded >= nbytes for padded, nbytes in zip(stored, SIZES, strict=True))
        assert all(backend.stored_bytes(padded) == padded for padded in stored)

    run(scenario)


def test_many_operations_at_once_all_complete(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        objects = [ObjectRef(f"k{index}", 1, 70_000) for index in range(30)]
        await asyncio.gather(*(ok(backend.write(items([ref])), 1) for ref in objects))
        reads = (ok(backend.read([ref]), 1) for ref in objects for _ in range(3))
        await asyncio.gather(*reads)
        await asyncio.gather(*(ok(backend.delete([ref]), 1) for ref in objects))

    run(scenario)


def test_what_a_backend_lends_is_the_object_and_lies_in_whole_blocks(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        await ok(backend.write(items(refs())), len(SIZES))
        for ref in refs():
            source = backend.lend(ref)
            if source is None:
                continue
            padded = -(-ref.nbytes // 4096) * 4096
            assert sum(len(part) for part in source.buffers(0, padded)) == padded
        assert backend.lend(ObjectRef("never written", 1, 4096)) is None

    run(scenario)


def test_cancel_answers_everything_and_refuses_what_comes_later(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        ref = ObjectRef("large", 1, 32 * MIB)
        under_way = asyncio.ensure_future(backend.write(items([ref])))
        await asyncio.sleep(0)
        backend.cancel()  # type: ignore[attr-defined]
        (completion,) = await under_way
        assert completion.error in (None, "cancelled")
        assert sum(nbytes for _, _, nbytes in completion.pieces) <= ref.nbytes
        assert errors(await backend.read([ref])) == ["cancelled"]

    run(scenario)


def test_closing_twice_is_harmless(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        await ok(backend.write(items(refs())), len(SIZES))
        await backend.close()
        await backend.close()

    run(scenario)


def test_a_modelled_backend_says_so_and_a_real_one_verifies(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        capabilities = backend.capabilities
        assert capabilities.name
        assert capabilities.description
        assert capabilities.modelled != capabilities.verifies

    run(scenario)


@pytest.mark.real
def test_files_leave_nothing_behind(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        backend = FilesBackend([tmp_path], FilesOptions(io_size=MIB, io_threads=4), world.now_ns, plane())
        await backend.prepare(lambda *_: None)
        await ok(backend.write(items(refs())), len(SIZES))
        assert list(tmp_path.iterdir())
        await backend.close()
        assert backend.left_behind == []

    run_real(main, seed=1)
    assert list(tmp_path.iterdir()) == []
