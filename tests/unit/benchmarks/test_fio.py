"""fio's job files, I/O logs and answers."""

from itertools import islice
from pathlib import Path

import pytest

import lib.fio as fio
from lib.shape import MIB, Cell, operations

HERE = Path("/somewhere")


def sections(text: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if line.startswith("["):
            current = found.setdefault(line.strip("[]"), {})
        else:
            name, _, value = line.partition("=")
            current[name] = value
    return found


def thread(first_ms: int, pieces: int, each_ms: int = 10, nbytes: int = 4 * MIB) -> fio.ThreadLog:
    ends = [first_ms + each_ms * (number + 1) for number in range(pieces)]
    return fio.parse_log("".join(f"{end}, {each_ms * 1_000_000}, 0, {nbytes}, 0\n" for end in ends))


def test_every_lane_of_a_file_has_its_own_part_of_it() -> None:
    jobs = sections(fio.job_text("psync", Cell("write", 32 * MIB, 8), HERE, 3, 1.5))
    parts = jobs.pop("global")
    assert (parts["ioengine"], parts["bs"], parts["runtime"]) == ("psync", str(4 * MIB), "2250ms")
    assert (parts["nrfiles"], parts["size"]) == ("3", str(3 * 8 * MIB))
    assert len(jobs) == 32
    for slot in range(8):
        mine = [one for one in jobs.values() if one["filename_format"] == f"e{slot}.$filenum"]
        assert [int(one["offset"]) for one in mine] == [0, 8 * MIB, 16 * MIB, 24 * MIB]


def test_fio_neither_fills_nor_scrambles_buffers_inside_the_window_and_repeats_no_random_data() -> None:
    settings = sections(fio.job_text("psync", Cell("write", 32 * MIB, 8), HERE, 3, 1))["global"]
    wanted = {"refill_buffers": "0", "scramble_buffers": "0", "randrepeat": "0", "direct": "1"}
    assert {name: settings[name] for name in wanted} == wanted


def test_fresh_files_are_written_once_and_old_ones_read_until_time_is_up() -> None:
    assert (
        sections(fio.job_text("psync", Cell("write", 32 * MIB, 8), HERE, 3, 1))["global"]["time_based"] == "0"
    )
    assert (
        sections(fio.job_text("psync", Cell("read", 32 * MIB, 8), HERE, 3, 1))["global"]["time_based"] == "1"
    )


def test_memory_is_not_opened_for_direct_io() -> None:
    cell = Cell("read", 32 * MIB, 8, MIB, 8, memory=True)
    assert sections(fio.job_text("psync", cell, HERE, 3, 1))["global"]["direct"] == "0"


@pytest.mark.parametrize("engine", ["psync", "io_uring"])
def test_the_logs_of_a_mix_move_every_piece_of_the_sequence_once(engine: str) -> None:
    cell = Cell("mix", 32 * MIB, 8)
    old, fresh = [Path(f"/d/old{i}") for i in range(5)], [Path(f"/d/fresh{i}") for i in range(4)]
    logs = fio.mix_logs(engine, cell, old, fresh, 52)
    lines = [line.split() for text in logs.values() for line in text.splitlines()]
    moves = sorted(
        (path, verb, int(at))
        for path, verb, at, _ in (line for line in lines if len(line) == 4 and line[1] != "version")
    )
    expected = sorted(
        (str(fresh[op.number] if op.write else old[op.number]), "write" if op.write else "read", at)
        for op in islice(operations("mix", 5), 52)
        for at in range(0, 32 * MIB, 4 * MIB)
    )
    assert moves == expected


def test_a_log_gives_start_end_bytes_and_direction_of_each_piece() -> None:
    log = fio.parse_log("1000, 250000, 0, 4096, 0, 0\n1003, 1000000, 1, 8192, 4096, 0\n")
    assert log.rows.tolist() == [[999_750_000, 1_000_000_000, 4096], [1_002_000_000, 1_003_000_000, 8192]]
    assert log.written == 1


def test_a_thread_without_pieces_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="moved nothing"):
        fio.parse_log("")


def test_only_the_time_in_which_all_threads_work_counts() -> None:
    together = fio.reckon([thread(0, 200), thread(0, 200)], 1.0, 0.1)
    staggered = fio.reckon([thread(0, 200), thread(500, 200)], 1.0, 0.1)
    assert together.bandwidth == pytest.approx(2 * 4 * MIB / 0.010)
    assert staggered.bandwidth == pytest.approx(together.bandwidth)
    assert staggered.in_flight == pytest.approx(2.0)


def test_threads_that_start_too_late_after_each_other_are_tried_again() -> None:
    with pytest.raises(fio.SlowStart, match=r"needed 0\.70 s to start"):
        fio.reckon([thread(0, 200), thread(700, 200)], 1.0, 0.1)


def test_a_thread_that_runs_out_of_work_voids_the_measurement() -> None:
    with pytest.raises(RuntimeError, match="ran out of work"):
        fio.reckon([thread(0, 200), thread(0, 80)], 1.0, 0.1)


def test_a_failed_job_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="slot0lane0 ended with error 28"):
        fio.check({"jobs": [{"jobname": "slot0lane0", "error": 28}]})
