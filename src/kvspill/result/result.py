"""The result file: everything about a run in one JSON document, written whole or not at all."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kvspill import __version__
from kvspill.config import Config
from kvspill.errors import KvspillError
from kvspill.measure.lanes import COMPONENTS
from kvspill.measure.recorder import Recorder
from kvspill.measure.steady import steady_state
from kvspill.outputs import write_whole
from kvspill.records import NS_PER_SEC, QoS, RunFacts, TierFacts
from kvspill.result.assessment import assess
from kvspill.result.catalog import METRICS
from kvspill.result.honesty import Ceiling, honesty_block
from kvspill.result.metrics import Measured, Settings, evaluate
from kvspill.result.summary import multi_turn, summary_block
from kvspill.result.warnings import cautions

SCHEMA_VERSION = 1


def build_result(
    config: Config,
    facts: RunFacts,
    recorder: Recorder,
    probes: Mapping[str, Any] | None = None,
    warnings: Iterable[Mapping[str, str]] = (),
    *,
    environment: Mapping[str, Any] | None = None,
    ceiling: Ceiling | None = None,
    autoscaling: Sequence[Mapping[str, Any]] = (),
    users: int | None = None,
    trials: int = 1,
    created_at: str | None = None,
) -> dict[str, Any]:
    """The whole result as plain data. `created_at` alone differs between equal simulations.

    users: how many there were in the window, where a search changed their number.
    """
    if recorder.is_open_ended:
        raise ValueError("the recorder's window has no end yet; call close_window first")
    measured = Measured(recorder, facts, settings_of(config, users))
    metrics = evaluate(METRICS, measured)
    values = {name: item["value"] for name, item in metrics.items()}
    columns = recorder.timeline.columns(recorder.window_end_ns)
    step_seconds = recorder.timeline.step_seconds
    steady = steady_state(columns, recorder.window_seconds, step_seconds)
    honesty = honesty_block(measured, probes, ceiling)
    health = assess(measured, values)
    return {
        "schema_version": SCHEMA_VERSION,
        "kvspill_version": __version__,
        "simulated": facts.simulated,
        "incomplete": facts.interrupted is not None,
        "interrupted": facts.interrupted,
        "created_at": created_at or datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": config.seed,
        "digest": facts.digest,
        "config": config.model_dump(mode="json"),
        "environment": dict(environment) if environment is not None else None,
        "warnings": cautions(measured, honesty, steady, warnings, trials),
        "honesty": honesty,
        "tiers": [_tier(tier) for tier in facts.tiers],
        "workload": dict(facts.workload),
        "io_model": dict(facts.io_model),
        "window": {**_window(facts, recorder), "users": measured.settings.num_users},
        "steady_state": steady,
        "trials": None,
        **_legacy_totals(measured),
        "autoscaling_stats": [dict(step) for step in autoscaling],
        "summary": summary_block(measured, metrics, health, autoscaling),
        "metrics": {name: {"value": item["value"], "unit": item["unit"]} for name, item in metrics.items()},
        "timeline": {"interval_seconds": step_seconds, "columns": columns},
        "throughput_timeline": [tokens / step_seconds for tokens in columns.get("tokens", [])],
        "histograms": _histograms(recorder),
    }


def settings_of(config: Config, users: int | None = None) -> Settings:
    """What the report needs of the configuration; users where their number is not the configured one."""
    if users is not None:
        config = config.model_copy(update={"num_users": users})
    classes = {qos: getattr(config.qos, qos.name.lower()) for qos in QoS}
    return Settings(
        seed=config.seed,
        num_users=config.num_users,
        servers=config.server_count,
        performance_profile=config.performance_profile,
        min_tokens_per_sec=config.min_tokens_per_sec,
        device_bandwidth_gbps=config.device_bandwidth_gbps,
        qos_targets_ms={qos: (entry.p95_ms, entry.p99_ms) for qos, entry in classes.items()},
    )


def _tier(facts: TierFacts) -> dict[str, Any]:
    return {**asdict(facts), "tier": facts.tier.value}


def _window(facts: RunFacts, recorder: Recorder) -> dict[str, float]:
    """Where the window lies, in seconds since the start of the load."""
    start_ns, end_ns = recorder.window_start_ns, recorder.window_end_ns
    return {
        "start_seconds": (start_ns - facts.load_start_ns) / NS_PER_SEC,
        "end_seconds": (end_ns - facts.load_start_ns) / NS_PER_SEC,
        "measured_seconds": recorder.window_seconds,
        "drain_seconds": max(0, facts.finished_ns - end_ns) / NS_PER_SEC,
    }


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


def _histograms(recorder: Recorder) -> dict[str, Any]:
    """Every histogram that has values, in the base64 form of HdrHistogram; values are nanoseconds."""
    found = {f"request_{part}": histogram for part, histogram in recorder.requests.parts.items()}
    for qos, histogram in recorder.requests.by_qos.items():
        found[f"request_end_to_end_{qos.name.lower()}"] = histogram
    for lane in recorder.lanes():
        name = f"{lane.tier.value}_{lane.verb.value}"
        for component in COMPONENTS:
            found[f"{name}_{component}"] = lane.latencies.component(component)
            found[f"demotion_{name}_{component}"] = lane.demotion_latencies.component(component)
        found[f"piece_{name}"] = lane.pieces
    encoded = {name: histogram.to_dict() for name, histogram in found.items()}
    return {name: item for name, item in encoded.items() if item is not None}


def write_result(path: str | os.PathLike[str], result: Mapping[str, Any]) -> Path:
    """Write the result whole or not at all; a device or a pipe is written through."""
    text = json.dumps(result, indent=1, allow_nan=False)
    try:
        return write_whole(path, text + "\n")
    except OSError as error:
        reason = error.strerror or str(error)
        raise KvspillError(
            f"cannot write the result to {os.fspath(path)}: {reason}; choose a writable place with --output"
        ) from error
