"""The page of a validation: the table as the console shows it, with its rows marked by verdict."""

from collections.abc import Mapping
from html import escape
from typing import Any

from kvspill.report.html.drawings import drawn_page

_STYLE = """
.bad td { color: var(--bad); font-weight: bold; } .named td { color: var(--warn-ink); }"""
_ANSWERS = {True: ("met", "The preset passed"), False: ("missed", "The preset FAILED")}
_CLASSES = {"DIFFERS": "bad", "named difference": "named"}


def page_of(found: Mapping[str, Any], text: str) -> str:
    """A page that is complete in itself; `text` is what the console shows."""
    title = f"Preset {found['engine']} compared with {found['preset']['engine']} {found['engine_version']}"
    rows = "\n".join(
        f'<tr class="{_CLASSES.get(row["verdict"], "good")}">'
        + "".join(
            f"<td>{escape(str(row[name]))}</td>" for name in ("name", "engine", "ours", "verdict", "note")
        )
        + "</tr>"
        for row in found["rows"]
    )
    state, verdict = _ANSWERS[bool(found["passed"])]
    counts = f"{found['requests']} requests, {found['rounds']} timed rounds"
    body = f"""<section>
<div class="answer {state}"><p class="status">{verdict}.</p>
<p>{escape(str(found["date"]))}, {counts}.</p></div>
<div class="scroll" tabindex="0" role="region" aria-label="Engine and preset"><table>
<thead><tr><th></th><th>engine</th><th>kvspill</th><th>verdict</th><th></th></tr></thead>
<tbody>{rows}</tbody>
</table></div>
</section>
<section>
<h2>As text</h2>
<pre class="scroll">{escape(text)}</pre>
</section>"""
    return drawn_page(title, body, _STYLE)
