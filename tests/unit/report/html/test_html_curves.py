"""Curves on the page: colours, axes and fields."""

import re
from importlib.resources import files
from typing import Any

import pytest

from kvspill.records import GIB
from kvspill.report.html.curves import DrawnCurve, curve_sections
from kvspill.report.html.figure import Figure
from unit.report.html.test_contrast import contrast


def points(*gib: float) -> list[dict[str, float]]:
    return [{"capacity_bytes": size * GIB, "tokens": 0.01 * place} for place, size in enumerate(gib)]


def drawn(
    policies: tuple[str, ...], sizes: tuple[float, ...] = (11.0, 500.0, 11_424.0), **changes: Any
) -> list[Figure]:
    tiers = {
        "dram_bytes": [round(size * GIB) for size in sizes],
        "storage_bytes": [place * GIB for place in range(1, 31)],
        "found_in_dram": [0.1] * len(sizes),
        "found_in_storage": [[0.2] * 30] * len(sizes),
    }
    curve: dict[str, Any] = {
        "load": "load",
        "model": "model",
        "lru": points(*sizes),
        "policies": {name: points(*sizes) for name in policies},
        "bend": {"capacity_bytes": sizes[0] * GIB, "tokens": 0.3},
        "next_tib": [{"capacity_bytes": size * GIB, "prefill_seconds_saved": 5.0} for size in (0, *sizes)],
        "two_tiers": tiers,
        "ceiling": {"tokens": 0.4},
        "sampling": None,
        **changes,
    }
    (section,) = curve_sections([DrawnCurve("curve", curve, ["words"], [["CAPACITY"], ["1 GiB"]])])
    return list(section.figures)


def test_a_policy_keeps_its_colour_whichever_others_are_asked_for() -> None:
    for policies in (("fifo", "lfu", "s3-fifo", "optimum"), ("optimum",), ("s3-fifo", "mine", "optimum")):
        colour = drawn(policies)[0].spec["layer"][0]["encoding"]["color"]
        by_name = dict(zip(colour["scale"]["domain"], colour["scale"]["range"], strict=True))
        assert by_name["optimum"] == "var(--series-5)"
        assert colour["legend"]["values"] == ["LRU", *policies]


def test_the_first_tib_has_no_place_on_the_axis_and_is_said() -> None:
    (worth,) = (figure for figure in drawn(()) if figure.id.startswith("curve-worth"))
    assert [point["gib"] for point in worth.spec["data"]["values"]] == [11.0, 500.0, 11_424.0]
    assert worth.says.endswith("The first TiB of all, left of the axis, saves 5 s.")


@pytest.mark.parametrize(
    ("sizes", "ticks"),
    [
        ((11.0, 500.0, 11_424.0), [30, 100, 300, 1000, 3000, 10_000]),
        ((0.5, 4.0), [0.5, 1, 2]),
        ((7.0,), [7]),
    ],
)
def test_the_axis_of_capacities_ends_where_the_data_do(sizes: tuple[float, ...], ticks: list[float]) -> None:
    x = drawn((), sizes)[0].spec["layer"][0]["encoding"]["x"]
    assert x["scale"]["domain"] == [sizes[0], max(sizes[-1], 1.01 * sizes[0])]
    assert x["axis"]["values"] == pytest.approx(ticks)
    assert x["title"] == "capacity, GiB (log)"


def test_the_map_has_few_sizes_of_storage_and_the_largest_among_them() -> None:
    figure = drawn(())[1]
    assert len(figure.header) <= 10
    assert (figure.header[1], figure.header[-1]) == ("none", "30")
    assert [row[1:3] for row in figure.rows] == [["10.0", "30.0"]] * 3


def test_the_caption_claims_no_more_than_the_curve_holds() -> None:
    assert drawn(())[0].says.startswith("LRU is exact at every capacity")
    sampled = drawn((), sampling={"lru_share": 0.1}, bend=None)[0]
    assert sampled.says == "All of a sample, whose error stands above."
    assert "layer" not in sampled.spec
    assert "are of a sample" in drawn((), sampling={"lru_share": 1.0})[0].says


@pytest.mark.parametrize("theme", [0, 1])
def test_figures_are_readable_on_every_field_of_the_map(theme: int) -> None:
    css = (files("kvspill.report.html") / "page.css").read_text()
    blocks = [block for block in re.findall(r"\{([^{}]*)\}", css) if "--page:" in block]
    colours = dict(re.findall(r"--([\w-]+):\s*#([0-9a-f]{6})", blocks[theme]))
    ink, ground, fill = (bytes.fromhex(colours[name]) for name in ("ink", "panel", "series-1"))
    fields = drawn(())[1].spec["layer"][0]
    assert fields["mark"]["fill"] == "var(--series-1)"
    opacity = fields["encoding"]["fillOpacity"]["scale"]["range"][1]
    field = bytes(
        round(opacity * over + (1 - opacity) * under) for over, under in zip(fill, ground, strict=True)
    )
    assert contrast(f"#{ink.hex()}", f"#{field.hex()}") >= 4.5
