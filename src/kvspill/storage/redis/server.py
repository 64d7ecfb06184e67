"""The server or the cluster at an address: how it is reached, and what it says of itself."""

import errno
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from kvspill.errors import KvspillError, UsageError
from kvspill.storage.redis.link import Link
from kvspill.texts import size_text
from kvspill.waiting import within

T = TypeVar("T")

_OTHER_NAMES = {"valkey": "redis", "valkeys": "rediss"}
_CLUSTER = "cluster"
_SHORT_SECONDS = 5.0
"""What connecting, and anything but a value, may take: nobody waits longer at the end of a run."""

_WHOLE_SECONDS = 20.0
"""What reaching a server, or one answer from end to end, may take: redis-py's own limit is for each byte."""

_NONSENSE = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
"""What redis-py, and what is done with its answers, makes of a server that speaks otherwise."""

Node = tuple[str, int]
"""Host and port; empty where there is but one server."""
_ONE: Node = ("", 0)


@dataclass(frozen=True, slots=True)
class Access:
    """How a server is reached."""

    address: str
    """Without a password, so that it can be shown."""
    username: str | None = None
    password: str | None = None
    timeout_seconds: float = 30.0
    key_password: str | None = None
    """Of the file with the key of a certificate, where the server asks for one."""

    @property
    def url(self) -> str:
        scheme, colon, rest = self.address.partition(":")
        return f"{_OTHER_NAMES.get(scheme.lower(), scheme.lower())}{colon}{rest}"

    def words(self) -> dict[str, Any]:
        """What redis-py wants to know besides the address."""
        given = {"username": self.username, "password": self.password}
        if self.url.startswith("rediss:"):
            given["ssl_password"] = self.key_password
        seconds = min(self.timeout_seconds, _SHORT_SECONDS)
        limits = {"socket_timeout": seconds, "socket_connect_timeout": seconds}
        # Protocol 3 lets the server send what nobody asked for.
        return {**{name: word for name, word in given.items() if word}, **limits, "protocol": 2}


@dataclass(frozen=True, slots=True)
class Said:
    """What the servers say of themselves, all of a cluster together."""

    version: str
    mode: str
    servers: int
    maxmemory_bytes: int
    """0 where the server keeps no limit."""
    policy: str
    used_bytes: int
    system_bytes: int
    evicted_keys: int
    boots: frozenset[str]
    """One name for each start of each server."""
    writes_log: bool = False
    """Whether a server writes every change to a file, too."""

    @property
    def evicts(self) -> bool:
        return bool(self.maxmemory_bytes) and self.policy != "noeviction"

    @property
    def room_bytes(self) -> int:
        """What entries could take: up to its limit, or half of its machine's memory where it has none."""
        limit_bytes = self.maxmemory_bytes or self.system_bytes // 2
        return max(0, limit_bytes - self.used_bytes)

    def describe(self) -> str:
        limit = f"maxmemory {size_text(self.maxmemory_bytes)}, {self.policy}"
        many = f" of {self.servers} servers" if self.mode == _CLUSTER else ""
        return f"{self.version}, {self.mode}{many}, {limit if self.maxmemory_bytes else 'no maxmemory'}"


class Servers:
    """Links to the server, or to the servers of a cluster, and a client for all but the values."""

    def __init__(self, access: Access):
        self._access = access
        with refusals(access.address):
            self.client, self._clustered = in_time(partial(_reach, access))
        self.client.execute_command = _bounded(self.client.execute_command)
        self._idle: dict[Node, deque[Link]] = {}
        self._links: set[Link] = set()
        self._lock = threading.Lock()
        self._over = False
        self.links_made = 0

    def ask(self) -> Said:
        """What the servers say now."""
        if self._clustered:
            nodes = self.client.get_primaries()
            return _said([in_time(self.client.get_redis_connection(node).info) for node in nodes])
        return _said([self.client.info()])

    def now_seconds(self) -> float:
        """The time of day of the first server, by which leases go."""
        node = self.client.get_primaries()[0] if self._clustered else None
        client = self.client if node is None else self.client.get_redis_connection(node)
        seconds, micros = in_time(client.time)
        return float(seconds) + float(micros) / 1e6

    def keys(self, pattern: str) -> Iterator[str]:
        """The keys of that pattern, without keeping the server from its work."""
        for key in self.client.scan_iter(match=pattern, count=1000):
            yield key.decode(errors="replace")

    @contextmanager
    def link(self, key: str) -> Iterator[Link]:
        """A link to the server of a key, for one thread; one whose use fails is closed."""
        node = self._node_of(key)
        link = self._take(node)
        try:
            yield link
        except BaseException:
            # Others that wait are as old, and the server that they led to may be gone.
            self._close_all(node, link)
            raise
        with self._lock:
            self._idle.setdefault(node, deque()).append(link)

    def find_again(self) -> None:
        """Servers of a cluster have changed places: ask where keys are now."""
        if self._clustered:
            with refusals(self._access.address):
                in_time(self.client.nodes_manager.initialize)

    def wake(self) -> None:
        """End the calls that threads are in: nobody waits for their answers any more."""
        with self._lock:
            self._over, links = True, list(self._links)
        for link in links:
            link.wake()

    def close(self) -> None:
        self.client.close()
        with self._lock:
            links, self._links, self._idle = self._links, set(), {}
        for link in links:
            link.close()

    def _node_of(self, key: str) -> Node:
        if not self._clustered:
            return _ONE
        node = self.client.get_node_from_key(key)
        return node.host, node.port

    def _take(self, node: Node) -> Link:
        with self._lock:
            if self._over:
                raise OSError(errno.ECANCELED, "the run is over")
            idle = self._idle.get(node)
            if idle:
                return idle.pop()
        with os_errors():
            link = Link(self._connection(node), self._access.timeout_seconds)
        with self._lock:
            self._links.add(link)
            self.links_made += 1
        return link

    def _connection(self, node: Node) -> Any:
        from redis.connection import Connection, parse_url

        words = {**parse_url(self._access.url), **self._access.words()}  # type: ignore[no-untyped-call]
        kind = words.pop("connection_class", Connection)
        if node != _ONE:
            words["host"], words["port"] = node
        return kind(**words)

    def _close_all(self, node: Node, link: Link) -> None:
        with self._lock:
            links = [link, *self._idle.pop(node, ())]
            self._links.difference_update(links)
        for one in links:
            one.close()


