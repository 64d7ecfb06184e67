"""A fio replay of an op log: every call of the storage tier at its time, in one file of extents."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

from kvspill.errors import UsageError
from kvspill.records import NS_PER_MS
from kvspill.report.exports.fio_job import BLOCK_BYTES
from kvspill.report.exports.logs import log_rows

FILE = "kvspill-replay.dat"
_COLUMNS = ("tier", "verb", "key", "generation", "stored_bytes", "started_ns", "device_ns", "pieces", "error")
_LANES_PER_ENTRY = 4
_LANES_MAX = 256


class Call(NamedTuple):
    """One system call of the storage tier."""

    at_ns: int
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
    """What a log asks of fio: the calls of each lane, one after another."""

    lanes: Sequence[Sequence[Call]]
    first_ns: int
    file_bytes: int

    def nbytes(self, verb: str) -> int:
        return sum(call.nbytes for lane in self.lanes for call in lane if call.verb == verb)


def replay_of(path: Path) -> Replay:
    """The calls of the storage tier that succeeded, on as many lanes as were busy at once."""
    rows = [row for row in log_rows(path, _COLUMNS) if row["tier"] == "storage" and row["error"] is None]
    rows.sort(key=lambda row: row["started_ns"])
    extents, lanes = Extents(), list[list[Call]]()
    free: list[tuple[int, int]] = []
    for row in rows:
        name = (row["key"], row["generation"])
        if row["verb"] == "delete":
            extents.free(name)
            continue
        busy_ns = row["device_ns"] * min(_LANES_PER_ENTRY, row["pieces"]) // max(1, row["pieces"])
        for number, call in enumerate(_calls(row, extents.of(name, row["stored_bytes"]))):
            at_ns = call.at_ns + number // _LANES_PER_ENTRY * busy_ns
            lane = _free_lane(free, lanes, at_ns)
            lanes[lane].append(call._replace(at_ns=at_ns))
            heappush(free, (at_ns + busy_ns, lane))
    if not lanes:
        raise UsageError(f"{path}: has no reads and writes of a storage tier; name a log of `kvspill run`")
    return Replay(lanes, rows[0]["started_ns"], extents.end_bytes)


def _free_lane(free: list[tuple[int, int]], lanes: list[list[Call]], at_ns: int) -> int:
    """The lane that was free first, or another one where all are busy then."""
    if free and (free[0][0] <= at_ns or len(lanes) >= _LANES_MAX):
        return heappop(free)[1]
    lanes.append([])
    return len(lanes) - 1


def _calls(row: dict[str, Any], offset: int) -> Iterator[Call]:
    nbytes = row["stored_bytes"]
    step = -(-nbytes // max(1, row["pieces"]) // BLOCK_BYTES) * BLOCK_BYTES
    for start in range(0, nbytes, step):
        yield Call(row["started_ns"], row["verb"], offset + start, min(step, nbytes - start))


def log_lines(replay: Replay, lane: int, file: Path) -> Iterator[str]:
    """A lane in fio's third log format; times are milliseconds since the first call of all."""
    yield "fio version 3 iolog"
    yield f"0 {file} add"
    yield f"0 {file} open"
    at_ms = 0
    for call in replay.lanes[lane]:
        at_ms = max(0, call.at_ns - replay.first_ns) // NS_PER_MS
        yield f"{at_ms} {file} {call.verb} {call.offset} {call.nbytes}"
    yield f"{at_ms} {file} close"


def job_text(replay: Replay, logs: Sequence[Path], file: Path, stall: bool) -> str:
    """The job that makes the file and then plays the logs together, a thread each."""
    calls = sum(map(len, replay.lanes))
    lines = [
        f"; {calls} system calls of a kvspill run: {replay.nbytes('read')} bytes read, "
        f"{replay.nbytes('write')} bytes written.",
        "[global]",
        *("direct=1", "ioengine=psync", "thread=1", "fallocate=none", "group_reporting=1"),
        "",
        "[file]",
        f"filename={file}",
        f"size={replay.file_bytes}",
        *("rw=read", "create_only=1"),
    ]
    # One section with several logs would be shorter, but fio 3.33 crashes on it.
    for lane, log in enumerate(logs):
        lines += ["", f"[lane{lane}]", *(["stonewall", "new_group"] if lane == 0 else [])]
        lines += [f"read_iolog={log}", "refill_buffers=1", *([] if stall else ["replay_no_stall=1"])]
    return "\n".join([*lines, ""])
