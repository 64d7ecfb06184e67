"""From what a user asks of a suite to the rows that will run: directories, sizes, settings."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kvspill.config import Config
from kvspill.config.fields import flag_of
from kvspill.config.load import load_config, option_variable
from kvspill.config.messages import shown
from kvspill.config.plugged import options_of, usable_plugins
from kvspill.config.yaml_text import yaml_value
from kvspill.errors import UsageError
from kvspill.machine.hardware import detect
from kvspill.models import all_models
from kvspill.records import UNLIMITED_BYTES
from kvspill.run.bandwidth import Bandwidth, measure_at_addresses, measure_bandwidth, modelled_bandwidth
from kvspill.run.preflight import cache_dirs, needs_directories
from kvspill.run.progress import Progress
from kvspill.run.stores import FREE_SPACE_SHARE, addresses, ranks_at_stores, room_at_addresses
from kvspill.storage.addresses import directory_of
from kvspill.storage.profiles import DEFAULT_PRESET, load_profile
from kvspill.suite.scenario import (
    OWN_KEYS,
    Scenario,
    default_names,
    fill,
    is_file,
    own_options,
    placeholders,
    select,
    to_config,
    unavailable,
)
from kvspill.suite.sizing import Sizes, Wishes, derive

_PLACE = "KVSPILL_CACHE_DIR"


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for, not yet fitted to a machine."""

    words: Sequence[str] = ()
    wishes: Wishes = field(default_factory=Wishes)
    model_asked: bool = False
    """Whether the wished model was asked for; else a file that names one has it its way."""
    cache_dirs: Sequence[str] = ()
    simulated: bool = False
    device_profile: str | None = None
    rag: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings for every row."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows ready to run."""

    sizes: Sizes
    scenarios: Sequence[Scenario]
    refused: Mapping[str, str]
    """Why built-in rows cannot run on this machine, by name."""
    asked: frozenset[str]
    """The derived values that some row asks for."""


def prepare(order: Order, progress: Progress, environ: Mapping[str, str] | None = None) -> Prepared:
    """Choose the rows, look at the machine, derive the sizes and fill the rows in."""
    chosen = select(order.words)
    wishes = (
        order.wishes if order.model_asked else replace(order.wishes, model=_model(chosen, order.wishes.model))
    )
    base = Config(model=wishes.model)  # an unknown model is refused before anything is touched
    environ = os.environ if environ is None else environ
    stored = _stored(order, wishes.model, environ)
    named = list(stored.cache_dir or ())
    elsewhere = bool(addresses(stored)) and (order.simulated or not needs_directories(stored))
    hardware = detect(None if elsewhere else [directory_of(text) for text in named])
    hardware = replace(hardware, places=()) if elsewhere else hardware
    extra, room = dict(order.changes), None
    if order.device_profile is not None:
        extra["device_profile"] = order.device_profile
    if order.simulated:
        bandwidth = _modelled(order)
    elif elsewhere:
        extra |= {"cache_dir": named, **own_options(stored)}
        # A row's capacity is that of all ranks, but where each has the whole load.
        known = room_at_addresses(stored, ranks_at_stores(stored) if extra.get("per_rank") else 1)
        room = None if known == UNLIMITED_BYTES else int(known / FREE_SPACE_SHARE)
        progress.say(f"looking at the storage at {' '.join(named)}")
        bandwidth = measure_at_addresses(stored)
    else:
        # Several directories are used only where the user names them; else the best one is.
        places = hardware.places if named else hardware.places[:1]
        wanted = base.changed(cache_dir=[str(place.path) for place in places])
        directories = cache_dirs(wanted, Path.cwd())
        extra["cache_dir"] = named if addresses(stored) else [str(path) for path in directories]
        bandwidth = _measured(directories, progress)
    sizes = derive(wishes, hardware, bandwidth, room)
    rows = [_with_rag(row, order) if order.rag else row for row in chosen]
    scenarios = [fill(row, sizes, extra, fit=not order.simulated) for row in rows]
    refused = _refused(scenarios, any(is_file(word) for word in order.words))
    return Prepared(sizes, scenarios, refused, placeholders(chosen))


def _stored(order: Order, model: str, environ: Mapping[str, str]) -> Config:
    """Where the rows store entries, as a run of them would understand it."""
    declared = usable_plugins()
    variables = {option_variable(plugin, option) for plugin, option in options_of(declared)}
    given = {name: environ[name] for name in variables if name in environ}
    place = environ.get(_PLACE, "")
    if place.strip(" :"):
        given[_PLACE] = place if "://" in place else ":".join(filter(None, place.split(":")))
    flags: dict[str, tuple[str, Any]] = {"model": ("--model", model)}
    if order.cache_dirs:
        flags["cache_dir"] = ("--cache-dir", list(order.cache_dirs))
    if "storage_backend" in order.changes:
        flags["storage_backend"] = ("--set storage_backend", order.changes["storage_backend"])
    return load_config(flags, given, declared=declared)


def _model(rows: Sequence[Scenario], usual: str) -> str:
    """The model to derive sizes for: that which all rows name, or the usual one."""
    named = {str(row.settings.get("model", usual)) for row in rows}
    only = named.pop() if len(named) == 1 else usual
    return only if only in all_models() else usual


def _modelled(order: Order) -> Bandwidth:
    name = order.device_profile or DEFAULT_PRESET
    return modelled_bandwidth(load_profile(name), name)


def _measured(directories: tuple[Path, ...], progress: Progress) -> Bandwidth:
    progress.say(f"looking at the storage in {', '.join(map(str, directories))}")
    return measure_bandwidth(directories)


def _with_rag(row: Scenario, order: Order) -> Scenario:
    if row.name not in default_names():
        return row
    retrieval = {"enable_rag": True, "rag_num_docs": order.wishes.rag_docs}
    return replace(row, settings={**row.settings, **retrieval})


def _refused(scenarios: Sequence[Scenario], own_files: bool) -> dict[str, str]:
    """A mistake in a file of the user's own is raised; a built-in row that cannot fit is only noted."""
    refused = {}
    for scenario in scenarios:
        if unavailable(scenario.settings):
            continue
        try:
            to_config(scenario)
        except UsageError as error:
            if own_files:
                raise
            refused[scenario.name] = str(error)
    return refused


def changes(texts: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of --set; one that a flag gives, too, is refused where the two differ."""
    found = dict(assignment(text) for text in texts)
    for name in found.keys() & given.keys():
        if found[name] != given[name]:
            raise UsageError(
                f"--set {name}={shown(found[name])}: contradicts {flag_of(name)} {shown(given[name])}; "
                "leave one of them out"
            )
    return found


def assignment(text: str) -> tuple[str, Any]:
    """NAME=VALUE, the value as YAML reads it."""
    name, equals, value = text.partition("=")
    name = name.strip().removeprefix("--").replace("-", "_")
    if not equals or name not in Config.model_fields:
        raise UsageError(
            f"--set {shown(text)}: is not NAME=VALUE with a setting's name, such as num_users=50"
        )
    if name in OWN_KEYS:
        raise UsageError(f"--set {shown(text)}: {name} belongs to the whole suite; leave it out")
    try:
        return name, yaml_value(value)
    except ValueError as error:
        raise UsageError(f"--set {shown(text)}: {error}; write the value as in a YAML file") from error
