"""Scenarios: YAML files of named runs, built in or the user's own, filled in for this machine."""

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from kvspill.config import Config
from kvspill.config.config import WEEK_SECONDS
from kvspill.config.fields import extra_of
from kvspill.config.groups import Rag
from kvspill.config.load import load_config, option_variable
from kvspill.config.messages import shown
from kvspill.config.plugged import PREFIX, options_of, usable_plugins
from kvspill.config.yaml_text import YamlFile, read_yaml
from kvspill.errors import UsageError
from kvspill.machine.gpu import why_unusable
from kvspill.models import all_models
from kvspill.plugins import Kind
from kvspill.records import GIB
from kvspill.suite.sizing import Sizes, quick_seconds
from kvspill.texts import counted, hint
from kvspill.workload.rag import LARGE_MODEL_LAYERS

_SCENARIOS = Path(__file__).parent / "scenarios"
BY_DEFAULT, WITH_ALL, BY_NAME = "by default", "with all", "by name"
"""When a built-in file runs: without a name, with `all`, or only by its name."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
OWN_KEYS = ("output", "quiet", "debug", "log_ops", "xlsx_output", "io_trace_log", "prometheus")
"""Settings that belong to the suite and not to one of its rows."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of a suite. Its settings may hold `${…}` until they are filled in."""

    name: str
    title: str
    purpose: str
    settings: Mapping[str, Any]
    origin: str
    notes: tuple[str, ...] = ()
    """What was changed to fit this machine."""


@dataclass(frozen=True, slots=True)
class Builtin:
    """A scenario file that comes with kvspill, and when it runs."""

    path: Path
    runs: str
    order: float
    aliases: tuple[str, ...]


@cache
def builtins() -> Mapping[str, Builtin]:
    """By name and in their order. They are found by listing the folder: a new file is a new scenario."""
    found = []
    for path in _SCENARIOS.glob("*.yaml"):
        data = read_yaml(str(path), "scenario file").data
        runs, order = data.get("runs", WITH_ALL), data.get("order", math.inf)
        found.append(Builtin(path, runs, order, tuple(data.get("aliases", ()))))
    return {item.path.stem: item for item in sorted(found, key=lambda item: (item.order, item.path.stem))}


def default_names() -> tuple[str, ...]:
    """What a suite runs where nothing is named."""
    return tuple(name for name, item in builtins().items() if item.runs == BY_DEFAULT)


def builtin_text(name: str) -> str:
    """The YAML of a built-in scenario, to be copied and changed."""
    found = canonical(name)
    if found is None:
        raise UsageError(f"{shown(name)}: no built-in scenario; choose {', '.join(builtins())}")
    return builtins()[found].path.read_text(encoding="utf-8")


def canonical(word: str) -> str | None:
    """The built-in scenario that a word means, or None."""
    plain = word.strip().lower()
    for candidate in (plain, plain.replace("_", "-"), plain.replace("-", "_")):
        for name, item in builtins().items():
            if candidate == name or candidate in item.aliases:
                return name
    return None


def is_file(word: str) -> bool:
    """Whether a word names a scenario file and not a built-in scenario."""
    return canonical(word) is None and (word.endswith((".yaml", ".yml")) or Path(word).is_file())


