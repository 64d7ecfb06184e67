"""The page of a plan: the answer, what each option holds as a drawing, and the tables."""

from collections.abc import Mapping
from html import escape
from typing import Any

from kvspill.report.html.drawings import drawn_page, svg
from kvspill.report.html.specs import Spec

_WIDTH, _ROW = 620, 34


def page_of(plan: Mapping[str, Any], tables: str) -> str:
    """A page that is complete in itself; `tables` is what the console shows below the words."""
    words = "\n".join(f"<p>{escape(line)}</p>" for line in plan["text"])
    caption = "What a node of each option holds; the line is what is asked for."
    drawing = f"<figure>{svg(_bars(plan))}<figcaption>{escape(caption)}</figcaption></figure>"
    title = f"Plan for {plan['asked']:,} {plan['asked_is']} of {plan['model']}"
    return drawn_page(title, f"{words}\n{drawing}\n<h2>Figures</h2>\n<pre>{escape(tables)}</pre>")


def _bars(plan: Mapping[str, Any]) -> Spec:
    rows = [
        {"option": row["name"], "holds": row["holds"] or 0, "enough": "yes" if row["enough"] else "no"}
        for row in plan["options"]
    ]
    names = [row["option"] for row in rows]
    return {
        "width": _WIDTH,
        "height": _ROW * max(2, len(rows)),
        "layer": [
            {
                "data": {"values": rows},
                "mark": "bar",
                "encoding": {
                    "y": {"field": "option", "type": "nominal", "sort": names, "title": None},
                    "x": {"field": "holds", "type": "quantitative", "title": plan["asked_is"]},
                    "color": {"field": "enough", "type": "nominal", "title": "enough"},
                },
            },
            {
                "data": {"values": [{"asked": plan["asked"]}]},
                "mark": {"type": "rule", "strokeDash": [6, 4]},
                "encoding": {"x": {"field": "asked", "type": "quantitative"}},
            },
        ],
    }
