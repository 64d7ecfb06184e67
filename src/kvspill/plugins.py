"""Plug-ins: ours are found by listing their folder, others by entry point; both give a declaration."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from kvspill.errors import KvspillError, UsageError


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


VIRTUAL: Final = "virtual"
"""Ability of a backend that keeps model time: it may stand in a simulated run."""
LISTS_BLOCKS: Final = "lists-blocks"
"""Ability of a trace format whose rows list their own blocks."""
OWN_PAUSES: Final = "own-pauses"
"""Ability of a trace format that records the pauses of its users, which closed users keep."""
LEAF_FIRST: Final = "leaf-first"
"""Ability of an eviction policy that can keep a block as long as one that continues it is there."""
KEEPS_ALL: Final = "keeps-all"
"""Said of an eviction policy that gives nothing up, so that a full tier takes no more."""
IN_BLOCKS: Final = "in-blocks"
"""Said of an I/O model that stores chains of blocks, and needs policies that can go leaf first."""
ABILITIES: Final[Mapping[Kind, frozenset[str]]] = MappingProxyType(
    {
        Kind.BACKEND: frozenset({VIRTUAL}),
        Kind.POLICY: frozenset({LEAF_FIRST, KEEPS_ALL}),
        Kind.TRACE: frozenset({LISTS_BLOCKS, OWN_PAUSES}),
        Kind.IO_MODEL: frozenset({IN_BLOCKS}),
    }
)
"""All that a plug-in of a kind can declare in `can`."""

_NAME = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_PLACE = re.compile(r"(.*@)?([^:@]+|\[[^]]*\])(:\d*)?|(.*@)?")
"""A host with or without a port and credentials, or none."""
_SECRET = re.compile("password|username|secret|token|key", re.IGNORECASE)
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class Option:
    """A setting of a plug-in's own: the flag --PLUGIN-NAME, and the key `plugins: PLUGIN: NAME` in YAML."""

    name: str
    help: str
    default: Any = None
    kind: type = str
    """str, int, float or bool."""
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    secret: bool = False
    """True where its value is shown in no result, log or page."""

    def parse(self, value: object) -> Any:
        """The value as its kind, from a flag, a variable or YAML; a ValueError says what to give instead."""
        text = str(value).strip()
        if self.kind is bool:
            if text.lower() not in (*_TRUE, *_FALSE):
                raise ValueError("neither true nor false; write true or false")
            return text.lower() in _TRUE
        if self.kind is str:
            if not isinstance(value, str):
                raise ValueError("not a text; put it in quotes")
            if self.choices and value not in self.choices:
                raise ValueError(f"unknown; choose from {', '.join(self.choices)}")
            return value
        try:
            number = self.kind(text) if not isinstance(value, bool) else self.kind("")
        except ValueError:
            whole = "whole " if self.kind is int else ""
            raise ValueError(f"not a {whole}number; {self._range()}") from None
        low = -math.inf if self.minimum is None else self.minimum
        high = math.inf if self.maximum is None else self.maximum
        if not low <= number <= high or not math.isfinite(number):
            raise ValueError(f"out of range; {self._range()}")
        return number

    def _range(self) -> str:
        if self.minimum is None and self.maximum is None:
            return "give a number"
        if self.maximum is None:
            return f"give {self.minimum:,g} or more"
        return (
            f"give at most {self.maximum:,g}"
            if self.minimum is None
            else (f"give {self.minimum:,g} to {self.maximum:,g}")
        )


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
    """Addresses that choose this backend, such as my for --cache-dir my://host/bucket."""
    suits: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Settings that suit it better than the usual ones; anything that is given is stronger."""
    can: frozenset[str] = frozenset()
    """Further abilities, by the names that its kind defines."""
    ready: Callable[[], str | None] = lambda: None
    """Why it cannot be used here (a package or a driver is missing, and the remedy), or None."""
    check: Callable[[str], str | None] = lambda _address: None
    """What is wrong with an address, and the remedy, as far as its text tells; None where nothing is."""
    clean: Callable[[str, Mapping[str, Any]], Any] | None = None
    """Removes what killed runs left at an address, given the options: returns a storage.lease.Cleaned."""
    room: Callable[[str, Mapping[str, Any]], int | None] | None = None
    """Bytes that entries could take at an address, given the options; None where nobody can tell."""
    ask: Callable[[str, Mapping[str, Any]], Any] | None = None
    """Asks the store at an address a few small things, given the options: returns storage.findings.Finding
    objects; what prevents a run is raised."""
    sample: Path | None = None
    """A small recording in this format that comes with it, which --trace NAME:sample replays."""
    origin: str = OURS
    """The package that it comes from, with its version where it is not ours."""

    @property
    def is_ours(self) -> bool:
        return self.origin == OURS

    def why_not(self) -> str | None:
        """Why it cannot be used here, or None; a check that fails itself is such a reason."""
        try:
            reason = self.ready()
            return None if reason is None else str(reason)
        except Exception as error:  # The check of another package must not end ours.
            return f"its own check failed ({type(error).__name__}: {error})"

    def check_ready(self, said: str) -> None:
        """Raise a UsageError where it cannot be used here; said: how the user chose it."""
        reason = self.why_not()
        if reason is not None:
            raise UsageError(f"{said}: {self.name} from {self.origin} is not ready: {reason}")

    def start(self, context: object, wanted: type, where: str = "") -> Any:
        """Make the thing; one of another package must have all that the wanted kind has."""
        with self.blamed(where):
            made = self.make(context)
        missing = [] if self.is_ours else lacking(made, wanted)
        if missing:
            raise KvspillError(
                f"plug-in {self.name} of {self.origin} failed{where}: TypeError: made a "
                f"{type(made).__name__}, which has no {', '.join(missing)}; docs/plugins.md says what "
                "it must have: correct its package"
            )
        return made

    @contextmanager
    def blamed(self, where: str = "") -> Iterator[None]:
        """What a plug-in of another package raises is said to be its error, not ours."""
        try:
            yield
        except (KvspillError, MemoryError):
            raise
        except (Exception, SystemExit) as error:
            if self.is_ours:
                raise
            raise KvspillError(
                f"plug-in {self.name} of {self.origin} failed{where}: {type(error).__name__}: {error}; "
                "see its documentation, or --debug for the traceback"
            ) from error

    def filled(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """All options by name: as given, else their defaults."""
        return MappingProxyType(
            {option.name: given.get(option.name, option.default) for option in self.options}
        )


def lacking(made: object, wanted: type) -> list[str]:
    """The names of what the wanted kind has and the thing made does not."""
    names = [name for name in vars(wanted) if not name.startswith("_")]
    return [name for name in names if not hasattr(type(made), name) and not hasattr(made, name)]


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

    def get(self, name: str, flag: str, *more: str) -> Plugin:
        """The plug-in of that name; an unknown one is refused with the names that the flag takes."""
        if name in self.plugins:
            return self.plugins[name]
        self.refuse_broken(name, f"{flag} {name}")
        raise UsageError(f"{flag} {name}: unknown; choose from {', '.join((*self.plugins, *more))}")

    def refuse_broken(self, name: str, said: str) -> None:
        """Say why the plug-in of that name could not be loaded, where that is so."""
        for broken in self.broken:
            if broken.name == name:
                raise UsageError(f"{said}: {broken.origin} could not be loaded ({broken.reason})")

    def by_scheme(self, scheme: str) -> Plugin | None:
        """The plug-in that answers for addresses of that scheme."""
        return next((plugin for plugin in self.plugins.values() if scheme in plugin.schemes), None)

    def by_address(self, text: str) -> Plugin | None:
        """The plug-in that answers for an address such as my://host; None for a plain path."""
        scheme, slashes, _ = text.partition("://")
        return self.by_scheme(scheme.lower()) if slashes else None

    @property
    def schemes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(scheme for plugin in self.plugins.values() for scheme in plugin.schemes))