def select(words: Iterable[str]) -> list[Scenario]:
    """The scenarios that these names and files stand for, in their order; none means the default ones."""
    wanted = [word for word in words if word.strip()] or default_names()
    found: list[Scenario] = []
    for word in wanted:
        if word.lower() == "all":
            found += [row for item in builtins().values() if item.runs != BY_NAME for row in load(item.path)]
        elif (name := canonical(word)) is not None:
            found += load(builtins()[name].path)
        elif is_file(word):
            found += load(Path(word))
        else:
            remedy = f"choose {', '.join(builtins())}, all or a file"
            meant = hint(word, [*builtins(), "all", "mlperf"], remedy, cutoff=0.5)
            raise UsageError(f"{shown(word)}: unknown scenario; {meant}")
    names = [row.name for row in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{shown(twice)}: appears twice in this suite; give each scenario its own name")
    return found


def load(path: Path) -> list[Scenario]:
    """The scenarios of one file, checked as far as that is possible before they are filled in."""
    file = read_yaml(str(path), "scenario file")
    unknown = sorted(set(file.data) - {"common", "scenarios", "title", "order", "runs", "aliases"})
    if unknown:
        raise UsageError(
            f"{file.where((unknown[0],))}: {shown(unknown[0])}: unknown key; a scenario file has "
            "`scenarios` and may have `common` and `title`"
        )
    rows = file.data.get("scenarios")
    if not isinstance(rows, list) or not rows:
        raise UsageError(
            f"{path}: has no list of scenarios; write `scenarios:` and rows that start with `- name:`"
        )
    common = _settings(file.data.get("common", {}), f"{path}: common")
    return [_scenario(file, row, number, common) for number, row in enumerate(rows, start=1)]


def _scenario(file: YamlFile, row: Any, number: int, common: Mapping[str, Any]) -> Scenario:
    where = f"{file.path}: scenario {number}"
    if not isinstance(row, dict):
        raise UsageError(f"{where}: is not a mapping; give it a name and a config")
    unknown = [str(key) for key in row if key not in ("name", "title", "purpose", "config")]
    if unknown:
        raise UsageError(
            f"{where}: {shown(unknown[0])}: unknown key; a scenario has name, title, purpose and config"
        )
    name = row.get("name")
    if name is None:
        raise UsageError(f"{where}: has no name; give it one, as in `- name: mine`")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"{where}: name {shown(name)}: is no name for a file; use letters, digits, '-', '_' and '.'"
        )
    settings = {**common, **_settings(row.get("config", {}), f"{file.path}: {name}")}
    return Scenario(
        name=name,
        title=str(row.get("title", name)),
        purpose=str(row.get("purpose", "")),
        settings=settings,
        origin=file.path,
    )


def _settings(given: Any, where: str) -> dict[str, Any]:
    given = {} if given is None else given
    if not isinstance(given, dict):
        raise UsageError(f"{where}: config is not a mapping; write lines like num_users: 50")
    known = [name for name, info in Config.model_fields.items() if not extra_of(info).get("internal")]
    for key in given:
        if key in OWN_KEYS:
            raise UsageError(f"{where}: {key}: belongs to the whole suite; leave it out of the file")
        if key not in known:
            meant = hint(str(key).replace("-", "_"), known, "`kvspill run --help-all` shows all settings")
            raise UsageError(f"{where}: {shown(key)}: unknown setting; {meant}")
    return dict(given)


def fill(scenario: Scenario, sizes: Sizes, extra: Mapping[str, Any], *, fit: bool = True) -> Scenario:
    """Put the derived values in, add what the suite sets for every row, and fit it to the machine."""
    settings: dict[str, Any] = {}
    notes: list[str] = []
    for name, value in scenario.settings.items():
        where = f"{scenario.origin}: {scenario.name}: {name}"
        filled = _filled(value, sizes.values, where)
        timed = name == "duration" and isinstance(value, int | float) and 0 < value <= WEEK_SECONDS
        if timed and sizes.quick and filled == value:
            filled = quick_seconds(float(value))
            if filled != value:
                notes.append(f"duration {value:g} -> {filled:g} s (--quick)")
        settings[name] = filled
    settings.setdefault("model", sizes.values["model"])
    if settings.get("storage_tier", "on") in ("on", True):
        settings.setdefault("storage_capacity_gb", sizes.values["storage_gb"])
        settings.update(extra)
    else:
        settings.update({name: value for name, value in extra.items() if name != "cache_dir"})
    if fit:
        notes += _fit(settings, sizes)
    notes += _fit_documents(settings)
    return replace(scenario, settings=settings, notes=(*scenario.notes, *notes))


def placeholders(rows: Iterable[Scenario]) -> frozenset[str]:
    """The derived values that these rows ask for."""
    return frozenset(name for row in rows for name in _PLACEHOLDER.findall(repr(row.settings)))


