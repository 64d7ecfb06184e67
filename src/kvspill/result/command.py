"""The command line that reproduces a run, rebuilt from its resolved configuration."""

import json
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pydantic import SecretStr

from kvspill.config import Config
from kvspill.config.blocks import moves_whole_blocks
from kvspill.config.fields import Listed, extra_of, flag_of, is_flag
from kvspill.config.origins import was_given
from kvspill.config.plugged import option_flag
from kvspill.errors import UsageError

_NOT_THE_RUN = "output"
"""Group of the settings that say where things go: repeated, they would overwrite what is there."""

Resolve = Callable[[Mapping[str, Any]], Config]
"""From the values given to a command to what it runs."""


def command_of(config: Config, *, simulated: bool, launcher: Sequence[str] = ()) -> str:
    """`kvspill run …` or `kvspill simulate …` with all that must be said to get this configuration.

    launcher: what starts the command, such as mpirun.
    """
    return command_line([*launcher, "kvspill", "simulate" if simulated else "run"], config)


def command_line(
    command: Sequence[str],
    config: Config,
    resolve: Resolve = Config.model_validate,
    without_flag: Collection[str] = (),
) -> str:
    """The command with all that must be said to get this configuration.

    Settings that only a file can give come by a pipe, on one line that every POSIX shell takes.
    resolve: how the command makes its configuration. without_flag: settings for which it has no flag.
    """
    given, words = _needed(config, resolve), list(command)
    file_keys = [name for name in given if not is_flag(Config.model_fields[name]) or name in without_flag]
    if "personas" in file_keys and "workload_preset" in given:
        file_keys.append("workload_preset")
    for name in given:
        if name == "plugins":
            words += _plugin_flags(config)
        elif name not in file_keys:
            words += _flag(name, given[name])
    values = json.dumps({name: given[name] for name in file_keys if name != "plugins"})
    if values == "{}":
        return shlex.join(words)
    return f"printf %s {shlex.quote(values)} | {shlex.join([*words, '--config', '/dev/stdin'])}"


def _plugin_flags(config: Config) -> list[str]:
    """The options of plug-ins. Secrets come from the environment again: a mask would be taken for one."""
    words: list[str] = []
    for plugin, options in config.plugins.items():
        for option, value in options.items():
            if not isinstance(value, SecretStr):
                text = str(value).lower() if isinstance(value, bool) else str(value)
                words += _said(option_flag(plugin, option), text)
    return words


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
        words += _said(flag_of(name), text)
    return words


def _said(flag: str, text: str) -> list[str]:
    """A value that begins with a dash would be taken for a flag."""
    return [f"{flag}={text}"] if text.startswith("-") else [flag, text]


def _needed(config: Config, resolve: Resolve) -> dict[str, Any]:
    """The fewest values from which the same configuration comes: some follow from others."""
    if config.calibrate_from is not None:
        # The run takes the time per token from there again, and refuses another beside it.
        usual_ms = Config.model_fields["decode_ms_per_token"].default
        config = config.model_copy(update={"decode_ms_per_token": usual_ms})
    wanted = {
        name: value
        for name, value in config.model_dump(mode="json").items()
        if not _is_internal(name) and value is not None
    }
    usual = Config().model_dump(mode="json")
    given = {name: value for name, value in wanted.items() if value != usual[name]}
    # With an engine, a trace or a number of requests even a default must be said: they have their own.
    given |= {name: wanted[name] for name in _differing(config, given, resolve) if name in wanted}
    for name in sorted(given):
        without = {other: value for other, value in given.items() if other != name}
        if not _differing(config, without, resolve):
            given = without
    if was_given(config, "io_size") and moves_whole_blocks(config.engine):
        # Left out, the engine would take the size of the recording's blocks.
        given["io_size"] = wanted["io_size"]
    return {name: given[name] for name in Config.model_fields if name in given}


def _differing(config: Config, given: Mapping[str, Any], resolve: Resolve) -> list[str]:
    """Settings that would not come out the same; all of them where the values given are refused."""
    names = [name for name in Config.model_fields if not _is_internal(name)]
    try:
        other = resolve(given)
    except (ValueError, UsageError):
        return names
    return [name for name in names if getattr(other, name) != getattr(config, name)]


def _is_internal(name: str) -> bool:
    extra = extra_of(Config.model_fields[name])
    return bool(extra.get("internal")) or extra.get("group") == _NOT_THE_RUN
