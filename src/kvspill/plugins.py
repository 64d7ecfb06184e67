"""Plug-ins: ours are found by listing their folder, others by entry point; both give a declaration."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any, Final

from kvspill.errors import UsageError


class Kind(StrEnum):
    """What can be plugged in; the value is the group of entry points."""

    BACKEND = "kvspill.backends"
    POLICY = "kvspill.policies"
    TRACE = "kvspill.traces"
    IO_MODEL = "kvspill.io_models"


FOLDERS: Final[Mapping[Kind, str]] = MappingProxyType(
    {
        Kind.BACKEND: "kvspill.storage.backends",
        Kind.POLICY: "kvspill.cache.policies",
        Kind.TRACE: "kvspill.workload.traces",
        Kind.IO_MODEL: "kvspill.serving.io_models",
    }
)
"""Where ours lie: each module with a PLUGIN is one."""

OURS: Final = "kvspill"


class Need(StrEnum):
    """What a backend must be given before it can begin."""

    DIRECTORY = "directory"
    ADDRESS = "address"
    DEVICE = "device"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Option:
    """A setting of a plug-in's own: the flag --PLUGIN-NAME, and the key `plugins: PLUGIN: NAME` in YAML."""

    name: str
    help: str
    default: Any = None
    kind: type = str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    secret: bool = False
    """True where its value is shown in no result, log or page."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """What is known about a plug-in without starting it; help, checks, doctor and report read this."""

    name: str
    help: str
    """One line, as --help and `kvspill doctor` show it."""
    make: Callable[..., Any]
    """Makes the thing itself; what is heavy is imported inside."""
    options: tuple[Option, ...] = ()
    needs: frozenset[Need] = frozenset()
    schemes: tuple[str, ...] = ()
    """Addresses that choose this backend, such as s3 for --cache-dir s3://bucket/prefix."""
    can: frozenset[str] = frozenset()
    """Further abilities, by the names that its kind defines."""
    ready: Callable[[], str | None] = lambda: None
    """Why it cannot be used here (a package or a driver is missing, and the remedy), or None."""
    origin: str = OURS
    """The package that it comes from."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A plug-in of another package that could not be loaded: said by doctor, and when it is asked for."""

    name: str
    origin: str
    reason: str


@dataclass(frozen=True, slots=True)
class Found:
    """All plug-ins of one kind, by name: ours first."""

    kind: Kind
    plugins: Mapping[str, Plugin]
    broken: tuple[Broken, ...] = ()

    def get(self, name: str, flag: str) -> Plugin:
        """The plug-in of that name; an unknown one is refused with the names there are."""
        if name in self.plugins:
            return self.plugins[name]
        for broken in self.broken:
            if broken.name == name:
                raise UsageError(f"{flag} {name}: {broken.origin} could not be loaded ({broken.reason})")
        raise UsageError(f"{flag} {name}: unknown; choose from {', '.join(self.plugins)}")

    def by_scheme(self, scheme: str) -> Plugin | None:
        """The plug-in that answers for addresses of that scheme."""
        return next((plugin for plugin in self.plugins.values() if scheme in plugin.schemes), None)

    @property
    def schemes(self) -> tuple[str, ...]:
        return tuple(scheme for plugin in self.plugins.values() for scheme in plugin.schemes)


def find_plugins(kind: Kind) -> Found:
    """Ours and all that are installed. Ours win over others of the same name, which then count as broken."""
    plugins = {plugin.name: plugin for plugin in _ours(kind)}
    broken: list[Broken] = []
    for entry in sorted(entry_points(group=kind.value), key=lambda entry: entry.name):
        found = _load(entry)
        if isinstance(found, Broken):
            broken.append(found)
        elif found.name in plugins:
            taken_by = plugins[found.name].origin
            broken.append(Broken(found.name, found.origin, f"{taken_by} has a plug-in of that name"))
        else:
            plugins[found.name] = found
    return Found(kind, MappingProxyType(plugins), tuple(broken))


def _ours(kind: Kind) -> list[Plugin]:
    package = import_module(FOLDERS[kind])
    modules = (
        import_module(f"{package.__name__}.{module.name}") for module in iter_modules(package.__path__)
    )
    return [plugin for module in modules if (plugin := getattr(module, "PLUGIN", None)) is not None]


def _load(entry: EntryPoint) -> Plugin | Broken:
    origin = "an unknown package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
    try:
        plugin = entry.load()
    except Exception as error:  # Whatever another package does wrong must not end every command.
        return Broken(entry.name, origin, f"{type(error).__name__}: {error}")
    if not isinstance(plugin, Plugin):
        return Broken(entry.name, origin, f"{entry.value} is a {type(plugin).__name__}, not a Plugin")
    return replace(plugin, origin=origin)
