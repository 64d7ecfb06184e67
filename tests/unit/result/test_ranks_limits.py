"""What ranks share is counted once, and a limit of each rank's own is not averaged away (R3, S16, E9)."""

from dataclasses import replace
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.measure.recorder import Recorder
from kvspill.measure.storage_speed import BUSY
from kvspill.records import GIB, Purpose, Tier, Verb
from kvspill.report.console import render_summary
from kvspill.result.honesty import Ceiling
from kvspill.result.measured import ratio
from kvspill.result.parts import Part
from kvspill.result.schema import Result
from kvspill.run.whole import whole_result
from kvspill.workload.digest import Digest
from unit.measure.rows import ns, op
from unit.result.sample import codes, facts, tier

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


def watched(recorder: Recorder, still: range = range(0)) -> Recorder:
    """With one operation under way at each look; in these seconds nothing else is done."""
    for second in range(10, 10 + SECONDS):
        recorder.timeline.note("storage_in_flight", ns(second + 0.5), 1)
        if second not in still:
            recorder.op(op(second + 0.9, started=second + 0.1))
    return recorder


def deleting(recorder: Recorder, begun: float, seconds: float) -> Recorder:
    recorder.op(op(begun + seconds, started=begun, verb=Verb.DELETE, purpose=Purpose.EVICTION))
    return recorder


def stills(result: Result) -> tuple[float | None, float | None]:
    return result.honesty.storage_still_seconds, result.honesty.storage_delete_still_seconds


def test_a_slow_delete_of_each_rank_is_no_standstill_of_all_s16() -> None:
    found = whole(*(part(rank, deleting(recorder(), 20.5 + 4 * rank, 1.2)) for rank in range(4)))
    assert stills(found) == pytest.approx((None, 1.2))
    assert "storage_stalled" not in codes(found)


@pytest.mark.parametrize("still_rank", [0, 1])
def test_a_rank_whose_storage_stands_still_is_not_hidden_by_another_s16(still_rank: int) -> None:
    recorders = [watched(recorder(), range(30, 50) if rank == still_rank else range(0)) for rank in (0, 1)]
    found = whole(part(0, recorders[0]), part(1, recorders[1]))
    assert stills(found) == (20.0, 0.0)
    assert "storage_stalled" in codes(found)


def test_a_rank_that_is_at_nothing_but_a_slow_delete_is_not_hidden_by_another_s16() -> None:
    at_work, at_deletes = reading(0.1), deleting(recorder(), 30.0, 20.0)
    found = whole(part(0, at_work, ONE_DISK), part(1, at_deletes, ONE_DISK))
    assert stills(found) == (None, 20.0)
    assert "storage_stalled" in codes(found)


def test_the_end_of_a_standstill_is_that_of_its_own_rank_s16() -> None:
    """Rank 0 drains for 9 s after the window, but what stood still then was rank 1."""
    drains = part(0, watched(recorder()))
    drains.facts = replace(drains.facts, finished_ns=ns(79))
    stands = part(1, watched(recorder(), range(68, 70)))
    stands.facts = replace(stands.facts, finished_ns=ns(71))
    assert stills(whole(drains, stands))[0] == 3.0


def test_a_modelled_storage_stands_still_nowhere() -> None:
    modelled = (tier(Tier.STORAGE, modelled=True),)
    assert stills(whole(*(part(rank, watched(recorder()), tiers=modelled) for rank in range(2)))) == (
        None,
        None,
    )


FAR = Ceiling(requests_per_sec=1e6, operations_per_sec=1e6, gib_per_sec=1e6)


def costing(rank: int, cpu_seconds: float, ceiling: Ceiling | None = FAR, gib_per_sec: float = 0.01) -> Part:
    """A rank that took so much processor time in all."""
    found = part(rank, reading(gib_per_sec))
    found.probes, found.ceiling = {"cpu_seconds": cpu_seconds}, ceiling
    return found


def client_bound(result: Result) -> list[str]:
    return [item.message for item in result.warnings if item.code == "client_bound"]


def test_ranks_that_are_all_idle_are_no_client_at_its_limit_e9() -> None:
    """64 of them kept a core busy together, at more processor time for a GiB than is usual."""
    found = whole(*(costing(rank, 0.017 * SECONDS) for rank in range(64)))
    share = found.honesty.ceiling
    assert share is not None
    assert share.client_bound is False
    assert share.cores_used == pytest.approx(0.017)
    assert found.honesty.cpu_seconds == pytest.approx(64 * 0.017 * SECONDS), "the processor time of all"
    assert client_bound(found) == []


def test_a_rank_that_keeps_its_processor_busy_is_not_hidden_by_idle_ones_e9() -> None:
    ranks = [costing(rank, 0.9 * SECONDS if rank == 2 else 0.3, gib_per_sec=1.0) for rank in range(3)]
    found = whole(*ranks)
    assert client_bound(found) == [
        "Rank 2 kept 0.9 processor cores busy and took 0.90 CPU seconds for each GiB."
    ]


def test_a_rank_at_its_ceiling_is_not_averaged_away_by_idle_ones_e9() -> None:
    near = Ceiling(requests_per_sec=1e6, operations_per_sec=1.05, gib_per_sec=1e6)
    found = whole(costing(0, 0.3), costing(1, 0.3, near), costing(2, 0.3))
    share = found.honesty.ceiling
    assert share is not None
    assert (share.rank, share.client_bound) == (1, True)
    assert share.null_backend["operations_per_sec"] == 1.05
    assert client_bound(found) == ["Rank 1 reached 95% of what this harness can do without any device."]
    assert "rank 1: 1 ops/s (95.2% reached)" in render_summary(found, verbose=True)


def test_what_one_rank_could_do_is_unknown_so_it_is_of_all() -> None:
    assert whole(costing(0, 0.3), costing(1, 0.3, None)).honesty.ceiling is None


def test_a_rank_that_waits_for_its_own_copying_threads_is_not_averaged_away_e11() -> None:
    parts = []
    for rank, started in ((0, 14.01), (1, 14.9)):
        found = costing(rank, 0.3)
        found.recorder.op(op(15, started=started, submitted=14, tier=Tier.CPU))
        parts.append(found)
    parts[0].recorder.op(op(25, started=15, tier=Tier.CPU))
    (said,) = client_bound(whole(*parts))
    assert said.startswith("Entries of rank 1 spent 90% of their time in the DRAM tier waiting")
