"""What ranks share is counted once, and a limit of each rank's own is not averaged away (R3, S16, E9)."""

from typing import Any

import pytest

from kvspill.config import Config
from kvspill.measure.recorder import Recorder
from kvspill.measure.storage_speed import BUSY
from kvspill.records import GIB
from kvspill.result.measured import ratio
from kvspill.result.parts import Part
from kvspill.result.schema import Result
from kvspill.run.whole import whole_result
from kvspill.workload.digest import Digest
from unit.measure.rows import ns, op
from unit.result.sample import facts

SECONDS = 60
ONE_DISK = ("machine 8:1",)


def recorder() -> Recorder:
    return Recorder(ns(10), ns(10 + SECONDS))


def part(rank: int, recorder: Recorder, storage: tuple[str, ...] = (), **changes: Any) -> Part:
    """What a rank measured in a window of a minute."""
    seen = facts(window_end_ns=ns(10 + SECONDS), finished_ns=ns(10 + SECONDS), **changes)
    return Part(recorder, seen, Digest(), users=1, servers=1, rank=rank, storage=storage)


def whole(*parts: Part) -> Result:
    return whole_result(Config(num_users=8), parts, size=len(parts))


def reading(gib_per_sec: float, *, busy: float = 1.0) -> Recorder:
    """A read in each second, under way for that part of it."""
    found = recorder()
    for second in range(10, 10 + SECONDS):
        found.op(op(second + busy, started=second, nbytes=round(gib_per_sec * GIB)))
    return found


@pytest.mark.parametrize(
    ("places", "gib_per_sec"),
    [
        ([ONE_DISK], 2.0),
        ([ONE_DISK, ONE_DISK], 2.0),
        ([ONE_DISK] * 4, 2.0),
        ([ONE_DISK, ("other 8:1",)], 1.0),
        ([(), ()], 1.0),
        ([ONE_DISK, ("other 8:1",), ONE_DISK, ("other 8:1",)], 1.0),
    ],
)
def test_a_disk_is_no_slower_for_the_number_of_ranks_that_keep_it_at_work_r3(
    places: list[tuple[str, ...]], gib_per_sec: float
) -> None:
    found = whole(*(part(rank, reading(2 / len(places)), where) for rank, where in enumerate(places)))
    assert found.number("storage_busy_gib_per_sec") == pytest.approx(gib_per_sec)


def test_ranks_that_are_seldom_at_a_disk_keep_it_at_work_for_all_their_times() -> None:
    found = whole(*(part(rank, reading(1.0, busy=0.25), ONE_DISK) for rank in range(2)))
    assert found.number("storage_busy_gib_per_sec") == pytest.approx(4.0)


def test_a_step_that_the_end_cuts_is_no_longer_than_it_was() -> None:
    parts = []
    for rank in range(2):
        found = Recorder(ns(10), ns(20.5))
        found.op(op(20.5, started=10, nbytes=21 * GIB))
        parts.append(part(rank, found, ONE_DISK))
    merged = whole(*parts)
    assert merged.number("storage_busy_gib_per_sec") == ratio(42, 10.5)
    assert merged.timeline.columns[BUSY] == [*[10**9] * 10, 5 * 10**8]
