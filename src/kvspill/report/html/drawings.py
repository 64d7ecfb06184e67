"""Pages of drawings without scripts: the frame around them, and pictures as SVG."""

from html import escape

from kvspill.errors import UsageError
from kvspill.machine.limits import check_drawing_limits
from kvspill.report.html.specs import Spec


def drawn_page(title: str, body: str, style: str = "") -> str:
    """A page that is complete in itself; the body is HTML, the style is added to that of all pages."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>body {{ font-family: system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
figure {{ margin: 2rem 0; overflow-x: auto; }} pre, .scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .85rem; }}
th, td {{ text-align: left; vertical-align: top; padding: .25rem .6rem .25rem 0; }}{style}</style>
</head>
<body>
<h1>{escape(title.partition(":")[0])}</h1>
{body}
</body>
</html>
"""


def svg(spec: Spec) -> str:
    """A picture."""
    try:
        import vl_convert
    except ImportError:
        raise UsageError(
            "--page: the picture needs vl-convert-python, not installed here: `pip install 'kvspill[report]'`"
        ) from None
    check_drawing_limits()
    drawing: str = vl_convert.vegalite_to_svg(spec)
    return drawing
