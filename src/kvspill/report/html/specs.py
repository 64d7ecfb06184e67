"""Building blocks of Vega-Lite plots: colours by CSS variables, so that one drawing serves both themes."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from kvspill.report.numbers import figure

Spec = dict[str, Any]

SERIES_COLOURS = 8
HEIGHT = 260
BAR_STEP = 26

COLOURS = [f"var(--series-{number})" for number in range(1, SERIES_COLOURS + 1)]
_LEGEND_CHARACTERS = 18
"""Two names of this length stand beside each other on a phone."""
_PHONE_PIXELS = 330
_SYMBOL_PIXELS = 26
"""Of a legend, beside the name."""
_AXIS_CHARACTERS = 25
_LABEL_PIXELS = 7
_DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 2]]

CONFIG: Spec = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--ink-soft)",
        "titleColor": "var(--ink-soft)",
        "gridColor": "var(--grid)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 150,
    },
    "legend": {
        "labelColor": "var(--ink)",
        "titleColor": "var(--ink-soft)",
        "labelFontSize": 12,
        "labelLimit": 260,
        "orient": "top",
        "direction": "horizontal",
        "columns": 2,
        "symbolSize": 90,
        "symbolStrokeWidth": 3,
        "title": None,
    },
    "line": {"strokeWidth": 2.2},
    "bar": {"cornerRadiusEnd": 2},
    "text": {"color": "var(--ink)", "fontSize": 12},
    "range": {"category": COLOURS},
}


def colour(
    names: Sequence[str], shown: Sequence[str] | None = None, symbol: str = "stroke", beside: int = 0
) -> Spec:
    """One colour per name, the same in every plot; the legend has only those that are shown."""
    return _told_by(COLOURS, names, names if shown is None else shown, symbol, beside)


def _told_by(
    looks: Sequence[Any], names: Sequence[str], shown: Sequence[str], symbol: str, beside: int = 0
) -> Spec:
    domain = list(dict.fromkeys(names))
    return {
        "field": "series",
        "type": "nominal",
        "scale": {"domain": domain, "range": [looks[n % len(looks)] for n in range(len(domain))]},
        "legend": _legend(domain, shown, symbol, beside),
    }


def _legend(domain: Sequence[str], shown: Sequence[str], symbol: str, beside: int = 0) -> Spec | None:
    """Needed wherever a reader could take one series for another, also where only one is shown.

    It stands to the right of an axis whose names have so many characters.
    """
    names = list(dict.fromkeys(shown))
    if len(domain) < 2:
        return None
    longest = max(len(name) for name in names)
    across = 2 * (_SYMBOL_PIXELS + _LABEL_PIXELS * longest) + _LABEL_PIXELS * beside
    fits = longest <= _LEGEND_CHARACTERS and across <= _PHONE_PIXELS
    legend = {"values": names, "symbolType": symbol, "columns": 2 if fits else 1}
    if _SYMBOL_PIXELS + _LABEL_PIXELS * (longest + beside) > _PHONE_PIXELS:
        legend["labelExpr"] = f"({json.dumps(fitted(names))})[datum.label]"
    return legend


def dash(names: Sequence[str], shown: Sequence[str]) -> Spec:
    """Lines differ by dash as well as by colour, for those who can't tell colours apart."""
    return _told_by(_DASHES, names, shown, "stroke")


def framed(spec: Spec, height: int | Spec = HEIGHT) -> Spec:
    """As wide as the page has room."""
    return {
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        **spec,
    }


_PICKED: list[Spec] = [
    {"name": "picked", "select": {"type": "point", "fields": ["series"]}, "bind": "legend"}
]
_DIMMED: Spec = {"condition": {"param": "picked", "value": 1}, "value": 0.12}


def lines(
    rows: list[Spec],
    x: Spec,
    y: Spec,
    names: Sequence[str],
    *,
    interpolate: str = "linear",
    dots: bool = False,
) -> Spec:
    """Lines over a number, one per series, with the values under the pointer.

    `names` are all series that a reader may meet beside this plot, so that colours stay the same.
    """
    shown = list(dict.fromkeys(row["series"] for row in rows))
    spec: Spec = {
        "data": {"values": rows},
        "params": _PICKED if len(shown) > 1 else [],
        "mark": {
            "type": "line",
            "interpolate": interpolate,
            # Unseen points widen what the pointer can meet.
            "point": {"size": 80, "filled": True, "fillOpacity": int(dots)} if len(rows) < 3000 else False,
            "tooltip": True,
        },
        "encoding": {
            "x": {"type": "quantitative", **x},
            "y": {"type": "quantitative", **y},
            "color": colour(names, shown),
            "strokeDash": dash(names, shown),
            "tooltip": [
                {"field": "series", "title": "series", "type": "nominal"},
                {
                    "field": x.get("tip", x["field"]),
                    "title": x["title"],
                    "type": x.get("tip_type", "quantitative"),
                },
                {"field": y["field"], "title": y["title"], "type": "quantitative", "format": ",.4~g"},
            ],
        },
    }
    spec["encoding"]["x"] = {key: value for key, value in spec["encoding"]["x"].items() if "tip" not in key}
    if len(shown) > 1:
        spec["encoding"]["strokeOpacity"] = _DIMMED
    return framed(spec)


