"""The page of a plan: the answer, what each option holds as a drawing, and the tables."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from kvspill.report.html.drawings import drawn_page, with_flags

_STATES = {"yes": "met", "no": "missed"}
_NAMED = (
    *("Bottleneck", "What would help", "Cost", "Wear", "Break-even", "Sensitivity", "Not certain"),
    *("Target", "Asked with"),
)
"""Sentences that begin with what they answer."""
_STYLE = """
.option { margin-bottom: 12px; } .option dt { overflow-wrap: anywhere; } .option dd { margin: 0; }
.room { position: relative; background: var(--grid); border-radius: 3px; height: 16px; }
.room .bar { display: block; height: 100%; border-radius: 3px; background: var(--bad); }
.room .bar.enough { background: var(--good); }
.room .asked { position: absolute; top: -4px; bottom: -4px; border-left: 3px dashed var(--ink); }
dl { margin: 0; } td { white-space: nowrap; overflow-wrap: normal; }
td:first-child, td:nth-child(3) { white-space: normal; } td:first-child { min-width: 10em; }
@media print { table { font-size: 6.5pt; } th, td { white-space: normal; padding-right: 5px; }
  thead th { white-space: normal; } td:first-child { min-width: 7em; } }"""
Table = Sequence[Sequence[str]]
"""Rows of cells, the heads first."""


def page_of(plan: Mapping[str, Any], tables: Mapping[str, Table], made: str) -> str:
    """A page that is complete in itself, with the tables by their titles and the time when it was made."""
    verdict, *rest = plan["text"]
    words = "\n".join(f"<p>{_named(line)}</p>" for line in rest)
    answer = (
        f'<section><h2>Verdict</h2>\n<div class="answer {_STATES.get(plan["answer"], "")}">'
        f'<p class="status">{with_flags(verdict)}</p>\n{words}</div></section>'
    )
    title = f"Plan for {plan['asked']:,} {plan['asked_is']} of {plan['model']}"
    notes = {name: f"\n<p>{escape(line)}</p>" for name, line in plan["notes"].items()}
    shown = "\n".join(
        f"<section><h2>{escape(name)}</h2>\n{_table(name, table)}{notes.get(name, '')}</section>"
        for name, table in tables.items()
    )
    line = f"kvspill {plan['kvspill_version']}, {made}"
    return drawn_page(title, f"{answer}\n{_drawing(plan)}\n{shown}", _STYLE, line)


def _named(line: str) -> str:
    name, colon, text = line.partition(": ")
    if name not in _NAMED:
        return with_flags(line)
    return f"<strong>{escape(name)}{colon}</strong>{with_flags(text)}"


def _table(name: str, table: Table) -> str:
    head, *rows = table
    body = "\n".join(_row(row, "td") for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}"><table>\n'
        f"<thead>{_row(head, 'th')}</thead>\n<tbody>{body}</tbody>\n</table></div>"
    )


def _row(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{with_flags(cell)}</{tag}>' for cell in cells)}</tr>"


def _drawing(plan: Mapping[str, Any]) -> str:
    """Bars with their names above them: beside them, names would be cut or leave a phone no room for bars."""
    says = f"A node of each option; the dashed line is what is asked: {plan['asked']:,g} {plan['asked_is']}."
    bars = "\n".join(_bars(plan))
    return (
        f"<section><h2>What each option holds</h2>\n<figure><figcaption><p>{escape(says)}</p></figcaption>\n"
        f"<dl>\n{bars}\n</dl></figure></section>"
    )


def _bars(plan: Mapping[str, Any]) -> Iterator[str]:
    widest = max([plan["asked"], *(row["holds"] or 0 for row in plan["options"])])
    asked = f'<span class="asked" style="left:{100 * plan["asked"] / widest:.2f}%"></span>'
    for row in plan["options"]:
        holds = row["holds"]
        state = {True: "enough", False: "not enough", None: "no verdict"}[row["enough"]]
        least = "at least " if row.get("holds_at_least") else ""
        said = "no verdict" if holds is None else f"{least}{holds:,g} {plan['asked_is']}, {state}"
        enough = " enough" if row["enough"] else ""
        bar = f'<span class="bar{enough}" style="width:{100 * (holds or 0) / widest:.2f}%"></span>'
        yield (
            f'<div class="option"><dt>{escape(row["name"])}: <strong>{escape(said)}</strong></dt>'
            f'<dd><div class="room">{bar}{asked}</div></dd></div>'
        )
