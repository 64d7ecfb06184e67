"""The page of a curve: hit rate against capacity and the map of two tiers, as drawings without scripts."""

from collections.abc import Mapping
from html import escape
from typing import Any

from kvspill.records import GIB
from kvspill.report.html.drawings import drawn_page, svg
from kvspill.report.html.specs import Spec

_WIDTH, _HEIGHT = 820, 380
_TITLE = "Hit rate by capacity"


def page_of(curve: Mapping[str, Any], text: str) -> str:
    """A page that is complete in itself; `text` is what the console shows."""
    drawings = "\n".join(
        f"<figure>{svg(spec)}<figcaption>{escape(caption)}</figcaption></figure>"
        for spec, caption in (
            (_lines(curve), "Tokens found by capacity; LRU is exact at every point of its line."),
            (_map(curve), "Tokens found by DRAM and storage together: LRU over both, the coldest sink."),
        )
    )
    body = f"{drawings}\n<h2>Figures</h2>\n<pre>{escape(text)}</pre>"
    return drawn_page(f"{_TITLE}: {curve['load']}", body)


def _lines(curve: Mapping[str, Any]) -> Spec:
    series = {"LRU": curve["lru"], **curve["policies"]}
    rows = [
        {"policy": name, "gib": point["capacity_bytes"] / GIB, "tokens": point["tokens"]}
        for name, points in series.items()
        for point in points
        if point["capacity_bytes"] > 0
    ]
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "data": {"values": rows},
        "mark": {"type": "line", "point": {"size": 18}},
        "encoding": {
            "x": {"field": "gib", "type": "quantitative", "scale": {"type": "log"}, "title": "capacity, GiB"},
            "y": {
                "field": "tokens",
                "type": "quantitative",
                "axis": {"format": ".0%"},
                "title": "tokens found",
            },
            "color": {"field": "policy", "type": "nominal", "sort": list(series), "title": None},
            "strokeDash": {"field": "policy", "type": "nominal", "sort": list(series), "title": None},
        },
    }


def _map(curve: Mapping[str, Any]) -> Spec:
    tiers = curve["two_tiers"]
    rows = [
        {"dram": _gib(dram), "storage": _gib(storage), "tokens": top + more}
        for dram, top, below in zip(
            tiers["dram_bytes"], tiers["found_in_dram"], tiers["found_in_storage"], strict=True
        )
        for storage, more in zip(tiers["storage_bytes"], below, strict=True)
    ]
    axis = {"type": "ordinal", "sort": None}
    return {
        "width": _WIDTH,
        "height": 40 * max(1, len(tiers["dram_bytes"])),
        "data": {"values": rows},
        "encoding": {
            "x": {"field": "storage", "title": "storage, GiB", **axis},
            "y": {"field": "dram", "title": "DRAM, GiB", **axis},
        },
        "layer": [
            {
                "mark": "rect",
                "encoding": {"color": {"field": "tokens", "type": "quantitative", "legend": None}},
            },
            {
                "mark": {"type": "text", "fontSize": 11},
                "encoding": {"text": {"field": "tokens", "type": "quantitative", "format": ".1%"}},
            },
        ],
    }


def _gib(nbytes: int) -> str:
    return f"{nbytes / GIB:,.3g}" if nbytes < 100 * GIB else f"{nbytes / GIB:,.0f}"
