"""Where metrics are shown: every table and page takes its list from the metric's own object."""

import dataclasses
import re

import pytest

from kvspill.report import columns, docs
from kvspill.result.metrics import catalog
from kvspill.result.metrics.catalog import METRICS, shown_at
from kvspill.result.metrics.metric import Area, Metric, Place, column, headline


@pytest.mark.parametrize("place", list(Place))
def test_every_position_of_a_place_is_taken_once(place: Place) -> None:
    taken = [order for metric in METRICS for order, _ in metric.shown(place)]
    assert sorted(taken) == list(range(1, len(taken) + 1))


def test_what_is_shown_exists() -> None:
    names = {name for metric in METRICS for name, _ in metric.expand()}
    for place in Place:
        assert {figure.name for figure in shown_at(place)} <= names


def test_a_tiers_latency_in_a_table_has_its_entries_sizes_in_it_too_s15() -> None:
    shown = {figure.name for figure in shown_at(Place.COLUMN)}
    of_tiers = re.compile(r"(gpu|cpu|nvme|storage)_(read|write)(_device|_host|_queue)?_p95_ms")
    latencies = [found for name in shown if (found := of_tiers.fullmatch(name))]
    assert len(latencies) == 6
    for found in latencies:
        tier, verb = found[1], found[2]
        assert {f"{tier}_{verb}_entry_{size}_bytes" for size in ("p50", "p95")} <= shown, found[0]


def test_what_is_judged_says_which_way_is_better_and_what_it_speaks_of() -> None:
    for figure in shown_at(Place.HEADLINE):
        assert figure.metric.about, figure.name
        assert figure.metric.better != "neither", figure.name


def test_a_new_metric_is_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    new = Metric(
        "a_new_figure",
        "GiB/s",
        "a formula",
        "A use.",
        "A pitfall.",
        lambda _measured: 1.0,
        better="higher",
        about=(Area.STORAGE,),
        views=(column(99, "A New Figure (GiB/s)"), headline(99, "A new figure")),
    )
    monkeypatch.setattr(catalog, "METRICS", (*METRICS, new))
    monkeypatch.setattr(docs, "_SECTIONS", (*docs._SECTIONS, ("New", (new,))))
    (figure,) = (item for item in shown_at(Place.COLUMN) if item.name == "a_new_figure")
    assert (figure.title, figure.metric.better, figure.key) == (
        "A New Figure (GiB/s)",
        "higher",
        "a_new_figure",
    )
    assert shown_at(Place.HEADLINE)[-1].title == "A new figure"
    assert "| `a_new_figure` | GiB/s | a formula | A use. | A pitfall. |" in docs.metrics_page()


def test_columns_are_those_of_the_catalogue() -> None:
    assert [item.title for item in columns.COLUMNS] == [figure.title for figure in shown_at(Place.COLUMN)]
    assert all(dataclasses.is_dataclass(item) for item in columns.COLUMNS)
