"""The storage performance assessment: PASS, FAIL or no target, criterion by criterion (S10)."""

from dataclasses import dataclass
from typing import Any

from kvspill.measure.priorities import MIN_COMPLETIONS
from kvspill.result.measured import Measured
from kvspill.result.schema import Criterion, StorageHealth
from kvspill.result.schema_honesty import Faults, Honesty
from kvspill.result.stillness import client_still_seconds, storage_standstill, too_still
from kvspill.texts import counted

PASS, FAIL, NO_TARGET = "PASS", "FAIL", "NO TARGET"
NOT_MEASURED, INCOMPLETE = "NOT MEASURED", "INCOMPLETE"


@dataclass(frozen=True, slots=True)
class Limit:
    """One criterion of the latency profile: a metric and its bound."""

    name: str
    metric: str
    target: float
    unit: str
    above: bool = False
    """True where the metric must be above the target."""
    tier: str | None = None

    def holds(self, actual: float) -> bool:
        return actual > self.target if self.above else actual < self.target


LATENCY_LIMITS = (
    Limit("NVMe Write P95 < 500ms", "storage_write_device_p95_ms", 500, "ms", tier="storage"),
    Limit("NVMe Read P95 < 200ms", "storage_read_device_p95_ms", 200, "ms", tier="storage"),
    Limit("CPU RAM P95 < 150ms", "cpu_read_device_p95_ms", 150, "ms", tier="cpu"),
    Limit("Cache Hit Rate > 30%", "cache_hit_rate", 0.3, "ratio", above=True),
)


def assess(
    measured: Measured, values: dict[str, Any], faults: Faults, honesty: Honesty, in_memory: bool = False
) -> StorageHealth:
    """The verdict of the chosen profile, with what stands behind it.

    A storage tier whose directory lies in memory is no drive: its latencies are judged by no criterion.

    Nothing measured is no PASS, and neither is an interrupted run, one where something failed, or one
    that judged other tiers than the storage alone. A run that was interrupted after few requests fails
    nothing either. Where something failed, no criterion passes (S13): what
    failed is in no percentile, and a figure may be good because the large ones are missing. So it is where
    storage stood still; where this program did, nothing was measured.
    """
    profile = measured.settings.performance_profile
    criteria = (
        _throughput(measured, values) if profile == "throughput" else _latency(measured, values, in_memory)
    )
    stopped = too_still(client_still_seconds(honesty), measured.wall_seconds)
    failures = [*_failures(faults), *([] if stopped else _standstill(honesty, measured.wall_seconds))]
    few = measured.recorder.requests.completed < MIN_COMPLETIONS
    cut_short = measured.facts.interrupted is not None and few
    if failures or stopped or cut_short:
        spared = False if failures and not stopped else None
        criteria = [
            row if row.passed is spared else row.model_copy(update={"passed": None}) for row in criteria
        ]
    judged = [criterion for criterion in criteria if criterion.passed is not None]
    return StorageHealth(
        overall_status=_status(measured, criteria, failures),
        performance_profile=profile,
        criteria=criteria,
        passed_count=sum(1 for criterion in judged if criterion.passed),
        total_count=len(judged),
        failures=failures,
    )


def _status(measured: Measured, criteria: list[Criterion], failures: list[str]) -> str:
    verdicts = [criterion.passed for criterion in criteria if criterion.passed is not None]
    if failures or False in verdicts:
        return FAIL
    if measured.facts.interrupted is not None:
        return INCOMPLETE
    if verdicts:
        judged = measured.recorder.requests.completed and _judges_storage(measured, criteria)
        return PASS if judged else NOT_MEASURED
    has_target = any(criterion.target is not None for criterion in criteria)
    return NOT_MEASURED if has_target or not criteria else NO_TARGET


def _judges_storage(measured: Measured, criteria: list[Criterion]) -> bool:
    """Whether a verdict says something of the storage; the throughput profile judges the whole."""
    if measured.settings.performance_profile == "throughput":
        return True
    of_storage = {limit.metric for limit in LATENCY_LIMITS if limit.tier == "storage"}
    return any(row.passed is not None for row in criteria if row.metric in of_storage)


def _standstill(honesty: Honesty, window_seconds: float) -> list[str]:
    stood = storage_standstill(honesty, window_seconds)
    if stood is None:
        return []
    cause = ", its deletes alone under way" if stood.by_deletes else ""
    return [f"storage stood still for {stood.seconds:.1f} s of {window_seconds:.1f} s{cause}"]


def _failures(faults: Faults) -> list[str]:
    counts = (
        (faults.failed_requests, "request", "failed"),
        (faults.failed_operations, "operation", "failed"),
        (faults.stuck_io.threads, "I/O thread", "hung"),
    )
    return [f"{counted(count, what)} {verb}" for count, what, verb in counts if count]


def _throughput(measured: Measured, values: dict[str, Any]) -> list[Criterion]:
    target = measured.settings.min_tokens_per_sec
    actual = values["avg_throughput_tokens_per_sec"]
    passed = None if target is None or actual is None else actual >= target
    name = "Throughput, no target" if target is None else f"Throughput >= {target:,.10g} tok/s"
    modelled = measured.facts.simulated
    return [
        Criterion(
            name=name,
            metric="avg_throughput_tokens_per_sec",
            target=target,
            actual=actual,
            unit="tokens/s",
            passed=passed,
            modelled=modelled,
        )
    ]


def _latency(measured: Measured, values: dict[str, Any], in_memory: bool) -> list[Criterion]:
    criteria = []
    for limit in LATENCY_LIMITS:
        tier = measured.tier(limit.tier) if limit.tier else None
        if limit.tier and tier is None:
            continue
        actual = values[limit.metric]
        of_no_drive = in_memory and limit.tier == "storage"
        passed = None if actual is None or of_no_drive else limit.holds(actual)
        modelled = measured.facts.simulated or (tier is not None and tier.modelled)
        criteria.append(
            Criterion(
                name=limit.name,
                metric=limit.metric,
                target=limit.target,
                actual=actual,
                unit=limit.unit,
                passed=passed,
                modelled=modelled,
            )
        )
    return criteria
