"""What a simulation on a calibrated device predicts, how far it may be off, and where it extrapolates."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from kvspill.config import Config
from kvspill.result.schema import Result
from kvspill.run.calibrated import entry_sizes, extrapolations
from kvspill.run.runner import simulate_aside
from kvspill.storage.profiles import (
    Calibrated,
    Profile,
    load_calibration,
    load_profile,
    profile_file,
)
from kvspill.storage.variants import scaled

SEEDS = 2
"""Other seeds that a prediction is tried with."""
NEAR = 6
"""The same load on devices that differ by less than a calibration can tell. Where the order of events decides
much, as behind a full DRAM tier, each ends differently, as every real run does: the middle says most."""
_NEAR_SHARE = 0.005
_SLOWEST = 0.05
"""A device that is slower by all of its speed would never end."""

METRICS = (
    "requests_per_second",
    "avg_throughput_tokens_per_sec",
    "tier_storage_read_bandwidth_gbps",
    "tier_storage_write_bandwidth_gbps",
    "storage_read_p50_ms",
    "storage_read_p95_ms",
    "end_to_end_p50_ms",
    "end_to_end_p95_ms",
    "cache_hit_rate",
)


@dataclass(frozen=True, slots=True)
class Interval:
    """A predicted figure, and between what it may lie."""

    value: float
    """The middle of the simulations on nearly the same device."""
    low: float
    high: float


def figures(result: Result) -> dict[str, float]:
    """The figures that are predicted, by name; one that was not seen is absent."""
    summary = result.document()["summary"]
    stats = summary["cache_stats"]
    end_to_end = summary["end_to_end_latency_ms"] or {}
    found = {
        **{name: summary.get(name, stats.get(name)) for name in METRICS},
        "end_to_end_p50_ms": end_to_end.get("p50"),
        "end_to_end_p95_ms": end_to_end.get("p95"),
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def predict(config: Config, result: Result, known: Calibrated) -> dict[str, Interval]:
    """What a simulation's figures are on nearly the same device, and how far they may be off (P2).

    Off by other seeds, and by the calibration's spread.
    """
    assert config.device_profile is not None
    profile, base = load_profile(config.device_profile), figures(result)
    near = [_simulated_on(config, scaled(profile, share, share)) for share in _near_shares()]
    seeds = [
        figures(simulate_aside(config.changed(seed=config.seed + 1 + number))) for number in range(SEEDS)
    ]
    speeds = [_simulated_on(config, other) for _name, other in slower_and_faster(profile, known)]
    intervals = {}
    for name, first in base.items():
        value = median([first, *(other.get(name, first) for other in near)])
        off = [
            _reach(value, [other.get(name, value) for other in others]) for others in (seeds, speeds + near)
        ]
        low, high = (sum(side**2 for side in sides) ** 0.5 for sides in zip(*off, strict=True))
        intervals[name] = Interval(value, max(0.0, value - low), value + high)
    return intervals


def _near_shares() -> list[float]:
    return [1 + _NEAR_SHARE * (2 * (number + 0.5) / NEAR - 1) for number in range(NEAR)]


def _reach(value: float, others: list[float]) -> tuple[float, float]:
    """How far the others lie below and above."""
    return max(0.0, value - min(others)), max(0.0, max(others) - value)


def _simulated_on(config: Config, profile: Profile) -> dict[str, float]:
    with profile_file(profile) as path:
        return figures(simulate_aside(config.changed(device_profile=str(path))))


def slower_and_faster(profile: Profile, known: Calibrated) -> Iterator[tuple[str, Profile]]:
    """The same devices, slower and faster by the spread of the calibration."""
    spreads = known.read_spread, known.write_spread
    for name, sign in (("slower", -1), ("faster", 1)):
        yield name, scaled(profile, *(max(_SLOWEST, 1 + sign * spread) for spread in spreads))


def note(config: Config, result: Result, say: Callable[[str], None]) -> None:
    """Add to a simulated result what is known of its certainty, where its profile was calibrated."""
    known = load_calibration(config.device_profile)
    if known is None or config.enable_autoscaling or result.incomplete:
        return
    say(f"simulating it {NEAR + SEEDS + 2} times more: other seeds, slightly faster and slower devices")
    intervals = predict(config, result, known)
    result.prediction = {
        "device": known.device,
        "calibrated": known.date,
        "spread": {"read": known.read_spread, "write": known.write_spread},
        "seeds": SEEDS + 1,
        "near": NEAR + 1,
        "intervals": {
            name: {"value": one.value, "low": one.low, "high": one.high} for name, one in intervals.items()
        },
        "extrapolates": list(extrapolations(config, entry_sizes(result), known)),
        "calibration_warnings": list(known.warnings),
    }


def lines(prediction: dict[str, Any]) -> Iterator[str]:
    """The intervals for a person."""
    yield "### PREDICTION ###"
    yield f"  Calibrated on {prediction['device']}, {prediction['calibrated']}"
    if "near" in prediction:
        alike = f"{prediction['near']} simulations on nearly the same device"
        yield f"  The middle of {alike}, and how far it may be off"
    for name, one in prediction["intervals"].items():
        yield f"  {name:<36} {one['value']:>10.4g}   {one['low']:.4g} to {one['high']:.4g}{_end(one)}"
    for text in prediction["extrapolates"]:
        yield f"  extrapolates: {text}"
    for text in prediction["calibration_warnings"]:
        yield f"  calibration: {text}"


def _end(one: dict[str, float]) -> str:
    """Says where the value is itself an end: no other simulation went beyond it there."""
    if one["low"] == one["high"]:
        return ", the same in all simulations"
    if one["value"] == one["low"]:
        return ", none was lower"
    return ", none was higher" if one["value"] == one["high"] else ""
