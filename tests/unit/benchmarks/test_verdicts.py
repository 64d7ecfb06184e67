"""Which rows are judged, by which figure, and that a row which misses says by how much."""

import pytest

from lib.fio import Measured
from lib.shape import MIB, Cell
from lib.verdicts import Bars, Compared, judge, overall


def measured(bandwidth: float, p95_ns: float = 100, cpu: float = 1) -> Measured:
    return Measured(bandwidth * 1e6, p95_ns, 8.0, cpu, 10, 0)


def compare(
    ours: Measured, bars: Bars, size: int = 32, in_flight: int = 8, rounds: int = 9, worst: float = 1.0
) -> Compared:
    fio = {name: [measured(1000)] * rounds for name in ("psync", "io_uring")}
    many = [ours] * (rounds - 4) + [measured(ours.bandwidth / 1e6 * worst, ours.p95_ns)] * 4
    return judge(Cell("read", size * MIB, in_flight), many, fio, [measured(1000)], bars)


THROTTLED = Bars.for_place(throttled=True, memory=False)
DISK = Bars.for_place(throttled=False, memory=False)


def test_on_a_throttled_device_the_median_must_reach_95_per_cent() -> None:
    assert compare(measured(951), THROTTLED).passed
    assert compare(measured(949), THROTTLED).passed is False


def test_on_a_raw_disk_the_lower_bound_must_reach_90_per_cent() -> None:
    assert compare(measured(1000), DISK).passed
    assert compare(measured(1000), DISK, worst=0.5).passed is False
    assert compare(measured(1000), THROTTLED, worst=0.5).passed


def test_on_tmpfs_only_bandwidth_against_psync_is_judged() -> None:
    bars = Bars.for_place(throttled=False, memory=True)
    assert compare(measured(860, p95_ns=900, cpu=9), bars).passed
    assert compare(measured(840), bars).passed is False


@pytest.mark.parametrize(("size", "in_flight"), [(2, 8), (32, 1), (256, 1)])
def test_other_rows_are_shown_for_information(size: int, in_flight: int) -> None:
    one = compare(measured(100), THROTTLED, size, in_flight)
    assert (one.passed, one.verdict) == (None, "info")


def test_a_miss_names_the_figure_and_the_bar() -> None:
    one = compare(measured(1000, p95_ns=120, cpu=2), THROTTLED)
    assert one.verdict == "MISS: p95 1.200 > 1.1, CPU 2.000 > 1.5"


def test_the_summary_counts_rows_and_shows_the_worst() -> None:
    text = overall([compare(measured(1000), THROTTLED), compare(measured(900), THROTTLED)], THROTTLED)
    assert "MISS  bandwidth / fio psync >= 0.95: 1 of 2 rows, median 0.950, worst 0.900" in text
    assert "PASS  CPU per GB / fio psync <= 1.5: 2 of 2 rows" in text