def with_targets(spec: Spec, targets: Mapping[str, float], unit: str) -> Spec:
    """The same lines with a dashed line across for each target, in the colour of its series."""
    line = {key: spec[key] for key in ("params", "mark", "encoding")}
    y = {key: value for key, value in line["encoding"]["y"].items() if key != "field"}
    shared: dict[float, list[str]] = {}
    for name, value in targets.items():
        shared.setdefault(value, []).append(name)
    rows: list[Spec] = []
    for value, names in shared.items():
        whose = "" if len(names) == len(targets) else f" ({', '.join(names)})"
        label = f"target {value:,.10g}{' ms' if unit == 'milliseconds' else ''}{whose}"
        rows.append({"series": names[0], "y": value, "label": label})
    across: Spec = {
        "data": {"values": rows},
        "mark": {"type": "rule", "strokeDash": [5, 4], "strokeWidth": 1.5},
        "encoding": {"y": {**y, "field": "y"}, "color": {**line["encoding"]["color"], "legend": None}},
    }
    # The lowest is named below its line, where the next line above it may be near.
    rows.sort(key=lambda row: -float(row["y"]))
    above, below = (rows[:-1], rows[-1:]) if len(rows) > 1 else (rows, [])
    said: list[Spec] = [
        {
            "data": {"values": part},
            "mark": {"type": "text", "align": side, "fontSize": 11, **at},
            "encoding": {
                "x": {"value": {"expr": "width"} if side == "right" else 0},
                "y": {**y, "field": "y"},
                "text": {"field": "label", "type": "nominal"},
            },
        }
        for rows_there, at in (
            (above, {"baseline": "bottom", "dy": -3}),
            (below, {"baseline": "top", "dy": 4}),
        )
        for side in ("left", "right")
        if (
            part := [
                row
                for row in rows_there
                if _free_side(spec["data"]["values"], row["y"], at["baseline"] == "bottom") == side
            ]
        )
    ]
    rest = {key: value for key, value in spec.items() if key not in line and key != "data"}
    return {**rest, "data": spec["data"], "layer": [line, across, *said]}


def _free_side(points: Sequence[Spec], target: float, is_above: bool) -> str:
    """Where fewer points lie about a target's line, so that its label is not crossed by their curve."""
    bottom, top = (0.97, 1.6) if is_above else (0.6, 1.03)
    near = [float(point["x"]) for point in points if bottom * target < point["y"] < top * target]
    low, high = (pick(float(point["x"]) for point in points) for pick in (min, max))
    sides = {"right": sum(x > high - 0.35 * (high - low) for x in near)}
    sides["left"] = sum(x < low + 0.35 * (high - low) for x in near)
    return min(sides, key=lambda side: sides[side])


def heat(cells: list[Spec], x_title: str, y_title: str) -> Spec:
    """Fields over a number and a logarithm, the darker the more; shade is what they are painted by."""
    spec: Spec = {
        "data": {"values": cells},
        "mark": {"type": "rect", "fill": COLOURS[0], "tooltip": True, "strokeWidth": 0},
        "encoding": {
            "x": {
                "field": "x",
                "type": "quantitative",
                "title": x_title,
                "axis": {"tickCount": 6, "labelOverlap": "greedy", "grid": False},
                "scale": {"nice": False},
            },
            "x2": {"field": "x2"},
            "y": {
                "field": "y",
                "type": "quantitative",
                "title": y_title,
                **decades(min(cell["y"] for cell in cells), max(cell["y2"] for cell in cells)),
            },
            "y2": {"field": "y2"},
            "fillOpacity": {
                "field": "shade",
                "type": "quantitative",
                "scale": {"domain": [0, max(cell["shade"] for cell in cells)], "range": [0.12, 1]},
                "legend": None,
            },
            "tooltip": [
                {"field": "x", "title": x_title, "type": "quantitative", "format": ",~g"},
                {"field": "band", "title": "latency", "type": "nominal"},
                {"field": "count", "title": "number", "type": "quantitative", "format": ",d"},
            ],
        },
    }
    return framed(spec)