def without_password(
    address: str, said: str = "--cache-dir ", has_path: bool = True
) -> tuple[str, str | None]:
    """An address such as my://user:password@host without its password, and the password where it has one.

    One whose secrets cannot be kept apart is refused and not shown. said: what stands before it;
    has_path: whether a name behind the host may have an @.
    """
    scheme, slashes, rest = address.partition("://")
    if not slashes:
        return address, None
    head, question, query = rest.partition("?")
    if question and "@" in query and _PLACE.fullmatch(head.partition("/")[0]) is None:
        # The question mark is part of a password.
        who, _, behind = rest.rpartition("@")
        host, question, query = behind.partition("?")
        head = f"{who}@{host}"
    place, slash, path = head.partition("/")
    if "@" in path and (":" in place or (place and not has_path)):
        raise UsageError(
            f"{said}{scheme}://***@{head.rpartition('@')[2]}: a / ends the name of the host; "
            "in a user's name or a password write %2F for it"
        )
    who, at, host = place.rpartition("@")
    user, colon, password = who.partition(":")
    user = f"{user}@" if user or (at and not colon) else ""
    plain = f"{scheme}://{user}{host}{slash}{path}"
    for name in parse_qs(query, keep_blank_values=True):
        # The name of a file with a key is no secret.
        if _SECRET.search(name) and not name.endswith("file"):
            raise UsageError(
                f"{said}{plain}?{name[:40]}=***: a secret in an address would be shown in results; "
                "give it by an option of the backend or its variable, as its page says"
            )
    return f"{plain}{question}{query}", unquote(password) if colon else None


