"""The table of ranks as the console shows it."""

from collections.abc import Iterator

from rich.text import Text

from kvspill.report.parts import Part, duration, grid, indent, number, title
from kvspill.result.schema import RankRow, Result


def ranks_section(result: Result) -> Iterator[Part]:
    """One row for each rank; nothing where the run was one process."""
    table = result.ranks
    if table is None:
        return
    how = "each with the whole load" if table.per_rank else "the users divided"
    yield title(f"RANKS: {table.size}, {how}")
    header = ("#", "host", "users", "requests", "tok/s", "read GiB/s", "write", "GiB/IO s", "")
    yield grid(header, [_row(row) for row in table.rows])
    for row in table.rows:
        if row.problem is not None:
            yield indent(Text(f"rank {row.rank}: {row.problem}", style="bold red"))
    if table.start_skew_ms is not None:
        skew, error = duration(table.start_skew_ms), duration(table.clock_uncertainty_ms)
        yield indent(Text(f"Began within {skew} of each other (clocks compared to {error})."))
    if table.stragglers:
        yield indent(Text("slow: below 0.8 of the median of bytes per second spent inside the cache"))


def _row(row: RankRow) -> tuple[str, ...]:
    return (
        str(row.rank),
        row.host,
        f"{row.users:,}",
        f"{row.requests_completed:,}",
        number(row.tokens_per_sec),
        number(row.storage_read_gib_per_sec, digits=3),
        number(row.storage_write_gib_per_sec, digits=3),
        number(row.gib_per_io_second, digits=3),
        "missing" if row.problem is not None else "slow" if row.straggler else "",
    )
