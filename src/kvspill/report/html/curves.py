"""Curves on the page: hit rate against capacity, what the next TiB is worth, and two tiers as a map."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvspill.records import GIB
from kvspill.report.html import specs
from kvspill.report.html.figure import Figure, Section
from kvspill.report.html.specs import Spec

TITLE = "Hit rate by capacity"
_POLICIES = ("LRU", "fifo", "lfu", "s3-fifo", "optimum")
"""Each keeps its colour in every curve, whichever of the others were asked for."""
_COLUMNS_MAX = 8
"""So many sizes of storage have room on a phone."""


@dataclass(frozen=True, slots=True)
class DrawnCurve:
    """A curve with its name, and what the console says of it: sentences, and a table with its head."""

    name: str
    curve: Mapping[str, Any]
    words: Sequence[str]
    rates: Sequence[Sequence[str]]


def curve_sections(curves: Sequence[DrawnCurve]) -> list[Section]:
    """A section for each curve; before those of several, one in which they stand together."""
    together = [_together(curves)] if 1 < len(curves) <= specs.SERIES_COLOURS else []
    return together + [_section(number, item) for number, item in enumerate(curves)]


def _section(number: int, item: DrawnCurve) -> Section:
    policies, curve = item.curve["policies"], item.curve
    cells = _cells(curve["two_tiers"])
    tiers = _map_rows(cells)
    series = {"LRU": curve["lru"], **policies}
    figures = [
        Figure(
            f"curve-rates-{number}",
            item.name,
            "Tokens found by capacity",
            _says(curve),
            _with_bend(_lines(series, [*_POLICIES, *policies]), curve["bend"]),
            item.rates[0],
            item.rates[1:],
        ),
        Figure(
            f"curve-tiers-{number}",
            item.name,
            "Two tiers: tokens found, in %",
            "LRU over both, the coldest of DRAM sinks to storage. The more colour, the more is found.",
            _map(cells),
            tiers[0],
            tiers[1:],
        ),
        Figure(
            f"curve-worth-{number}",
            item.name,
            "What the next TiB saves (modelled)",
            "Prefill that LRU with one TiB more does not have to repeat, over the measured requests."
            + _first_tib(curve["next_tib"]),
            _worth(curve["next_tib"]),
            ("capacity, GiB", "prefill saved, s"),
            [
                (_gib(row["capacity_bytes"]), f"{row['prefill_seconds_saved']:,.0f}")
                for row in curve["next_tib"]
            ],
        ),
    ]
    return Section(item.name, f"curve-{number}", figures, item.words)


def _says(curve: Mapping[str, Any]) -> str:
    sampling = curve["sampling"]
    if sampling is None:
        text = "LRU is exact at every capacity, the other policies at the corners of their lines."
    elif sampling["lru_share"] == 1:
        text = "LRU is exact at every capacity; the other policies are of a sample, whose error stands above."
    else:
        text = "All of a sample, whose error stands above."
    return text if curve["bend"] is None else f"{text} LRU's curve bends at the dashed line."


def _together(curves: Sequence[DrawnCurve]) -> Section:
    series = {item.name: item.curve["lru"] for item in curves}
    figure = Figure(
        "curves-together",
        TITLE,
        "Tokens found by LRU",
        "Each of its own load and model; the sections below name them.",
        _lines(series, list(series)),
        ("curve", "load", "model", "an unlimited cache finds"),
        [
            (
                item.name,
                item.curve["load"],
                item.curve["model"],
                f"{item.curve['ceiling']['tokens']:.1%} of the tokens",
            )
            for item in curves
        ],
    )
    return Section(TITLE, "curves", [figure])


def _lines(series: Mapping[str, Iterable[Mapping[str, float]]], names: Sequence[str]) -> Spec:
    rows = [
        {"series": name, "gib": point["capacity_bytes"] / GIB, "found": 100 * point["tokens"]}
        for name, points in series.items()
        for point in points
    ]
    y = {"field": "found", "title": "tokens found, %", "scale": {"zero": True}}
    return specs.lines(rows, _capacity(rows), y, names)


def _worth(worth: Iterable[Mapping[str, float]]) -> Spec:
    rows = [
        {"series": "LRU", "gib": row["capacity_bytes"] / GIB, "saved": row["prefill_seconds_saved"]}
        for row in worth
        if row["capacity_bytes"] > 0
    ]
    y = {"field": "saved", "title": "prefill saved, s", "scale": {"zero": True}}
    return specs.lines(rows, _capacity(rows), y, ["LRU"], dots=True)


def _first_tib(worth: Sequence[Mapping[str, float]]) -> str:
    """What a logarithmic axis has no place for: the first TiB on top of nothing."""
    saved = [row["prefill_seconds_saved"] for row in worth if row["capacity_bytes"] <= 0]
    return "".join(f" The first TiB of all, left of the axis, saves {seconds:,.0f} s." for seconds in saved)


def _capacity(rows: Sequence[Spec]) -> Spec:
    """A logarithmic axis that ends where the data do."""
    low, high = min(row["gib"] for row in rows), max(row["gib"] for row in rows)
    steps = (1, 2, 5) if high < 100 * low else (1, 3) if high < 1e5 * low else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    return {
        "field": "gib",
        "title": "capacity, GiB (log)",
        "scale": {"type": "log", "domain": [low, max(high, 1.01 * low)], "nice": False},
        "axis": {
            "values": [tick for tick in ticks if low <= tick <= high] or [low],
            "format": ",~g",
            "labelOverlap": "greedy",
        },
    }


def _with_bend(spec: Spec, bend: Mapping[str, float] | None) -> Spec:
    if bend is None:
        return spec
    line = {key: spec[key] for key in ("params", "mark", "encoding")}
    x = {**line["encoding"]["x"], "field": "gib"}
    across: Spec = {
        "data": {"values": [{"gib": bend["capacity_bytes"] / GIB}]},
        "mark": {"type": "rule", "strokeDash": [3, 3], "color": "var(--ink-soft)"},
        "encoding": {"x": x},
    }
    rest = {key: value for key, value in spec.items() if key not in line}
    return {**rest, "layer": [line, across]}


def _cells(tiers: Mapping[str, Any]) -> list[Spec]:
    """What each DRAM with each storage finds; of very many sizes of storage some, the largest among them."""
    sizes = tiers["storage_bytes"]
    some = range(len(sizes))[:: -1 - (len(sizes) - 1) // _COLUMNS_MAX][::-1]
    return [
        {"dram": _gib(dram), "storage": storage, "found": 100 * (top + more), "in_dram": 100 * top}
        for dram, top, below in zip(
            tiers["dram_bytes"], tiers["found_in_dram"], tiers["found_in_storage"], strict=True
        )
        for storage, more in (("none", 0.0), *((_gib(sizes[at]), below[at]) for at in some))
    ]


def _map(cells: list[Spec]) -> Spec:
    """Fields by both sizes with what is found; ink stays readable on the darkest of them."""
    most = max(cell["found"] for cell in cells)
    found = {"field": "found", "type": "quantitative", "format": ".1f"}
    side = {"type": "ordinal", "sort": None}
    encoding = {
        "x": {"field": "storage", "title": "storage, GiB", "axis": {"labelAngle": -40}, **side},
        "y": {"field": "dram", "title": "DRAM, GiB", **side},
        "tooltip": [
            {"field": "dram", "title": "DRAM, GiB", "type": "nominal"},
            {"field": "storage", "title": "storage, GiB", "type": "nominal"},
            {**found, "field": "in_dram", "title": "found in DRAM, %"},
            {**found, "title": "found in both, %"},
        ],
    }
    shade = {"domain": [0, most or 1], "range": [0, 0.45]}
    fields: Spec = {
        "mark": {"type": "rect", "fill": specs.COLOURS[0]},
        "encoding": {"fillOpacity": {**found, "scale": shade, "legend": None}},
    }
    text: Spec = {"mark": {"type": "text", "fontSize": 11}, "encoding": {"text": found}}
    rows = len({cell["dram"] for cell in cells})
    spec = {"data": {"values": cells}, "encoding": encoding, "layer": [fields, text]}
    return specs.framed(spec, specs.BAR_STEP * max(2, rows))


def _map_rows(cells: list[Spec]) -> list[list[str]]:
    """The same as a table, its head first."""
    columns = list(dict.fromkeys(cell["storage"] for cell in cells))
    rows: dict[str, list[str]] = {}
    for cell in cells:
        rows.setdefault(cell["dram"], [cell["dram"]]).append(f"{cell['found']:.1f}")
    return [["DRAM \\ storage, GiB", *columns], *rows.values()]


def _gib(nbytes: int) -> str:
    return f"{nbytes / GIB:,.3g}" if nbytes < 100 * GIB else f"{nbytes / GIB:,.0f}"
