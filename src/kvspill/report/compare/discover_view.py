"""How a discovery is shown: what to use first, then ratios by setting, the spread and the doubts."""

from collections.abc import Iterator, Sequence
from typing import Any

from kvspill.report.columns import COLUMN, STORAGE_THROUGHPUT
from kvspill.report.compare.discover import Discovery
from kvspill.report.compare.render import Section, Table
from kvspill.report.compare.spreads import CANDIDATES, Slice, Spread
from kvspill.report.numbers import percent, times
from kvspill.texts import counted

_SHORT = {
    "decode_bytes_read_gb": "decode bytes",
    "avg_throughput_tokens_per_sec": "wall clock",
    "storage_throughput_tokens_per_sec": "storage throughput",
}
_AVERAGES = ("configs", "mean", "median", "geometric", "95 % interval", "of means", "win rate", "losses")


def title(found: Discovery) -> str:
    return f"{found.first_name} against {found.second_name}: which metric tells them apart"


def sections(found: Discovery) -> Iterator[Section]:
    yield Section(
        "Matched configurations",
        (
            f"{counted(found.pairs, 'configuration')} ran on both systems ({found.first_name}: "
            f"{counted(found.first_runs, 'run')}, {found.second_name}: {counted(found.second_runs, 'run')}). "
            f"Every ratio is {found.first_name} over {found.second_name}. The win rate is the share of "
            f"configurations in which {found.first_name} is better, losses those in which "
            f"{found.second_name} is; the rest are equal.",
            *found.kinds,
        ),
    )
    yield Section(
        "Metric to use",
        table=Table(
            ("DRAM", "metric", "mean ratio", "win rate", "use", "reason"),
            list(_advice(found)),
        ),
    )
    for part in found.by_cpu_mem:
        yield Section(f"At {part.label} of DRAM", table=_averages(part, CANDIDATES))
    yield _by("By model", "model", found.by_model)
    yield _by("By users", "users", found.by_users)
    yield _by("By DRAM and limit on allocations", "setting", found.by_allocs)
    yield Section(
        "Variation by users",
        (
            f"CV (standard deviation / mean) of {COLUMN[STORAGE_THROUGHPUT].shown_title} over matched "
            "configurations.",
        ),
        Table(
            ("users", "configs", found.first_name, found.second_name),
            [
                (f"{row.users:g}", str(row.count), percent(row.first), percent(row.second))
                for row in found.variation
            ],
        ),
    )
    yield Section(
        "Every metric, all configurations", table=_averages(found.overall, tuple(found.overall.metrics))
    )
    yield Section("How far to trust this", found.notes)


def _advice(found: Discovery) -> Iterator[tuple[str, ...]]:
    parts = {part.label: part for part in found.by_cpu_mem}
    for item in found.advice:
        spread = parts[item.cpu_mem].metrics[item.metric]
        measured = (times(spread.mean), percent(spread.wins))
        yield item.cpu_mem, COLUMN[item.metric].shown_title, *measured, item.rank, item.reason


def _averages(part: Slice, names: Sequence[str]) -> Table:
    rows = [
        (COLUMN[name].shown_title, *_spread(part.metrics[name])) for name in names if name in part.metrics
    ]
    return Table(("metric", *_AVERAGES), rows)


def _spread(spread: Spread) -> tuple[str, ...]:
    middle = spread.geometric
    interval = "-"
    if middle is not None and middle.low is not None and middle.high is not None:
        interval = f"{middle.low:.2f} - {middle.high:.2f}"
    return (
        str(spread.count),
        times(spread.mean),
        times(spread.median),
        times(middle.value if middle else None),
        interval,
        times(spread.of_means),
        percent(spread.wins),
        percent(spread.losses),
    )


def _by(heading: str, name: str, parts: Sequence[Slice]) -> Section:
    header = [name, "configs"]
    for metric in CANDIDATES:
        header += [f"{_SHORT[metric]}, mean", "median", "win rate"]
    rows = []
    for part in parts:
        row = [part.label, str(part.count)]
        for metric in CANDIDATES:
            spread = part.metrics.get(metric)
            row += [times(spread.mean), times(spread.median), percent(spread.wins)] if spread else ["-"] * 3
        rows.append(row)
    return Section(heading, table=Table(header, rows))


def rows(found: Discovery) -> list[dict[str, Any]]:
    """One row per slice and metric, for CSV."""
    groups = {
        "all": (found.overall,),
        "cpu_mem": found.by_cpu_mem,
        "model": found.by_model,
        "users": found.by_users,
        "cpu_mem_and_allocs": found.by_allocs,
    }
    advice = {(item.cpu_mem, item.metric): item.rank for item in found.advice}
    return [
        {
            "by": by,
            "value": part.label,
            "metric": name,
            "configurations": spread.count,
            "mean_ratio": spread.mean,
            "median_ratio": spread.median,
            "geometric_mean_ratio": spread.geometric.value if spread.geometric else None,
            "ci95_low": spread.geometric.low if spread.geometric else None,
            "ci95_high": spread.geometric.high if spread.geometric else None,
            "ratio_of_means": spread.of_means,
            "win_rate": spread.wins,
            "loss_rate": spread.losses,
            "first_zeros": spread.first_zeros,
            "second_zeros": spread.second_zeros,
            "use": advice.get((part.label, name)) if by == "cpu_mem" else None,
        }
        for by, parts in groups.items()
        for part in parts
        for name, spread in part.metrics.items()
    ]
