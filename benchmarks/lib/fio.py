"""fio on equal terms: its job files, running it, and what of its JSON counts."""

import json
import math
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from lib.cost import cpu_seconds_per_byte
from lib.pieces import COUNTED_SHARE, SKIPPED_SHARE, Rows, steady
from lib.shape import Cell, Op, operations

_SETUP_SECONDS = 60
_WRITE = 1
"""How a log calls the direction."""
_DIRECTION = {"read": ("rw=rw", "rwmixread=100"), "write": ("rw=write",)}
"""Only where a job may write are its buffers filled, and so touched, before it begins."""
USED_SHARE = SKIPPED_SHARE + COUNTED_SHARE
_FIRST_PIECES = 4
"""Moved by fio: its clock runs."""
HUGE_PAGE_BYTES, SMALL_PAGE_BYTES = 2 << 20, 4096
_RING_JOBS = 2
"""io_uring submits from so many threads; each keeps its share of the pieces in flight."""

Join = Callable[[], None] | None
"""Runs in the child before fio starts: puts it into a control group."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How fio's jobs share the files: slots of files, lanes on each file, depth of each job."""

    slots: int
    lanes: int
    depth: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What one side did in one round."""

    bandwidth: float
    p95_ns: float
    in_flight: float
    cpu_seconds_per_gb: float
    pieces: int
    written: int
    """Of the pieces, those that were written."""


@dataclass(frozen=True, slots=True)
class ThreadLog:
    """The pieces of one thread, and how many of them were written."""

    rows: Rows
    written: int


class SlowStart(RuntimeError):  # noqa: N818 - a condition to try again after
    """fio's threads hardly worked together: some came too late, or were done too early."""


