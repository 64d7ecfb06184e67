"""The figures of one row that the comparison table and the advice speak of, taken from its result."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvspill.records import GIB
from kvspill.result.answer import Status, answer
from kvspill.result.bottleneck import busy_ms
from kvspill.result.classes import late_text, unjudged
from kvspill.result.ranking import faults_text, no_rank
from kvspill.result.schema import Result, TierFacts

TIERS = ("gpu", "cpu", "storage")
_FULL_SHARE = 0.95
"""A tier that is filled so far has no room for an entry of usual size."""


@dataclass(frozen=True, slots=True)
class TierFigures:
    """One tier in one row; None where it moved nothing."""

    limit_gib: float
    entries: int
    read_gib_per_sec: float
    write_gib_per_sec: float
    read_p95_ms: float | None
    read_device_p95_ms: float | None
    read_mean_ms: float | None
    read_device_mean_ms: float | None
    busy_ms: float
    """Time of all its reads and writes together."""
    read_busy_ms: float
    """That of its reads."""
    modelled: bool


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """One service class of a row: what queue and storage added, and the verdict of its result (S11)."""

    added_p95_ms: float | None
    """Of those that completed."""
    target_p95_ms: float
    met: bool | None


@dataclass(frozen=True, slots=True)
class Figures:
    """One row of the comparison."""

    name: str
    users: int
    tokens_per_sec: float | None
    completed: int
    unfinished: int
    failed: int
    end_to_end_ms: Mapping[str, float] | None
    queue_ms: Mapping[str, float] | None
    storage_io_ms: Mapping[str, float] | None
    generation_ms: Mapping[str, float] | None
    other_ms: Mapping[str, float] | None
    hit_rate: float | None
    tiers: Mapping[str, TierFigures]
    read_share: Mapping[str, float]
    """Share of the bytes read that each tier served."""
    simulated: bool
    warnings: tuple[str, ...]
    autoscaling: Mapping[str, Any] | None
    recompute_gpus: float | None = None
    """GPU time that loading saved over recomputing; None where nothing can be recomputed."""
    stage_storage_gib_per_sec: float | None = None
    """The most that the storage moved in one stage of a search."""
    faults: str | None = None
    """What failed, in words."""
    stopped_storing: bool = False
    """The storage never evicts and was full, so that nothing new was stored."""
    status: str = Status.UNDECIDED.value
    """Whether the row's users were served within their targets, as its result answers it."""
    verdict: str = ""
    """The answer in words."""
    seconds: float | None = None
    """How long its load was to last."""
    enough_seconds: float | None = None
    """What would give a verdict on every class; None where it has one, or length is not the reason."""
    late: str = ""
    """How many requests of the classes without a verdict were late, in words."""
    because: str = ""
    """The bottleneck, in one sentence."""
    classes: Mapping[str, ClassFigures] = field(default_factory=dict)

    @property
    def missed(self) -> tuple[str, ...]:
        """The service classes whose target was missed."""
        return tuple(name for name, item in self.classes.items() if item.met is False)

    @property
    def no_rank(self) -> str | None:
        """Why nothing may be concluded from this row; None where that is allowed."""
        return no_rank(self.faults, self.warnings)

    @property
    def modelled(self) -> tuple[str, ...]:
        return tuple(name for name, tier in self.tiers.items() if tier.modelled)

    @property
    def served_ms(self) -> float | None:
        """Mean time of a request without its wait in the queue."""
        if self.storage_io_ms is None or self.generation_ms is None or self.other_ms is None:
            return None
        return self.storage_io_ms["mean"] + self.generation_ms["mean"] + self.other_ms["mean"]


Found = Mapping[str, Figures]
"""Rows by their names."""


