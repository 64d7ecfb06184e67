"""Every layout and every mover of the files backend is counted, resumed and confirmed alike."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.records import MIB, Tier
from kvspill.storage import fastio
from kvspill.storage.backends.files import make
from kvspill.storage.base import Backend, BackendContext, ObjectRef, WriteItem
from kvspill.storage.buffers import DataPlane
from kvspill.storage.directio import resident_pages
from kvspill.world import World, run_real
from real.rig import start

pytestmark = pytest.mark.real
LAYOUTS = ("files", "tree", "slots", "buckets")
IO_SIZE = MIB // 4
PLANE = DataPlane(IO_SIZE, 8)
Scenario = Callable[[Backend], Coroutine[Any, Any, None]]


def run(root: Path, layout: str, scenario: Scenario, **settings: Any) -> None:
    """Runs a scenario on a files backend as a run would make it."""
    wanted: dict[str, Any] = {"io_size": IO_SIZE, "io_threads": 4, "layout": layout, **settings}

    async def main(world: World) -> None:
        backend = make(
            BackendContext(
                tier=Tier.STORAGE,
                clock_ns=world.now_ns,
                limit_bytes=128 * MIB,
                usable_bytes=128 * MIB,
                unit_bytes=3 * MIB // 2,
                settings=dict(Config(**wanted)),
                roots=(root,),
                plane=PLANE,
            )
        )
        await backend.prepare(lambda *_: None)
        try:
            await scenario(backend)
        finally:
            await backend.close()

    run_real(main, seed=1)
    assert list(root.iterdir()) == []


async def write(backend: Backend, *refs: ObjectRef) -> None:
    answers = await backend.write([WriteItem(ref) for ref in refs])
    assert [(answer.error, answer.detail) for answer in answers] == [(None, "")] * len(refs)


async def read(backend: Backend, *refs: ObjectRef) -> None:
    answers = await backend.read(refs)
    assert [(answer.error, answer.detail) for answer in answers] == [(None, "")] * len(refs)


REFS = [ObjectRef(f"k{index}", 1, nbytes) for index, nbytes in enumerate((5000, MIB + 1, 4 * MIB + 513))]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("direct", ["auto", "off"])
def test_openings_are_counted_by_what_the_descriptor_says(tmp_path: Path, layout: str, direct: str) -> None:
    async def scenario(backend: Backend) -> None:
        await write(backend, *REFS)
        await read(backend, *REFS)
        found = backend.capabilities
        opened = {True: found.files_opened_direct, False: found.files_opened_buffered}
        # The slot file is opened once, a bucket also to reserve the room of its first objects.
        expected = {"slots": 1, "buckets": 2 * len(REFS) + 1}.get(layout, 2 * len(REFS))
        assert opened[found.direct_io] == expected
        assert opened[not found.direct_io] == 0
        assert ("opened once" in found.description) == (layout == "slots")

    run(tmp_path, layout, scenario, direct=direct)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pages_are_confirmed_to_be_dropped_from_the_page_cache(tmp_path: Path, layout: str) -> None:
    """E7."""

    async def scenario(backend: Backend) -> None:
        if "memory" in backend.capabilities.description:
            pytest.skip("a file system in memory")
        pages = sum(-(-ref.nbytes // 4096) for ref in REFS)
        await write(backend, *REFS)
        assert (backend.facts()["pages_dropped"], backend.facts()["pages_left"]) == (pages, 0)
        await read(backend, *REFS)
        assert (backend.facts()["pages_dropped"], backend.facts()["pages_left"]) == (2 * pages, 0)

    run(tmp_path, layout, scenario, direct="off")


@pytest.mark.parametrize("layout", ["slots", "buckets"])
def test_reading_one_object_leaves_no_page_of_its_neighbours_behind(tmp_path: Path, layout: str) -> None:
    """Reading ahead in a file of many objects would serve the next of them from memory."""

    async def scenario(backend: Backend) -> None:
        if "memory" in backend.capabilities.description:
            pytest.skip("a file system in memory")
        refs = [ObjectRef(f"n{index}", 1, 64 * 1024) for index in range(20)]
        await write(backend, *refs)
        for ref in refs[::3]:
            await read(backend, ref)
        (path,) = [path for path in tmp_path.glob("kvspill-*/*-[01]") if path.is_file()]
        with path.open("rb") as file:
            left = int(backend.facts()["pages_left"])
            assert (left, resident_pages(file.fileno(), 0, path.stat().st_size)) == (0, 0)

    run(tmp_path, layout, scenario, direct="off")


class Stingy:
    """A kernel that moves at most 64 KiB a call."""

    def __init__(self, real: Callable[..., int]) -> None:
        self.real = real
        self.calls = 0

    def __call__(self, fd: int, buffers: Sequence[Any], offset: int) -> int:
        self.calls += 1
        left, some = 65536, []
        for buffer in buffers:
            some.append(memoryview(buffer)[:left])
            left -= len(some[-1])
        return self.real(fd, [part for part in some if len(part)], offset)


@pytest.mark.parametrize("lent", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_short_reads_and_writes_are_resumed_until_all_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, lent: bool
) -> None:
    monkeypatch.setattr(fastio, "_compiled", None)
    reads, writes = Stingy(os.preadv), Stingy(os.pwritev)
    monkeypatch.setattr(os, "preadv", reads)
    monkeypatch.setattr(os, "pwritev", writes)

    async def scenario(backend: Backend) -> None:
        if lent:
            await demote(backend)
        else:
            await write(backend, *REFS)
        await read(backend, *REFS)
        assert reads.calls > sum(ref.nbytes for ref in REFS) // 65536
        assert writes.calls > sum(ref.nbytes for ref in REFS) // 65536
        assert int(backend.facts()["resumed_calls"]) > 40

    async def demote(backend: Backend) -> None:
        from kvspill.storage.dram import DramBackend

        memory = DramBackend(32 * MIB, plane=PLANE)
        await memory.write([WriteItem(ref) for ref in REFS])
        answers = await backend.write([WriteItem(ref, memory.lend(ref)) for ref in REFS])
        assert [answer.error for answer in answers] == [None] * len(REFS)
        await memory.close()

    run(tmp_path, layout, scenario)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("write_threads", [0, 2])
def test_a_ring_moves_every_layout(tmp_path: Path, layout: str, write_threads: int) -> None:
    async def scenario(backend: Backend) -> None:
        (note,) = [*backend.notes(), None][:1]
        if note is not None:
            assert "layout" not in note.message
            pytest.skip(note.message)
        await write(backend, *REFS)
        await asyncio.gather(*(read(backend, *REFS) for _ in range(3)))
        assert "io_uring" in backend.capabilities.description

    run(tmp_path, layout, scenario, io_engine="io_uring", write_threads=write_threads)


@pytest.mark.parametrize("layout", ["slots", "buckets"])
def test_the_result_of_a_run_counts_openings_and_warns_of_them(tmp_path: Path, layout: str) -> None:
    (tmp_path / "cache").mkdir()
    settings = ("--io-model", "prefix", "--block-tokens", "8", "--layout", layout, "--direct", "off")
    run = start(
        tmp_path, tmp_path / "cache", "--max-requests", "5", "--storage-capacity-gb", "0.1", *settings
    )
    finished = run.finish()
    assert finished.code == 0, finished.err
    opened = finished.result["honesty"]["files_opened"]
    assert opened["direct"] == 0
    assert opened["buffered"] == 1 if layout == "slots" else opened["buffered"] > 5
    (tier,) = [tier for tier in finished.result["tiers"] if tier["tier"] == "storage"]
    assert tier["counters"]["pages_left"] == 0
    if tier["counters"]["pages_dropped"]:
        texts = [warning["message"] for warning in finished.result["warnings"]]
        assert any(
            f"({opened['buffered']:,} file" in text and "opened without O_DIRECT" in text for text in texts
        )
