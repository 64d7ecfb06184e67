"""The list of all metrics, in the order in which they are reported, and what is shown where."""

from kvspill.result.metrics.cache import CACHE_METRICS
from kvspill.result.metrics.gpu import GPU_METRICS
from kvspill.result.metrics.latency import LATENCIES
from kvspill.result.metrics.metric import Figure, Place
from kvspill.result.metrics.requests import COUNTS, EFFICIENCY, THROUGHPUT
from kvspill.result.metrics.tiers import TIER_METRICS

METRICS = THROUGHPUT + COUNTS + LATENCIES + EFFICIENCY + TIER_METRICS + GPU_METRICS + CACHE_METRICS


def shown_at(place: Place) -> tuple[Figure, ...]:
    """The figures of a place in their order there."""
    found = [item for metric in METRICS for item in metric.shown(place)]
    return tuple(figure for _, figure in sorted(found, key=lambda item: item[0]))
