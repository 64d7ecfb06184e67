"""From flags, environment and YAML to one Config: flag > environment > YAML > default."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from kvspill.config import Config
from kvspill.config.fields import KeyPath, extra_of, flag_of, is_flag, means_nothing
from kvspill.config.legacy import SECTIONS, Translation, need_mapping, shown_path, translate
from kvspill.config.messages import Location, problem, shown
from kvspill.config.origins import (
    ENVIRONMENT_PREFIX,
    OF_COMMAND,
    naming_variables,
    variable_of,
    variables_of,
)
from kvspill.config.plugged import (
    NOTHING,
    PREFIX,
    check_blocks,
    check_ready,
    is_secret,
    option_flag,
    option_key,
    options_of,
    packages,
    parsed_option,
    wrong_name,
)
from kvspill.errors import UsageError
from kvspill.plugins import Declared, Kind, Option, Plugin, refuse_credentials, without_password
from kvspill.texts import hint

if TYPE_CHECKING:
    from kvspill.config.yaml_text import YamlFile


@dataclass(frozen=True, slots=True)
class Given:
    """A value as the user gave it, and the words under which they will recognise it."""

    value: Any
    source: Literal["flag", "environment", "file"]
    label: str

    @property
    def joint(self) -> str:
        """What stands between the label and the value."""
        return "=" if self.source == "environment" else " "

    def says(self) -> str:
        """The setting as the user wrote it."""
        if self.value is True and self.source == "flag":
            return self.label
        values = self.value if isinstance(self.value, list) else [self.value]
        return f"{self.label}{self.joint}{' '.join(shown(value) for value in values)}"


def load_config(
    flags: Mapping[str, tuple[str, Any]] | None = None,
    environ: Mapping[str, str] | None = None,
    config_file: str | None = None,
    defaults: Mapping[str, Any] | None = None,
    declared: Declared = NOTHING,
) -> Config:
    """Resolve a configuration.

    flags: field name, or plugins.PLUGIN.OPTION -> (flag as typed, raw value). defaults: a command's own,
    weaker than everything given. declared: the plug-ins there are, against which names are checked.
    """
    environ = environ or {}
    config_file = config_file or environ.get(ENVIRONMENT_PREFIX + "CONFIG") or None
    file = _read(config_file) if config_file else None
    translation = translate(file) if file else Translation({})
    given = _from_file(file, translation) if file else {}
    given |= _from_environment(environ, declared)
    given |= {name: Given(value, "flag", label) for name, (label, value) in (flags or {}).items()}
    _check_addresses(given, declared)
    _refuse_credentials_in_endpoints(given)
    _refuse_preset_over_personas(given)
    _refuse_unknown_names(given, declared)
    _choose_backend(given, declared)
    defaults = {**_suiting(given, declared), **(defaults or {})}
    data = {**defaults, **{name: item.value for name, item in given.items() if PREFIX not in name}}
    data["plugins"] = _plugin_options(given, declared)
    counted = given.get("max_requests")
    if counted is not None and not means_nothing(counted.value) and "duration" not in given:
        data.pop("duration", None)
    data["ignored_keys"] = tuple(translation.ignored)
    try:
        with naming_variables({name: item.label for name, item in given.items()}):
            config = Config.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        raise UsageError(_explain(details["loc"], details, given, file, translation)) from error
    check_blocks(config, declared)
    check_ready(config, declared)
    sources = _sources(given, config_file, defaults)
    return config.model_copy(update={"sources": sources, "packages": packages(config, declared)})


def _refuse_unknown_names(given: Mapping[str, Given], declared: Declared) -> None:
    for name, item in given.items():
        wrong = wrong_name(declared, name, item.value) if name in Config.model_fields else None
        if wrong is not None:
            raise UsageError(f"{item.says()}: {wrong}")


def _plugin_options(given: Mapping[str, Given], declared: Declared) -> dict[str, dict[str, Any]]:
    """The options of plug-ins, each checked by its declaration."""
    options: dict[str, dict[str, Any]] = {}
    for key, item in given.items():
        if not key.startswith(PREFIX):
            continue
        _, plugin, name = key.split(".", 2)
        try:
            options.setdefault(plugin, {})[name] = parsed_option(declared, key, item.value)
        except ValueError as error:
            said = item.label if is_secret(declared, key) else item.says()
            raise UsageError(f"{said}: {error}") from None
    return options


def _check_addresses(given: dict[str, Given], declared: Declared) -> None:
    """A password in an address becomes its backend's own secret option, so that no address shows it; one that
    its backend does not take is refused."""
    place = given.get("cache_dir")
    if place is None:
        return
    texts = [place.value] if isinstance(place.value, str) else place.value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        return
    found, said, plain = declared.get(Kind.BACKEND), f"{place.label}{place.joint}", []
    for text in texts:
        plugin = None if found is None else found.by_address(text)
        key = None if plugin is None else _password_key(plugin)
        address, password = without_password(text, said, has_path=key is None)
        if password is not None:
            if key is None:
                raise UsageError(
                    f"{said}{shown(address)}: was given with a password, which this backend does not take; "
                    "give credentials by the environment or the files that the backend's page names"
                )
            given[key] = Given(password, place.source, place.label)
        wrong = None if plugin is None else plugin.check(address)
        if wrong is not None:
            raise UsageError(f"{said}{address}: {wrong}")
        plain.append(address)
    if plain != list(texts):
        given["cache_dir"] = replace(place, value=plain)


def _password_key(plugin: Plugin) -> str | None:
    """Where a plug-in takes a password, if it takes one."""
    secrets = (option for option in plugin.options if option.secret and option.name == "password")
    return next((option_key(plugin, option) for option in secrets), None)


def _refuse_credentials_in_endpoints(given: Mapping[str, Given]) -> None:
    for key, item in given.items():
        if key.startswith(PREFIX) and key.endswith(".endpoint") and isinstance(item.value, str):
            refuse_credentials(f"{item.label}{item.joint}", item.value)


def _choose_backend(given: dict[str, Given], declared: Declared) -> None:
    """An address such as my://host chooses its backend, unless one is named beside it.

    A name in a file, which may list every default, does not stand against an address that was given by hand.
    """
    found, place, named = declared.get(Kind.BACKEND), given.get("cache_dir"), given.get("storage_backend")
    if found is None or place is None:
        return
    first = place.value[0] if isinstance(place.value, list | tuple) and place.value else place.value
    plugin = found.by_address(first) if isinstance(first, str) else None
    if plugin is None:
        return
    if named is None or (named.source == "file" and place.source != "file"):
        given["storage_backend"] = Given(plugin.name, place.source, place.label)


def _suiting(given: Mapping[str, Given], declared: Declared) -> Mapping[str, Any]:
    """Settings that suit the chosen backend; a named engine has its own."""
    found, named = declared.get(Kind.BACKEND), given.get("storage_backend")
    name = named.value if named is not None else None
    if found is None or not isinstance(name, str) or "engine" in given or name not in found.plugins:
        return {}
    return found.plugins[name].suits


def _sources(
    given: Mapping[str, Given], config_file: str | None, defaults: Mapping[str, Any]
) -> dict[str, str]:
    """Where each value came from that somebody gave, the command itself included."""
    sources = dict.fromkeys(defaults, OF_COMMAND)
    for name, item in given.items():
        sources[name] = str(config_file) if item.source == "file" else item.label
    return sources


def _read(path: str) -> "YamlFile":
    # Reading YAML is rare, and its parser is slow to import.
    from kvspill.config.yaml_text import read_yaml

    return read_yaml(path)


def flag_fields() -> dict[str, Any]:
    """The fields that have a flag, in the order in which Config declares them."""
    return {name: info for name, info in Config.model_fields.items() if is_flag(info)}


def to_yaml(config: Config) -> str:
    """The configuration as a file that `--config` reads back."""
    import yaml

    data = config.model_dump(mode="json", exclude={"sources", "packages", "ignored_keys"})
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)


def _file_keys() -> list[str]:
    return [name for name, info in Config.model_fields.items() if not extra_of(info).get("internal")]


def _from_file(file: "YamlFile", translation: Translation) -> dict[str, Given]:
    known = _file_keys()
    given = {}
    for key, value in translation.data.items():
        if key not in known:
            near = _near(key, [*known, *SECTIONS])
            raise UsageError(f"{file.where((key,))}: {shown_path((key,))}: unknown key; {near}")
        old = translation.origins.get((key,), (key,))
        given[key] = Given(value, "file", f"{file.where(old)}: {'.'.join(old)}")
    return {**given, **_options_in(file, given.pop("plugins", None))}


def _options_in(file: "YamlFile", item: Given | None) -> dict[str, Given]:
    """The options below the key `plugins`, each under its whole path."""
    found = {}
    plugins = {} if item is None or item.value is None else item.value
    for plugin, options in _items(file, ("plugins",), plugins):
        for option, value in _items(file, ("plugins", plugin), {} if options is None else options):
            path = ("plugins", plugin, option)
            found[".".join(path)] = Given(value, "file", f"{file.where(path)}: {shown_path(path)}")
    return found


def _items(file: "YamlFile", path: KeyPath, value: object) -> list[tuple[str, Any]]:
    need_mapping(file, path, value)
    assert isinstance(value, Mapping)
    return [(str(key), below) for key, below in value.items()]


def _near(key: str, known: list[str]) -> str:
    for name, info in Config.model_fields.items():
        if flag_of(key) in extra_of(info).get("alias_flags", []):
            return f"did you mean {name}?"
    return hint(key.replace("-", "_"), known, "config.yaml beside kv-cache.py shows all keys")


def option_variable(plugin: Plugin, option: Option) -> str:
    """The environment variable that gives an option."""
    return variable_of(option_flag(plugin.name, option.name))


def _from_environment(environ: Mapping[str, str], declared: Declared) -> dict[str, Given]:
    names: dict[str, str] = {}
    for plugin, option in options_of(declared):
        names[option_variable(plugin, option)] = option_key(plugin, option)
    for field in flag_fields():
        names |= dict.fromkeys(variables_of(field), field)
    given = {}
    for name, field in names.items():
        if name in environ:
            value: Any = environ[name]
            if field == "cache_dir":
                # Addresses hold colons of their own: several of them are separated by blanks.
                value = value.split() if "://" in value else value.split(":")
            given[field] = Given(value, "environment", name)
    for name in environ:
        if name.startswith(ENVIRONMENT_PREFIX) and name not in names and name != "KVSPILL_CONFIG":
            # Other programs may use the prefix; a name this near to one of ours is a slip.
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.85)
            if near:
                # Its value is not shown: it may be a password.
                raise UsageError(f"{name}: unknown variable; did you mean {near[0]}?")
    return given


def _refuse_preset_over_personas(given: Mapping[str, Given]) -> None:
    preset, personas = given.get("workload_preset"), given.get("personas")
    if preset is not None and personas is not None and preset.source != "file":
        raise UsageError(f"{preset.says()}: contradicts {personas.label}; leave one of them out")


def _explain(
    location: Location,
    details: Any,
    given: Mapping[str, Given],
    file: "YamlFile | None",
    translation: Translation,
) -> str:
    """The line for one validation error."""
    item = given.get(str(location[0])) if location else None
    what = problem(details, location)
    if item is not None and item.source != "file":
        return f"{item.says()}: {what}"
    path: KeyPath = tuple(str(part) for part in location if isinstance(part, str))
    old = next(
        (
            translation.origins[path[:n]] + path[n:]
            for n in range(len(path), 0, -1)
            if path[:n] in translation.origins
        ),
        path,
    )
    where = f"{file.where(old)}: " if file is not None and item is not None else ""
    value = details["input"]
    simple = isinstance(value, str | int | float) and details["type"] not in ("missing", "extra_forbidden")
    return f"{where}{shown_path(old)}{' ' + shown(value) if simple else ''}: {what}"
