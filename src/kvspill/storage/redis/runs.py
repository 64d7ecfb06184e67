"""A run's own keys on a server: their names, the lease that shows that it lives, and their removal."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from kvspill.storage.lease import Cleaned, is_over, lease_text
from kvspill.storage.redis.server import Access, Servers, in_time, refusals
from kvspill.storage.rundir import is_run_name

PREFIX = "kvspill"
_AT_ONCE = 256
_TIME_DIGITS_MAX = 18
"""Of a time in seconds: anybody may have written more, which Python does not read."""


@dataclass(frozen=True, slots=True)
class Names:
    """The keys of one run. Braces keep the values of an object on one server of a cluster."""

    run: str

    def value(self, name: str, generation: int, index: int) -> str:
        return f"{PREFIX}:{self.run}:{{{name}-{generation}}}:{index}"

    @property
    def lease(self) -> str:
        return f"{PREFIX}:{self.run}:lease"

    @property
    def pattern(self) -> str:
        return f"{PREFIX}:{self.run}:*"


REGISTRY = f"{PREFIX}:runs"
"""The key that lists all runs, so that nobody has to look through a whole database."""


def renew(servers: Servers, names: Names, *, over: bool = False) -> None:
    """Show that the run lives. A server that drops keys may have dropped these, so both are set.

    The lease holds the server's time and does not expire: a server with a volatile-* policy gives up keys
    that expire before all others, and the values of a live run would look like those of a dead one.
    """
    servers.client.sadd(REGISTRY, names.run)
    servers.client.set(names.lease, b"%d %s" % (round(servers.now_seconds()), lease_text(over=over)))


def remove(servers: Servers, keys: Iterable[str]) -> int:
    """Remove keys, several at a time; returns how many were there."""
    left, removed = iter(keys), 0
    while some := list(islice(left, _AT_ONCE)):
        with servers.client.pipeline(transaction=False) as together:
            for key in some:
                together.unlink(key)
            removed += sum(in_time(together.execute))
    return removed


def end(servers: Servers, names: Names) -> None:
    """Remove what tells of a run, once its values are gone."""
    servers.client.delete(names.lease)
    servers.client.srem(REGISTRY, names.run)


def clean(servers: Servers, *, thorough: bool = False) -> Cleaned:
    """Remove what killed runs left: all keys of runs whose lease is over.

    thorough: look through the whole database for runs, too, whose names the server has dropped.
    """
    removed, running = [], []
    runs = {word.decode(errors="replace") for word in servers.client.smembers(REGISTRY)}
    if thorough:
        runs |= {key.split(":")[1] for key in servers.keys(f"{PREFIX}:*:*")}
    now_seconds = servers.now_seconds()
    for run in sorted(filter(is_run_name, runs)):
        names = Names(run)
        lease = servers.client.get(names.lease)
        if lease is None:
            # The server dropped it. Where the run lives it renews it; if not, this one will be over.
            servers.client.set(names.lease, b"%d -" % round(now_seconds), nx=True)
        if lease is None or not _is_over(lease, now_seconds):
            running.append(run)
            continue
        remove(servers, (key for key in servers.keys(names.pattern) if key != names.lease))
        end(servers, names)
        removed.append(run)
    return Cleaned(tuple(removed), tuple(running))


def _is_over(lease: bytes, now_seconds: float) -> bool:
    at, _, text = lease.partition(b" ")
    return at.isdigit() and len(at) <= _TIME_DIGITS_MAX and is_over(text, now_seconds - int(at))


def clean_address(access: Access) -> Cleaned:
    """The same, at an address."""
    servers = Servers(access)
    try:
        with refusals(access.address):
            return clean(servers, thorough=True)
    finally:
        servers.close()
