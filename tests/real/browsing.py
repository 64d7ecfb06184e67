"""A real browser with a page in it, and what is asked of its drawings."""

import shutil
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

EMPTY_PLOTS = """() => [...document.querySelectorAll('.plot')].filter(plot => {
  const svg = plot.querySelector('svg');
  const marks = plot.querySelectorAll('.mark-line path, .mark-rect path');
  return !svg || svg.getBoundingClientRect().width < 200 || ![...marks].some(m => m.getAttribute('d'));
}).map(plot => plot.dataset.figure)"""

OVERLAPPING_LABELS = """() => [...document.querySelectorAll('.plot')].flatMap(plot =>
  [...plot.querySelectorAll('.role-axis-label')].flatMap(axis => {
    const boxes = [...axis.querySelectorAll('text')].filter(text => text.getAttribute('opacity') !== '0')
      .map(text => text.getBoundingClientRect()).filter(box => box.width > 0);
    const across = (a, b) => a.left < b.right && b.left < a.right;
    const meet = (a, b) => across(a, b) && a.top + 2 < b.bottom && b.top + 2 < a.bottom;
    return boxes.some((a, n) => boxes.slice(n + 1).some(b => meet(a, b))) ? [plot.dataset.figure] : [];
  }))"""


class Visit:
    """One view of a page, with everything that the browser complained about or asked for."""

    def __init__(self, browser: Any, path: Path, width: int, scheme: str) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.tab = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.tab.on("console", lambda message: self.complaints.append(message.text))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.goto(path.as_uri())
        self.tab.wait_for_selector("html[data-drawn]", state="attached", timeout=60_000)

    def __enter__(self) -> "Visit":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def value(self, script: str) -> Any:
        return self.tab.evaluate(script)