def _filled(value: Any, values: Mapping[str, Any], where: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, values, where) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, values, where) for item in value]
    if not isinstance(value, str):
        return value
    for name in _PLACEHOLDER.findall(value):
        if name not in values:
            raise UsageError(f"{where}: ${{{shown(name)}}}: unknown; use one of {', '.join(sorted(values))}")
    whole = _PLACEHOLDER.fullmatch(value)
    if whole is not None:
        return values[whole[1]]
    return _PLACEHOLDER.sub(lambda match: str(values[match[1]]), value)


def _fit(settings: dict[str, Any], sizes: Sizes) -> list[str]:
    """Lower what this machine cannot give; each change becomes a note."""
    notes = []
    room = sizes.users_max(str(settings.get("model", sizes.values["model"])))
    if (
        settings.get("enable_autoscaling") is True
        and room is not None
        and number(settings.get("max_users", room + 1)) > room
    ):
        settings["max_users"] = room
        notes.append(f"search limited to {counted(room, 'user')} (what this suite may take here)")
    limits: Sequence[tuple[str, float | None, str]] = (
        ("cpu_mem_gb", sizes.cpu_gb_max, "DRAM"),
        ("storage_capacity_gb", sizes.storage_gb_max, "storage"),
        ("num_users", room, "users"),
    )
    for name, limit, label in limits:
        value = settings.get(name)
        if limit is not None and number(value) > limit:
            settings[name] = limit
            unit = "" if name == "num_users" else " GiB"
            notes.append(f"{label} {value:g} -> {limit:g}{unit} (what this suite may take here)")
    return notes


def _fit_documents(settings: dict[str, Any]) -> list[str]:
    """Ingest no more documents than half of the last tier can hold."""
    spec = all_models().get(str(settings.get("model")))
    if settings.get("enable_rag") is not True or spec is None:
        return []
    large = spec.layers >= LARGE_MODEL_LAYERS
    tokens = Rag().large_model_document_tokens[1] if large else Rag().document_tokens[1]
    tiers = ("storage_capacity_gb", "cpu_mem_gb", "gpu_mem_gb")
    last_gb = next((size for name in tiers if (size := number(settings.get(name))) > 0), 0.0)
    room = int(last_gb * GIB / 2 / spec.kv().of(tokens))
    wanted = number(settings.get("rag_num_docs", Config.model_fields["rag_num_docs"].default))
    if wanted <= room:
        return []
    settings["rag_num_docs"] = max(1, room)
    return [f"documents {wanted:g} -> {max(1, room)} (half of the last tier may hold them)"]


def number(value: Any) -> float:
    """A plain finite number, or 0: what is wrong with anything else, the configuration says."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15
    return float(value) if usable else 0.0


def unavailable(settings: Mapping[str, Any]) -> str | None:
    """Why a row with these settings cannot run on this machine, in one line, or None."""
    if settings.get("gpu_tier") != "real":
        return None
    why_not = why_unusable()
    return None if why_not is None else f"needs --gpu-tier real: {why_not}"


def to_config(scenario: Scenario) -> Config:
    """The validated configuration of a filled scenario; errors name the scenario and the setting."""
    label = f"{scenario.name}: "
    flags = {name: (label + name, value) for name, value in scenario.settings.items() if value is not None}
    declared = usable_plugins()
    secrets = {
        name: os.environ[name]
        for plugin, option in options_of(declared)
        if option.secret and (name := option_variable(plugin, option)) in os.environ
    }
    return load_config(flags, secrets, declared=declared)


def own_options(config: Config) -> dict[str, Any]:
    """The options of the storage's backend for a row. Secrets go by the environment: no file holds them."""
    plugin = usable_plugins()[Kind.BACKEND].get(config.storage_backend, "--storage-backend")
    given, plain = config.plugins.get(plugin.name, {}), {}
    for option in plugin.options:
        value = given.get(option.name)
        if isinstance(value, SecretStr):
            os.environ[option_variable(plugin, option)] = value.get_secret_value()
        elif value is not None:
            plain[f"{PREFIX}{plugin.name}.{option.name}"] = value
    return plain
