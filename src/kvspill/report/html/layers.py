"""The figure of --trace-latency: where a system call's time goes below this program."""

from collections.abc import Iterator, Sequence

from kvspill.report.html import specs
from kvspill.report.html.facts import Labelled
from kvspill.report.html.figure import Figure
from kvspill.report.html.specs import Spec
from kvspill.report.layers_section import NAMES
from kvspill.report.numbers import figure as number


def layer_figures(results: Sequence[Labelled]) -> Iterator[Figure]:
    """Mean time of a read and of a write, stacked by layer, for results that have it."""
    rows: list[Spec] = []
    table = []
    for item in results:
        found = item.result.latency_layers or {}
        for verb in ("read", "write"):
            block = found.get(verb)
            if block is None:
                continue
            label = verb if len(results) == 1 else f"{item.label}: {verb}"
            for rank, (key, name) in enumerate(NAMES.items()):
                layer = block["layers"][key]
                rows.append({"row": label, "series": name, "value": layer["mean"], "rank": rank})
                shown = (number(layer[column]) for column in ("mean", "p50", "p95", "p99", "max"))
                table.append((label, name, *shown, f"{block['shares'][key]:.1%}"))
    order = [str(row["row"]) for row in rows]
    if rows:
        yield Figure(
            "layers",
            "Latency layer by layer",
            "Mean time of a system call",
            "From the kernel's tracepoints: in the file system, in the block layer, in the device. Requests "
            "of one call that overlap count once, so that the layers add up to the call.",
            specs.bars(rows, "milliseconds", order, list(NAMES.values()), stacked=True),
            ("call", "layer", "mean ms", "p50", "p95", "p99", "max", "share"),
            table,
        )
