"""What bpftrace is told to print, and what is made of it."""

from latency_truth import Row
from lib import bpf


def row(mean_ms: float = 1.0, p95_ms: float = 2.0) -> Row:
    return Row("read", 10, 10, mean_ms, 1.0, p95_ms, 2.0, "")


def test_lines_are_sorted_by_kind_and_the_rest_is_ignored() -> None:
    lines = [
        "Attaching 9 probes...",
        "ready",
        "read 100",
        "write 200",
        "read 300",
        "block-WS 40",
        "block-R 41",
        "device-RA 30",
        "device-D 31",
        "",
    ]
    seen = bpf.parse(lines)
    assert (seen.read, seen.write) == ([100, 300], [200])
    assert seen.block == {"read": [41], "write": [40]}
    assert seen.device == {"read": [30], "write": []}
    assert seen.calls == [100, 300, 200]
    assert seen.lost == 0


def test_lost_events_are_counted_because_they_void_the_comparison() -> None:
    assert bpf.parse(["read 1", "Lost 7 events", "Lost 2 events"]).lost == 9


def test_only_the_watched_process_and_device_are_timed() -> None:
    text = bpf.program(pid=77, device=9 << 20, bytes_min=4096)
    assert text.count("/pid == 77/") == 6
    assert "block_io_start /args->dev == 9437184 && pid == 77/" in text
    assert text.count("args->ret >= 4096") == 6


def test_a_latency_is_true_within_5_per_cent_in_mean_and_p95() -> None:
    assert row(1.049, 2.09).good
    assert not row(mean_ms=1.06).good
    assert not row(p95_ms=1.88).good
