"""fio's job files, I/O logs and answers."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from lib import fio
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


def side(
    ios: int = 0, runtime: int = 0, bins: dict[str, int] | None = None, mean: float = 0
) -> dict[str, Any]:
    clat = {"mean": mean, "N": ios, "bins": bins or {}}
    return {"total_ios": ios, "io_bytes": ios, "runtime": runtime, "clat_ns": clat}


def job(read: dict[str, Any], write: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "jobname": "slot0lane0",
        "error": 0,
        "usr_cpu": 1.0,
        "sys_cpu": 4.0,
        "job_runtime": 8000,
        "read": read,
        "write": write,
        **more,
    }


def test_every_lane_of_a_file_has_its_own_part_of_it() -> None:
    jobs = sections(fio.job_text("psync", Cell("write", 32 * MIB, 8), HERE, 3, 1.5))
    parts = jobs.pop("global")
    assert (parts["ioengine"], parts["bs"], parts["runtime"]) == ("psync", str(4 * MIB), "1500ms")
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


def test_an_answer_joins_both_directions_of_all_jobs() -> None:
    answer = {
        "jobs": [
            job(
                side(90, 1990, {"1000": 80, "9000": 10}, mean=2000),
                side(10, 2000, {"9000": 6, "70000": 4}, mean=33400),
            )
        ]
    }
    measured = fio.parse(answer, 4 * MIB)
    assert (measured.pieces, measured.nbytes, measured.seconds) == (100, 400 * MIB, 2.0)
    assert measured.p95_ns == 9000
    assert measured.mean_ns == pytest.approx((90 * 2000 + 10 * 33400) / 100)
    assert measured.cpu_seconds == pytest.approx(0.4)


def test_a_failed_job_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="slot0lane0 ended with error 28"):
        fio.parse({"jobs": [job(side(1, 1, {"1": 1}), side(), error=28)]}, MIB)


def test_an_answer_without_any_io_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="moved nothing"):
        fio.parse({"jobs": [job(side(), side())]}, MIB)
