"""The comparison table of a suite: throughput, latency and where entries and bytes were, row by row."""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING

from kvspill.suite.advice_doubts import FEW_REQUESTS
from kvspill.suite.facts import TIERS, Figures
from kvspill.suite.manifest import Manifest, Row, RowStatus
from kvspill.texts import MODELLED, duration, make_console, one_line, wrapped

if TYPE_CHECKING:
    from rich.console import Console, OverflowMethod
    from rich.table import Table

WIDTH = 100
NONE = "-"
_SLOW = 0.1
"""Below this many GiB/s two decimals are too few."""


def print_report(
    manifest: Manifest, found: Mapping[str, Figures], advice: Sequence[str], stream: IO[str]
) -> None:
    """Everything a person needs after a suite, in colours on a terminal and as plain text elsewhere."""
    console = make_console(stream)
    if console.is_terminal:
        _print(console, manifest, found, advice)
        return
    text = io.StringIO()
    _print(make_console(text, width=WIDTH, no_color=True), manifest, found, advice)
    stream.write("".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines()))


def _print(
    console: "Console", manifest: Manifest, found: Mapping[str, Figures], advice: Sequence[str]
) -> None:
    rule = "=" * 72
    simulated = " - SIMULATED, no byte moved" if manifest.simulated else ""
    console.print(f"\n{rule}\n{manifest.title}{simulated}\n{rule}", markup=False)
    whose = "THE MODELLED DEVICES" if manifest.simulated else "THIS MACHINE"
    console.print(f"\n### WHAT THIS MEANS FOR {whose} ###")
    for line in advice:
        console.print(wrapped(f"- {line}", console.width), markup=False)
    narrow = console.width < WIDTH
    rows = [(row, found.get(row.scenario.name)) for row in manifest.rows]
    console.print("\n### THROUGHPUT AND LATENCY ###")
    console.print(grid(THROUGHPUT, [_throughput(row, item, narrow) for row, item in rows]))
    console.print("\n### WHERE ENTRIES AND BYTES WERE ###")
    cells = [_distribution(row, item, narrow) for row, item in rows]
    if narrow:
        console.print(grid(DISTRIBUTION[:_BANDWIDTHS], [line[:_BANDWIDTHS] for line in cells]))
        console.print()
        names, speeds = DISTRIBUTION[:1], DISTRIBUTION[_BANDWIDTHS:]
        console.print(grid(names + speeds, [(*line[:1], *line[_BANDWIDTHS:]) for line in cells]))
    else:
        console.print(grid(DISTRIBUTION, cells))
    modelled = _modelled_rows(rows) if narrow else []
    for line in (*_legend(found), *modelled, *_exceptions(manifest.rows, found)):
        console.print(line, markup=False)


THROUGHPUT = ("scenario", "users", "tok/s", "requests", "e2e p50", "e2e p95", "queue", "I/O p95")
DISTRIBUTION = ("scenario", "entries g/c/s", "reads from g/c/s", "hits", "GPU r/w", "CPU r/w", "storage r/w")


_BANDWIDTHS = 4
"""Where the columns of bandwidths begin; a narrow terminal gets them as a table of their own."""


