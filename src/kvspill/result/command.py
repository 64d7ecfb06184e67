"""The command line that reproduces a run, rebuilt from its resolved configuration."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from kvspill.config import Config
from kvspill.config.fields import Listed, extra_of, flag_of, is_flag
from kvspill.errors import UsageError

_NOT_THE_RUN = "output"
"""Group of the settings that say where things go: repeated, they would overwrite what is there."""


def command_of(config: Config, *, simulated: bool) -> str:
    """`kvspill run …` or `kvspill simulate …` with all that must be said to get this configuration.

    Settings that only a file can give follow as one on the standard input.
    """
    given = _needed(config)
    words = ["kvspill", "simulate" if simulated else "run"]
    file_keys = [name for name in given if not is_flag(Config.model_fields[name])]
    if "personas" in file_keys and "workload_preset" in given:
        file_keys.append("workload_preset")
    for name in given:
        if name not in file_keys:
            words += _flag(name, given[name])
    if not file_keys:
        return shlex.join(words)
    values = json.dumps({name: _without_secrets(config, name, given[name]) for name in file_keys})
    return f"{shlex.join([*words, '--config', '/dev/stdin'])} <<< {shlex.quote(values)}"


def _without_secrets(config: Config, name: str, value: Any) -> Any:
    """Secrets come from the environment again: a mask in their place would be taken for one."""
    if name != "plugins":
        return value
    return {
        plugin: {option: shown for option, shown in value[plugin].items() if not _is_secret(given[option])}
        for plugin, given in config.plugins.items()
    }


def _is_secret(value: Any) -> bool:
    return isinstance(value, SecretStr)


def _flag(name: str, value: Any) -> list[str]:
    if value is True:
        return [flag_of(name)]
    values = value if isinstance(value, list) else [value]
    texts = [f"{item:.0f}" if isinstance(item, float) and item.is_integer() else str(item) for item in values]
    if Listed not in Config.model_fields[name].metadata:
        # Only directories are given by a flag each.
        texts = [",".join(texts)]
    words: list[str] = []
    for text in texts:
        # A value that begins with a dash would be taken for a flag.
        words += [f"{flag_of(name)}={text}"] if text.startswith("-") else [flag_of(name), text]
    return words


def _needed(config: Config) -> dict[str, Any]:
    """The fewest values from which the same configuration comes: some follow from others."""
    wanted = {
        name: value
        for name, value in config.model_dump(mode="json").items()
        if not _is_internal(name) and value is not None
    }
    usual = Config().model_dump(mode="json")
    given = {name: value for name, value in wanted.items() if value != usual[name]}
    # With an engine, a trace or a number of requests even a default must be said: they have their own.
    given |= {name: wanted[name] for name in _differing(config, given) if name in wanted}
    for name in sorted(given):
        without = {other: value for other, value in given.items() if other != name}
        if not _differing(config, without):
            given = without
    return {name: given[name] for name in Config.model_fields if name in given}


def _differing(config: Config, given: Mapping[str, Any]) -> list[str]:
    """Settings that would not come out the same; all of them where the values given are refused."""
    names = [name for name in Config.model_fields if not _is_internal(name)]
    try:
        other = Config.model_validate(dict(given))
    except (ValueError, UsageError):
        return names
    return [name for name in names if getattr(other, name) != getattr(config, name)]


def _is_internal(name: str) -> bool:
    extra = extra_of(Config.model_fields[name])
    return bool(extra.get("internal")) or extra.get("group") == _NOT_THE_RUN
