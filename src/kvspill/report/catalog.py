"""The list of all metrics, in the order in which they are reported."""

from kvspill.report.catalog_cache import CACHE_METRICS
from kvspill.report.catalog_requests import REQUEST_METRICS
from kvspill.report.catalog_tiers import TIER_METRICS

METRICS = REQUEST_METRICS + TIER_METRICS + CACHE_METRICS