def in_time(work: Callable[[], T]) -> T:
    """What a server answers, or a TimeoutError: byte by byte, an answer could last for ever."""
    return within(_WHOLE_SECONDS, work)


def _bounded(execute: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *words, **options: in_time(partial(execute, *words, **options))


def _reach(access: Access) -> tuple[Any, bool]:
    """A client of what is at an address, and whether that is a cluster."""
    import redis

    try:
        alone = redis.Redis.from_url(access.url, **access.words())
        # As the system does with a name, which it may refuse.
        str(alone.get_connection_kwargs().get("host", "")).encode("idna")
    except ValueError as error:
        raise UsageError(
            f"--cache-dir {access.address}: is no address ({error}); see docs/redis.md"
        ) from error
    if _mode(alone.info("server")) != _CLUSTER:
        return alone, False
    alone.close()
    return redis.RedisCluster.from_url(access.url, **access.words()), True


def said_at(access: Access) -> Said:
    """What the server at an address says of itself."""
    servers = Servers(access)
    try:
        with refusals(access.address):
            return servers.ask()
    finally:
        servers.close()


def _mode(info: Mapping[str, Any]) -> str:
    if not any(name.endswith("_version") for name in info):
        raise LookupError("it has no version")
    return str(info.get("redis_mode") or info.get("server_mode") or "standalone")


def _said(infos: list[Mapping[str, Any]]) -> Said:
    first = infos[0]
    name = str(first.get("server_name") or "redis")
    version = first.get(f"{name}_version") or first.get("redis_version", "unknown")
    return Said(
        version=f"{name} {version}",
        mode=_mode(first),
        servers=len(infos),
        maxmemory_bytes=sum(int(info.get("maxmemory", 0)) for info in infos),
        policy=str(first.get("maxmemory_policy", "noeviction")),
        used_bytes=sum(int(info.get("used_memory", 0)) for info in infos),
        system_bytes=sum(int(info.get("total_system_memory", 0)) for info in infos),
        evicted_keys=sum(int(info.get("evicted_keys", 0)) for info in infos),
        boots=frozenset(str(info.get("run_id", "")) for info in infos),
        writes_log=any(bool(info.get("aof_enabled")) for info in infos),
    )


@contextmanager
def os_errors() -> Iterator[None]:
    """What redis-py raises, as the error of the system that caused it."""
    import redis.exceptions as kinds

    try:
        yield
    except kinds.AuthenticationError as error:
        raise PermissionError(errno.EACCES, str(error)) from error
    except kinds.TimeoutError as error:
        raise TimeoutError(errno.ETIMEDOUT, str(error)) from error
    except kinds.RedisError as error:
        cause: BaseException | None = error
        while cause is not None and not (isinstance(cause, OSError) and cause.errno):
            cause = cause.__cause__ or cause.__context__
        number = cause.errno if isinstance(cause, OSError) and cause.errno else errno.EIO
        if isinstance(cause, socket.gaierror):
            # Its numbers are its own: nobody knows the name.
            number = errno.EHOSTUNREACH
        raise OSError(number, str(error)) from error
    except _NONSENSE as error:
        raise OSError(errno.EPROTO, f"its answers are not those of Redis: {error}") from error


@contextmanager
def refusals(shown: str) -> Iterator[None]:
    """What prevents a load, in one line: exit 2 where the server says no, 1 where it does not answer."""
    import redis.exceptions as kinds

    try:
        with os_errors():
            yield
    except PermissionError as error:
        raise UsageError(
            f"--cache-dir {shown}: the server refuses the password or the user ({error.strerror}); "
            "give the right one with --redis-password or KVSPILL_REDIS_PASSWORD"
        ) from error
    except OSError as error:
        if isinstance(error.__cause__, kinds.OutOfMemoryError):
            raise UsageError(
                f"--cache-dir {shown}: the memory of the server is full (ENOSPC: {error.strerror}); "
                "raise its limit (redis-cli config set maxmemory 20gb), or remove what it holds"
            ) from error
        if isinstance(error.__cause__, kinds.ResponseError):
            raise UsageError(
                f"--cache-dir {shown}: the server refuses it ({error.strerror}); "
                "correct the address, or let the user read, write and list keys there"
            ) from error
        kind = errno.errorcode.get(error.errno or 0, "EIO")
        raise KvspillError(
            f"--cache-dir {shown}: {error.strerror} ({kind}); start the server, or correct the address"
        ) from error
