"""How comparisons and rankings are shown: differences first, then figures, then the doubts."""

from collections.abc import Iterator, Sequence
from typing import Any

from kvspill.report.columns import COLUMN, IO_TIME, STORAGE_THROUGHPUT, WALL_THROUGHPUT
from kvspill.report.compare.comparison import Comparison, Line
from kvspill.report.compare.groups import Average, Group, Idle, Ranking
from kvspill.report.compare.ratios import CANNOT_TELL, NO_RANK
from kvspill.report.compare.render import Section, Table
from kvspill.report.compare.run import is_modelled, labelled, modelled_tiers
from kvspill.report.numbers import figure, percent, times
from kvspill.texts import MODELLED, counted, size_text

_MORE = (
    IO_TIME,
    "total_tokens",
    "total_requests",
    "total_read_gb",
    "total_write_gb",
    "read_write_ratio",
    "cache_hit_rate",
    "gpu_read_p95_ms",
    "cpu_read_p95_ms",
    "nvme_read_p95_ms",
    "nvme_write_p95_ms",
    WALL_THROUGHPUT,
)


def title(found: Comparison) -> str:
    return f"B ({_named(found.second_names)}) against A ({_named(found.first_names)})"


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown}, … {len(names)} runs"


def sections(found: Comparison) -> Iterator[Section]:
    yield Section("", (in_short(found),))
    if found.differences:
        rows = [(item.name, item.first, item.second) for item in found.differences]
        yield Section("What differs in the set-up", table=Table(("setting", "A", "B"), rows))
    else:
        yield Section("What differs in the set-up", ("Nothing that the results record.",))
    legend = [MODELLED] if any(line.modelled for line in found.lines) else []
    yield Section("Figures", (*_explanation(found), *legend), _figures(found))
    if found.doubts:
        yield Section("How far to trust this", found.doubts)


def in_short(found: Comparison) -> str:
    """What is faster, by how much and how surely; or that it can't be told, and why."""
    lines = [line for line in found.lines if line.metric in found.primary]
    if any(line.verdict == NO_RANK for line in lines):
        return "Neither side is ranked: a result is faulty or was crowded."
    if not lines:
        return "No difference can be told: no figure that decides is in the results of both sides."
    if all(line.verdict == CANNOT_TELL for line in lines):
        return f"No difference can be told: {_too_little(found)}."
    return f"By what decides here, B against A: {'; '.join(map(_told, lines))}."


def _too_little(found: Comparison) -> str:
    sides = [len(found.first_names), len(found.second_names)]
    if found.configurations == 1 and 1 in sides:
        return "one run a side, so the spread is not known" if sides == [1, 1] else "one run on a side"
    return "the results leave no spread to judge by"


def _told(line: Line) -> str:
    title = COLUMN[line.metric].shown_title
    if line.ratio is None:
        return f"{title} {line.verdict}"
    return f"{title} {times(line.ratio.value)} (95 % interval {_interval(line)}), {line.verdict}"


def _explanation(found: Comparison) -> Iterator[str]:
    first, second = len(found.first_names), len(found.second_names)
    judged = any(line.verdict != CANNOT_TELL for line in found.lines)
    text = f"Ratio = B / A ({second} against {counted(first, 'run')})"
    text += ", with its 95 % interval." if judged else "."
    if found.configurations > 1:
        text += (
            f" Over {found.configurations} matched configurations (by {', '.join(found.matched_by)}) it is "
            "their geometric mean, and the win rate is the share in which B is better."
        )
    if found.by_seed:
        text += " Both sides ran the same seeds: it is the geometric mean over the seeds, run by run."
    if judged:
        text += (
            " The deciding lines hold together, and so do all others (Holm's correction); what stands out by "
            "itself alone is marked indicative."
        )
    yield text
    if found.primary:
        yield "Decide by: " + ", ".join(COLUMN[name].shown_title for name in found.primary) + "."


def _figures(found: Comparison) -> Table:
    several = found.configurations > 1
    judged = any(line.verdict != CANNOT_TELL for line in found.lines)
    header = [
        *("metric", "better", "A", "B", "ratio"),
        *(["95 % interval"] if judged else []),
        *(["win rate"] if several else []),
        *(["B is"] if judged else []),
    ]
    ordered = sorted(found.lines, key=lambda line: line.metric not in found.primary)
    rows = []
    for line in ordered:
        rows.append(
            (
                line.title.removesuffix(" (bytes)"),
                line.better,
                _value(line, line.first) + "*" * ("A" in line.modelled),
                _value(line, line.second) + "*" * ("B" in line.modelled),
                times(line.ratio.value if line.ratio else None),
                *([_interval(line)] if judged else []),
                *([percent(line.wins)] if several else []),
                *([line.verdict] if judged else []),
            )
        )
    return Table(header, rows)


def _value(line: Line, value: float | None) -> str:
    if value is None:
        return "-"
    return size_text(value) if line.unit == "bytes" else figure(value, COLUMN[line.metric].digits)


def _interval(line: Line) -> str:
    if line.ratio is None or line.ratio.low is None or line.ratio.high is None:
        return "-"
    return f"{_bound(line.ratio.low)} - {_bound(line.ratio.high)}"


