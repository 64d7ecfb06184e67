"""The layers of a call: the union of its requests, which belong to the thread that queued them."""

import pytest

from kvspill.machine.bpf import program
from kvspill.measure.layers import Call, calls_of, layers_block

LINES = """\
Attaching 18 probes...
ready
q 7 1100 9 800 16
q 7 1150 9 816 16
i 1200 9 800 16
d 1500 9 800
i 1300 9 816 16
d 1900 9 816
c read 7 1000 2000 16384
q 8 1400 9 4000 8
i 1450 9 4000 8
d 1650 9 4000
c write 8 1390 1700 4096
c read 8 5000 5100 -11
i 1000 9 4000 8
d 2000 9 4000
Lost 3 events
c read 7 21
""".splitlines()


def test_a_calls_layers_add_up_to_its_time_and_overlaps_count_once() -> None:
    traced = calls_of(LINES)
    assert (len(traced.calls), traced.lost) == (2, 3)
    block = layers_block(traced, 0, 10_000)
    read = block["read"]
    assert (read["calls"], read["requests"], read["bytes"]) == (1, 2, 16384)
    # In the device from 1200 to 1900, below the file system from 1100 to 1900, of 1000 to 2000.
    assert read["shares"] == pytest.approx({"file_system": 0.2, "block_layer": 0.1, "device": 0.7})
    assert sum(read["shares"].values()) == pytest.approx(1.0)
    assert block["write"]["shares"] == pytest.approx(
        {"file_system": 60 / 310, "block_layer": 50 / 310, "device": 200 / 310}
    )
    assert block["lost_lines"] == 3


def test_calls_outside_the_window_are_in_no_figure() -> None:
    assert set(layers_block(calls_of(LINES), 1800, 10_000)) == {"traced_lines", "lost_lines", "read"}


def test_a_call_without_requests_is_the_file_systems() -> None:
    assert Call("read", 0, 100, 4096).layers_ns() == {"file_system": 100, "block_layer": 0, "device": 0}


def test_a_request_that_ends_after_its_call_counts_up_to_the_calls_end() -> None:
    call = Call("write", 0, 100, 4096, [(10, 20, 900)])
    assert call.layers_ns() == {"file_system": 10, "block_layer": 10, "device": 80}


def test_the_program_watches_this_process_and_these_devices_only() -> None:
    text = program(4711, [1048576, 264241152])
    assert "pid == 4711" in text
    assert "(args->dev == 1048576 || args->dev == 264241152)" in text


def test_a_bio_that_was_merged_into_anothers_request_is_served_by_it() -> None:
    lines = [
        "q 1 100 9 0 8",
        "q 2 110 9 8 8",
        "i 120 9 0 16",
        "d 300 9 0",
        "c read 1 90 310 4096",
        "c read 2 95 320 4096",
    ]
    first, second = calls_of(lines).calls
    assert first.layers_ns() == {"file_system": 20, "block_layer": 20, "device": 180}
    assert second.layers_ns() == {"file_system": 35, "block_layer": 10, "device": 180}


def test_a_bio_that_was_split_takes_all_of_its_requests_and_no_later_one_of_the_same_place() -> None:
    lines = [
        "q 1 100 9 0 16",
        "i 120 9 0 8",
        "d 200 9 0",
        "i 130 9 8 8",
        "d 260 9 8",
        "i 900 9 0 8",
        "d 990 9 0",
        "c write 1 90 300 8192",
    ]
    (call,) = calls_of(lines).calls
    assert call.requests == [(100, 120, 200), (100, 130, 260)]


def test_a_later_request_of_the_same_place_is_no_part_of_a_call_that_has_ended() -> None:
    """Where its own was not seen, the next write of those sectors made the device's share negative."""
    lines = ["q 7 1100 9 800 16", "c write 7 1000 2000 8192", "i 9000 9 800 16", "d 9500 9 800"]
    (call,) = calls_of(lines).calls
    assert call.requests == []
    assert min(call.layers_ns().values()) >= 0


def test_a_request_whose_end_was_not_seen_ends_with_its_call_and_is_counted() -> None:
    lines = [
        "q 7 1100 9 800 16",
        "i 1200 9 800 16",
        "c write 7 1000 2000 8192",
        "i 9000 9 800 16",
        "d 9500 9 800",
    ]
    traced = calls_of(lines)
    assert traced.calls[0].requests == [(1100, 1200, 2000)]
    assert layers_block(traced, 0, 10_000)["write"]["unseen_ends"] == 1
