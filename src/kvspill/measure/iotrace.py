"""The logical I/O trace: one CSV row per operation on a tier, in the columns of the drop-in command."""

import csv
import io
from pathlib import Path
from typing import IO, Any, Final

from kvspill.errors import UsageError
from kvspill.measure.oplog import cause, trial_path
from kvspill.outputs import Growing
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
        self.failure: str | None = None
        """Why there is no whole trace; the run goes on without it."""
        self._epoch_seconds = epoch_seconds
        self._growing: Growing | None = None
        try:
            self._growing = Growing(path)
            self._text = _encoder(self._growing.file, packed=path.suffix == PACKED)
            self._rows = csv.writer(self._text, lineterminator="\n")
            self._rows.writerow(COLUMNS)
        except OSError as error:
            self._fail(error)

    def op(self, record: OpRecord) -> None:
        if record.completion.error is not None or self._growing is None:
            return
        at_seconds = self._epoch_seconds + record.completion.submitted_ns / NS_PER_SEC
        head = (f"{at_seconds:.6f}", _VERBS[record.verb], record.nbytes, _TIERS[record.tier])
        phase = _phase(record)
        try:
            for key in (record.key, *(key for key, _ in record.twins)):
                self._rows.writerow((*head, key, phase))
        except OSError as error:
            self._fail(error)

    def request(self, record: RequestRecord) -> None:
        """Requests are not in the trace."""

    def lookup(self, lookup: Lookup) -> None:
        """Lookups move nothing."""

    def cache_call(self, from_ns: int, to_ns: int) -> None:
        """Nor do waits."""

    def eviction(self, eviction: Eviction) -> None:
        """An eviction is seen by its operations."""

    def close(self) -> None:
        """Finish the file and give it its name; `failure` says why it has none."""
        if self._growing is None:
            return
        try:
            self._text.flush()
            if self.path.suffix == PACKED:
                # Only this ends the packed data; the file below stays open.
                self._text.close()
            self._growing.keep()
            self._growing = None
        except OSError as error:
            self._fail(error)

    def drop(self) -> None:
        """Leave nothing of a trace that was not closed: its run has failed."""
        if self._growing is not None:
            self._growing.drop()
            self._growing = None

    def _fail(self, error: OSError) -> None:
        self.failure = cause(error)
        self.drop()


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


def _encoder(file: IO[bytes], *, packed: bool) -> IO[str]:
    target: Any = file
    if packed:
        import zstandard

        target = zstandard.open(target, "wb")
    return io.TextIOWrapper(target, encoding="utf-8", newline="")


def _phase(record: OpRecord) -> str:
    """What the drop-in command calls an operation's purpose."""
    if record.purpose is Purpose.DEMOTION or record.verb is Verb.DELETE:
        return "Evict"
    return "Prefill" if record.verb is Verb.WRITE else "Decode"
