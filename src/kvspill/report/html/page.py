"""Puts the page together: template, styles, plots and the plotting library in one file."""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from kvspill import __version__
from kvspill.errors import UsageError
from kvspill.machine.limits import check_drawing_limits
from kvspill.report.html.doubts import folds, plain_notes
from kvspill.report.html.drawings import with_flags
from kvspill.report.html.facts import Labelled
from kvspill.report.html.figure import Figure, Section
from kvspill.report.html.figures import figures
from kvspill.report.html.headline import banners, doubts_of_all, headline_rows
from kvspill.report.html.knee import KNEE, unlike_durations
from kvspill.report.html.prose import (
    checks,
    config_rows,
    metric_rows,
    page_title,
    setup_rows,
    stage_label,
    subtitle,
)
from kvspill.report.html.specs import CONFIG, Spec
from kvspill.report.html.verdicts import verdict_of
from kvspill.result.reading import refusing_damage
from kvspill.result.warnings.known import kind_of
from kvspill.texts import listed, plain

_BANNERS_MAX = 3
_COLUMNS_MAX = 4
"""More results than this have a row each, not a column."""


@dataclass(frozen=True, slots=True)
class Remarks:
    """Sentences that stand above the figures, such as the advice of a suite."""

    title: str
    lines: Sequence[str]
    simulated: bool = False


def check_drawing() -> None:
    """Refuse a page, before anything is done for it, where what draws it is missing or has no room."""
    for module, package in (("jinja2", "Jinja2"), ("vl_convert", "vl-convert-python")):
        if find_spec(module) is None:
            raise _missing(package)
    check_drawing_limits()


def page_of(
    results: Sequence[Labelled],
    title: str | None = None,
    remarks: Sequence[Remarks] = (),
    more: Sequence[Section] = (),
) -> str:
    """The whole page for results that have their names, as text; sections that need no result come last."""
    if not results and not more:
        raise UsageError("a page needs a result; give one")
    names = [item.label for item in results] or [section.name for section in more]
    with refusing_damage(listed(names[:_COLUMNS_MAX])):
        heading = title or (page_title(results) if results else more[0].figures[0].title)
        return _build(results, heading, remarks, more)


def _build(
    results: Sequence[Labelled], title: str, remarks: Sequence[Remarks], more: Sequence[Section]
) -> str:
    unlike = unlike_durations(results)
    untold = [Section(KNEE, "section-knee", [], [unlike])] if unlike else []
    sections = [*_sections(figures(results)), *untold, *more]
    drawn = [figure for section in sections for figure in section.figures]
    scripts = {"library_js": _library(), "page_js": _asset("page.js")}
    said = banners(results)
    context = {
        "title": title,
        "subtitle": subtitle(results),
        "many": len(results) > 1,
        "crowd": len(results) > _COLUMNS_MAX,
        "answered": len(results) == 1 and results[0].result.question is not None,
        "banners": said[:_BANNERS_MAX],
        "banners_left": len(said[_BANNERS_MAX:]),
        "remarks": remarks,
        "remarks_title": _remarks_title(remarks),
        "headlines": headline_rows(results),
        "results": [_shown(item) for item in results],
        "folds": folds(results, {(item.code, item.message) for item in said[:_BANNERS_MAX]}),
        "plain_notes": plain_notes(results),
        "shared": _shared(results),
        "checked": any(item.result.schema_version for item in results),
        "figure_sections": sections,
        "sections": [
            *((("Advice", "remarks"),) if remarks else ()),
            *((("Verdict", "headline"), ("Trust", "doubts")) if results else ()),
            *((section.name, section.anchor) for section in sections),
            *((("Set-up", "setup"),) if results else ()),
        ],
        "version": __version__,
        "footer": "This file is complete in itself: it loads nothing and sends nothing.",
        "script_hashes": " ".join(f"'sha256-{_sha256(text)}'" for text in scripts.values()),
    }
    page: str = _template().render(**context, **_trusted(scripts, drawn))
    return page


def _trusted(scripts: Mapping[str, str], drawn: Sequence[Figure]) -> dict[str, Any]:
    """What goes into the page unescaped: our own files, and JSON that can't end its element."""
    from markupsafe import Markup

    text = json.dumps(
        {figure.id: _compiled(_harmless(_described(figure))) for figure in drawn},
        allow_nan=False,
        separators=(",", ":"),
    )
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return {
        "css": Markup(_asset("page.css")),
        "specs_json": Markup(text),
        **{name: Markup(script) for name, script in scripts.items()},
    }


def _harmless(value: Any) -> Any:
    """Names from results as the page may show them: as they are read, not as they turn the writing round."""
    if isinstance(value, dict):
        return {_harmless(key): _harmless(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_harmless(inner) for inner in value]
    # Text that is trusted already (of markupsafe) is a kind of str of its own.
    return plain(value) if type(value) is str else value


def _template() -> Any:
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise _missing("Jinja2") from None
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_harmless
    )
    environment.filters["flags"] = lambda text: Markup(with_flags(plain(text)))
    environment.filters["title_of"] = lambda code: kind_of(code).title
    environment.filters["heading_of"] = lambda code: _heading(kind_of(code).title)
    return environment.from_string(_asset("page.html.j2"))


def _heading(title: str) -> str:
    """With a capital, but for names of programs, which are written small."""
    return title if title.startswith(("kvspill", "cuFile")) else f"{title[:1].upper()}{title[1:]}"


def _asset(name: str) -> str:
    return (files("kvspill.report.html") / name).read_text(encoding="utf-8")


def _compiled(spec: Spec) -> Any:
    """Vega-Lite as Vega: what is worked out here need not be worked out each time the page opens."""
    try:
        import vl_convert
    except ImportError:
        raise _missing("vl-convert-python") from None
    check_drawing_limits()
    return vl_convert.vegalite_to_vega({**spec, "config": CONFIG})


def _described(figure: Figure) -> Spec:
    """What a screen reader says of the plot: the library would call every one of them a visualization."""
    return {**figure.spec, "description": figure.description}


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    try:
        import vl_convert
    except ImportError:
        raise _missing("vl-convert-python") from None
    check_drawing_limits()
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")


def _missing(package: str) -> UsageError:
    return UsageError(f"the page needs {package}, not installed here: `pip install 'kvspill[report]'`")


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _sections(drawn: Sequence[Figure]) -> Iterator[Section]:
    for number, name in enumerate(dict.fromkeys(figure.section for figure in drawn)):
        yield Section(name, f"section-{number}", [figure for figure in drawn if figure.section == name])


def _remarks_title(remarks: Sequence[Remarks]) -> str:
    """What the advice is of; suites that ran for real beside simulated ones share no machine."""
    of = {"the modelled devices" if part.simulated else "this machine" for part in remarks}
    return f"What this means for {of.pop()}" if len(of) == 1 else "What this means"


def _shared(results: Sequence[Labelled]) -> list[str]:
    """Doubts that touch every figure of every result: said once, and not in each row."""
    codes = [doubts_of_all(item.result) for item in results]
    return [code for code in (codes[0] if codes else ()) if all(code in others for others in codes)]


def _shown(item: Labelled) -> dict[str, Any]:
    result = item.result
    return {
        "label": item.label,
        "verdict": verdict_of(result, of_suite=bool(item.row)),
        "doubts": doubts_of_all(result),
        "figures_of": stage_label(result),
        "honesty": list(checks(result)) if result.schema_version else [],
        "setup": list(setup_rows(result)),
        "config": list(config_rows(result)),
        "metrics": list(metric_rows(result)),
    }
