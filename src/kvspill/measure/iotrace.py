"""The logical I/O trace: one CSV row per operation on a tier, in the columns of the drop-in command."""

import csv
import io
from pathlib import Path
from typing import IO, Any, Final

from kvspill.errors import UsageError
from kvspill.measure.behind import Behind, Table, cause
from kvspill.measure.oplog import trial_path
from kvspill.outputs import Growing
from kvspill.records import (
    NS_PER_SEC,
    Observer,
    OpRecord,
    Purpose,
    Tier,
    Verb,
)

COLUMNS: Final = ("Timestamp", "Operation", "Object_Size_Bytes", "Tier", "Key", "Phase")
PACKED: Final = ".zst"
_TIERS: Final = {Tier.GPU: "Tier-0", Tier.CPU: "Tier-1", Tier.STORAGE: "Tier-2"}
_VERBS: Final = {Verb.READ: "Read", Verb.WRITE: "Write", Verb.DELETE: "Delete"}


class IoTrace(Observer):
    """An Observer that keeps a row of every operation. Times are seconds of the epoch."""

    def __init__(self, path: Path, epoch_seconds: float, *, named: bool = True):
        """The clock of the operations begins at epoch_seconds. `named` is as for write_whole."""
        self.path = path
        self._epoch_seconds = epoch_seconds
        self._file = _Csv(path, named=named)
        self._behind = Behind(self._file)
        self._over = False

    @property
    def failure(self) -> str | None:
        """Why there is no whole trace; the run goes on without it."""
        return self._behind.failure

    def op(self, record: OpRecord) -> None:
        if record.completion.error is not None:
            return
        at_seconds = self._epoch_seconds + record.completion.submitted_ns / NS_PER_SEC
        head = (f"{at_seconds:.6f}", _VERBS[record.verb], record.nbytes, _TIERS[record.tier])
        phase = _phase(record)
        for key in (record.key, *(key for key, _ in record.twins)):
            self._behind.add(self._file, (*head, key, phase))

    def close(self) -> None:
        """Finish the file and give it its name; `failure` says why it has none."""
        self._behind.close()
        if self.failure is None and self._file.growing is not None:
            try:
                self._file.growing.keep()
                self._over = True
            except OSError as error:
                self._behind.failure = cause(error)
        self.drop()

    def drop(self) -> None:
        """Leave nothing of a trace that was not closed: its run has failed."""
        if self._over:
            return
        self._over = True
        self._behind.close()
        if self._file.growing is not None:
            self._file.growing.drop(hangs=self._behind.hangs)


class _Csv(Table):
    """The file, which has its name only once it is whole."""

    def __init__(self, path: Path, *, named: bool):
        super().__init__()
        self._path = path
        self._named = named
        self.growing: Growing | None = None

    def open(self) -> None:
        self.growing = Growing(self._path, named=self._named)
        self._text = _encoder(self.growing.file, packed=self._path.suffix == PACKED)
        self._rows = csv.writer(self._text, lineterminator="\n")
        self._rows.writerow(COLUMNS)

    def write(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows.writerows(rows)

    def close(self) -> None:
        if self.growing is None:
            return
        self._text.flush()
        if self._path.suffix == PACKED:
            # Only this ends the packed data; the file below stays open.
            self._text.close()
        self.growing.file.flush()


def open_io_trace(path: str | None, trial: int | None, epoch_seconds: float) -> IoTrace | None:
    """The trace of a trial, where one is asked for; no trial overwrites that of another."""
    if path is None:
        return None
    return IoTrace(trial_path(Path(path), trial), epoch_seconds, named=trial is None)


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
