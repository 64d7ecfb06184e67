"""The typed result: what one run measured, asked and doubts, as it stands in a result file.

Fields are added, never changed in meaning; keys that this version does not know are kept. What was not
measured is None. `python -m kvspill.result.schema > docs/result.schema.json` publishes the JSON schema.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from kvspill.result.schema_base import Number, Part, Statistics, Value
from kvspill.result.schema_honesty import Caution, Faults, Honesty

SCHEMA_VERSION = 2


class Window(Part):
    """Where the measured window lies, in seconds since the start of the load."""

    measured_seconds: Number
    start_seconds: Number | None = None
    end_seconds: Number | None = None
    drain_seconds: Number | None = None
    users: int | None = None
    """How many there were in the window, where a search changed their number."""


class TierFacts(Part):
    """One tier as it stood at the end of the run."""

    tier: str
    backend: str
    modelled: bool
    description: str = ""
    limit_bytes: int = 0
    usable_bytes: int = 0
    used_bytes: int = 0
    peak_bytes: int = 0
    entries: int = 0
    direct_io: bool = False
    verifies: bool = False
    files_opened_direct: int = 0
    files_opened_buffered: int = 0
    crowded_puts: int = 0
    counters: dict[str, int | float | str] = {}
    """What the tier's backend counted for itself, such as calls that it resumed or pages that it dropped."""


class InFlight(Part):
    """Operations of one tier and verb that the end of the window found under way (S16)."""

    tier: str
    verb: str
    count: int
    oldest_ms: Number | None = None


class Series(Part):
    """One rate of the timeline, judged."""

    verdict: str
    seconds: Number


class SteadyState(Part):
    """Whether the measured window shows one level; the series stand beside under their names."""

    verdict: str
    reason: str
    tokens: Series | None = None
    bytes: Series | None = None
    storage_speed: Series | None = None
    """Bytes per second in which the storage was at work: the device's own, whatever was asked of it."""


class Criterion(Part):
    """How one criterion of the assessment came out."""

    name: str
    metric: str
    target: Number | None = None
    actual: Number | None = None
    unit: str = ""
    passed: bool | None = None
    """None where it was not measured, has no target, or was met while something failed."""
    modelled: bool = False


class StorageHealth(Part):
    """The storage performance assessment (S10)."""

    overall_status: str
    performance_profile: str = "latency"
    criteria: list[Criterion] = []
    passed_count: int = 0
    total_count: int = 0
    failures: list[str] = []


class Sla(Part):
    """A service class's targets against what happened (S11)."""

    target_p95_ms: Number
    actual_p95_ms: Number | None = None
    """End-to-end, generation included."""
    added_p95_ms: Number | None = None
    """What queue and storage added: this is judged."""
    target_p99_ms: Number | None = None
    actual_p99_ms: Number | None = None
    added_p99_ms: Number | None = None
    compliance: Number | None = None
    violations: int = 0
    met: bool | None = None
    """None where there is no verdict: fewer than 50 requests, or an overload."""
    verdict: str = "no verdict"


class QosClass(Part):
    """One service class: its requests, their latency and the judgement."""

    no_data: bool = False
    total_requests: int = 0
    failed_requests: int = 0
    unfinished_requests: int | None = None
    waiting_requests: int | None = None
    """Of the unfinished: those to whom queue and storage had added more than the p95 target by the end."""
    latency_ms: Statistics | None = None
    added_ms: Statistics | None = None
    """What queue and storage added to the generation."""
    queue_wait_ms: Statistics | None = None
    queue_wait_completed_ms: Statistics | None = None
    sla: Sla | None = None


class Summary(Part):
    """The names and the shape that readers of kv-cache.py results expect: a view of the result.

    Beside what is named here it holds every metric of the block `summary` under its name.
    """

    cache_stats: dict[str, Any]
    """Every metric of the block `cache_stats` that was measured, and storage_health."""
    storage_health: StorageHealth | None = None
    qos_metrics: dict[str, QosClass] = {}
    priority_inversions: list[str] = []
    prefix_cache_stats: dict[str, Any] = {}
    autoscaling_stats: list[dict[str, Any]] = []
    autoscaling_summary: dict[str, Any] | None = None
    peak_throughput: Number | None = None
    multi_turn_stats: dict[str, Any] = {}
    seed: int | None = None


class MetricValue(Part):
    """One metric's value and unit."""

    value: Value
    unit: str


class Timeline(Part):
    """Amounts per step of the window, by column."""

    interval_seconds: Number = Field(gt=0)
    columns: Mapping[str, Sequence[Number | None]]


class EncodedHistogram(Part):
    """A histogram in the base64 form of HdrHistogram, with its exact parts."""

    count: int
    max_ns: int
    hdr: str
    sum_ns: int = 0


class LatencyMap(Part):
    """How many values lay in each latency band in each step of the window."""

    step_seconds: Number
    edges_ms: list[Number]
    """Where bands begin and end; what lies outside of 1 µs to 1000 s is in the outermost band."""
    counts: list[list[int]]
    """A row for each step, a number for each band."""


class SetAside(Part):
    """A trial that is in no average."""

    trial: int
    reason: str


class TrialRow(Part):
    """One trial: beside this every headline metric under its name."""

    trial: int
    digest: Any = None
    incomplete: str | None = None
    failed_requests: int = 0
    failed_operations: int = 0


class TrialStatistics(Part):
    """One headline metric over the complete trials; p95 is interpolated between the two trials next to it."""

    unit: str
    median: Number
    mean: Number
    p95: Number
    min: Number
    max: Number
    cv: Number | None = None
    ci95_low: Number | None = None
    ci95_high: Number | None = None


