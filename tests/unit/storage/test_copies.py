"""Copies by compiled threads: their times, what they refuse, and what a close finds under way."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvspill.records import MIB, NS_PER_SEC, Completion
from kvspill.storage import copies
from kvspill.storage.arena import PAGE_BYTES
from kvspill.storage.base import ObjectRef, WriteItem
from kvspill.storage.buffers import DataPlane, map_memory
from kvspill.storage.dram import DramBackend, _ReadJob
from kvspill.testing.objects import ok

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not copies.COMPILED, reason="the compiled threads were not built"),
]
PAGES = 64


def run(scenario: Callable[[DramBackend], Coroutine[Any, Any, None]], pages: int = PAGES) -> None:
    async def main() -> None:
        dram = DramBackend(pages * PAGE_BYTES, plane=DataPlane(MIB, 4), threads=2)
        await dram.prepare(lambda *_: None)
        try:
            await scenario(dram)
        finally:
            await dram.close()

    asyncio.run(main())


def refs(count: int, pages: int = 1) -> list[ObjectRef]:
    return [ObjectRef(f"k{index}", 1, pages * PAGE_BYTES) for index in range(count)]


async def written(dram: DramBackend, wanted: list[ObjectRef]) -> list[Completion]:
    return await dram.write([WriteItem(ref) for ref in wanted])


def test_times_of_a_copy_are_those_of_the_threads() -> None:
    async def scenario(dram: DramBackend) -> None:
        before_ns = time.monotonic_ns()
        for answer in (await written(dram, refs(8, 5)), await dram.read(refs(8, 5))):
            for one in answer:
                assert one.error is None
                assert (
                    before_ns <= one.submitted_ns <= one.started_ns <= one.finished_ns <= time.monotonic_ns()
                )
                assert 0 < one.device_ns <= one.finished_ns - one.started_ns
                assert sum(nbytes for _, _, nbytes in one.pieces) == 5 * PAGE_BYTES

    run(scenario)


def test_a_fault_and_a_miss_are_answered_beside_what_was_copied() -> None:
    async def scenario(dram: DramBackend) -> None:
        answers = await written(dram, refs(3, 30))
        assert [one.error for one in answers] == [None, None, "ENOMEM"]
        answers = await dram.read([*refs(2, 30), ObjectRef("missing", 1, PAGE_BYTES)])
        assert [one.error for one in answers] == [None, None, "ENOENT"]

    run(scenario)


def test_what_a_close_finds_under_way_is_answered_and_its_pages_come_back() -> None:
    async def scenario(dram: DramBackend) -> None:
        await written(dram, refs(PAGES))
        reading = [asyncio.ensure_future(dram.read(refs(PAGES))) for _ in range(20)]
        await asyncio.sleep(0)
        await dram.close()
        for answers in await asyncio.gather(*reading):
            assert {one.error for one in answers} <= {None, "cancelled"}
        assert {one.error for one in await dram.read(refs(2))} == {"cancelled"}

    run(scenario)


def test_a_copy_that_does_not_end_is_seen_with_its_age() -> None:
    async def scenario(dram: DramBackend) -> None:
        job, now_ns = _ReadJob(dram, refs(1)[0]), time.monotonic_ns()
        job.span.log[1] = now_ns, 0, 0
        dram._lanes._copied.add(job)
        assert dram.stuck(now_ns + 9 * NS_PER_SEC, 5 * NS_PER_SEC) == [9 * NS_PER_SEC]
        assert dram.stuck(now_ns + 4 * NS_PER_SEC, 5 * NS_PER_SEC) == []

    run(scenario)


def test_one_backend_serves_one_loop_after_another() -> None:
    dram = DramBackend(PAGES * PAGE_BYTES, plane=DataPlane(MIB, 4), threads=2)
    asyncio.run(dram.prepare(lambda *_: None))
    for loop in range(2):
        (answer,) = asyncio.run(written(dram, [ObjectRef(f"k{loop}", 1, PAGE_BYTES)]))
        assert answer.error is None
    asyncio.run(dram.close())


@pytest.mark.parametrize(
    "change", [{"pages": [9]}, {"pages": []}, {"offset": 2 * MIB}, {"rows": 1}, {"lanes": 0}]
)
def test_threads_take_nothing_that_lies_outside_their_memory(change: dict[str, Any]) -> None:
    from kvspill.storage._copies import Pool

    given: dict[str, Any] = {"pages": [1], "offset": 0, "rows": 2, "lanes": 1, **change}
    pool = Pool(1, PAGE_BYTES, PAGE_BYTES, map_memory(4 * PAGE_BYTES), map_memory(3 * MIB))
    log = np.zeros((given["rows"], 3), dtype=np.int64)
    pages = np.array(given["pages"], dtype=np.int64)
    shape = given["lanes"], PAGE_BYTES, 512, 7, 1, 0
    place = np.array([0], dtype=np.int64), np.zeros((2, 3), dtype=np.int64)
    good = ("good", True, 0, 1, *place, 1, *shape[1:])
    with pytest.raises(ValueError, match="fit together"):
        pool.submit([good, ("owner", True, given["offset"], 1, pages, log, *shape)])
    assert pool.close(5.0) == 0
    assert pool.collect() == [], "of a batch that is refused nothing is copied"


def counting(dram: DramBackend, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many entries are handed over at a time from now on."""
    handed: list[int] = []

    class Counting:
        def __init__(self, pool: Any):
            self.pool = pool

        def __getattr__(self, name: str) -> Any:
            return getattr(self.pool, name)

        def submit(self, rows: list[Any]) -> None:
            handed.append(len(rows))
            self.pool.submit(rows)

    monkeypatch.setattr(dram._lanes, "_pool", Counting(dram._lanes._pool))
    return handed


