"""The QoS monitor: each class's requests, percentiles, SLA and waits in a window; inversions of priority."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from kvspill.measure.priorities import MIN_COMPLETIONS, priority_inversions
from kvspill.records import NS_PER_MS, QoS
from kvspill.run.search.stage import StageMeasure, percentiles_ms

SLA_SHARE = 0.95
"""The SLA is on the p95: so many of a class's requests must be within its target."""


def qos_block(measure: StageMeasure, targets_ms: Mapping[QoS, float]) -> dict[str, Any]:
    """Per class, by name."""
    return {qos.name.lower(): _class(measure, qos, targets_ms.get(qos)) for qos in QoS}


def _class(measure: StageMeasure, qos: QoS, target_ms: float | None) -> dict[str, Any]:
    rows = measure.rows.classes[qos]
    total = len(rows.end_to_end_ns) + rows.failed
    block: dict[str, Any] = {
        "requests": len(rows.end_to_end_ns),
        "failed_requests": rows.failed,
        "latency_ms": percentiles_ms(rows.end_to_end_ns) or None,
        "added_ms": percentiles_ms(rows.added_ns) or None,
        "queue_wait_ms": percentiles_ms(rows.queue_ns) or None,
        "sla_target_p95_ms": target_ms,
        "sla_compliance": None,
        "sla_violations": None,
        "sla_verdict": "no verdict",
    }
    if target_ms is not None and total:
        # Judged by what queue and storage add (S11); a failed request never met its target.
        violations = int((rows.added_ns > target_ms * NS_PER_MS).sum()) + rows.failed
        compliance = 1 - violations / total
        block |= {"sla_compliance": compliance, "sla_violations": violations}
        if total >= MIN_COMPLETIONS:
            block["sla_verdict"] = "met" if compliance >= SLA_SHARE else "missed"
    return block


def without_verdict(measure: StageMeasure) -> list[str]:
    """The classes with too few completions to say anything about them."""
    return [
        qos.name.lower()
        for qos, rows in measure.rows.classes.items()
        if len(rows.end_to_end_ns) + rows.failed < MIN_COMPLETIONS
    ]


def inversions(measure: StageMeasure) -> list[str]:
    """Where a class of higher priority waited longer in this window."""
    return priority_inversions(
        {
            qos: float(np.mean(rows.queue_ns)) / NS_PER_MS
            for qos, rows in measure.rows.classes.items()
            if len(rows.queue_ns) >= MIN_COMPLETIONS
        }
    )