def decades(lowest: float, highest: float) -> Spec:
    """A logarithmic scale with a line at each power of ten, and between them where there are few."""
    first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
    last = max(last, first + 1)
    steps = (1,) if last - first > 3 else (1, 2, 5)
    values = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    return {
        "scale": {"type": "log", "domain": [10.0**first, 10.0**last], "nice": False},
        "axis": {"values": [value for value in values if value <= 10.0**last], "format": ",~g"},
    }


def fitted(names: Sequence[str]) -> dict[str, str]:
    """Names as an axis has room for, start and end kept; whole where two would become one."""
    whole = list(dict.fromkeys(names))
    short = {name: _middle_cut(name) for name in whole}
    taken = list(short.values())
    return {name: name if taken.count(cut) > 1 else cut for name, cut in short.items()}


def _middle_cut(name: str) -> str:
    if len(name) <= _AXIS_CHARACTERS:
        return name
    head = _AXIS_CHARACTERS * 3 // 5
    return f"{name[:head]}…{name[head + 1 - _AXIS_CHARACTERS :]}"


def bar(row: str, series: str, value: float, rank: int = 0) -> Spec:
    """What one bar shows; of a stack the rank says which part comes first."""
    return {"row": row, "series": series, "value": value, "rank": rank}


def _bar_label(value: float, share: bool) -> str:
    if share:
        return f"{value:.1%}"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2
    return figure(value, digits)


def bars(
    rows: list[Spec],
    value_title: str,
    order: Sequence[str],
    names: Sequence[str],
    *,
    stacked: bool = False,
    share: bool = False,
    looks: Mapping[str, str] | None = None,
) -> Spec:
    """Horizontal bars, one row per `row`, coloured by series and stacked or side by side.

    Side by side, each bar carries its value; shares run from 0 to 100 %. With `looks`, a colour for each
    series, a row has one bar, whose series is what it is painted by.
    """
    several = len(set(names)) > 1 and looks is None
    short = fitted(order)
    rows = [
        {"label": _bar_label(row["value"], share), **row, "row": short[row["row"]], "full": row["row"]}
        for row in rows
    ]
    count = len(set(order)) * (len(set(names)) if several and not stacked else 1)
    longest = max((row["value"] for row in rows), default=1.0) or 1.0
    # A share above the whole is a mistake in the result: it must show, and not run out of the plot.
    longest = max(1.0, longest) if share else longest
    place: Spec = {
        "y": {
            "field": "row",
            "type": "nominal",
            "sort": list(dict.fromkeys(short[name] for name in order)),
            "title": None,
            # A row without a name needs no room for one.
            "axis": {"labelLimit": 170, "domain": False, "ticks": False} if any(order) else None,
        },
        "x": {
            "field": "value",
            "type": "quantitative",
            "title": value_title,
            "stack": "zero" if stacked else None,
            "scale": {"nice": False} if stacked else {"domain": [0, longest]},
            # Three labels fit beside long names on a phone, where five would run into each other.
            "axis": {"format": "%", "values": [0, 0.5, 1], "labelFlush": True}
            if share
            else {"tickCount": 5, "labelOverlap": "greedy", "labelSeparation": 8},
        },
        "tooltip": [
            {"field": "full", "title": "of", "type": "nominal"},
            {"field": "series", "title": "series", "type": "nominal"},
            {"field": "value", "title": value_title, "type": "quantitative", "format": ",.4~g"},
        ],
    }
    if several and not stacked:
        place["yOffset"] = {"field": "series", "type": "nominal", "sort": list(dict.fromkeys(names))}
    beside = max(map(len, short.values()), default=0)
    painted: Spec = {"color": colour(names, symbol="square", beside=beside)}
    if looks is not None:
        painted = {"color": _told_by(list(looks.values()), list(looks), list(looks), "square", beside)}
    if stacked:
        painted["order"] = {"field": "rank", "type": "quantitative"}
    layers: list[Spec] = [{"mark": {"type": "bar", "tooltip": True}, "encoding": painted}]
    if not stacked:
        text = {"field": "label", "type": "nominal"}
        layers.append({"mark": {"type": "text", "align": "left", "dx": 4}, "encoding": {"text": text}})
    spec: Spec = {"data": {"values": rows}, "encoding": place, "layer": layers}
    # Room for the value at the end of the longest bar.
    far = [row for row in rows if looks is None or row["value"] > longest / 2]
    wide = 10 + _LABEL_PIXELS * max((len(row["label"]) for row in far), default=0)
    room = {} if stacked else {"padding": {"left": 5, "top": 5, "bottom": 5, "right": wide}}
    return framed({**spec, **room}, max(60, BAR_STEP * count + 16))
