"""The page of a validation: the table as the console shows it, with its rows marked by verdict."""

from collections.abc import Mapping
from html import escape
from typing import Any

from kvspill.report.html.drawings import drawn_page

_STYLE = """
body { max-width: 75rem; }
.bad td { color: #a00; font-weight: bold; } .named td { color: #850; }"""
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
    verdict = "The preset passed" if found["passed"] else "The preset FAILED"
    counts = f"{found['requests']} requests, {found['rounds']} timed rounds"
    body = f"""<p>{verdict}. {escape(str(found["date"]))}, {counts}.</p>
<table>
<tr><th></th><th>engine</th><th>kvspill</th><th>verdict</th><th></th></tr>
{rows}
</table>
<h2>As text</h2>
<pre>{escape(text)}</pre>"""
    return drawn_page(title, body, _STYLE)
