"""Pages without scripts: the frame around them, with the style of the page of results."""

import re
from html import escape
from importlib.resources import files

_FLAG = re.compile(r"--[a-z][a-z0-9-]*")


def with_flags(text: str) -> str:
    """Text as HTML in which no flag is broken at its hyphens."""
    return _FLAG.sub(r'<span class="flag">\g<0></span>', escape(text))


def drawn_page(title: str, body: str, style: str = "", line: str = "") -> str:
    """A page that is complete in itself, with a line below its title.

    The body is HTML, the style is added to that of all pages.
    """
    below = f'<p class="sub">{escape(line)}</p>' if line else ""
    css = (files("kvspill.report.html") / "page.css").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{css}header {{ padding-bottom: 14px; }}{style}</style>
</head>
<body>
<header><h1>{escape(title.partition(":")[0])}</h1>{below}</header>
<main>
{body}
</main>
</body>
</html>
"""
