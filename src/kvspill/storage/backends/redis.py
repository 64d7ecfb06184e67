"""The redis backend as a plug-in: values on a Redis or Valkey server or cluster."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from kvspill.plugins import Need, Option, Plugin
from kvspill.records import MIB
from kvspill.storage.base import Backend, BackendContext

if TYPE_CHECKING:
    from kvspill.storage.findings import Finding
    from kvspill.storage.lease import Cleaned
    from kvspill.storage.redis.server import Access

_VALUE_MIB_MAX = 64
_QUERY = ("db", "client_name")
_TLS_QUERY = (
    *("ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_keyfile"),
    *("ssl_check_hostname", "ssl_min_version", "ssl_ciphers"),
)


def make(context: BackendContext) -> Backend:
    """Values on the server of the address."""
    from kvspill.errors import UsageError
    from kvspill.storage.redis.backend import RedisBackend, RedisOptions

    if len(context.addresses) > 1:
        one, other = context.addresses[:2]
        raise UsageError(f"--cache-dir {one} and {other}: redis takes one address; name one, or a cluster")
    settings, options = context.settings, context.options
    assert context.plane is not None, "values are real"
    return RedisBackend(
        _access(context.addresses[0], options),
        RedisOptions(
            io_threads=settings["io_threads"],
            write_threads=settings["write_threads"],
            verify=settings["verify"],
            value_bytes=round(options["value-mib"] * MIB),
            depth=options["pipeline"],
        ),
        context.plane,
        context.limit_bytes,
        context.clock_ns,
        context.ranks,
    )


def _access(address: str, options: Mapping[str, Any]) -> "Access":
    from kvspill.storage.redis.server import Access

    return Access(
        address, options["username"], options["password"], options["timeout"], options["key-password"]
    )


def check(address: str) -> str | None:
    """Why an address names no server and database; redis-py would take another one, or fail in itself."""
    try:
        parts = urlsplit(address)
        port = None if parts.scheme == "unix" else parts.port
    except ValueError as error:
        return f"is no address ({error}); write redis://host:6379"
    if port == 0:
        return "is no address (port 0); write redis://host:6379"
    scheme, query = parts.scheme, parse_qs(parts.query, keep_blank_values=True)
    known = (*_QUERY, *(_TLS_QUERY if scheme in ("rediss", "valkeys") else ()))
    for name in query:
        if name not in known:
            return f"{name[:40]} is unknown in its query; known are {', '.join(known)}"
    databases = [] if scheme == "unix" else [parts.path.removeprefix("/")]
    for database in (*filter(None, databases), *query.get("db", ())):
        if not (database.isascii() and database.isdigit()):
            return f"{database[:40] or 'nothing'} is no database number; write redis://host:port/0, or ?db=0"
    return None


def clean(address: str, options: Mapping[str, Any]) -> "Cleaned":
    """Remove what killed runs left at an address."""
    from kvspill.storage.redis.runs import clean_address

    return clean_address(_access(address, options))


def room(address: str, options: Mapping[str, Any]) -> int | None:
    """What the server can hold besides what it holds now."""
    from kvspill.storage.redis.server import said_at

    said = said_at(_access(address, options))
    return said.room_bytes if said.maxmemory_bytes or said.system_bytes else None


def ask(address: str, options: Mapping[str, Any]) -> "list[Finding]":
    """Whether the server answers, and what it says of itself."""
    from kvspill.storage.redis.doctor import ask_address

    return ask_address(_access(address, options))


def _why_not() -> str | None:
    if find_spec("redis") is None:
        return "the package redis is not installed; pip install 'kvspill[redis]'"
    return None


PLUGIN = Plugin(
    name="redis",
    help="values on a Redis or Valkey server or cluster, read and written in pipelines",
    make=make,
    options=(
        Option("password", "password of the server", secret=True),
        Option("username", "user of the server, where it has users"),
        Option("key-password", "password of the file that ?ssl_keyfile= names", secret=True),
        Option(
            "value-mib",
            "largest value in MiB; a longer entry is stored as several",
            default=4.0,
            kind=float,
            minimum=1 / 256,
            maximum=_VALUE_MIB_MAX,
        ),
        Option(
            "pipeline",
            "values under way on each connection before the first is answered",
            default=2,
            kind=int,
            minimum=1,
            maximum=64,
        ),
        Option(
            "timeout",
            "seconds without a byte after which an operation fails",
            default=30.0,
            kind=float,
            minimum=0.1,
            maximum=3600,
        ),
    ),
    needs=frozenset({Need.ADDRESS}),
    schemes=("redis", "rediss", "unix", "valkey", "valkeys"),
    ready=_why_not,
    check=check,
    clean=clean,
    room=room,
    ask=ask,
)
