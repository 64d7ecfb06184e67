"""The table of ranks as the console shows it."""

from collections.abc import Iterator

from rich.text import Text

from kvspill.report.numbers import number
from kvspill.report.parts import Part, grid, indent, title
from kvspill.result.schema import RankRow, Result
from kvspill.texts import duration


def ranks_section(result: Result) -> Iterator[Part]:
    """One row for each rank; nothing where the run was one process."""
    table = result.ranks
    if table is None:
        return
    how = "each with the whole load" if table.per_rank else "the users divided"
    yield title(f"RANKS: {table.size}, {how}")
    header = ("#", "host", "users", "requests", "tok/s", "read GiB/s", "write", "speed", "note")
    yield grid(header, [_row(row) for row in table.rows], wraps=1)
    for row in table.rows:
        if row.problem is not None:
            yield indent(Text(f"rank {row.rank}: {row.problem}", style="bold red"))
    if table.start_skew_ms is not None:
        skew, error = duration(table.start_skew_ms), duration(table.clock_uncertainty_ms)
        yield indent(Text(f"Began within {skew} of each other (clocks compared to {error})."))
    if any(row.relative_speed is not None for row in table.rows):
        yield indent(Text("speed: over the median, operations of the same size compared; slow: below 0.8"))


def _row(row: RankRow) -> tuple[str, ...]:
    return (
        str(row.rank),
        row.host,
        f"{row.users:,}",
        f"{row.requests_completed:,}",
        _figure(row.tokens_per_sec, 2),
        _figure(row.storage_read_gib_per_sec, 3),
        _figure(row.storage_write_gib_per_sec, 3),
        _figure(row.relative_speed, 2),
        _remark(row),
    )


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else number(value, digits=digits)


def _remark(row: RankRow) -> str:
    if row.faulty:
        return "faulty"
    return "missing" if row.problem is not None else "slow" if row.straggler else ""