def grid(header: Sequence[str], rows: Iterable[Sequence[str]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="")
    for index, name in enumerate(header):
        # Only a name may be folded: a figure cut off would be a wrong one.
        overflow: OverflowMethod = "fold" if index == 0 else "ellipsis"
        table.add_column(
            name, justify="left" if index == 0 else "right", no_wrap=index > 0, overflow=overflow
        )
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    return table


def _row_label(row: Row, item: Figures | None, narrow: bool) -> str:
    """The row's name, with what is modelled in it; a narrow table marks it and says so below."""
    modelled = _modelled(item)
    if not modelled:
        return row.scenario.name
    return f"{row.scenario.name}{'*' if narrow else f' ({modelled} modelled)'}"


def _modelled(item: Figures | None) -> str:
    if item is None or item.simulated:
        return ""
    return "+".join(tier.upper() if tier != "storage" else tier for tier in item.modelled)


def _modelled_rows(rows: Sequence[tuple[Row, Figures | None]]) -> list[str]:
    named = [f"{row.scenario.name} ({_modelled(item)} modelled)" for row, item in rows if _modelled(item)]
    return [f"* rows: {', '.join(named)}."] if named else []


def _throughput(row: Row, item: Figures | None, narrow: bool) -> Sequence[str]:
    label = _row_label(row, item, narrow)
    if item is None:
        return (label, NONE, row.status.value, *[NONE] * 5)
    if item.faults is not None:
        return (label, f"{item.users}", "faulty", f"{item.completed}", *[NONE] * 4)
    rough = "~" if item.completed < FEW_REQUESTS else ""
    return (
        label,
        f"{item.users}",
        number(item.tokens_per_sec),
        f"{item.completed}",
        rough + milliseconds(item.end_to_end_ms, "p50"),
        rough + milliseconds(item.end_to_end_ms, "p95"),
        rough + milliseconds(item.queue_ms, "mean"),
        rough + milliseconds(item.storage_io_ms, "p95"),
    )


def _distribution(row: Row, item: Figures | None, narrow: bool) -> Sequence[str]:
    if item is None or item.faults is not None:
        return (_row_label(row, item, narrow), *[NONE] * 6)
    entries = [str(item.tiers[tier].entries) if tier in item.tiers else NONE for tier in TIERS]
    shares = [f"{item.read_share[tier]:.0%}" if tier in item.read_share else NONE for tier in TIERS]
    return (
        _row_label(row, item, narrow),
        "/".join(entries),
        "/".join(shares),
        NONE if item.hit_rate is None else f"{item.hit_rate:.0%}",
        *(_bandwidth(item, tier) for tier in TIERS),
    )


def _bandwidth(item: Figures, tier: str) -> str:
    found = item.tiers.get(tier)
    if found is None:
        return NONE
    mark = "*" if found.modelled else ""
    return f"{_speed(found.read_gib_per_sec)}/{_speed(found.write_gib_per_sec)}{mark}"


def _speed(gib_per_sec: float) -> str:
    """In GiB/s, as the whole column: slow storage needs more digits to be told from none."""
    return f"{gib_per_sec:.{2 if gib_per_sec >= _SLOW or not gib_per_sec else 3}f}"


def number(value: float | None) -> str:
    return NONE if value is None else f"{value:,.1f}"


def milliseconds(statistics: Mapping[str, float] | None, name: str) -> str:
    """One statistic of a latency, in the unit that reads best."""
    return duration(None if statistics is None else statistics[name])


def _legend(found: Mapping[str, Figures]) -> list[str]:
    lines = [
        "",
        "e2e: end to end; queue: mean wait; I/O: time in all tiers, each of completed requests;",
        "g/c/s: GPU, CPU, storage;",
        "reads from: share of the bytes read; r/w: GiB/s read and written, demotions included.",
    ]
    if any(item.modelled for item in found.values()):
        lines.append(MODELLED)
    if any(item.completed < FEW_REQUESTS for item in found.values()):
        lines.append(f"~ fewer than {FEW_REQUESTS} requests: the percentile is rough; run longer.")
    return lines


def _exceptions(rows: Sequence[Row], found: Mapping[str, Figures]) -> Iterator[str]:
    """Rows that stand in the table and don't count as they are, or don't stand there."""
    missing = [row for row in rows if row.status is not RowStatus.DONE]
    refused = [item for item in found.values() if item.no_rank is not None]
    changed = [row.scenario for row in rows if row.scenario.notes]
    sections = {
        "No rank:": [f"  {item.name} {item.no_rank}" for item in refused],
        "Not run:": [f"  {row.scenario.name}: {row.reason or row.status.value}" for row in missing],
        "Changed to fit:": [f"  {scenario.name}: {'; '.join(scenario.notes)}" for scenario in changed],
    }
    for title, lines in sections.items():
        yield from ("", title, *lines) if lines else ()
