"""The result file: everything about a run in one JSON document, written whole or not at all."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kvspill import __version__
from kvspill.config import Config
from kvspill.dates import now_text
from kvspill.errors import KvspillError, reason_of
from kvspill.machine.environment import working_directory
from kvspill.measure.lanes import COMPONENTS
from kvspill.measure.recorder import Recorder
from kvspill.measure.steady import steady_state
from kvspill.outputs import write_whole
from kvspill.records import NS_PER_SEC, Tier
from kvspill.result.assessment import assess
from kvspill.result.command import command_of
from kvspill.result.device_load import device_load
from kvspill.result.facts import RunFacts
from kvspill.result.facts import TierFacts as TierAtEnd
from kvspill.result.honesty import Ceiling, Worst, faults_of, honesty_block
from kvspill.result.io_model import over_the_link
from kvspill.result.load import less, lighter, or_else
from kvspill.result.measured import Measured, Settings
from kvspill.result.metrics.catalog import METRICS
from kvspill.result.metrics.metric import evaluate
from kvspill.result.schema import (
    SCHEMA_VERSION,
    EncodedHistogram,
    InFlight,
    LatencyMap,
    MetricValue,
    RankTable,
    Result,
    SteadyState,
    TierFacts,
    Timeline,
    Window,
)
from kvspill.result.schema_honesty import Caution
from kvspill.result.summary import multi_turn, summary_block
from kvspill.result.warnings.devices import MEMORY_DIRECTORY
from kvspill.result.warnings.rules import cautions
from kvspill.storage.addresses import in_store
from kvspill.texts import without_half_characters

_ASKS = {"trace", "use_burst_trace", "dataset_path", "request_rate", "arrival", "num_users", "servers"}
"""Settings that decide who asks when."""


def build_result(
    config: Config,
    facts: RunFacts,
    recorder: Recorder,
    probes: Mapping[str, Any] | None = None,
    warnings: Iterable[Caution] = (),
    *,
    environment: Mapping[str, Any] | None = None,
    ceiling: Ceiling | None = None,
    autoscaling: Sequence[Mapping[str, Any]] = (),
    users: int | None = None,
    trials: int = 1,
    servers: int | None = None,
    in_flight: Sequence[InFlight] | None = None,
    ranks: RankTable | None = None,
    worst: Worst | None = None,
    created_at: str | None = None,
) -> Result:
    """The whole result. Only `created_at` and `command_directory` differ between equal simulations.

    users, servers: how many there were in the window, where their number is not the configured one.
    in_flight: operations that its end found under way, by tier and verb. worst: of the ranks, if several.
    """
    if recorder.is_open_ended:
        raise ValueError("the recorder's window has no end yet; call close_window first")
    measured = Measured(recorder, facts, settings_of(config, users, servers, ranks))
    metrics = evaluate(METRICS, measured)
    values = {name: item["value"] for name, item in metrics.items()}
    columns = recorder.timeline.columns(recorder.window_end_ns)
    step_seconds = recorder.timeline.step_seconds
    closed = measured.settings.arrival == "closed"
    steady = SteadyState.model_validate(steady_state(columns, recorder.window_seconds, step_seconds, closed))
    honesty = honesty_block(measured, probes, ceiling, worst)
    faults = faults_of(measured, honesty)
    given = list(warnings)
    in_memory = any(item.code == MEMORY_DIRECTORY.code for item in given)
    health = assess(measured, values, faults, honesty, in_memory)
    return Result(
        schema_version=SCHEMA_VERSION,
        kvspill_version=__version__,
        simulated=facts.simulated,
        incomplete=facts.interrupted is not None,
        interrupted=facts.interrupted,
        faulty=faults.any_found,
        faults=faults,
        **_command(config, facts, ranks),
        created_at=created_at or now_text(),
        seed=config.seed,
        digest=facts.digest,
        config=config.model_dump(mode="json"),
        environment=None if environment is None else dict(environment),
        warnings=cautions(measured, honesty, steady, given, trials),
        honesty=honesty,
        tiers=[_tier(tier) for tier in facts.tiers],
        workload=dict(facts.workload),
        io_model=over_the_link(facts.io_model, measured, values),
        window=_window(facts, recorder, measured.settings.num_users),
        steady_state=steady,
        device_load=device_load(honesty.probes.get("block_device"), recorder.window_seconds),
        in_flight_at_end=None if in_flight is None else list(in_flight),
        ranks=ranks,
        **_legacy_totals(measured),
        autoscaling_stats=[dict(step) for step in autoscaling],
        summary=summary_block(measured, metrics, health, autoscaling, honesty.offered_load.ratio),
        metrics={name: MetricValue(value=item["value"], unit=item["unit"]) for name, item in metrics.items()},
        timeline=Timeline(interval_seconds=step_seconds, columns=columns),
        throughput_timeline=[tokens / step_seconds for tokens in columns.get("tokens", [])],
        histograms=_histograms(recorder),
        latency_maps=_latency_maps(recorder),
    )


def _command(config: Config, facts: RunFacts, ranks: RankTable | None) -> dict[str, Any]:
    """What does the same again, and where its relative paths begin."""
    launcher = () if ranks is None else ("mpirun", "-n", str(ranks.size))
    command = command_of(config, simulated=facts.simulated, launcher=launcher)
    return {"command": command, "command_directory": working_directory()}


def settings_of(
    config: Config, users: int | None = None, servers: int | None = None, ranks: RankTable | None = None
) -> Settings:
    """What the report needs of the configuration; users and servers where these are not the configured."""
    if users is not None:
        config = config.model_copy(update={"num_users": users})
    asked = config.model_dump(include=_ASKS)
    return Settings(
        seed=config.seed,
        num_users=config.num_users,
        arrival=config.arrival,
        servers=config.server_count if servers is None else servers,
        performance_profile=config.performance_profile,
        min_tokens_per_sec=config.min_tokens_per_sec,
        device_bandwidth_gbps=config.device_bandwidth_gbps,
        less=less(asked),
        lighter=lighter(asked),
        instead=or_else(asked),
        in_store=in_store(config.cache_dir),
        direct=config.direct,
        io_slots=(1 if ranks is None else ranks.size) * (config.io_threads + config.write_threads),
        qos=config.judged_qos,
    )


def _tier(facts: TierAtEnd) -> TierFacts:
    return TierFacts.model_validate({**asdict(facts), "tier": facts.tier.value})


def _window(facts: RunFacts, recorder: Recorder, users: int) -> Window:
    start_ns, end_ns = recorder.window_start_ns, recorder.window_end_ns
    return Window(
        start_seconds=(start_ns - facts.load_start_ns) / NS_PER_SEC,
        end_seconds=(end_ns - facts.load_start_ns) / NS_PER_SEC,
        measured_seconds=recorder.window_seconds,
        drain_seconds=max(0, facts.finished_ns - end_ns) / NS_PER_SEC,
        users=users,
    )


def _legacy_totals(measured: Measured) -> dict[str, Any]:
    """Top-level names of the old shape.

    The arrays of latencies are an even sample of at most 1,000 requests, one row per index: readers that
    plot them keep working, and the file's size doesn't grow with the run. Histograms have all values.
    """
    requests = measured.recorder.requests
    turns = multi_turn(measured)
    columns = list(zip(*requests.sample.rows, strict=True)) or [()] * 5
    names = (
        "end_to_end_latencies",
        "storage_latencies",
        "generation_latencies",
        "prefill_latencies",
        "decode_latencies",
    )
    return {
        "requests_completed": requests.completed,
        "total_tokens_generated": requests.tokens,
        "total_storage_io_latency": measured.storage_io_seconds,
        "total_storage_io_time": measured.storage_io_seconds,
        "total_generation_latency": requests.generation_ns / NS_PER_SEC,
        "multi_turn_cache_hits": turns["cache_hits"],
        "multi_turn_cache_misses": turns["cache_misses"],
        **{
            name: [value_ns / NS_PER_SEC for value_ns in column]
            for name, column in zip(names, columns, strict=True)
        },
    }


def _histograms(recorder: Recorder) -> dict[str, EncodedHistogram]:
    """Every histogram that has values, in the base64 form of HdrHistogram; values are nanoseconds."""
    found = {f"request_{part}": histogram for part, histogram in recorder.requests.parts.items()}
    for qos, histogram in recorder.requests.by_qos.items():
        found[f"request_end_to_end_{qos.name.lower()}"] = histogram
        found[f"request_added_{qos.name.lower()}"] = recorder.requests.added_by_qos[qos]
    for lane in recorder.lanes():
        name = f"{lane.tier.value}_{lane.verb.value}"
        for component in COMPONENTS:
            found[f"{name}_{component}"] = lane.latencies.component(component)
            found[f"demotion_{name}_{component}"] = lane.demotion_latencies.component(component)
        found[f"piece_{name}"] = lane.pieces
        found[f"{name}_sync"] = lane.syncs
    encoded = {name: histogram.to_dict() for name, histogram in found.items()}
    return {name: EncodedHistogram(**item) for name, item in encoded.items() if item is not None}


def _latency_maps(recorder: Recorder) -> dict[str, LatencyMap]:
    """The latencies that are drawn over time, where there are values."""
    lanes = [lane for lane in recorder.lanes() if lane.tier is Tier.STORAGE]
    found = {f"{lane.tier.value}_{lane.verb.value}": lane.latencies.over_time() for lane in lanes}
    found["request_end_to_end"] = recorder.requests_over_time.to_dict()
    return {name: LatencyMap(**item) for name, item in found.items() if item is not None}


def result_text(result: Result) -> str:
    """The result as it stands in its file."""
    document = result.document()
    text = json.dumps(document, indent=1, allow_nan=False)
    if "\\ud" in text:
        text = json.dumps(without_half_characters(document), indent=1, allow_nan=False)
    return text + "\n"


def write_result(path: str | os.PathLike[str], result: Result, *, named: bool = True) -> Path:
    """Write the result whole or not at all; a device or a pipe that was named is written through."""
    try:
        return write_whole(path, result_text(result), named=named)
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: str | os.PathLike[str], error: OSError, flag: str = "--output") -> KvspillError:
    """The error of a result that its place does not take."""
    reason = reason_of(error)
    return KvspillError(
        f"cannot write the result to {os.fspath(path)}: {reason}; choose a writable place with {flag}"
    )
