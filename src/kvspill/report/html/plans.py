"""The page of a plan: the answer, what each option holds as a drawing, and the tables."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from kvspill.report.html.drawings import drawn_page, svg
from kvspill.report.html.specs import Spec

_WIDTH, _ROW = 620, 34
Table = Sequence[Sequence[str]]
"""Rows of cells, the heads first."""


def page_of(plan: Mapping[str, Any], tables: Mapping[str, Table]) -> str:
    """A page that is complete in itself, with the tables by their titles."""
    words = "\n".join(f"<p>{escape(line)}</p>" for line in plan["text"])
    caption = "What a node of each option holds; the line is what is asked for."
    drawing = f"<figure>{svg(_bars(plan))}<figcaption>{escape(caption)}</figcaption></figure>"
    title = f"Plan for {plan['asked']:,} {plan['asked_is']} of {plan['model']}"
    notes = {name: f"\n<p>{escape(line)}</p>" for name, line in plan["notes"].items()}
    shown = "\n".join(
        f"<h2>{escape(name)}</h2>\n{_table(table)}{notes.get(name, '')}" for name, table in tables.items()
    )
    return drawn_page(title, f"{words}\n{drawing}\n{shown}")


def _table(table: Table) -> str:
    head, *rows = ["".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) for tag, row in _tagged(table)]
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>\n</table></div>'
    )


def _tagged(table: Table) -> list[tuple[str, Sequence[str]]]:
    return [("td" if number else "th", row) for number, row in enumerate(table)]


def _bars(plan: Mapping[str, Any]) -> Spec:
    rows = [
        {"option": row["name"], "holds": row["holds"] or 0, "enough": "yes" if row["enough"] else "no"}
        for row in plan["options"]
    ]
    names = [row["option"] for row in rows]
    whole = {"labelLimit": 0}
    return {
        "width": _WIDTH,
        "height": _ROW * max(2, len(rows)),
        "layer": [
            {
                "data": {"values": rows},
                "mark": "bar",
                "encoding": {
                    "y": {"field": "option", "type": "nominal", "sort": names, "title": None, "axis": whole},
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
