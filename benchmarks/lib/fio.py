"""fio on equal terms: its job files, running it, and what of its JSON counts."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from lib.cost import cpu_seconds_per_byte
from lib.shape import Cell, Op, operations
from lib.stats import bins_quantile

_SETUP_SECONDS = 60
RAMP_MS = 400
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

    nbytes: int
    seconds: float
    p95_ns: float
    mean_ns: float
    cpu_seconds: float
    pieces: int
    written: int = 0
    """Of the pieces, those that were written."""

    @property
    def bandwidth(self) -> float:
        return self.nbytes / self.seconds

    @property
    def cpu_seconds_per_gb(self) -> float:
        return self.cpu_seconds / (self.nbytes / 1e9)


def layout(engine: str, cell: Cell) -> Layout:
    """psync: one thread per piece in flight, on the files that kvspill would be at. io_uring: two rings."""
    if engine == "psync":
        return Layout(cell.slots, cell.lanes, 1)
    jobs = min(_RING_JOBS, cell.pieces_in_flight)
    return Layout(jobs, 1, cell.pieces_in_flight // jobs)


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
        f"runtime={round(seconds * 1000)}ms",
    ]
    if cell.op != "mix":
        lines += [
            f"rw={cell.op}",
            f"directory={directory}",
            f"nrfiles={files_per_slot}",
            f"size={files_per_slot * portion}",
            "file_service_type=sequential",
            # Old files are read again and again; a fresh file is written once.
            f"time_based={1 if cell.op == 'read' else 0}",
        ]
        if cell.op == "read":
            # Buffers to write from are filled before the clock starts, those to read into not even touched.
            lines += [f"ramp_time={RAMP_MS}ms"]
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
            ["fio", "--output-format=json+", f"--output={output}", str(job)],
            stdout=sink,
            stderr=sink,
            preexec_fn=join,
            env={**os.environ, "GLIBC_TUNABLES": f"glibc.malloc.hugetlb={int(huge_pages)}"},
            cwd=directory,
        )
    try:
        # fio itself counts whole milliseconds of each thread, which is more than some of them use.
        skip_seconds = 0.1 * seconds + (RAMP_MS / 1000 if "ramp_time" in text else 0)
        per_byte = cpu_seconds_per_byte(process.pid, _FIRST_PIECES * piece_bytes, skip_seconds, 0.6 * seconds)
        status = process.wait(timeout=seconds * 10 + _SETUP_SECONDS)
    finally:
        process.kill()
        process.wait()
    if status != 0:
        raise RuntimeError(f"fio failed ({status}): {errors.read_text().strip()[-600:]}")
    measured = parse(json.loads(output.read_text()), piece_bytes)
    return measured if per_byte is None else replace(measured, cpu_seconds=per_byte * measured.nbytes)


def parse(answer: Mapping[str, Any], piece_bytes: int) -> Measured:
    """All jobs as one: bytes of whole pieces, the longest run time, latency of both directions together."""
    jobs = answer["jobs"]
    failed = [job for job in jobs if job["error"]]
    if failed:
        raise RuntimeError(f"fio: job {failed[0]['jobname']} ended with error {failed[0]['error']}")
    sides = [job[verb] for job in jobs for verb in ("read", "write") if job[verb]["total_ios"]]
    if not sides:
        raise RuntimeError("fio moved nothing; see its job file")
    bins: dict[int, int] = {}
    for side in sides:
        for value, number in side["clat_ns"].get("bins", {}).items():
            bins[int(value)] = bins.get(int(value), 0) + number
    pieces = sum(side["total_ios"] for side in sides)
    total_ns = sum(side["clat_ns"]["mean"] * side["clat_ns"]["N"] for side in sides)
    return Measured(
        # io_bytes leaves out what was in flight when an I/O log ended; every piece has the same size.
        nbytes=pieces * piece_bytes,
        seconds=max(side["runtime"] for side in sides) / 1000,
        p95_ns=bins_quantile(bins, 0.95),
        mean_ns=total_ns / sum(side["clat_ns"]["N"] for side in sides),
        # Per cent of the jobs' summed run time, in whole milliseconds of each thread.
        cpu_seconds=sum((job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000 for job in jobs),
        pieces=pieces,
        written=sum(job["write"]["total_ios"] for job in jobs),
    )