def test_a_batch_is_handed_over_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(dram: DramBackend) -> None:
        dram.plane.fill_some(lambda: True)
        handed = counting(dram, monkeypatch)
        await written(dram, refs(3))
        answers = await dram.read([*refs(3), ObjectRef("none", 1, PAGE_BYTES)])
        assert [answer.error for answer in answers] == [None, None, None, "ENOENT"]
        assert handed == [3, 3], "one turn with the lock and one thread to wake, however many blocks"

    run(scenario)


def test_entries_that_are_asked_for_in_one_turn_are_handed_over_by_a_few_the_first_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(dram: DramBackend) -> None:
        dram.plane.fill_some(lambda: True)
        await written(dram, refs(8))
        handed = counting(dram, monkeypatch)
        await asyncio.gather(*(ok(dram.read([ref]), 1) for ref in refs(8)))
        assert handed == [1, 4, 3]
        await ok(dram.read(refs(1)), 1)
        assert handed == [1, 4, 3, 1]

    run(scenario)


def test_what_was_not_handed_over_when_the_tier_stops_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(dram: DramBackend) -> None:
        dram.plane.fill_some(lambda: True)
        await written(dram, refs(3))
        handed = counting(dram, monkeypatch)
        reads = [asyncio.ensure_future(dram.read([ref])) for ref in refs(3)]
        # On the loop between the turn in which they are asked for and the next.
        asyncio.get_running_loop().call_soon(dram.cancel)
        answers = await asyncio.gather(*reads)
        assert handed == [1]
        assert [answer.error for (answer,) in answers[1:]] == ["cancelled", "cancelled"]

    run(scenario)


def test_threads_that_were_built_from_other_sources_are_not_used(tmp_path: Path) -> None:
    code = (
        "import sys, types; old = types.ModuleType('kvspill.storage._copies'); "
        "import kvspill.storage; kvspill.storage._copies = old; "
        "sys.modules['kvspill.storage._copies'] = old; "
        "from kvspill.storage import copies; assert not copies.COMPILED"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0
