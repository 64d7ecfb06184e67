"""One thread's NIXL agent: registers memory and files with it and moves pieces, one at a time."""

import ctypes
import errno
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from typing import Any, NamedTuple

from kvspill.errors import UsageError
from kvspill.storage.stamps import Bytes

NOT_INSTALLED = "the package nixl-cu13 is not installed; pip install 'kvspill[nixl]'"
PACKAGES = ("nixl_cu13", "nixl_cu12", "nixl_rocm")
"""The same library, built for different drivers; none of them needs a GPU to move files."""
_NAP_SECONDS = 0.00005
_NAPS_FROM_SECONDS = 0.0002
"""A transfer that takes longer is looked at from time to time, so that other threads can work."""


def find_package() -> str | None:
    """The package that is installed here."""
    return next((name for name in PACKAGES if find_spec(name) is not None), None)


def _imported(part: str) -> Any:
    # It would print to the console what we report as the error of an operation.
    os.environ.setdefault("NIXL_LOG_LEVEL", "FATAL")
    package = find_package()
    assert package is not None, "readiness was checked"
    return import_module(f"{package}.{part}")


def version() -> str:
    """The version of the library, with the name of its package."""
    package = find_package()
    assert package is not None, "it is installed"
    try:
        return distribution(package.replace("_", "-")).version
    except PackageNotFoundError:
        return "of unknown version"


def why_missing(plugin: str) -> str | None:
    """Why a plug-in of the library cannot be used here, with the remedy, or None."""
    package = find_package()
    if package is None:
        return NOT_INSTALLED
    files = distribution(package.replace("_", "-")).files or []
    found = next((path for path in files if path.name == f"libplugin_{plugin}.so"), None)
    if found is None:
        return f"{package} {version()} has no plug-in {plugin}; install a version that has it"
    # The library itself says only that it found none; the loader says what it lacks.
    _imported("_bindings")
    try:
        ctypes.CDLL(str(found.locate()))
    except OSError as error:
        return f"NIXL's plug-in {plugin} cannot be loaded ({error}); install the library that it names"
    return None


def read_parameters(text: str | None, flag: str = "--nixl-params") -> dict[str, str]:
    """Parameters of a plug-in from NAME=VALUE,NAME=VALUE."""
    found: dict[str, str] = {}
    for word in (text or "").split(","):
        name, equals, value = word.strip().partition("=")
        if not word.strip():
            continue
        if not equals or not name:
            raise UsageError(f"{flag}: {word.strip()!r} is not NAME=VALUE; write NAME=VALUE,NAME=VALUE")
        found[name] = value
    return found


class Target(NamedTuple):
    """What a transfer goes to or comes from, besides memory."""

    kind: str
    number: int


@dataclass(slots=True)
class Agent:
    """An agent and what is registered with it. Used by one thread alone."""

    plugin: str
    agent: Any
    name: str
    known: dict[tuple[int, int], Any] = field(default_factory=dict)
    objects: int = 0
    """Objects so far: each is registered under a number of its own."""

    @classmethod
    def make(cls, plugin: str, parameters: Mapping[str, str]) -> "Agent":
        """An agent of its own for this thread, with one plug-in."""
        api = _imported("_api")
        name = f"kvspill-{os.getpid()}-{threading.get_ident()}"
        agent = api.nixl_agent(name, api.nixl_agent_config(backends=[], enable_prog_thread=False))
        agent.create_backend(plugin, dict(parameters))
        return cls(plugin, agent, name)

    def know(self, memory: Bytes) -> None:
        """Register memory that stays where it is for the whole run."""
        place = memory.ctypes.data, len(memory)
        if place not in self.known:
            self.known[place] = self._register([(*place, 0, "")], "DRAM")

    @contextmanager
    def lent(self, address: int, nbytes: int) -> Iterator[None]:
        """Register memory of another tier for the time of a transfer."""
        with self._registered((address, nbytes, 0, ""), "DRAM"):
            yield

    @contextmanager
    def file(self, fd: int, nbytes: int) -> Iterator["Target"]:
        """A file that is open, up to a length."""
        with self._registered((0, max(1, nbytes), fd, ""), "FILE"):
            yield Target("FILE", fd)

    @contextmanager
    def object(self, key: str, nbytes: int) -> Iterator["Target"]:
        """An object of a store, whether it is there or not."""
        self.objects += 1
        with self._registered((0, max(1, nbytes), self.objects, key), "OBJ"):
            yield Target("OBJ", self.objects)

    @contextmanager
    def _registered(self, place: tuple[int, int, int, str], kind: str) -> Iterator[None]:
        handle = self._register([place], kind)
        try:
            yield
        finally:
            self.agent.deregister_memory(handle, backends=[self.plugin])

    def _register(self, places: list[tuple[int, int, int, str]], kind: str) -> Any:
        try:
            return self.agent.register_memory(places, kind, backends=[self.plugin])
        except RuntimeError as error:
            raise OSError(errno.EIO, f"NIXL could not register {kind.lower()} ({error})") from error

    def move(self, op: str, address: int, nbytes: int, target: Target, offset: int) -> int:
        """Move memory to a target or back; returns when that was done."""
        agent = self.agent
        try:
            here = agent.get_xfer_descs([(address, nbytes, 0)], "DRAM")
            there = agent.get_xfer_descs([(offset, nbytes, target.number)], target.kind)
            handle = agent.initialize_xfer(op, here, there, self.name)
            try:
                state, began = agent.transfer(handle), time.monotonic()
                while state == "PROC":
                    state = agent.check_xfer_state(handle)
                    if time.monotonic() - began > _NAPS_FROM_SECONDS:
                        time.sleep(_NAP_SECONDS)
                end_ns = time.monotonic_ns()
            finally:
                agent.release_xfer_handle(handle)
        except RuntimeError as error:
            raise OSError(errno.EIO, f"NIXL {op.lower()} at {offset} failed ({error})") from error
        if state != "DONE":
            raise OSError(errno.EIO, f"NIXL {op.lower()} at {offset} ended as {state}")
        return end_ns


class Agents:
    """An agent for each thread that asks, made when it asks first."""

    def __init__(self, plugin: str, parameters: Mapping[str, str]):
        self.plugin = plugin
        self.parameters = parameters
        self._local = threading.local()

    def mine(self) -> Agent:
        agent: Agent | None = getattr(self._local, "agent", None)
        if agent is None:
            agent = self._local.agent = Agent.make(self.plugin, self.parameters)
        return agent


def started(agents: Agents, flag: str) -> None:
    """Make the first agent; parameters that the plug-in does not take are refused."""
    try:
        agents.mine()
    except RuntimeError as error:
        raise UsageError(
            f"{flag}: NIXL's plug-in {agents.plugin} refuses to start ({error}); "
            "correct the parameters; NIXL_LOG_LEVEL=DEBUG shows its own words"
        ) from error
