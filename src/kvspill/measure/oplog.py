"""The row log: every operation and every request as parquet, written behind the run's back."""

from pathlib import Path
from typing import IO, Any

from kvspill.errors import UsageError
from kvspill.measure.behind import Behind, Table, cause
from kvspill.outputs import Growing
from kvspill.records import Observer, OpRecord, Request, RequestRecord

_NAMES_PER_ROW = 8
"""Names of blocks that take as much memory as a row."""
_OP_COLUMNS = (
    ("tier", "string"),
    ("verb", "string"),
    ("purpose", "string"),
    ("key", "string"),
    ("generation", "int64"),
    ("nbytes", "int64"),
    ("stored_bytes", "int64"),
    ("submitted_ns", "int64"),
    ("started_ns", "int64"),
    ("finished_ns", "int64"),
    ("device_ns", "int64"),
    ("pieces", "int32"),
    ("error", "string"),
)
_REQUEST_COLUMNS = (
    ("user", "int64"),
    ("conversation", "int64"),
    ("turn", "int32"),
    ("qos", "string"),
    ("persona", "string"),
    ("context_tokens", "int64"),
    ("generated_tokens", "int64"),
    ("intended_ns", "int64"),
    ("started_ns", "int64"),
    ("finished_ns", "int64"),
    ("storage_ns", "int64"),
    ("generation_ns", "int64"),
    ("prefill_ns", "int64"),
    ("decode_ns", "int64"),
    ("failure", "string"),
    ("before_tokens", "int64"),
    ("opening", "string"),
    ("opening_tokens", "int64"),
    ("blocks", "names"),
    ("block_tokens", "int32"),
)
COLUMNS = dict(_OP_COLUMNS + _REQUEST_COLUMNS)
"""The types of all columns of both logs, by their names."""


def requests_path(path: Path) -> Path:
    """Where the requests go, beside the operations."""
    return path.with_name(f"{path.stem}-requests{path.suffix}")


def trial_path(path: Path, trial: int | None) -> Path:
    """Where one of several trials has its operations; None for the only one."""
    return path if trial is None else path.with_name(f"{path.stem}-trial{trial}{path.suffix}")


def rank_path(path: Path, rank: int | None) -> Path:
    """Where one of several ranks has its operations; None for the only one."""
    return path if rank is None else path.with_name(f"{path.stem}-rank{rank}{path.suffix}")


def trial_paths(path: Path, trials: int) -> list[Path]:
    """Where each of so many trials has its operations."""
    return [trial_path(path, number) for number in ([None] if trials == 1 else range(1, trials + 1))]


def log_paths(path: Path, trials: int, rank: int | None = None) -> list[Path]:
    """Every file that a run of so many trials writes, or one of its ranks."""
    own = [rank_path(file, rank) for file in trial_paths(path, trials)]
    return [file for ops in own for file in (ops, requests_path(ops))]


class OpLog(Observer):
    """An Observer that keeps rows of operations and requests."""

    def __init__(self, path: Path, *, named: bool = True):
        """The requests' file is never `named`."""
        self._origin_ns = 0
        self._tables = (
            _Table(path, _OP_COLUMNS, named=named),
            _Table(requests_path(path), _REQUEST_COLUMNS, named=False),
        )
        self._behind = Behind(*self._tables)

    def count_from(self, origin_ns: int) -> None:
        """The load begins: times count from here."""
        self._origin_ns = origin_ns

    def op(self, record: OpRecord) -> None:
        done, origin = record.completion, self._origin_ns
        for key, generation in ((record.key, record.generation), *record.twins):
            row = (
                record.tier.value,
                record.verb.value,
                record.purpose.value,
                key,
                generation,
                record.nbytes,
                record.stored_bytes,
                done.submitted_ns - origin,
                done.started_ns - origin,
                done.finished_ns - origin,
                done.device_ns,
                len(done.pieces),
                done.error,
            )
            self._behind.add(self._tables[0], row)

    def request(self, record: RequestRecord) -> None:
        request, origin = record.request, self._origin_ns
        row = (
            request.user,
            request.conversation,
            request.turn,
            request.qos.name.lower(),
            request.persona,
            request.context_tokens,
            record.generated_tokens,
            record.intended_ns - origin,
            record.started_ns - origin,
            record.finished_ns - origin,
            record.storage_ns,
            record.generation_ns,
            record.prefill_ns,
            record.decode_ns,
            record.failure,
            sum(request.history_tokens) + sum(request.history_answers),
            *_opening(request),
            request.blocks,
            request.block_tokens,
        )
        self._behind.add(self._tables[1], row, 1 + len(request.blocks) // _NAMES_PER_ROW)

    def close(self) -> None:
        """Write what is left and finish both files; `failure` says whether all of it was written."""
        self._behind.close()
        for table in self._tables:
            try:
                table.keep(hangs=self._behind.hangs)
            except OSError as error:
                self._behind.failure = self._behind.failure or cause(error)

    @property
    def failure(self) -> str | None:
        """Why rows are missing; the run goes on without the log."""
        return self._behind.failure


def _opening(request: Request) -> tuple[str | None, int]:
    """The shared prompt that the context begins with, and its tokens."""
    opening = request.opening or (request.prefix if request.turn == 0 else None)
    return (None, 0) if opening is None else (opening.key, opening.tokens)


class _Table(Table):
    """One parquet file."""

    def __init__(self, path: Path, columns: tuple[tuple[str, str], ...], *, named: bool):
        try:
            import pyarrow as pa
        except ImportError:
            raise UsageError(
                "--log-ops needs pyarrow, which is not installed; pip install 'kvspill[log]'"
            ) from None
        super().__init__()
        self._path = path
        self._named = named
        self._growing: Growing | None = None
        self._whole = False
        names = pa.list_(pa.string())
        self._schema = pa.schema(
            [(name, names if kind == "names" else getattr(pa, kind)()) for name, kind in columns]
        )
        self._file: IO[bytes] | None = None
        self._writer: Any = None

    def open(self) -> None:
        import pyarrow.parquet as pq

        if self._named:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("wb")
        else:
            self._growing = Growing(self._path, named=False)
            self._file = self._growing.file
        self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd")

    def write(self, rows: list[tuple[Any, ...]]) -> None:
        import pyarrow as pa

        if rows:
            columns = [
                pa.array(column, field.type)
                for column, field in zip(zip(*rows, strict=True), self._schema, strict=True)
            ]
            self._writer.write_batch(pa.record_batch(columns, schema=self._schema))

    def close(self) -> None:
        """Finish the file; one that was never opened needs nothing."""
        if self._file is None:
            return
        try:
            if self._writer is not None:
                self._writer.close()
            self._file.flush()
            self._whole = True
        finally:
            if self._growing is None:
                self._end()

    def _end(self) -> None:
        """Close a file that has its name already; without its end nothing of it can be read."""
        assert self._file is not None
        try:
            self._file.close()
        except OSError:
            self._whole = False
            raise
        finally:
            if not self._whole and self._path.is_file():
                self._path.unlink()

    def keep(self, *, hangs: bool) -> None:
        """Give a whole file its name, if it has none yet, and leave nothing of any other."""
        growing, self._growing = self._growing, None
        if growing is None:
            return
        try:
            if self._whole and not hangs:
                growing.keep()
        finally:
            growing.drop(hangs=hangs)
