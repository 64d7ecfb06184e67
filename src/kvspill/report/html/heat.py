"""Heat maps: how many requests or entries took how long, over the measured window."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from kvspill.report.html import specs
from kvspill.report.html.facts import Labelled, modelled
from kvspill.report.html.figure import Figure
from kvspill.report.html.specs import Spec
from kvspill.result.schema import LatencyMap
from kvspill.texts import significant

_MAPS = {
    "storage_read": "Storage reads",
    "storage_write": "Storage writes",
    "request_end_to_end": "Requests, end to end",
}
_RESULTS_MAX = 4
"""With more results side by side the maps would be too many to look at."""
_STEPS_MIN = 3


def heat_maps(results: Sequence[Labelled]) -> Iterator[Figure]:
    """A map for each latency that is kept over time; of several results only the storage's reads."""
    if len(results) > _RESULTS_MAX:
        return
    many = len(results) > 1
    for name, title in _MAPS.items():
        for index, item in enumerate(results):
            found = item.result.latency_maps.get(name)
            shown = name == "storage_read" or not many
            if shown and found is not None and len(found.counts) >= _STEPS_MIN:
                yield _heat_map(f"heat-{name}-{index}", name, title, found, item, many)


def _heat_map(figure_id: str, name: str, title: str, found: LatencyMap, item: Labelled, many: bool) -> Figure:
    step = float(found.step_seconds)
    # The last step may be a part of one; a window's end cuts it.
    end = float(item.result.window.measured_seconds)
    bands = list(pairwise(found.edges_ms))
    cells: list[Spec] = [
        {
            "x": number * step,
            "x2": min((number + 1) * step, max(end, number * step)),
            "y": low,
            "y2": high,
            "count": count,
            "shade": math.log1p(count),
            "band": f"{significant(low)} to {significant(high)} ms",
        }
        for number, row in enumerate(found.counts)
        for (low, high), count in zip(bands, row, strict=True)
        if count > 0
    ]
    mark = ""
    if name != "request_end_to_end" and modelled(item.result, "storage"):
        mark = " (simulated)" if item.result.simulated else " (modelled)"
    width = "a second" if step == 1 else f"{step:g} s"
    totals = [sum(row[band] for row in found.counts) for band in range(len(bands))]
    return Figure(
        figure_id,
        "Over time",
        f"{title} over time{mark}" + (f": {item.label}" if many else ""),
        f"The stronger the colour, the more of them took that long in that step of {width}. A band that "
        "moves up is a device that slows down; two bands are two kinds of service.",
        specs.heat(cells, "seconds into the measured window", "milliseconds (log)"),
        ("latency", "number"),
        [
            (f"{significant(low)} to {significant(high)} ms", f"{total:,}")
            for (low, high), total in zip(bands, totals, strict=True)
            if total
        ],
    )
