"""A fio job with the load that a result had: sizes, mix, depth and think time of its storage tier."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from kvspill.errors import UsageError
from kvspill.measure.histograms import Histogram
from kvspill.records import BLOCK_BYTES, NS_PER_SEC
from kvspill.result.schema import Result

_DEPTH_MAX = 1024


class Flow(NamedTuple):
    """Reads or writes of the storage tier in the measured window."""

    verb: str
    calls: int
    nbytes: int
    depth: int
    """System calls under way at once, as threads."""
    think_us: int
    """What each thread waits between two calls, so that the rate is that of the run."""

    @property
    def block_bytes(self) -> int:
        """Bytes of a call, whole blocks."""
        return max(1, round(self.nbytes / self.calls / BLOCK_BYTES)) * BLOCK_BYTES


def flows_of(result: Result) -> list[Flow]:
    """The flows of a measured result; refused where nothing was measured on storage."""
    counted = result.honesty.bytes
    nbytes = {"read": counted.asked_read_bytes, "write": counted.asked_written_bytes}
    found = []
    for verb, moved in nbytes.items():
        encoded = result.histograms.get(f"piece_storage_{verb}")
        if encoded is None or not moved:
            continue
        pieces = Histogram.from_dict(encoded.model_dump())
        found.append(_flow(verb, pieces, moved, result.window.measured_seconds))
    if not found:
        raise UsageError(
            "the result has no system calls on storage; name one of `kvspill run` with a tier of files"
        )
    return found


def _flow(verb: str, pieces: Histogram, nbytes: int, seconds: float) -> Flow:
    busy_seconds = pieces.sum_ns / NS_PER_SEC
    depth = min(_DEPTH_MAX, max(1, math.ceil(busy_seconds / seconds)))
    idle_seconds = max(0.0, depth * seconds - busy_seconds) / pieces.count
    return Flow(verb, pieces.count, nbytes, depth, round(idle_seconds * 1e6))


def job_text(result: Result, directory: str) -> str:
    """The job file: a section for reads and one for writes, which begin together."""
    flows = flows_of(result)
    tier = result.tier("storage")
    assert tier is not None, "it made system calls"
    direct = int(result.honesty.direct_io is not False)
    lines = [
        f"; What the storage tier of a kvspill run did in {result.window.measured_seconds:.1f} s.",
        f"; {result.command}" if result.command else ";",
        "[global]",
        f"directory={directory}",
        f"direct={direct}",
        *("ioengine=psync", "thread=1", "norandommap=1", "randrepeat=1", "refill_buffers=1"),
        *("group_reporting=1", "fallocate=none"),
    ]
    for flow in flows:
        lines += ["", f"; {flow.calls} calls, {flow.nbytes} bytes", *_sections(flow, tier.peak_bytes)]
    return "\n".join(lines) + "\n"


def _sections(flow: Flow, held_bytes: int) -> Iterator[str]:
    """Threads with one call more, then the others, so that their calls are those of the run."""
    held = max(flow.block_bytes, min(held_bytes, flow.nbytes) // flow.depth)
    size = -(-held // flow.block_bytes) * flow.block_bytes
    calls, more = divmod(flow.calls, flow.depth)
    first = True
    for name, jobs, each in (("", flow.depth - more, calls), ("-more", more, calls + 1)):
        if not jobs or not each:
            continue
        yield f"[{flow.verb}s{name}]"
        if first:
            yield "new_group"
        first = False
        yield from (f"rw=rand{flow.verb}", f"bs={flow.block_bytes}", f"numjobs={jobs}")
        yield from (f"size={size}", f"io_size={each * flow.block_bytes}")
        if flow.think_us:
            yield f"thinktime={flow.think_us}"
