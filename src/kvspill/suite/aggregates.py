"""The figures of a submission: how those of ranks and of trials are put together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Final

from kvspill.measure.statistics import coefficient_of_variation, interpolated
from kvspill.result.schema import Result


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of a submission, and how ranks and trials are put together."""

    name: str
    unit: str
    over_ranks: Callable[[Sequence[float]], float] = sum
    over_trials: Callable[[Sequence[float]], float] = fmean


MEASURES: Final = (
    Measure("avg_throughput_tokens_per_sec", "tok/s"),
    Measure("storage_throughput_tokens_per_sec", "tok/s"),
    Measure("decode_bytes_read_gb", "GiB"),
    Measure("tier_storage_read_bandwidth_gbps", "GiB/s"),
    Measure("tier_storage_write_bandwidth_gbps", "GiB/s"),
    Measure("nvme_throughput", "tok/s"),
    Measure("storage_entries", "entries"),
    Measure("storage_read_device_p95_ms", "ms", max, max),
    Measure("storage_write_device_p95_ms", "ms", max, max),
)


def aggregate(trials: Sequence[Sequence[Result]]) -> dict[str, Any]:
    """Figures over ranks and trials: bandwidth and throughput summed over the ranks of a trial and averaged
    over trials, device p95 the maximum of all. Median, p95 and spread over trials stand beside them."""
    figures: dict[str, Any] = {}
    for measure in MEASURES:
        figures[measure.name] = _figure(measure, [_over_ranks(measure, ranks) for ranks in trials])
    both = zip(
        *(figures[f"tier_storage_{verb}_bandwidth_gbps"]["per_trial"] for verb in ("read", "write")),
        strict=True,
    )
    whole = [None if None in pair else sum(pair) for pair in both]
    figures["aggregate_bandwidth_gbps"] = {
        **_figure(Measure("aggregate_bandwidth_gbps", "GiB/s"), whole),
        "rule": "read plus write",
    }
    return figures


def _figure(measure: Measure, per_trial: Sequence[float | None]) -> dict[str, Any]:
    known = [value for value in per_trial if value is not None]
    return {
        "unit": measure.unit,
        "value": measure.over_trials(known) if len(known) == len(per_trial) and known else None,
        "rule": _rule(measure),
        "per_trial": list(per_trial),
        "median": median(known) if known else None,
        "p95": interpolated(known, 95) if known else None,
        "cv": coefficient_of_variation(known),
    }


def _over_ranks(measure: Measure, ranks: Sequence[Result]) -> float | None:
    found = [result.number(measure.name) for result in ranks]
    values = [value for value in found if value is not None]
    return measure.over_ranks(values) if values and len(values) == len(found) else None


def _rule(measure: Measure) -> str:
    if measure.over_ranks is max:
        return "maximum over ranks and trials"
    return "sum over ranks, mean over trials"
