"""Pages without scripts: the frame around them, with the style of the page of results."""

from html import escape
from importlib.resources import files


def drawn_page(title: str, body: str, style: str = "") -> str:
    """A page that is complete in itself; the body is HTML, the style is added to that of all pages."""
    css = (files("kvspill.report.html") / "page.css").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{css}{style}</style>
</head>
<body>
<header><h1>{escape(title.partition(":")[0])}</h1></header>
<main>
{body}
</main>
</body>
</html>
"""