def _bound(value: float) -> str:
    return f"{value:.3f}" if 0.001 <= value < 1000 else f"{value:.0e}"


def rows(found: Comparison) -> list[dict[str, Any]]:
    """One row per metric, for CSV."""
    return [
        {
            "metric": line.metric,
            "title": line.title,
            "unit": line.unit,
            "better": line.better,
            "configurations": line.configurations,
            "a": line.first,
            "b": line.second,
            "ratio": line.ratio.value if line.ratio else None,
            "ci95_low": line.ratio.low if line.ratio else None,
            "ci95_high": line.ratio.high if line.ratio else None,
            "win_rate": line.wins,
            "verdict": line.verdict,
            "decides": line.metric in found.primary,
            "modelled": line.modelled,
        }
        for line in found.lines
    ]


def ranking_sections(found: Ranking) -> Iterator[Section]:
    yield Section("", tuple(_leader(found)))
    for kind in dict.fromkeys(group.kind for group in found.groups):
        groups = [group for group in found.groups if group.kind == kind]
        heading = COLUMN[groups[0].metric].shown_title + (f", {kind}" if kind != "storage" else "")
        yield Section(heading, table=_ranking(groups, [item for item in found.idle if item.kind == kind]))
    yield Section("Trials", table=_trials(found))
    storage = [group for group in found.groups if group.metric == STORAGE_THROUGHPUT]
    if storage:
        legend = (MODELLED,) if any(modelled_tiers(group.runs) for group in storage) else ()
        yield Section("Mean ± standard deviation of more figures", legend, _more(storage))
    yield Section("How far to trust this", found.doubts)


def _leader(found: Ranking) -> Iterator[str]:
    """The fastest of each kind, and that a table alone does not tell how sure that is."""
    for kind in dict.fromkeys(group.kind for group in found.groups):
        ranked = [group for group in found.groups if group.kind == kind and group.speedup is not None]
        if len(ranked) > 1:
            best = ranked[0]
            yield (
                f"{best.name} leads in {COLUMN[best.metric].shown_title}, {times(best.speedup)} the slowest; "
                "kvspill compare A… -- B… tells whether two of them differ by more than chance."
            )


def _ranking(groups: Sequence[Group], idle: Sequence[Idle]) -> Table:
    table_rows: list[tuple[str, ...]] = []
    for group in groups:
        whole = group.everything.count == (group.complete.count if group.complete else 0)
        table_rows.append(
            (
                labelled(group.name, modelled_tiers(group.runs)),
                str(group.everything.count),
                _plus_minus(group.everything, 0),
                percent(group.everything.cv, 1),
                times(group.speedup),
                "all" if whole else (_plus_minus(group.complete, 0) if group.complete else "none"),
            )
        )
    table_rows += [(item.name, str(item.trials), *["-"] * 4) for item in idle]
    header = ("configuration", "trials", "mean ± sd", "CV", "over the slowest", "complete trials only")
    return Table(header, table_rows)


def _plus_minus(average: Average, digits: int) -> str:
    return f"{figure(average.mean, digits)} ± {figure(average.deviation, digits)}"


def _trials(found: Ranking) -> Table:
    table_rows = []
    for run in found.runs:
        values = [run.values.get(name) for name in (IO_TIME, "total_tokens", "total_requests")]
        table_rows.append(
            (
                labelled(run.name, modelled_tiers([run])),
                figure(values[0]),
                figure(values[1], 0),
                figure(values[2], 0),
                figure(run.values.get(STORAGE_THROUGHPUT), 0),
                figure(run.values.get(WALL_THROUGHPUT), 0),
                run.incomplete or "complete",
            )
        )
    header = ("trial", "I/O time (s)", "tokens", "requests", "storage tok/s", "wall-clock tok/s", "state")
    return Table(header, table_rows)


def _more(groups: Sequence[Group]) -> Table:
    table_rows = []
    for name in _MORE:
        if any(name in group.metrics for group in groups):
            cells = [
                _plus_minus(group.metrics[name], COLUMN[name].digits) + "*" * is_modelled(group.runs, name)
                if name in group.metrics
                else "-"
                for group in groups
            ]
            table_rows.append((COLUMN[name].shown_title, *cells))
    return Table(
        ("figure", *(labelled(group.name, modelled_tiers(group.runs)) for group in groups)), table_rows
    )


def ranking_rows(found: Ranking) -> list[dict[str, Any]]:
    """One row per group, for CSV; without figures where there is none to be ranked by."""
    rows = [
        {
            "configuration": group.name,
            "metric": group.metric,
            "trials": group.everything.count,
            "mean": group.everything.mean,
            "standard_deviation": group.everything.deviation,
            "cv": group.everything.cv,
            "over_slowest": group.speedup,
            "complete_trials": group.complete.count if group.complete else 0,
            "complete_mean": group.complete.mean if group.complete else None,
            "complete_standard_deviation": group.complete.deviation if group.complete else None,
            "modelled": modelled_tiers(group.runs),
        }
        for group in found.groups
    ]
    unused = [
        {"configuration": item.name, "metric": item.metric, "trials": item.trials} for item in found.idle
    ]
    return [*rows, *({**dict.fromkeys(rows[0] if rows else ()), **row} for row in unused)]