def without_credentials(endpoint: str) -> str:
    """The URL of a server with user, password and query hidden; one without them stays as it is."""
    scheme = _SCHEME.match(endpoint)
    _, at, host = endpoint.rpartition("@")
    host, question, _ = host.partition("?")
    start = (scheme[0] if scheme else "") + "***@" if at else ""
    return f"{start}{host}{'?***' if question else ''}"


def refuse_credentials(said: str, endpoint: str) -> None:
    """Raise a UsageError where the URL of a server holds credentials: results and pages would show them."""
    hidden = without_credentials(endpoint)
    if hidden != endpoint:
        raise UsageError(
            f"{said}{hidden}: an endpoint with credentials in it would be shown in results; write "
            "https://host:port, and give credentials by environment variables or the credentials file "
            "(see docs/object-stores.md)"
        )


Declared = Mapping[Kind, Found]
"""The plug-ins of each kind."""


def find_all() -> Declared:
    """The plug-ins of every kind."""
    return MappingProxyType({kind: find_plugins(kind) for kind in Kind})


@cache
def find_plugins(kind: Kind) -> Found:
    """Ours and all that are installed. Of two with the same name or scheme the first is used, ours before
    others; the second counts as broken.
    """
    plugins = {plugin.name: plugin for plugin in _ours(kind)}
    broken: list[Broken] = []
    for entry in sorted(entry_points(group=kind.value), key=lambda entry: entry.name):
        found = _load(entry)
        if isinstance(found, Broken):
            broken.append(found)
        elif (reason := _taken(found, plugins)) is not None:
            broken.append(Broken(found.name, found.origin, reason))
        else:
            plugins[found.name] = found
    return Found(kind, MappingProxyType(plugins), tuple(broken))


def _taken(plugin: Plugin, plugins: Mapping[str, Plugin]) -> str | None:
    """Which name or scheme of a plug-in another one has already."""
    if plugin.name in plugins:
        return f"{plugins[plugin.name].origin} has a plug-in of that name"
    for other in plugins.values():
        for scheme in plugin.schemes:
            if scheme in other.schemes:
                return f"{other.name} of {other.origin} has the scheme {scheme}://"
    return None


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
    except BaseException as error:
        # What another package does wrong must not end every command. A signal raises nothing in an import.
        return Broken(entry.name, origin, f"{type(error).__name__}: {error}")
    if not isinstance(plugin, Plugin):
        return Broken(entry.name, origin, f"{entry.value} is a {type(plugin).__name__}, not a Plugin")
    if not _is_whole(plugin):
        return Broken(entry.name, origin, "its declaration holds what docs/plugins.md has not")
    for name in (plugin.name, *(option.name for option in plugin.options)):
        if not _NAME.fullmatch(name):
            wanted = "lower-case letters and digits, with '-' between words"
            return Broken(entry.name, origin, f"{name!r} is no name for a plug-in or an option: use {wanted}")
    if Need.ADDRESS in plugin.needs and not plugin.schemes:
        return Broken(plugin.name, origin, "it needs an address, but declares no scheme")
    return replace(plugin, origin=origin)


def _is_whole(plugin: Plugin) -> bool:
    """Whether a declaration holds what all that read it expect."""
    try:
        texts = (plugin.name, plugin.help, *plugin.schemes, *plugin.needs, *plugin.can, *plugin.suits)
        return all(isinstance(text, str) for text in texts) and all(
            isinstance(option, Option) for option in plugin.options
        )
    except TypeError:
        return False
