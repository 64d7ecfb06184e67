"""What plug-ins add to the configuration: names to choose from, and options of their own."""

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from pydantic import SecretStr

from kvspill.config.config import Config
from kvspill.config.fields import extra_of, flag_of, is_flag
from kvspill.config.messages import did_you_mean, shown, unknown_choice
from kvspill.errors import UsageError
from kvspill.plugins import IN_BLOCKS, LEAF_FIRST, Broken, Declared, Kind, Need, Option, Plugin, find_all
from kvspill.texts import listed

NOTHING: Final[Declared] = MappingProxyType({})
PREFIX: Final = "plugins."


def kind_of(field: str) -> Kind | None:
    """The kind of plug-in that a field names."""
    value = extra_of(Config.model_fields[field]).get("plugin")
    return None if value is None else Kind(value)


def names(declared: Declared, field: str) -> tuple[str, ...]:
    """What a field that names a plug-in may hold; empty for other fields, and where nothing is declared."""
    kind = kind_of(field)
    found = declared.get(kind) if kind is not None else None
    if kind is None or found is None:
        return ()
    # A backend that is memory belongs to the memory tiers; no setting names it.
    return tuple(name for name, plugin in found.plugins.items() if Need.MEMORY not in plugin.needs)


def help_text(declared: Declared, field: str) -> str:
    """A field's help; {names} in it stands for what it may name."""
    return str(Config.model_fields[field].description).replace("{names}", ", ".join(names(declared, field)))


def options_of(declared: Declared) -> Iterator[tuple[Plugin, Option]]:
    """Every option of every plug-in."""
    for found in declared.values():
        for plugin in found.plugins.values():
            for option in plugin.options:
                yield plugin, option


def option_key(plugin: Plugin, option: Option) -> str:
    """Where an option stands in a YAML file."""
    return f"{PREFIX}{plugin.name}.{option.name}"


def option_flag(plugin: str, option: str) -> str:
    return f"--{plugin}-{option}".replace(".", "-").replace("_", "-")


def without_clashes(declared: Declared) -> Declared:
    """The declarations without plug-ins whose flags are taken: those count as broken."""
    taken = {"--help", "--help-all", "--config"}
    for name, info in Config.model_fields.items():
        if is_flag(info):
            taken |= {flag_of(name), *extra_of(info)["alias_flags"]}
    usable = {}
    for kind, found in declared.items():
        plugins, broken = {}, list(found.broken)
        for name, plugin in found.plugins.items():
            flags = [option_flag(plugin.name, option.name) for option in plugin.options]
            clash = next((flag for flag in flags if flag in taken or flags.count(flag) > 1), None)
            if clash is None:
                plugins[name] = plugin
                taken |= set(flags)
            else:
                broken.append(Broken(name, plugin.origin, f"its flag {clash} is taken"))
        usable[kind] = replace(found, plugins=MappingProxyType(plugins), broken=tuple(broken))
    return MappingProxyType(usable)


def usable_plugins() -> Declared:
    """The plug-ins that can be used: the one set for flags, addresses, checks and runs."""
    return without_clashes(find_all())


def check_ready(config: Config, declared: Declared) -> None:
    """Raise a UsageError where a plug-in in use cannot be used here; a run alone asks its backend."""
    for kind, used in chosen(config).items():
        if kind is Kind.BACKEND or kind not in declared:
            continue
        for name in sorted(used & set(declared[kind].plugins)):
            declared[kind].plugins[name].check_ready(name)


def wrong_name(declared: Declared, field: str, value: object) -> str | None:
    """What is wrong with the name of a plug-in that a field was given, or None."""
    kind, known = kind_of(field), names(declared, field)
    if kind is None or not known or not isinstance(value, str):
        return None
    name, wrong = value, unknown_choice(value, known)
    if kind is Kind.TRACE:
        name, _, path = value.partition(":")
        name = name.lower()
        wrong = (
            f"not of the form FORMAT:PATH with a known format; {did_you_mean(name, known)}"
            f"choose one of {', '.join(known)}, as in --trace mooncake:trace.jsonl"
        )
        if not path:
            return wrong
    if name in known:
        return None
    for broken in declared[kind].broken:
        if broken.name == name:
            return f"{broken.origin} could not be loaded ({broken.reason}); choose {listed(known, 'or')}"
    return wrong


def check_blocks(config: Config, declared: Declared) -> None:
    """Raise a UsageError where chains of blocks would lose their beginnings to an eviction policy."""
    models, policies = declared.get(Kind.IO_MODEL), declared.get(Kind.POLICY)
    model = None if models is None else models.plugins.get(config.io_model)
    if policies is None or model is None or IN_BLOCKS not in model.can:
        return
    able = [name for name, plugin in policies.plugins.items() if LEAF_FIRST in plugin.can]
    for flag, name in (
        ("--eviction-policy", config.eviction_policy),
        ("--storage-eviction-policy", config.storage_eviction_policy),
    ):
        if name is not None and name not in able:
            raise UsageError(
                f"{flag} {name}: cannot evict the end of a chain before its beginning; "
                f"use {listed(able, 'or')} with --io-model {config.io_model}"
            )


def parsed_option(declared: Declared, key: str, value: object) -> Any:
    """The value of an option as a plug-in gets it; a ValueError says what is wrong."""
    for plugin, option in options_of(declared):
        if option_key(plugin, option) == key:
            found = option.parse(value)
            return SecretStr(str(found)) if option.secret else found
    known = sorted(option_key(plugin, option) for plugin, option in options_of(declared))
    near = unknown_choice(key, known) if known else "unknown; no plug-in here has options"
    raise ValueError(near)


def is_secret(declared: Declared, key: str) -> bool:
    """Whether an option's value must not be shown."""
    return any(option.secret for plugin, option in options_of(declared) if option_key(plugin, option) == key)


def chosen(config: Config) -> dict[Kind, set[str]]:
    """The names of the plug-ins that a configuration uses."""
    policies = {config.eviction_policy, config.storage_eviction_policy or config.eviction_policy}
    formats = set() if config.recording is None else {config.recording[0]}
    return {
        Kind.BACKEND: {config.storage_backend},
        Kind.POLICY: policies,
        Kind.IO_MODEL: {config.io_model},
        Kind.TRACE: formats,
    }


def packages(config: Config, declared: Declared) -> dict[str, str]:
    """Where the plug-ins in use come from that are not ours: the package with its version, by name."""
    used = chosen(config)
    return {
        f"{kind.value}:{plugin.name}": plugin.origin
        for kind, found in declared.items()
        for plugin in found.plugins.values()
        if not plugin.is_ours and plugin.name in used[kind]
    }


def idle_options(config: Config, declared: Declared) -> Iterator[tuple[str, str]]:
    """Options that were given for plug-ins that are not used, as key and reason."""
    used = chosen(config)
    for kind, found in declared.items():
        for plugin in found.plugins.values():
            if plugin.name in used[kind]:
                continue
            for name in config.plugins.get(plugin.name, {}):
                yield f"{PREFIX}{plugin.name}.{name}", f"the plug-in {shown(plugin.name)} is not used"
