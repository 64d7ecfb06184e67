"""A fio replay of an op log: every call of the storage tier at its time, in one file of extents."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from kvspill.errors import UsageError
from kvspill.records import BLOCK_BYTES
from kvspill.report.exports.logs import log_rows
from kvspill.storage.jobs import LANES_PER_ENTRY

FILE = "kvspill-replay.dat"
_COLUMNS = ("tier", "verb", "key", "generation", "stored_bytes", "started_ns", "device_ns", "pieces", "error")
_CALLS_MAX = 1 << 23
_DEPTH_MAX = 256
_NS_PER_US = 1000


class Call(NamedTuple):
    """One system call of the storage tier."""

    at_ns: int
    end_ns: int
    verb: str
    offset: int
    nbytes: int


@dataclass(slots=True)
class Extents:
    """Where each object lies in the replay's file; the room of deleted ones is used again."""

    end_bytes: int = 0
    _at: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    _free: dict[int, list[int]] = field(default_factory=dict)

    def of(self, name: tuple[str, int], nbytes: int) -> int:
        """The object's offset; one that is not known yet gets its place."""
        if name in self._at:
            return self._at[name][0]
        free = self._free.get(nbytes)
        offset = free.pop() if free else self.end_bytes
        self.end_bytes = max(self.end_bytes, offset + nbytes)
        self._at[name] = offset, nbytes
        return offset

    def free(self, name: tuple[str, int]) -> None:
        offset, nbytes = self._at.pop(name, (0, 0))
        if nbytes:
            self._free.setdefault(nbytes, []).append(offset)


@dataclass(frozen=True, slots=True)
class Replay:
    """What a log asks of fio: the calls in the order of their beginning, and how many were under way."""

    calls: Sequence[Call]
    file_bytes: int

    def nbytes(self, verb: str) -> int:
        return sum(call.nbytes for call in self.calls if call.verb == verb)

    @property
    def depth_mean(self) -> int:
        """Calls under way on average, at least one."""
        span_ns = max(call.end_ns for call in self.calls) - self.calls[0].at_ns
        return math.ceil(sum(call.end_ns - call.at_ns for call in self.calls) / max(1, span_ns))

    @property
    def depth_max(self) -> int:
        """The most calls that were under way at once."""
        starts, ends = [(call.at_ns, 1) for call in self.calls], [(call.end_ns, -1) for call in self.calls]
        return max(1, *accumulate(change for _at_ns, change in sorted(starts + ends)))


def replay_of(path: Path) -> Replay:
    """The calls of the storage tier that succeeded."""
    rows = [row for row in log_rows(path, _COLUMNS) if row["tier"] == "storage" and row["error"] is None]
    rows.sort(key=lambda row: row["started_ns"])
    extents, calls = Extents(), list[Call]()
    for row in rows:
        name = (row["key"], row["generation"])
        if row["verb"] == "delete":
            extents.free(name)
        else:
            calls += _calls(row, extents.of(name, row["stored_bytes"]))
            if len(calls) > _CALLS_MAX:
                raise UsageError(
                    f"{path}: has more than {_CALLS_MAX:,} calls, which no job replays; name a shorter log"
                )
    if not calls:
        raise UsageError(f"{path}: has no reads and writes of a storage tier; name a log of `kvspill run`")
    calls.sort()
    return Replay(calls, extents.end_bytes)


def _calls(row: dict[str, Any], offset: int) -> Iterator[Call]:
    """An operation's calls, which the log counts: up to four under way at once, all equally long."""
    nbytes, pieces = row["stored_bytes"], max(1, row["pieces"])
    step = max(1, -(-nbytes // pieces // BLOCK_BYTES)) * BLOCK_BYTES
    busy_ns = row["device_ns"] // -(-pieces // LANES_PER_ENTRY)
    for number, start in enumerate(range(0, nbytes, step)):
        at_ns = row["started_ns"] + number // LANES_PER_ENTRY * busy_ns
        yield Call(at_ns, at_ns + busy_ns, row["verb"], offset + start, min(step, nbytes - start))


def log_lines(replay: Replay, file: Path) -> Iterator[str]:
    """fio's third log format. Its times are microseconds, and it waits for none after a time of 0."""
    yield "fio version 3 iolog"
    yield f"1 {file} add"
    yield f"1 {file} open"
    for call in replay.calls:
        at_us = 1 + (call.at_ns - replay.calls[0].at_ns) // _NS_PER_US
        yield f"{at_us} {file} {call.verb} {call.offset} {call.nbytes}"


def job_text(replay: Replay, log: Path, file: Path, stall: bool) -> str:
    """The job that makes the file and then plays the log: with the log's times, or with its mean depth."""
    depth = max(1, min(_DEPTH_MAX, replay.depth_max if stall else replay.depth_mean))
    read, written = replay.nbytes("read"), replay.nbytes("write")
    lines = [
        f"; {len(replay.calls)} system calls of a kvspill run: {read} bytes read, {written} bytes written.",
        "[global]",
        *("direct=1", "thread=1", "fallocate=none"),
        "",
        "[file]",
        f"filename={file}",
        f"size={replay.file_bytes}",
        *("rw=read", "create_only=1"),
        "",
        "[replay]",
        *("stonewall", "new_group", "ioengine=libaio", f"iodepth={depth}"),
        # Without its size fio 3.33 does not wait for the last calls.
        *(f"read_iolog={log}", f"io_size={read + written}", *([] if stall else ["replay_no_stall=1"])),
    ]
    return "\n".join([*lines, ""])
