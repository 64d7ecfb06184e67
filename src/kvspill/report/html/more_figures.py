"""Figures of volumes, hit rates, the search for users and rankings."""

from collections.abc import Iterator, Mapping, Sequence

from kvspill.report.columns import COLUMN, STORAGE_THROUGHPUT, WALL_THROUGHPUT, finite, of_no_storage
from kvspill.report.html import specs
from kvspill.report.html.facts import (
    TIER_NAMES,
    VERBS,
    Labelled,
    reuse_and_bounds,
    tier_label,
    tiers_of,
    unlike,
)
from kvspill.report.html.figure import Figure, stat_rows
from kvspill.report.html.labels import told_apart
from kvspill.report.html.specs import Spec
from kvspill.report.numbers import figure as number
from kvspill.result.ranking import why_unranked

_PHASES = {
    "decode reads": "decode_bytes_read_gb",
    "prefill writes": "prefill_bytes_written_gb",
    "of them rebuilt": "rebuilt_bytes_written_gib",
    "demoted to storage": "demotion_storage_write_gib",
    "demoted to DRAM": "demotion_cpu_write_gib",
}
_HITS = {"all lookups": "cache_hit_rate", "without decode re-reads": "reuse_hit_rate"}


def volumes(results: Sequence[Labelled]) -> Iterator[Figure]:
    yield from _tier_bytes(results)
    yield from _phase_bytes(results)


def _row(results: Sequence[Labelled], item: Labelled, name: str) -> str:
    """The tier first: where a label is cut, it must not be the part that is lost."""
    if len(results) == 1:
        return name
    return f"{name}: {told_apart([each.label for each in results])[item.label]}"


def _tier_bytes(results: Sequence[Labelled]) -> Iterator[Figure]:
    rows: list[Spec] = []
    table = []
    for tier in tiers_of(results):
        for item in results:
            for rank, verb in enumerate(VERBS):
                word = "written" if verb == "write" else "read"
                value = item.result.number(f"tier_{tier}_kv_bytes_{word}_gb")
                if value:
                    row = _row(
                        results, item, tier_label([item], tier) if len(results) == 1 else TIER_NAMES[tier]
                    )
                    rows.append(specs.bar(row, word, value, rank))
                    table.append((row, word, number(value)))
    if rows:
        yield Figure(
            "tier-bytes",
            "Bytes",
            "Bytes per tier",
            "Logical bytes in the measured window; a demotion is read on one tier and written on the next.",
            specs.bars(rows, "GiB", [row["row"] for row in rows], ["read", "written"]),
            ("tier", "direction", "GiB"),
            table,
        )


def _phase_bytes(results: Sequence[Labelled]) -> Iterator[Figure]:
    found = [(item, shown, value) for item, shown, value in stat_rows(results, _PHASES) if value > 0]
    rows = [specs.bar(shown, item.label, value) for item, shown, value in found]
    if rows:
        order = [shown for shown in _PHASES if any(row["row"] == shown for row in rows)]
        yield Figure(
            "phase-bytes",
            "Bytes",
            "Bytes per phase",
            "What the bytes were moved for, on any tier; decode reads include history, prompts and chunks.",
            specs.bars(rows, "GiB", order, [item.label for item in results]),
            ("phase", "result", "GiB"),
            [(shown, item.label, number(value)) for item, shown, value in found],
        )


def cache_figures(results: Sequence[Labelled]) -> Iterator[Figure]:
    found = list(stat_rows(results, _HITS))
    if any(value for _, _, value in found):
        yield _shares(
            "hit-rates", "Hit rates", "Per lookup. A failed read is an error, never a hit.", results, found
        )
    bounded = [
        (item, name, value) for item in results for name, value in reuse_and_bounds(item.result).items()
    ]
    if any(value for _, _, value in bounded):
        yield _shares(
            "hit-bounds",
            "Reuse against its bounds",
            "Share of looked-up bytes found, decode re-reads left out, beside what plain LRU, perfect "
            "foresight and an unlimited cache would have found in the same lookups. The cache hit rate "
            "counts lookups instead of bytes, and decode re-reads, which always hit, among them. "
            + _bounds_caveat(results),
            results,
            bounded,
        )


def _bounds_caveat(results: Sequence[Labelled]) -> str:
    """What the bounds leave out: they are computed, not measured."""
    text = (
        "The bounds are computed, one request after the other: a run that has many under way at once can lie "
        "above or below them."
    )
    bounds = [item.result.io_model.get("hit_rate_bounds") for item in results]
    known = [bound for bound in bounds if isinstance(bound, Mapping)]
    if any(bound.get("belady_exact") is False for bound in known):
        text += " Perfect foresight is itself an upper bound here, because entries differ in size."
    kept = [finite(bound.get("requests")) for bound in known if bound.get("truncated")]
    if kept:
        first = number(min(count or 0 for count in kept), 0)
        text += f" They are of the first {first} requests, as many as were kept."
    return text


def _shares(
    name: str,
    title: str,
    says: str,
    results: Sequence[Labelled],
    found: Sequence[tuple[Labelled, str, float]],
) -> Figure:
    rows: list[Spec] = [specs.bar(shown, item.label, value) for item, shown, value in found]
    order = [shown for _, shown, _ in found]
    spec = specs.bars(rows, "share found", order, [item.label for item in results], share=True)
    table = [(shown, item.label, f"{value:.2%}") for item, shown, value in found]
    return Figure(name, "Cache", title, says, spec, ("what", "result", "share"), table)


def ranking(results: Sequence[Labelled]) -> Iterator[Figure]:
    """Several results in order, by engine where engines are what differs; some are not ranked (S13)."""
    unranked = [item.label for item in results if without_rank(item)]
    results = [item for item in results if not without_rank(item)]
    if len(results) < 2:
        return
    engines = [item.result.config.get("engine") for item in results]
    by_engine = all(engines) and len(set(engines)) == len(engines)
    names = [str(engine) if by_engine else item.label for item, engine in zip(results, engines, strict=True)]
    differing = unlike(results)
    also = f" These results also differ in {', '.join(differing)}." if differing else ""
    if unranked:
        also += f" Without rank, because faulty or crowded: {', '.join(unranked)}."
    for metric in (WALL_THROUGHPUT, STORAGE_THROUGHPUT):
        values = {
            name: item.result.number(metric)
            for name, item in zip(names, results, strict=True)
            if not of_no_storage(COLUMN[metric].title, item.result)
        }
        known = sorted(((v, name) for name, v in values.items() if v), reverse=True)
        if len(known) < 2:
            continue
        unused = [name for name in names if name not in values]
        without = f" Storage not used, so not among them: {', '.join(unused)}." if unused else ""
        rows: list[Spec] = [specs.bar(name, "result", value) for value, name in known]
        slowest = known[-1][0]
        title = COLUMN[metric].shown_title
        yield Figure(
            f"ranking-{metric}",
            "Engine ranking" if by_engine else "Ranking",
            f"{'Engines' if by_engine else 'Results'} by {title}",
            "Fastest first; `kvspill compare` says which differences can be told from noise."
            + also
            + without,
            specs.bars(rows, title, [row["row"] for row in rows], ["result"]),
            ("engine" if by_engine else "result", title, "over the slowest"),
            [(name, number(value), f"{value / slowest:.2f}x") for value, name in known],
        )


def without_rank(item: Labelled) -> bool:
    return why_unranked(item.result) is not None
