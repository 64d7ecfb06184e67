"""The devices in the window, by the kernel's counters, as iostat works them out."""

import pytest

from kvspill.result.device_load import device_load

COUNTERS = {
    **{"devices": ["sda"], "reads": 100, "reads_merged": 25, "read_bytes": 409_600, "read_ms": 250},
    **{"writes": 0, "writes_merged": 0, "written_bytes": 0, "write_ms": 0},
    **{"busy_ms": 5_000, "queue_ms": 20_000},
}


def test_figures_are_those_of_iostat() -> None:
    load = device_load(COUNTERS, 10.0)
    assert load is not None
    assert load["utilisation"] == pytest.approx(0.5)
    assert load["queue_size"] == pytest.approx(2.0)
    assert load["read_await_ms"] == pytest.approx(2.5)
    assert load["read_requests_per_sec"] == pytest.approx(10.0)
    assert load["read_request_bytes"] == pytest.approx(4096.0)
    assert load["read_merge_share"] == pytest.approx(0.2)


def test_what_was_not_seen_is_none_never_zero_s14() -> None:
    load = device_load(COUNTERS, 10.0)
    assert load is not None
    assert load["write_await_ms"] is None
    assert load["write_merge_share"] is None
    assert device_load(None, 10.0) is None
    assert device_load({"devices": ["x"]}, 10.0) is None
