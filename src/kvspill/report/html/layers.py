"""The figure of --trace-latency: where a system call's time goes below this program."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvspill.report.html import specs
from kvspill.report.html.facts import Labelled
from kvspill.report.html.figure import Figure
from kvspill.report.html.specs import Spec
from kvspill.report.layers_section import APPLICATION, NAMES, PAST, SHOWN
from kvspill.texts import significant


def layer_figures(results: Sequence[Labelled]) -> Iterator[Figure]:
    """Mean time of entries and of their calls, stacked by layer, for results that have it."""
    rows: list[Spec] = []
    table = []
    for item in results:
        found = item.result.latency_layers or {}
        for verb in (verb for verb in PAST if verb in found):
            before = "" if len(results) == 1 else f"{item.label}: "
            for label, name, part, share in _parts(verb, found[verb]):
                rank = len(rows)
                rows.append(specs.bar(before + label, name, part["mean"], rank))
                table.append((before + label, name, *(significant(part[column]) for column in SHOWN), share))
    order = [str(row["row"]) for row in rows]
    if rows:
        yield Figure(
            "layers",
            "Latency layer by layer",
            "Mean time of an entry and of a system call",
            "An entry by this program's clock: in the application and in its system calls. A call by the "
            "kernel's tracepoints: in the file system, in the block layer, in the device. Requests of one "
            "call that overlap count once, so that the layers add up to the call.",
            specs.bars(rows, "milliseconds", order, [str(row["series"]) for row in rows], stacked=True),
            ("of", "layer", "mean ms", "p50", "p95", "p99", "max", "share of the call"),
            table,
        )


def _parts(verb: str, block: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any], str]]:
    """What an entry's time and a call's time consist of: whose, the layer, its spread, its share."""
    if "entry_in_calls" in block:
        entry = f"an entry {PAST[verb]}"
        for key, name in APPLICATION.items():
            yield entry, name, block["application"][key], ""
        yield entry, "system calls", block["entry_in_calls"], ""
    for key, name in NAMES.items():
        yield f"a {verb} call", name, block["layers"][key], f"{block['shares'][key]:.1%}"
