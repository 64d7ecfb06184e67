"""Whether the results of a suite are those of its rows: a file in its directory can be from anywhere."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kvspill.config import Config
from kvspill.config.messages import shown
from kvspill.errors import UsageError
from kvspill.result.schema import Result
from kvspill.suite.manifest import Manifest, RowStatus, read_result
from kvspill.suite.scenario import OWN_KEYS, Scenario, to_config

_NOT_THE_LOAD = {*OWN_KEYS, "cache_dir", "log_level", "verbose", "sources", "packages", "ignored_keys"}
_FROM_THE_MACHINE = {
    *("gpu_tier", "gpu_mem_gb", "load_to", "io_size", "decode_ms_per_token", "device_profile"),
}
"""Settings that a run finds out where the row leaves them open."""
_MASK = "**********"
"""How a secret stands in a result; another machine may lack it."""


def without_foreign(folder: Path, manifest: Manifest) -> tuple[Manifest, list[str]]:
    """The suite without the results that its rows would not give now, and a line about each of them."""
    said = []
    for number, row in enumerate(manifest.rows):
        result = read_result(folder, row) if row.finished else None
        why = None if result is None else _why_not(row.scenario, result, manifest.simulated)
        if why is not None:
            manifest = manifest.with_row(number, status=RowStatus.PENDING, reason=why, seconds=None)
            said.append(f"{row.scenario.name}: {row.file} is no result of this row: {why}; it runs again")
    return manifest, said


def _why_not(scenario: Scenario, result: Result, simulated: bool) -> str | None:
    if result.simulated != simulated:
        return f"it is {'simulated' if result.simulated else 'measured'}, the suite is not"
    try:
        config = to_config(scenario)
    except UsageError as error:
        return f"the row's settings are refused ({error})"
    name = next(_differing(config, scenario.settings, result.config), None)
    if name is None:
        return None
    there, here = result.config.get(name), config.model_dump(mode="json")[name]
    return f"{name} is {shown(there)} there and {shown(here)} in the row"


def _differing(config: Config, given: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    for name, value in config.model_dump(mode="json").items():
        left_open = name in _FROM_THE_MACHINE and given.get(name) in (None, "auto")
        if name in _NOT_THE_LOAD or left_open:
            continue
        if name not in found or _open(found[name]) != _open(value):
            yield name


def _open(value: Any) -> Any:
    """A value without the secrets in it."""
    if isinstance(value, dict):
        return {key: _open(item) for key, item in value.items() if item != _MASK}
    return value
