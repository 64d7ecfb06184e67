"""The list of all metrics, in the order in which they are reported."""

from kvspill.result.catalog_cache import CACHE_METRICS
from kvspill.result.catalog_requests import REQUEST_METRICS
from kvspill.result.catalog_tiers import TIER_METRICS

METRICS = REQUEST_METRICS + TIER_METRICS + CACHE_METRICS
