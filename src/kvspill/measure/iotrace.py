"""The logical I/O trace: one CSV row per operation on a tier, in the columns of the drop-in command."""

import csv
import io
from pathlib import Path
from typing import IO, Any, Final

from kvspill.errors import KvspillError, UsageError
from kvspill.measure.oplog import trial_path
from kvspill.records import NS_PER_SEC, Eviction, Lookup, OpRecord, Purpose, RequestRecord, Tier, Verb

COLUMNS: Final = ("Timestamp", "Operation", "Object_Size_Bytes", "Tier", "Key", "Phase")
PACKED: Final = ".zst"
_TIERS: Final = {Tier.GPU: "Tier-0", Tier.CPU: "Tier-1", Tier.STORAGE: "Tier-2"}
_VERBS: Final = {Verb.READ: "Read", Verb.WRITE: "Write", Verb.DELETE: "Delete"}


class IoTrace:
    """An Observer that writes every operation as it completes. Times are seconds of the epoch."""

    def __init__(self, path: Path, epoch_seconds: float):
        """The clock of the operations begins at epoch_seconds."""
        self.path = path
        self._epoch_seconds = epoch_seconds
        try:
            self._file = _opened(path)
            self._rows = csv.writer(self._file, lineterminator="\n")
            self._rows.writerow(COLUMNS)
        except OSError as error:
            raise self._failed(error) from error

    def op(self, record: OpRecord) -> None:
        if record.completion.error is not None:
            return
        at_seconds = self._epoch_seconds + record.completion.submitted_ns / NS_PER_SEC
        head = (f"{at_seconds:.6f}", _VERBS[record.verb], record.nbytes, _TIERS[record.tier])
        phase = _phase(record)
        try:
            for key in (record.key, *(key for key, _ in record.twins)):
                self._rows.writerow((*head, key, phase))
        except OSError as error:
            raise self._failed(error) from error

    def request(self, record: RequestRecord) -> None:
        """Requests are not in the trace."""

    def lookup(self, lookup: Lookup) -> None:
        """Lookups move nothing."""

    def cache_call(self, from_ns: int, to_ns: int) -> None:
        """Nor do waits."""

    def eviction(self, eviction: Eviction) -> None:
        """An eviction is seen by its operations."""

    def close(self) -> None:
        """Finish the file; safe to call twice."""
        try:
            self._file.close()
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> KvspillError:
        reason = error.strerror or error
        return KvspillError(f"--io-trace-log {self.path}: {reason}; name a file on a disk with room")


def open_io_trace(path: str | None, trial: int | None, epoch_seconds: float) -> IoTrace | None:
    """The trace of a trial, where one is asked for; no trial overwrites that of another."""
    return None if path is None else IoTrace(trial_path(Path(path), trial), epoch_seconds)


def check_packing(path: Path) -> None:
    """Refuse a packed file where nothing can pack it."""
    import importlib.util

    if path.suffix == PACKED and importlib.util.find_spec("zstandard") is None:
        raise UsageError(
            f"--io-trace-log {path}: needs zstandard, not installed here; pip install 'kvspill[log]', or "
            "name a file that ends in .csv"
        )


def _opened(path: Path) -> IO[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix != PACKED:
        return path.open("w", encoding="utf-8", newline="")
    import zstandard

    packed: Any = zstandard.open(path, "wb")
    return io.TextIOWrapper(packed, encoding="utf-8", newline="", write_through=False)


def _phase(record: OpRecord) -> str:
    """What the drop-in command calls an operation's purpose."""
    if record.purpose is Purpose.DEMOTION or record.verb is Verb.DELETE:
        return "Evict"
    return "Prefill" if record.verb is Verb.WRITE else "Decode"
