"""The row log: every operation and every request as parquet, written behind the run's back."""

import queue
import threading
from pathlib import Path
from typing import Any

from kvspill.errors import KvspillError, UsageError
from kvspill.records import Eviction, Lookup, OpRecord, RequestRecord

_ROWS_PER_GROUP = 20_000
_GROUPS_WAITING_MAX = 8
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
)


def requests_path(path: Path) -> Path:
    """Where the requests go, beside the operations."""
    return path.with_name(f"{path.stem}-requests{path.suffix}")


class OpLog:
    """An Observer that keeps rows. A thread encodes and writes them; memory is bounded by its queue."""

    def __init__(self, path: Path, origin_ns: int = 0):
        """Times in the log count from origin_ns."""
        self._origin_ns = origin_ns
        self._tables = (
            _Table(path, _OP_COLUMNS),
            _Table(requests_path(path), _REQUEST_COLUMNS),
        )
        self._groups: queue.Queue[tuple[_Table, list[tuple[Any, ...]]] | None]
        self._groups = queue.Queue(_GROUPS_WAITING_MAX)
        self._failure: BaseException | None = None
        self._writer = threading.Thread(target=self._write, name="kvspill-oplog", daemon=True)
        self._writer.start()

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
            self._add(self._tables[0], row)

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
        )
        self._add(self._tables[1], row)

    def lookup(self, lookup: Lookup) -> None:
        """Lookups follow from the operations."""

    def cache_call(self, from_ns: int, to_ns: int) -> None:
        """A request's row has the sum of its own."""

    def eviction(self, eviction: Eviction) -> None:
        """Evictions follow from the operations."""

    def close(self) -> None:
        """Write what is left and finish both files."""
        for table in self._tables:
            self._hand_over(table)
        self._groups.put(None)
        self._writer.join()
        if self._failure is not None:
            raise KvspillError(f"--log-ops {self._tables[0].path}: {self._failure}; give another file")

    def _add(self, table: "_Table", row: tuple[Any, ...]) -> None:
        table.rows.append(row)
        if len(table.rows) >= _ROWS_PER_GROUP:
            self._hand_over(table)

    def _hand_over(self, table: "_Table") -> None:
        self._groups.put((table, table.rows))
        table.rows = []

    def _write(self) -> None:
        while (group := self._groups.get()) is not None:
            table, rows = group
            try:
                if self._failure is None:
                    table.write(rows)
            except Exception as error:  # told when the log is closed
                self._failure = error
        for table in self._tables:
            table.close()


class _Table:
    """One parquet file."""

    def __init__(self, path: Path, columns: tuple[tuple[str, str], ...]):
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise UsageError(
                "--log-ops needs pyarrow, which is not installed; pip install 'kvspill[log]'"
            ) from None
        self.path = path
        self.rows: list[tuple[Any, ...]] = []
        self._schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in columns])
        try:
            self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        except OSError as error:
            raise UsageError(f"--log-ops {path}: {error.strerror or error}; give another file") from error

    def write(self, rows: list[tuple[Any, ...]]) -> None:
        import pyarrow as pa

        if rows:
            columns = [
                pa.array(column, field.type)
                for column, field in zip(zip(*rows, strict=True), self._schema, strict=True)
            ]
            self._writer.write_batch(pa.record_batch(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()
