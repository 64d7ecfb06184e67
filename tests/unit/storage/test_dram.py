"""The dram backend: pages within the budget, given back exactly once, and checked like any other tier."""

import asyncio
import functools
import os
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kvspill.errors import UsageError
from kvspill.records import MIB
from kvspill.storage import copies
from kvspill.storage.arena import PAGE_BYTES, Arena, padded, page_bytes_for, runs_of
from kvspill.storage.backends import dram as plugin
from kvspill.storage.base import ObjectRef, WriteItem
from kvspill.storage.buffers import HUGE_PAGE_BYTES, DataPlane
from kvspill.storage.dram import DramBackend
from kvspill.storage.gpu import cuda
from kvspill.texts import size_text

pytestmark = pytest.mark.real
PAGES = 8


@functools.cache
def plane() -> DataPlane:
    return DataPlane(MIB, 4)


def run(scenario: Callable[[DramBackend], Coroutine[Any, Any, None]], verify: str = "stamp") -> None:
    async def main() -> None:
        dram = DramBackend(PAGES * PAGE_BYTES, verify, plane=plane())
        await dram.prepare(lambda *_: None)
        try:
            await scenario(dram)
        finally:
            await dram.close()

    asyncio.run(main())


@pytest.fixture(autouse=True, params=["compiled", "python"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the compiled threads and without."""
    if request.param == "python":
        monkeypatch.setattr(copies, "_compiled", None)
    elif not copies.COMPILED:
        pytest.skip("the compiled threads were not built")


async def write(dram: DramBackend, key: str, nbytes: int) -> str | None:
    (completion,) = await dram.write([WriteItem(ObjectRef(key, 1, nbytes))])
    return completion.error


def test_a_full_arena_is_enomem_and_a_delete_makes_room() -> None:
    async def scenario(dram: DramBackend) -> None:
        assert await write(dram, "a", 6 * PAGE_BYTES) is None
        assert await write(dram, "b", 3 * PAGE_BYTES) == "ENOMEM"
        assert dram.arena.free_pages == 2
        await dram.delete([ObjectRef("a", 1, 6 * PAGE_BYTES)])
        assert await write(dram, "b", 3 * PAGE_BYTES) is None
        assert dram.arena.free_pages == 5

    run(scenario)


def test_overwriting_gives_the_old_pages_back() -> None:
    async def scenario(dram: DramBackend) -> None:
        for _ in range(10):
            assert await write(dram, "a", 3 * PAGE_BYTES) is None
        assert dram.arena.free_pages == PAGES - 3

    run(scenario)


def test_a_cancelled_write_gives_its_pages_back() -> None:
    async def scenario(dram: DramBackend) -> None:
        writing = asyncio.ensure_future(dram.write([WriteItem(ObjectRef("a", 1, 4 * PAGE_BYTES))]))
        await asyncio.sleep(0)
        dram.cancel()
        (completion,) = await writing
        expected = PAGES if completion.error else PAGES - 4
        assert dram.arena.free_pages == expected

    run(scenario)


def test_stored_bytes_are_whole_pages_and_add_up_to_the_arena() -> None:
    async def scenario(dram: DramBackend) -> None:
        assert dram.stored_bytes(1) == PAGE_BYTES
        assert dram.stored_bytes(PAGE_BYTES + 1) == 2 * PAGE_BYTES
        for index in range(PAGES):
            assert await write(dram, f"k{index}", 1) is None
        assert dram.arena.free_pages == 0

    run(scenario)


@pytest.mark.parametrize(
    ("unit_kib", "io_mib", "page_kib"),
    [
        (2048, 4, 64),
        (12288, 4, 64),
        (384, 4, 64),
        (1100, 4, 32),
        (68, 4, 4),
        (68, 16, 16),
    ],
)
def test_pages_are_small_enough_for_the_usual_object(unit_kib: int, io_mib: int, page_kib: int) -> None:
    assert page_bytes_for(unit_kib << 10, io_mib * MIB) == page_kib << 10
    if io_mib == 4:
        assert padded(unit_kib << 10, page_kib << 10) <= 1.02 * (unit_kib << 10)


def test_pages_that_lie_apart_are_found_however_they_are_cut() -> None:
    arena = Arena(8, 64 << 10)
    held = [arena.take(2) for _ in range(4)]
    for number in (0, 2):
        pages = held[number]
        assert pages is not None
        arena.give_back(pages)
    scattered = arena.take(4)
    assert scattered is not None
    assert runs_of(scattered) == [(0, 2), (4, 6)]
    assert runs_of(scattered[1:3]) == [(1, 2), (4, 5)]
    assert held[1] is not None
    assert runs_of(held[1]) == [(2, 4)]
    assert runs_of(held[1][1:]) == [(3, 4)]


def test_whole_entries_of_any_length_waste_next_to_nothing() -> None:
    """Entries of 3.6 MiB took two pages of 2 MiB each: a tier held 3 % less than the simulated one."""
    tokens, nbytes = range(100, 400), 24 << 10
    page_bytes = page_bytes_for(16 * nbytes, 4 * MIB)
    taken = sum(padded(count * nbytes, page_bytes) for count in tokens)
    assert taken <= 1.01 * sum(count * nbytes for count in tokens)


def test_an_object_of_scattered_small_pages_is_kept_checked_and_lent() -> None:
    """Blocks of 384 KiB took a page of 2 MiB each: a tier of 1 GiB held a fifth of them."""

    async def scenario(_unused: DramBackend) -> None:
        unit = 384 << 10
        dram = DramBackend(16 * unit, "full", plane=plane(), page_bytes=page_bytes_for(unit, 4 * MIB))
        blocks = [ObjectRef(f"k{index}", 1, unit) for index in range(16)]
        assert [one.error for one in await dram.write([WriteItem(ref) for ref in blocks])] == [None] * 16
        assert dram.arena.free_pages == 0
        await dram.delete(blocks[::2])
        large = ObjectRef("large", 1, 8 * unit - 5000)
        assert await write(dram, "large", large.nbytes) is None
        lent, pages = dram.lend(large), dram.find(large)
        assert lent is not None
        assert pages is not None
        assert len(lent.buffers(0, large.nbytes)) == 8
        assert [one.error for one in await dram.read([large, *blocks[1::2]])] == [None] * 9
        dram.arena.memory[int(pages[-1]) * dram.page_bytes + 1000] ^= 1
        assert [one.error for one in await dram.read([large, blocks[1]])] == ["corrupt", None]
        await dram.close()

    run(scenario)


@pytest.mark.parametrize(("verify", "expected"), [("off", None), ("stamp", None), ("full", "corrupt")])
def test_memory_that_changed_is_found_by_full_verification(verify: str, expected: str | None) -> None:
    async def scenario(dram: DramBackend) -> None:
        ref = ObjectRef("a", 1, 3 * PAGE_BYTES)
        assert await write(dram, "a", ref.nbytes) is None
        pages = dram.find(ref)
        assert pages is not None
        dram.arena.memory[int(pages[1]) * PAGE_BYTES + 1000] ^= 1
        assert (await dram.read([ref]))[0].error == expected

    run(scenario, verify)


def test_pages_of_two_objects_mixed_up_are_torn() -> None:
    async def scenario(dram: DramBackend) -> None:
        mine, yours = ObjectRef("a", 1, 3 * PAGE_BYTES), ObjectRef("b", 1, 3 * PAGE_BYTES)
        await dram.write([WriteItem(mine), WriteItem(yours)])
        my_pages, your_pages = dram.find(mine), dram.find(yours)
        assert my_pages is not None
        assert your_pages is not None
        dram.keep(mine, np.array([my_pages[0], your_pages[1], my_pages[2]]))
        (completion,) = await dram.read([mine])
        assert completion.error == "torn"

    run(scenario)


def test_a_copy_of_lent_pages_is_the_same_object() -> None:
    async def scenario(dram: DramBackend) -> None:
        ref = ObjectRef("a", 1, 3 * PAGE_BYTES + 77)
        assert await write(dram, "a", ref.nbytes) is None
        other = DramBackend(PAGES * PAGE_BYTES, "full", plane=plane())
        (completion,) = await other.write([WriteItem(ref, dram.lend(ref))])
        assert completion.error is None
        assert (await other.read([ref]))[0].error is None
        await other.close()

    run(scenario)


def test_lent_buffers_are_the_arenas_own_memory_and_aligned_for_direct_io() -> None:
    arena = Arena(3)
    source = arena.source(np.array([2, 0], dtype=np.int64))
    parts = source.buffers(PAGE_BYTES - 4096, 4096 + 512)
    assert [len(part) for part in parts] == [4096, 512]
    assert parts[0].ctypes.data == arena.memory.ctypes.data + 3 * PAGE_BYTES - 4096
    assert parts[1].ctypes.data % HUGE_PAGE_BYTES == 0


def test_preparing_touches_all_of_the_arena_and_reports_progress() -> None:
    reached: list[tuple[str, int]] = []
    size = size_text(PAGES * PAGE_BYTES)

    async def main() -> None:
        dram = DramBackend(PAGES * PAGE_BYTES, plane=plane())
        assert dram.capabilities.description == f"{size} in pages of {size_text(PAGE_BYTES)}"
        await dram.prepare(lambda what, done, _total: reached.append((what, done)))
        await asyncio.sleep(0)
        await dram.close()

    asyncio.run(main())
    assert max(reached) == (f"DRAM ({size})", PAGES * PAGE_BYTES)


def test_a_page_given_back_twice_is_a_defect() -> None:
    arena = Arena(2)
    pages = arena.take(2)
    assert pages is not None
    arena.give_back(pages)
    with pytest.raises(AssertionError, match="twice"):
        arena.give_back(pages)


def test_a_budget_smaller_than_a_page_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match="--cpu-mem-gb"):
        DramBackend(PAGE_BYTES - 1)


def test_the_arena_is_touched_by_processors_of_the_nodes_that_it_shall_lie_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = frozenset({min(os.sched_getaffinity(0))})
    seen: list[set[int]] = []
    touch = Arena.touch

    def noted(self: Arena, progress: Callable[[int], None]) -> None:
        seen.append(os.sched_getaffinity(0))
        touch(self, progress)

    monkeypatch.setattr(Arena, "touch", noted)

    async def main() -> None:
        dram = DramBackend(PAGES * PAGE_BYTES, plane=plane(), threads=3, nodes=[one])
        await dram.prepare(lambda *_: None)
        await dram.close()

    asyncio.run(main())
    assert seen == [one] * 3


def test_below_a_real_gpu_tier_memory_lies_on_the_nodes_of_its_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [frozenset({0}), frozenset({1})]
    monkeypatch.setattr(plugin, "memory_nodes", lambda: nodes)
    monkeypatch.setattr(plugin, "nodes_near", lambda addresses: nodes[1:] if addresses == ["card 3"] else [])
    monkeypatch.setattr(cuda, "look_at_card", lambda index: SimpleNamespace(pci_address=f"card {index}"))
    settings = {"gpu_tier": "real", "gpu_mem_gb": 16.0, "gpu_device": (3,)}
    assert plugin.nodes_of(settings) == nodes[1:]
    assert plugin.nodes_of(settings | {"gpu_tier": "modelled"}) == nodes
    assert plugin.nodes_of(settings | {"gpu_mem_gb": 0.0}) == nodes
