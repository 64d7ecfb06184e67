"""Writes docs/metrics.md from the metrics themselves: `python -m kvspill.report.docs > docs/metrics.md`."""

from collections.abc import Iterator, Sequence

from kvspill.result.catalog_cache import CACHE_METRICS
from kvspill.result.catalog_requests import COUNTS, EFFICIENCY, LATENCIES, THROUGHPUT
from kvspill.result.catalog_tiers import TIERS, VOLUMES
from kvspill.result.metrics import AXES, Metric

_HEAD = """\
# Metrics

This page is made from the code that computes the metrics. Each metric says how it is computed, when to
look at it, and when it misleads.

- Only what completes inside the measured window counts; warm-up, preparation and drain are outside.
- `_gb`, `_gbps` and `gib` all mean 2^30 bytes.
- `null` means *not measured*: the run had no such tier, or nothing happened there. It never means 0.
- A metric whose name has places stands for a family: `{tier}` is `gpu`, `cpu`, `storage` or `nvme`
  (another name of `storage`), `{verb}` is `read` or `write`, `{stat}` is `mean`, `p50`, `p90`, `p95`, `p99`,
  `p999`, `p9999` or `max`, `{component}` is empty, `_device`, `_host` or `_queue`, `{memory}` is `gpu` or
  `cpu`, `{size}` is `p50` or `p95`.
- Latencies of requests are objects with the same statistics. `mean` and `max` are exact; percentiles are
  the nearest rank (the smallest value that so many percent do not exceed), to three significant digits.
- Bold metrics are those by which trials are compared.

In the result, `metrics` has every value with its unit; `summary` and `summary.cache_stats` have them under
the names and in the shape that readers of `kv-cache.py` results expect.

| looking for | at these |
| --- | --- |
| the drive itself, no memory tier | `decode_bytes_read_gb`, `avg_throughput_tokens_per_sec`, bandwidths |
| the drive behind some DRAM | `storage_throughput_tokens_per_sec`, `storage_read_device_p95_ms` |
| what a user feels | `end_to_end_latency_ms`, `qos_metrics` |
| overload | `queue_wait_ms`, `honesty.offered_load` |
| whether the cache is large enough | `reuse_hit_rate`, `storage_evicted_entries` |
| what the software adds | `storage_read_host_p95_ms`, `other_ms`, `honesty.cpu_seconds_per_gib` |
"""

_SECTIONS: tuple[tuple[str, Sequence[Metric]], ...] = (
    ("Throughput", THROUGHPUT),
    ("Requests", COUNTS),
    ("Where a request's time goes", LATENCIES),
    ("Bandwidth and latency against I/O time", EFFICIENCY),
    ("Volumes", VOLUMES),
    ("Tiers", TIERS),
    ("Cache", CACHE_METRICS),
)


def metrics_page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD.rstrip()
    for title, metrics in _SECTIONS:
        yield f"\n## {title}\n"
        yield "| metric | unit | formula | look at it | it misleads |"
        yield "| --- | --- | --- | --- | --- |"
        for metric in metrics:
            name = f"**`{metric.name}`**" if metric.headline else f"`{metric.name}`"
            yield f"| {name} | {metric.unit} | {metric.formula} | {metric.use} | {metric.misleads} |"
    assert set(AXES) == {"tier", "memory", "verb", "component", "stat", "size"}, (
        "the page explains every place"
    )


if __name__ == "__main__":
    print(metrics_page(), end="")
