"""The settings of a run as comparisons and tables see them: which count, and when two are the same."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from kvspill.config import Config
from kvspill.config.fields import extra_of
from kvspill.report.columns import PARAMETERS

NOT_SETTINGS = frozenset(
    (
        *("sources", "ignored_keys", "output", "xlsx_output", "log_ops", "quiet", "verbose", "debug"),
        *("io_trace_log", "validation_trace", "log_level"),
        *("seed", "trials", "ranks", "ranks_timeout", "cache_dir", "max_errors", "max_stall", "prometheus"),
    )
)
"""Where things are written, how often, and when to give up: none of it makes another configuration."""

DEFAULT = "default"


@cache
def _defaults() -> dict[str, Any]:
    """Settings beyond the parameters' columns, at their defaults."""
    every = Config().model_dump(mode="json")
    return {name: every[name] for name in every if name not in PARAMETERS and name not in NOT_SETTINGS}


def other_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a configuration has besides the parameters' columns and not at its default."""
    return {
        name: config[name]
        for name, default in _defaults().items()
        if name in config and canonical(config[name]) != canonical(default)
    }


def with_defaults(others: Mapping[str, Any]) -> dict[str, Any]:
    """All settings besides the parameters' columns, from those that are not at their default."""
    return {**_defaults(), **others}


_WITHOUT_PLAN = frozenset(("tiers", "io", "criteria", "output"))
_CONTROLS = frozenset(
    (
        *("max_concurrent_allocs", "precondition", "precondition_size_gb", "precondition_threads"),
        *("trials", "ranks", "ranks_timeout", "max_errors", "max_stall", "cache_dir"),
    )
)


@cache
def planning() -> frozenset[str]:
    """Settings that say who asks for what: with others, a run plans other operations."""
    groups = {name: extra_of(info).get("group") for name, info in Config.model_fields.items()}
    return frozenset(
        name
        for name, group in groups.items()
        if group and group not in _WITHOUT_PLAN and name not in _CONTROLS
    )


def canonical(value: Any) -> str:
    """The same text for the same setting, whether it was read from JSON, a spreadsheet or a name."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, sort_keys=True, default=str)
    try:
        return f"{float(value):.12g}"
    except (TypeError, ValueError, OverflowError):
        return str(value)


def flatten(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Leaves of nested mappings under dotted names."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flatten(f"{prefix}.{key}", inner)
    else:
        yield prefix, value
