"""The settings of the limit finder: what it searches for, how fast, within which bounds."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from kvspill.config.effects import NO_SEARCH, NO_SLO_SEARCH, NOT_CAPACITY, NOT_QOS, NOT_SLO
from kvspill.config.fields import Group, means_nothing, opt, rare

AUTO_INTERVALS = 240
"""A run is cut into so many intervals where nobody says how long they are."""
INTERVAL_SECONDS_MIN, INTERVAL_SECONDS_MAX = 0.2, 5.0
STAGE_INTERVALS = 6
"""Intervals that a stage is measured at least."""
STAGE_STRETCH = 4
"""A stage whose window leaves doubt may last so many times as long."""

ServiceClass = Literal["interactive", "responsive", "batch"]


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


class AutoscalingFields(Group):
    """The fields of Config that belong to --enable-autoscaling."""

    enable_autoscaling: bool = opt(
        False, "search for a limit within --duration, starting at --num-users", group="autoscaling"
    )
    autoscaler_mode: Literal["qos", "capacity", "slo"] = opt(
        "qos",
        "qos: most users below --target-saturation; capacity: highest throughput; "
        "slo: most users within --slo-target-ms",
        group="autoscaling",
        no_effect=(NO_SEARCH,),
    )
    target_saturation: Annotated[float, Field(gt=0, lt=1)] = rare(
        0.8,
        "1 - idle p95 / p95 of storage reads that qos accepts at most",
        group="autoscaling",
        no_effect=(NO_SEARCH, NOT_QOS),
    )
    min_users: Annotated[int, Field(ge=1, le=1_000_000)] = rare(
        1, "never fewer users than this", group="autoscaling", no_effect=(NO_SEARCH,)
    )
    max_users: Annotated[int, Field(ge=1, le=1_000_000)] = rare(
        10_000, "never more users than this", group="autoscaling", no_effect=(NO_SEARCH,)
    )
    scale_up_factor: Annotated[float, Field(gt=1, le=10)] = rare(
        1.2, "qos: step up near the target", group="autoscaling", no_effect=(NO_SEARCH, NOT_QOS)
    )
    scale_down_factor: Annotated[float, Field(gt=0, lt=1)] = rare(
        0.8, "qos: step down near the target", group="autoscaling", no_effect=(NO_SEARCH, NOT_QOS)
    )
    autoscaler_interval: Annotated[float, Field(gt=0, le=3600)] | None = rare(
        None,
        "seconds between two looks at the window (default: duration / 240, from 0.2 to 5)",
        group="autoscaling",
        no_effect=(NO_SEARCH,),
    )
    autoscaler_stage: Annotated[float, Field(gt=0, le=86_400)] | None = rare(
        None,
        "seconds that a stage is measured at least, four times that at most (default: 6 intervals)",
        group="autoscaling",
        no_effect=(NO_SEARCH,),
    )
    autoscaler_cooldown: Annotated[int, Field(ge=1, le=1000)] = rare(
        3, "intervals to wait after users were retired", group="autoscaling", no_effect=(NO_SEARCH,)
    )
    capacity_metric: Literal["storage", "generated"] = rare(
        "storage",
        "throughput that capacity maximises: KV tokens moved on the storage tier, or tokens generated",
        group="autoscaling",
        no_effect=(NO_SEARCH, NOT_CAPACITY),
    )
    slo_latency: Literal["added", "end-to-end", "queue-wait", "storage-ttft"] = rare(
        "added",
        "latency that slo keeps within the target; added: end-to-end without generation",
        group="autoscaling",
        no_effect=(NO_SLO_SEARCH, NOT_SLO),
    )
    slo_percentile: Annotated[float, Field(gt=0, lt=100)] = rare(
        95.0, "percentile of that latency", group="autoscaling", no_effect=(NO_SLO_SEARCH, NOT_SLO)
    )
    slo_target_ms: Annotated[float, Field(gt=0, le=1e9)] | None = opt(
        None,
        "latency target of every class in milliseconds (default: each class's own p95 target)",
        group="autoscaling",
    )
    slo_classes: Annotated[
        tuple[ServiceClass, ...], BeforeValidator(_split), Field(min_length=1, max_length=3)
    ] = rare(
        ("interactive", "responsive", "batch"),
        "classes that must keep the target, each on its own",
        group="autoscaling",
        no_effect=(NO_SLO_SEARCH, NOT_SLO),
        metavar="CLASS,CLASS",
    )


def interval_seconds(fields: AutoscalingFields, duration: float) -> float:
    """Seconds between two looks at the window."""
    if fields.autoscaler_interval is not None:
        return fields.autoscaler_interval
    return min(INTERVAL_SECONDS_MAX, max(INTERVAL_SECONDS_MIN, duration / AUTO_INTERVALS))


def stage_intervals(fields: AutoscalingFields, duration: float) -> tuple[int, int]:
    """Shortest and longest stage in intervals."""
    shortest = STAGE_INTERVALS
    if fields.autoscaler_stage is not None:
        shortest = max(1, round(fields.autoscaler_stage / interval_seconds(fields, duration)))
    return shortest, shortest * STAGE_STRETCH


def least_seconds(fields: AutoscalingFields, duration: float, warmup: float) -> float:
    """A search that takes no longer has held no stage: the load settles for an interval before the first."""
    interval = interval_seconds(fields, duration)
    return max(interval, warmup) + stage_intervals(fields, duration)[0] * interval


def closed_by_default(data: dict[str, Any]) -> bool:
    """L2: the qos and slo searches use closed arrivals unless told otherwise."""
    searches = not means_nothing(data.get("enable_autoscaling"))
    replays = not all(means_nothing(data.get(name)) for name in ("trace", "use_burst_trace", "request_rate"))
    return searches and data.get("autoscaler_mode", "qos") != "capacity" and not replays
