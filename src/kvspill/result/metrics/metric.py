"""What a metric is: one declarative object from which every table, page and document takes what it shows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import product
from typing import Any, Literal

from kvspill.measure.histograms import STATISTICS
from kvspill.result.measured import TIER_NAMES, Measured

Value = int | float | dict[str, float] | None
Better = Literal["higher", "lower", "neither"]

AXES: Mapping[str, tuple[str, ...]] = {
    "tier": tuple(TIER_NAMES),
    "memory": ("gpu", "cpu"),
    "verb": ("read", "write"),
    "component": ("", "_device", "_host", "_queue"),
    "stat": STATISTICS,
    "size": ("p50", "p95"),
}


class Area(StrEnum):
    """What figures speak of, and what warnings put in doubt."""

    LOAD = "load"
    LATENCY = "latency"
    STORAGE = "storage"
    CACHE = "cache"


class Place(StrEnum):
    """Where a metric can be shown."""

    COLUMN = "column"
    """Of result tables and comparisons."""
    HEADLINE = "headline"
    """Of the result page."""
    LATENCY = "latency"
    """The console's breakdown of a request's time."""
    TRIALS = "trials"
    """The console's table of trials."""


@dataclass(frozen=True, slots=True)
class View:
    """One place where a metric is shown, under which title and in which position."""

    place: Place
    order: int
    title: str
    name: str = ""
    """Which of a family; empty where the metric is only one."""
    stat: str = ""
    """Which of its statistics, where it has several."""
    digits: int = 2


def column(order: int, title: str, name: str = "", *, stat: str = "", digits: int = 2) -> View:
    return View(Place.COLUMN, order, title, name, stat, digits)


def headline(order: int, title: str, name: str = "", *, stat: str = "", digits: int = 2) -> View:
    return View(Place.HEADLINE, order, title, name, stat, digits)


def trials(order: int, name: str = "") -> View:
    return View(Place.TRIALS, order, "", name)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a metric as it is shown somewhere."""

    metric: "Metric"
    name: str
    """The metric's own name, or that of one of its family."""
    stat: str
    title: str
    digits: int

    @property
    def key(self) -> str:
        """The name by which comparisons know it."""
        return f"{self.name}.{self.stat}" if self.stat else self.name

    @property
    def shown_title(self) -> str:
        """The title for people: GB in the titles of the summaries means 2^30 bytes (S6), CPU its memory."""
        return self.title.replace("(GB)", "(GiB)").replace("CPU", "DRAM")

    @property
    def unit(self) -> str:
        return self.metric.unit

    @property
    def better(self) -> Better:
        return self.metric.better


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, or a family of them where the name has places such as {tier}."""

    name: str
    unit: str
    formula: str
    use: str
    """When to look at it."""
    misleads: str
    """When not to trust it."""
    function: Callable[..., Value]
    """Called with Measured and one keyword per place in the name."""
    block: str = "summary"
    """Where it stands in the old shape: summary or cache_stats."""
    headline: bool = False
    """True where trials are compared by it."""
    better: Better = "neither"
    about: tuple[Area, ...] = ()
    """What it speaks of: a warning that touches one of these puts it in doubt."""
    views: tuple[View, ...] = ()
    """Where it is shown, beside the list of all metrics."""

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(axis for axis in AXES if f"{{{axis}}}" in self.name)

    def expand(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Each concrete name with its places filled in."""
        for values in product(*(AXES[axis] for axis in self.axes)):
            places = dict(zip(self.axes, values, strict=True))
            yield self.name.format(**places), places

    def shown(self, place: Place) -> Iterator[tuple[int, Figure]]:
        """Its figures at that place, each with its position there."""
        for view in self.views:
            if view.place is place:
                yield view.order, Figure(self, view.name or self.name, view.stat, view.title, view.digits)

    def evaluate(self, measured: Measured) -> dict[str, Value]:
        return {name: self.function(measured, **places) for name, places in self.expand()}


cache_stat = partial(Metric, block="cache_stats")
"""A metric of the block `cache_stats`."""


def evaluate(metrics: tuple[Metric, ...], measured: Measured) -> dict[str, dict[str, Any]]:
    """Every metric's value and unit, by name."""
    return {
        name: {"value": value, "unit": metric.unit, "block": metric.block}
        for metric in metrics
        for name, value in metric.evaluate(measured).items()
    }
