"""The layers of a call: the union of its requests, which belong to the thread that queued them."""

import pytest

from kvspill.machine.bpf import program
from kvspill.measure.layers import Call, calls_of, layers_block

LINES = """\
Attaching 18 probes...
ready
q 7 1100 800 16
q 7 1150 816 16
r 1200 1500 800 16
r 1300 1900 816 16
c read 7 1000 2000 16384
q 8 1400 4000 8
r 1450 1650 4000 8
c write 8 1390 1700 4096
c read 8 5000 5100 -11
r 1000 2000 4000 8
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
    lines = ["q 1 100 0 8", "q 2 110 8 8", "r 120 300 0 16", "c read 1 90 310 4096", "c read 2 95 320 4096"]
    first, second = calls_of(lines).calls
    assert first.layers_ns() == {"file_system": 20, "block_layer": 20, "device": 180}
    assert second.layers_ns() == {"file_system": 35, "block_layer": 10, "device": 180}


def test_a_bio_that_was_split_takes_all_of_its_requests_and_no_later_one_of_the_same_place() -> None:
    lines = ["q 1 100 0 16", "r 120 200 0 8", "r 130 260 8 8", "r 900 990 0 8", "c write 1 90 300 8192"]
    (call,) = calls_of(lines).calls
    assert call.requests == [(100, 120, 200), (100, 130, 260)]
