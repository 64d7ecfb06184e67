"""The page of a validation: the table as the console shows it, with its rows marked by verdict."""

from collections.abc import Mapping
from html import escape
from typing import Any

_CLASSES = {"DIFFERS": "bad", "named difference": "named"}


def page_of(found: Mapping[str, Any], text: str) -> str:
    """A page that is complete in itself; `text` is what the console shows."""
    title = f"Preset {found['engine']} held against {found['preset']['engine']} {found['engine_version']}"
    rows = "\n".join(
        f'<tr class="{_CLASSES.get(row["verdict"], "good")}">'
        + "".join(
            f"<td>{escape(str(row[name]))}</td>" for name in ("name", "engine", "ours", "verdict", "note")
        )
        + "</tr>"
        for row in found["rows"]
    )
    verdict = "The preset passed" if found["passed"] else "The preset FAILED"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>body {{ font-family: system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }}
td, th {{ text-align: left; padding: .2rem .8rem .2rem 0; vertical-align: top; }}
.bad td {{ color: #a00; font-weight: bold; }} .named td {{ color: #850; }} pre {{ overflow-x: auto; }}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<p>{verdict}. {escape(str(found["date"]))}, {found["requests"]} requests, {found["rounds"]} timed rounds.</p>
<table>
<tr><th></th><th>engine</th><th>kvspill</th><th>verdict</th><th></th></tr>
{rows}
</table>
<h2>As text</h2>
<pre>{escape(text)}</pre>
</body>
</html>
"""
