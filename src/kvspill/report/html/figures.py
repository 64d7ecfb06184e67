"""The figures of the page, in its order."""

from collections.abc import Callable, Iterator, Sequence

from kvspill.report.html.class_figure import classes
from kvspill.report.html.facts import Labelled
from kvspill.report.html.figure import Figure
from kvspill.report.html.heat import heat_maps
from kvspill.report.html.knee import knee_figures, search_figures
from kvspill.report.html.latencies import breakdown, latency_figures
from kvspill.report.html.layers import layer_figures
from kvspill.report.html.many_results import crowd_figures
from kvspill.report.html.more_figures import cache_figures, ranking, volumes
from kvspill.report.html.over_time import over_time_figures

LINES_MAX = 8
"""One colour each; more cannot be told apart."""


def figures(results: Sequence[Labelled]) -> list[Figure]:
    """All figures that these results have data for, in the order of the page."""
    if len(results) > LINES_MAX or (len(results) > 1 and any(item.row for item in results)):
        return crowd_figures(results)
    makers: tuple[Callable[[Sequence[Labelled]], Iterator[Figure]], ...] = (
        knee_figures,
        breakdown,
        classes,
        latency_figures,
        layer_figures,
        over_time_figures,
        heat_maps,
        volumes,
        cache_figures,
        search_figures,
        ranking,
    )
    return [found for make in makers for found in make(results)]
