"""Writes pages from the objects themselves: `python -m kvspill.report.docs metrics > docs/metrics.md`."""

import re
import sys
from collections.abc import Iterator, Sequence

from kvspill.result.metrics.cache import CACHE_METRICS
from kvspill.result.metrics.gpu import GPU_METRICS
from kvspill.result.metrics.latency import LATENCIES
from kvspill.result.metrics.metric import AXES, Metric
from kvspill.result.metrics.requests import COUNTS, EFFICIENCY, THROUGHPUT
from kvspill.result.metrics.tiers import TIERS, VOLUMES
from kvspill.result.warnings.kind import EVERYTHING, Severity, Spoils
from kvspill.result.warnings.known import GRAVE, KINDS

_HEAD = """\
# Metrics

This page is generated from the code that computes the metrics. Each metric says how it is computed, when to
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
- Service classes (`qos_metrics`) are judged by the latency that queue and storage add: end-to-end without
  the generation of the request and of the turn that it waited for. End-to-end is shown beside it. The
  target is the class's own p95, or `--slo-target-ms` for every class (`sla.target_p95_ms` says which). No
  verdict below 50 requests, or if the offered load exceeds what a device without delay could serve.
- Bold metrics are those by which trials are compared. Their p95 over trials is interpolated between the two
  trials next to it: of a few trials none has that rank.

In the result, `metrics` has every value with its unit; `summary` and `summary.cache_stats` have them under
the names and in the shape that readers of `kv-cache.py` results expect; what was not measured is absent from
`summary.cache_stats`. [result.schema.json](result.schema.json) describes the whole file.

| looking for | at these |
| --- | --- |
| the drive itself, no memory tier | `decode_bytes_read_gb`, `avg_throughput_tokens_per_sec`, bandwidths |
| the drive behind some DRAM | `storage_throughput_tokens_per_sec`, `storage_read_device_p95_ms` |
| what a user feels | `end_to_end_latency_ms`, `ttft_ms`, `tpot_ms` |
| what the drive and the queue add to that | `added_latency_ms`, `qos_metrics` |
| overload | `queue_wait_ms`, `honesty.offered_load` |
| whether the cache is large enough | `reuse_hit_rate`, `storage_evicted_entries` |
| what the software adds | `storage_read_host_p95_ms`, `other_ms`, `honesty.cpu_seconds_per_gib` |
"""

_WARNINGS_HEAD = """\
# Warnings

This page is generated from the code that raises the warnings. In a result each has its code, a message with
the figures (here in braces), a remedy, its severity and what it touches. Terminal and page show the message,
or its few words under "in short", and never the code. A code that is not listed comes from an external
backend and is of the last kind. Warnings about what the command itself chose, such as the 30 s of
`quick` or the windows of a search for `can`, are marked (`chosen`) and not shown one by one: summary and
page say once what so short a run cannot show.

The short summary gives a note by its first clause and leaves its remedy to `--verbose`. `kvspill doctor`
looks at the machine, not at a result, and has words of its own: a *problem* prevents a run, a *warning*
may limit or distort its figures, and a *note* names something optional that is absent. What a run finds of
that in its figures is among the warnings below.
"""
_SEVERITIES = {
    Severity.INVALID: "Something failed, or the run ended early: the figures are not valid. "
    "Operations, requests and I/O that failed or hung make a result `faulty`: the first line says so, "
    "no criterion is passed, and `compare`, the suite's advice and a submission refuse it by name.",
    Severity.SERIOUS: "The figures do not describe the devices under this load. A page shows these "
    "above its figures.",
    Severity.NOTE: "The figures are valid; this information belongs with them.",
}
_PLACE = re.compile(r"\{(\w+)[^}]*\}")
"""A place for a figure: how it is written is of no interest to a reader."""
_USES = {
    Spoils.RANK: "a rank",
    Spoils.COMPARISON: "a comparison",
    Spoils.SUBMISSION: "a submission",
    Spoils.ADVICE: "advice",
    Spoils.CERTAINTY: "more than provisional advice",
}

_SECTIONS: tuple[tuple[str, Sequence[Metric]], ...] = (
    ("Throughput", THROUGHPUT),
    ("Requests", COUNTS),
    ("Where a request's time goes", LATENCIES),
    ("Bandwidth and latency against I/O time", EFFICIENCY),
    ("Volumes", VOLUMES),
    ("Tiers", TIERS),
    ("A real GPU", GPU_METRICS),
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


def warnings_page() -> str:
    """The page of warnings."""
    return "\n".join(_warning_lines()) + "\n"


def _warning_lines() -> Iterator[str]:
    yield _WARNINGS_HEAD.rstrip()
    for severity in Severity:
        yield f"\n## {GRAVE[severity]}\n\nIn a result: `{severity}`. {_SEVERITIES[severity]}\n"
        yield "| code | in short | says | do | puts in doubt | not to be used for |"
        yield "| --- | --- | --- | --- | --- | --- |"
        for kind in (item for item in KINDS.values() if item.severity is severity):
            touches = "every figure" if kind.touches == EVERYTHING else ", ".join(kind.touches) or "no figure"
            uses = ", ".join(_USES[use] for use in kind.spoils)
            words = (_PLACE.sub(r"{\1}", text) for text in (kind.message, kind.remedy))
            yield f"| `{kind.code}` | {kind.title} | {' | '.join(words)} | {touches} | {uses} |"


PAGES = {"metrics": metrics_page, "warnings": warnings_page}


if __name__ == "__main__":
    print(PAGES[sys.argv[1]](), end="")