class Trials(Part):
    """Several trials of one configuration."""

    count: int
    complete: int
    asked: int | None = None
    set_aside: list[SetAside] = []
    same_work: bool = True
    rows: list[TrialRow] = []
    metrics: dict[str, TrialStatistics] = {}


class Question(Part):
    """The answer of `kvspill can`, which every view of its result shows first."""

    answer: str
    """yes, no, no verdict or invalid."""
    users: int
    sentence: str
    """The answer in words."""
    reasons: list[str] = []
    """What it rests on and how far it goes, a sentence each."""
    helps: str
    """What would help, as an instruction."""
    not_judged: dict[str, int] = {}
    """Classes that have a target and fewer requests than a verdict needs, with their requests."""
    judged: dict[str, Any] | None = None
    """The load that the answer rests on and what came of each class there, all windows together."""


class RankRow(Part):
    """What one rank of a run on several did."""

    rank: int
    host: str
    users: int = 0
    started_late_ms: Number | None = None
    """How long after the agreed instant its load began."""
    requests_completed: int = 0
    requests_failed: int = 0
    tokens_per_sec: Number | None = None
    storage_read_gib_per_sec: Number | None = None
    storage_write_gib_per_sec: Number | None = None
    gib_per_io_second: Number | None = None
    """Bytes moved in all tiers over the time that its requests spent inside cache calls."""
    storage_read_device_p95_ms: Number | None = None
    relative_speed: Number | None = None
    """Over the median of the ranks, operations of like size compared; None where there are too few."""
    straggler: bool = False
    faulty: bool = False
    """Something failed on it (S13)."""
    failed: bool = False
    """Its storage was full, or more failed than not (R4)."""
    problem: str | None = None
    """What failed on it, or why its figures are missing or end early."""
    honesty: Honesty | None = None
    environment: dict[str, Any] | None = None


class RankTable(Part):
    """The ranks of a run that an MPI launcher started (R3)."""

    size: int
    per_rank: bool = False
    """Each had the whole load, with a seed of its own; else the users were divided."""
    start_skew_ms: Number | None = None
    """Between the first and the last rank to begin."""
    clock_uncertainty_ms: Number | None = None
    """How well the clocks of different machines could be compared."""
    stragglers: list[int] = []
    rows: list[RankRow] = []


class Result(Part):
    """Everything about a run."""

    schema_version: int
    kvspill_version: str | None = None
    simulated: bool
    incomplete: bool
    interrupted: str | None = None
    faulty: bool = False
    faults: Faults = Faults()
    command: str | None = None
    """The command line that does the same again; None where the file does not say."""
    command_directory: str | None = None
    """Where it was given: its relative paths begin there."""
    created_at: str | None = None
    seed: int | None = None
    digest: str | None = None
    config: dict[str, Any]
    environment: dict[str, Any] | None = None
    warnings: list[Caution]
    honesty: Honesty
    tiers: list[TierFacts]
    workload: dict[str, Any] = {}
    io_model: dict[str, Any] = {}
    window: Window
    steady_state: SteadyState | None = None
    in_flight_at_end: list[InFlight] | None = None
    preconditioning: dict[str, Any] | None = None
    validation: dict[str, Any] | None = None
    """The comparison with the rows of --validation-trace, where they were given."""
    device_load: dict[str, Number | None] | None = None
    """The devices behind the storage tier in the window, as iostat names it: utilisation, await, queue."""
    latency_layers: dict[str, Any] | None = None
    """With --trace-latency: the time of system calls by file system, block layer and device."""
    prediction: dict[str, Any] | None = None
    """Of a simulation on a calibrated device: what lies between what, and where it extrapolates (P2)."""
    trials: Trials | None = None
    ranks: RankTable | None = None
    requests_completed: int
    total_tokens_generated: int = 0
    total_storage_io_latency: Number | None = None
    total_storage_io_time: Number | None = None
    total_generation_latency: Number | None = None
    multi_turn_cache_hits: int = 0
    multi_turn_cache_misses: int = 0
    end_to_end_latencies: list[Number] = []
    storage_latencies: list[Number] = []
    generation_latencies: list[Number] = []
    prefill_latencies: list[Number] = []
    decode_latencies: list[Number] = []
    autoscaling_stats: list[dict[str, Any]] = []
    question: Question | None = None
    """What `kvspill can` was asked and answered."""
    summary: Summary
    metrics: dict[str, MetricValue]
    timeline: Timeline
    throughput_timeline: list[Number] = []
    histograms: dict[str, EncodedHistogram] = Field(default_factory=dict)
    latency_maps: dict[str, LatencyMap] = {}
    """Latencies over time: storage_read and storage_write per entry, request_end_to_end."""

    def value(self, name: str) -> Value:
        """A metric's value; None where it was not measured or the file does not have it."""
        found = self.metrics.get(name)
        return None if found is None else found.value

    def number(self, name: str) -> Number | None:
        """A metric that is one number."""
        value = self.value(name)
        return None if isinstance(value, dict) else value

    def statistics(self, name: str) -> Statistics | None:
        """A metric that is a set of statistics."""
        value = self.value(name)
        return value if isinstance(value, dict) else None

    def tier(self, name: str) -> TierFacts | None:
        """The tier of that name; None where the run had no such tier."""
        return next((item for item in self.tiers if item.tier == name), None)

    def warning(self, code: str) -> Caution | None:
        """The first warning of that code; None where the result has none."""
        return next((item for item in self.warnings if item.code == code), None)

    def document(self) -> dict[str, Any]:
        """As it stands in a file."""
        return self.model_dump(mode="json")


def schema_text() -> str:
    """The JSON schema of result files."""
    schema = Result.model_json_schema()
    schema["$id"] = f"kvspill-result-{SCHEMA_VERSION}"
    return json.dumps(schema, indent=1) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
