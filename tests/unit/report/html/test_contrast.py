"""The colours of the page can be told apart in light, dark and print."""

import re

import pytest


def luminance(colour: str) -> float:
    def linear(part: str) -> float:
        value = int(part, 16) / 255
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(colour[n : n + 2]) for n in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1, 2])
def test_text_and_lines_have_enough_contrast_in_either_theme(theme: int) -> None:
    from importlib.resources import files

    css = (files("kvspill.report.html") / "page.css").read_text()
    blocks = [block for block in re.findall(r"\{([^{}]*)\}", css) if "--page:" in block]
    colours = dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", blocks[theme]))
    for text in ("ink", "ink-soft", "accent"):
        for ground in ("panel", "page"):
            assert contrast(colours[text], colours[ground]) >= 4.5
    assert contrast(colours["warn-ink"], colours["warn-bg"]) >= 4.5
    for number in range(1, 9):
        assert contrast(colours[f"series-{number}"], colours["panel"]) >= 3