def figures(name: str, result: Result) -> Figures:
    """Read a row's figures from its result."""
    tiers = {tier.tier: _tier(result, tier) for tier in result.tiers}
    reads = {tier: result.number(f"tier_{tier}_kv_bytes_read_gb") or 0.0 for tier in tiers}
    whole = sum(reads.values())
    requests = result.honesty.requests
    steps = result.autoscaling_stats
    found, classes = answer(result), result.summary.qos_metrics
    return Figures(
        name=name,
        users=(steps[-1].get("users") if steps else None) or result.config["num_users"],
        tokens_per_sec=result.number("avg_throughput_tokens_per_sec"),
        completed=requests.completed_in_window,
        unfinished=requests.unfinished,
        failed=requests.failed,
        end_to_end_ms=result.statistics("end_to_end_latency_ms"),
        queue_ms=result.statistics("queue_wait_completed_ms"),
        storage_io_ms=result.statistics("storage_io_latency_ms"),
        generation_ms=result.statistics("generation_latency_ms"),
        other_ms=result.statistics("other_ms"),
        hit_rate=result.number("cache_hit_rate"),
        tiers=tiers,
        read_share={tier: value / whole for tier, value in reads.items()} if whole else {},
        simulated=result.simulated,
        warnings=tuple(item.code for item in result.warnings),
        autoscaling=steps[-1] if steps else None,
        recompute_gpus=(result.io_model.get("break_even") or {}).get("recompute_gpus"),
        stage_storage_gib_per_sec=max(
            (step.get("storage_gib_per_sec") or 0.0 for step in steps), default=None
        ),
        faults=faults_text(result),
        stopped_storing=_stopped_storing(result),
        status=found.status.value,
        verdict=found.verdict,
        seconds=result.config.get("duration"),
        enough_seconds=_seconds_of(found.longer),
        late=late_text(classes, unjudged(classes)),
        because=found.because,
        classes=_classes(result),
    )


def _seconds_of(instruction: str) -> float | None:
    """The time that an instruction to run longer names."""
    named = re.search(r"--duration (\d+)", instruction)
    return float(named[1]) if named else None


def _classes(result: Result) -> dict[str, ClassFigures]:
    """The service classes, of a search with the load of its answer; none where throughput was judged."""
    if result.autoscaling_stats:
        return _searched(result.autoscaling_stats[-1].get("qos") or {})
    health = result.summary.storage_health
    if health is not None and health.performance_profile == "throughput":
        return {}
    return {
        name: ClassFigures(item.sla.added_p95_ms, item.sla.target_p95_ms, item.sla.met)
        for name, item in result.summary.qos_metrics.items()
        if item.sla is not None
    }


def _searched(classes: Mapping[str, Any]) -> dict[str, ClassFigures]:
    verdicts = {"met": True, "missed": False}
    return {
        name: ClassFigures(
            (item.get("added_ms") or {}).get("p95"),
            item["sla_target_p95_ms"],
            verdicts.get(item["sla_verdict"]),
        )
        for name, item in classes.items()
        if item.get("sla_target_p95_ms") is not None
    }


def _tier(result: Result, tier: TierFacts) -> TierFigures:
    name = tier.tier
    return TierFigures(
        limit_gib=tier.limit_bytes / GIB,
        entries=tier.entries,
        read_gib_per_sec=result.number(f"tier_{name}_read_bandwidth_gbps") or 0.0,
        write_gib_per_sec=result.number(f"tier_{name}_write_bandwidth_gbps") or 0.0,
        read_p95_ms=result.number(f"{name}_read_p95_ms"),
        read_device_p95_ms=result.number(f"{name}_read_device_p95_ms"),
        read_mean_ms=result.number(f"{name}_read_mean_ms"),
        read_device_mean_ms=result.number(f"{name}_read_device_mean_ms"),
        busy_ms=busy_ms(result, name),
        read_busy_ms=busy_ms(result, name, verbs=("read",)),
        modelled=name in result.honesty.modelled_tiers,
    )


def _stopped_storing(result: Result) -> bool:
    policy = result.config.get("storage_eviction_policy") or result.config.get("eviction_policy")
    storage = result.tier("storage")
    full = storage is not None and storage.peak_bytes >= _FULL_SHARE * storage.usable_bytes
    return policy == "none" and full


def mean(statistics: Mapping[str, float] | None) -> float:
    return 0.0 if statistics is None else statistics["mean"]