def layout(engine: str, cell: Cell) -> Layout:
    """psync: one thread per piece in flight, on the files that kvspill would be at. io_uring: two rings."""
    if engine == "psync":
        return Layout(cell.slots, cell.lanes, 1)
    jobs = min(_RING_JOBS, cell.pieces_in_flight)
    return Layout(jobs, 1, cell.pieces_in_flight // jobs)


def start_seconds(seconds: float) -> float:
    """How far apart threads may start: each fills its buffer first, and what counts begins with the last."""
    return max(0.6, seconds / 2)


def job_text(
    engine: str, cell: Cell, directory: Path, files_per_slot: int, seconds: float, huge_pages: bool = True
) -> str:
    """The job file. fio's buffers are random, filled before its clock starts and never touched again."""
    shape = layout(engine, cell)
    portion = cell.entry_bytes // shape.lanes
    lines = [
        "[global]",
        f"ioengine={engine}",
        f"iodepth={shape.depth}",
        f"direct={0 if cell.memory else 1}",
        "thread=1",
        f"iomem_align={HUGE_PAGE_BYTES if huge_pages else SMALL_PAGE_BYTES}",
        f"bs={cell.piece_bytes}",
        "randrepeat=0",
        "refill_buffers=0",
        "scramble_buffers=0",
        "invalidate=0",
        "fallocate=none",
        "allow_file_create=0",
        "group_reporting=1",
        f"write_lat_log={directory / 'pieces'}",
        "per_job_logs=1",
        "log_unix_epoch=1",
        f"runtime={round((seconds + start_seconds(seconds)) * 1000)}ms",
    ]
    if cell.op != "mix":
        lines += [
            *_DIRECTION[cell.op],
            f"directory={directory}",
            f"nrfiles={files_per_slot}",
            f"size={files_per_slot * portion}",
            "file_service_type=sequential",
            # Old files are read again and again; a fresh file is written once.
            f"time_based={1 if cell.op == 'read' else 0}",
        ]
    else:
        lines += ["rw=rw"]
    for slot in range(shape.slots):
        for lane in range(shape.lanes):
            lines.append(f"[slot{slot}lane{lane}]")
            if cell.op == "mix":
                lines.append(f"read_iolog={directory / log_name(slot, lane)}")
            else:
                lines.append(f"filename_format={file_name(slot, '$filenum')}")
                lines.append(f"offset={lane * portion}")
    return "\n".join(lines) + "\n"


def file_name(slot: int, number: int | str) -> str:
    return f"e{slot}.{number}"


def log_name(slot: int, lane: int) -> str:
    return f"log{slot}.{lane}"


def mix_logs(
    engine: str, cell: Cell, old: Sequence[Path], fresh: Sequence[Path], count: int
) -> dict[str, str]:
    """The I/O logs that make fio follow the same sequence of old and fresh files as kvspill."""
    shape = layout(engine, cell)
    portion = cell.entry_bytes // shape.lanes
    ops = list(islice(operations("mix", len(old)), count))
    logs = {}
    for slot in range(shape.slots):
        mine = ops[slot :: shape.slots]
        for lane in range(shape.lanes):
            logs[log_name(slot, lane)] = _log(mine, old, fresh, cell.piece_bytes, lane * portion, portion)
    return logs


def _log(
    ops: Sequence[Op], old: Sequence[Path], fresh: Sequence[Path], piece_bytes: int, offset: int, portion: int
) -> str:
    paths = [fresh[op.number] if op.write else old[op.number] for op in ops]
    lines = ["fio version 2 iolog"]
    lines += [f"{path} {verb}" for verb in ("add", "open") for path in dict.fromkeys(paths)]
    for op, path in zip(ops, paths, strict=True):
        verb = "write" if op.write else "read"
        for at in range(offset, offset + portion, piece_bytes):
            lines.append(f"{path} {verb} {at} {piece_bytes}")
    return "\n".join(lines) + "\n"


def run(
    text: str, directory: Path, seconds: float, piece_bytes: int, join: Join = None, huge_pages: bool = True
) -> Measured:
    """Run a job file and return what fio measured; whatever it complains about is an error."""
    job, output, errors = directory / "job.fio", directory / "out.json", directory / "errors"
    job.write_text(text)
    with errors.open("w") as sink:
        process = subprocess.Popen(
            ["fio", "--output-format=json", f"--output={output}", str(job)],
            stdout=sink,
            stderr=sink,
            preexec_fn=join,
            env={**os.environ, "GLIBC_TUNABLES": f"glibc.malloc.hugetlb={int(huge_pages)}"},
            cwd=directory,
        )
    try:
        # fio itself counts whole milliseconds of each thread, which is more than some of them use.
        per_byte = cpu_seconds_per_byte(
            process.pid, _FIRST_PIECES * piece_bytes, start_seconds(seconds), 0.6 * seconds
        )
        status = process.wait(timeout=seconds * 10 + _SETUP_SECONDS)
    finally:
        process.kill()
        process.wait()
    if status != 0:
        raise RuntimeError(f"fio failed ({status}): {errors.read_text().strip()[-600:]}")
    check(json.loads(output.read_text()))
    if per_byte is None and "ioengine=psync" in text:
        raise SlowStart("fio ended before its processor time was taken")
    if per_byte is None:
        # Nobody counts what a ring moves on tmpfs, and its processor time is not judged.
        per_byte = math.nan
    threads = [parse_log(path.read_text()) for path in sorted(directory.glob("pieces_clat.*.log"))]
    return reckon(threads, seconds, per_byte * 1e9)


def reckon(threads: Sequence[ThreadLog], seconds: float, cpu_seconds_per_gb: float) -> Measured:
    """The time in which all threads were at work."""
    rows = np.concatenate([thread.rows for thread in threads])
    begin_ns = max(int(thread.rows[:, 0].min()) for thread in threads)
    late_seconds = (begin_ns - int(rows[:, 0].min())) / 1e9
    if late_seconds > start_seconds(seconds):
        raise SlowStart(f"fio's threads needed {late_seconds:.2f} s to start")
    if min(int(thread.rows[:, 1].max()) for thread in threads) < begin_ns + USED_SHARE * seconds * 1e9:
        raise SlowStart("a thread of fio ran out of work: give it fewer seconds")
    middle = steady(rows, begin_ns, seconds)
    return Measured(
        bandwidth=middle.bandwidth,
        p95_ns=middle.p95_ns,
        in_flight=middle.in_flight,
        cpu_seconds_per_gb=cpu_seconds_per_gb,
        pieces=len(rows),
        written=sum(thread.written for thread in threads),
    )


def check(answer: Mapping[str, Any]) -> None:
    """What fio itself calls an error."""
    for job in answer["jobs"]:
        if job["error"]:
            raise RuntimeError(f"fio: job {job['jobname']} ended with error {job['error']}")


def parse_log(text: str) -> ThreadLog:
    """The pieces of one thread's latency log.

    fio's own bandwidth divides by the longest run time of a thread: on a busy machine threads start one after
    another, and their sum would look faster than the device ever was.
    """
    lines = [[int(field) for field in line.split(",")[:4]] for line in text.splitlines()]
    if not lines:
        raise RuntimeError("a thread of fio moved nothing; see its job file")
    end_ms, took_ns, direction, nbytes = np.array(lines, dtype=np.int64).T
    end_ns = end_ms * 1_000_000
    rows = np.column_stack((end_ns - took_ns, end_ns, nbytes))
    return ThreadLog(rows, int((direction == _WRITE).sum()))
