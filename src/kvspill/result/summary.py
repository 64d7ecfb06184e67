"""The `summary` block: the names and the shape that readers of kv-cache.py results expect."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvspill.measure.histograms import Histogram, merged
from kvspill.measure.priorities import MIN_COMPLETIONS, priority_inversions
from kvspill.records import NS_PER_MS, HitType, Outcome, Purpose, QoS, Verb
from kvspill.result.classes import LATE_SHARE
from kvspill.result.measured import Measured, ratio
from kvspill.result.schema import QosClass, Sla, StorageHealth, Summary

_SUMMED = ("avg_throughput_tokens_per_sec", "storage_throughput_tokens_per_sec")
"""Figures of the summary itself that the MLPerf harness adds up over ranks."""


def summary_block(
    measured: Measured,
    metrics: Mapping[str, Mapping[str, Any]],
    health: StorageHealth,
    autoscaling: Sequence[Mapping[str, Any]],
    offered_load: float | None,
) -> Summary:
    """Metrics by their block, with the sections that have a shape of their own.

    Readers take maxima and sums over cache_stats and the throughputs: what was not measured is not there
    (S14).
    """
    in_summary = {
        name: item["value"]
        for name, item in metrics.items()
        if item["block"] == "summary" and (item["value"] is not None or name not in _SUMMED)
    }
    in_cache = {
        name: item["value"]
        for name, item in metrics.items()
        if item["block"] == "cache_stats" and item["value"] is not None
    }
    return Summary(
        **in_summary,
        storage_health=health,
        cache_stats={**in_cache, "storage_health": health.model_dump(mode="json")},
        qos_metrics={qos.name.lower(): _qos(measured, qos, offered_load) for qos in QoS},
        priority_inversions=_inversions(measured),
        prefix_cache_stats=_prefixes(measured),
        autoscaling_stats=[dict(step) for step in autoscaling],
        autoscaling_summary=dict(autoscaling[-1]) if autoscaling else None,
        peak_throughput=autoscaling[-1].get("peak_throughput") if autoscaling else None,
        multi_turn_stats=multi_turn(measured),
        seed=measured.settings.seed,
    )


def _qos(measured: Measured, qos: QoS, offered_load: float | None) -> QosClass:
    requests = measured.recorder.requests
    histogram = requests.by_qos[qos]
    latency = measured.statistics_ms(histogram)
    unfinished_ns = _unfinished_ns(measured, qos, measured.facts.unfinished_ages_ns)
    # Judged without the generation of the turn before, as those that completed (S11).
    facts = measured.facts
    added_ns = _unfinished_ns(measured, qos, facts.unfinished_added_ns or facts.unfinished_ages_ns)
    target_ns = measured.settings.qos.of(qos).p95_ms * NS_PER_MS
    waiting = None if added_ns is None else int((added_ns > target_ns).sum())
    return QosClass(
        no_data=latency is None,
        total_requests=histogram.count,
        failed_requests=requests.failed_by_qos[qos],
        unfinished_requests=None if unfinished_ns is None else len(unfinished_ns),
        waiting_requests=waiting,
        latency_ms=latency,
        added_ms=measured.statistics_ms(requests.added_by_qos[qos]),
        # Requests that still wait count with their wait so far, as in the queue_wait_ms of all.
        queue_wait_ms=_waits(measured, qos).statistics_ms(),
        queue_wait_completed_ms=measured.statistics_ms(requests.queue_by_qos[qos]),
        sla=_sla(measured, qos, latency or {}, waiting or 0, offered_load),
    )


def _waits(measured: Measured, qos: QoS) -> Histogram:
    unfinished = Histogram()
    unfinished_ns = _unfinished_ns(measured, qos, measured.facts.unfinished_ages_ns)
    if unfinished_ns is not None:
        unfinished.record_array(unfinished_ns)
    return merged((measured.recorder.requests.queue_by_qos[qos], unfinished))


def _inversions(measured: Measured) -> list[str]:
    """Of mean waits; requests that still wait count, too."""
    waits = {qos: _waits(measured, qos) for qos in QoS}
    return priority_inversions(
        {
            qos: (wait.mean_ns or 0.0) / NS_PER_MS
            for qos, wait in waits.items()
            if wait.count >= MIN_COMPLETIONS
        }
    )


def _sla(
    measured: Measured,
    qos: QoS,
    latency: Mapping[str, float],
    waiting: int,
    offered_load: float | None,
) -> Sla | None:
    """The class's p95 target against what queue and storage added (S11).

    A failed request never met its target, and an unfinished one to whose wait so far queue and storage
    added more than the target never will: both are late, and any failure breaks the promise (S13). So a
    class of which nothing completed is judged, too; None where nothing is known of its requests.
    """
    requests = measured.recorder.requests
    histogram = requests.added_by_qos[qos]
    added = measured.statistics_ms(histogram) or {}
    target = measured.settings.qos.of(qos)
    failed = requests.failed_by_qos[qos]
    total = histogram.count + failed + waiting
    if not total:
        return None
    violations = histogram.count_above(int(target.p95_ms * NS_PER_MS)) + failed + waiting
    met = violations <= LATE_SHARE * total and not failed
    # An overload's latencies are the queue's own, whatever the device; where no request of any class ended,
    # nobody knows what the servers could have done without storage.
    overload = offered_load is not None and measured.is_overload(offered_load)
    judged = total >= MIN_COMPLETIONS and bool(requests.completed) and not overload
    return Sla(
        target_p95_ms=target.p95_ms,
        actual_p95_ms=latency.get("p95"),
        added_p95_ms=added.get("p95"),
        target_p99_ms=target.p99_ms,
        actual_p99_ms=latency.get("p99"),
        added_p99_ms=added.get("p99"),
        compliance=1 - violations / total,
        violations=violations,
        met=met if judged else None,
        verdict=("met" if met else "missed") if judged else "no verdict",
    )


def _unfinished_ns(measured: Measured, qos: QoS, waits_ns: Sequence[int]) -> NDArray[np.int64] | None:
    """Waits of this class's unfinished requests, or None where their classes are not known."""
    facts = measured.facts
    if len(facts.unfinished_qos) != len(facts.unfinished_ages_ns):
        return None
    owners = np.asarray(facts.unfinished_qos, dtype=np.int8)
    own_ns: NDArray[np.int64] = np.asarray(waits_ns, dtype=np.int64)[owners == qos]
    return own_ns


def _prefixes(measured: Measured) -> dict[str, int]:
    """Patterns seen in completed requests; what was found resident is in system_prompt_hits."""
    requests = measured.recorder.requests
    seen = sum(requests.prefixes.values())
    return {
        "prefix_hits": seen,
        "prefix_misses": requests.completed - seen,
        "system_prompt_reuse": measured.looked_up(HitType.SYSTEM),
        "common_phrase_reuse": measured.looked_up(HitType.COMMON),
        "bytes_saved": measured.bytes_moved(Verb.READ, Purpose.PROMPT),
    }


def multi_turn(measured: Measured) -> dict[str, Any]:
    """Lookups of earlier turns."""
    counts = dict.fromkeys(Outcome, 0)
    for (outcome, _, hit_type, _), number in measured.recorder.lookups.items():
        if hit_type is HitType.MULTI_TURN:
            counts[outcome] += number
    return {
        "cache_hits": counts[Outcome.HIT],
        "cache_misses": counts[Outcome.MISS],
        "cache_errors": counts[Outcome.ERROR],
        "hit_rate": ratio(counts[Outcome.HIT], sum(counts.values())),
    }
