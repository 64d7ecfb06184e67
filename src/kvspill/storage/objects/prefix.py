"""A run's private prefix in a bucket: its lease, its removal in bulk, and the removal of what others left."""

import contextlib
import re
import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from kvspill.errors import KvspillError, UsageError
from kvspill.storage.findings import PROBE_BYTES
from kvspill.storage.lease import Cleaned, Renewal, is_over, lease_text
from kvspill.storage.objects.calls import DELETE, GET, LIST, PUT, Calls, Tally, taken
from kvspill.storage.objects.failures import DENIED, NO_BUCKET, NO_RANGE, NOT_FOUND, RequestError
from kvspill.storage.objects.stores import Stores, open_stores
from kvspill.storage.rundir import is_run_name, new_run_name
from kvspill.storage.stamps import Identity

LEASE = ".kvspill-lease"
PROBE = "probe"
_OBJECT_NAME = re.compile(r"[0-9a-f]{32}-\d+|probe")
_BULK = 1000
_LEASE_BYTES_MAX = 4096
_REMEDIES = {
    NO_BUCKET: "make the bucket, or name another with --cache-dir",
    DENIED: "check the credentials and what they may do there",
}
_NO_ANSWER = "check the endpoint (--s3-endpoint), the network and the server"


class RunPrefix:
    """All that a run stores lies below it; the lease is made first and removed last."""

    def __init__(self, stores: Stores, calls: Calls):
        self._stores = stores
        self.calls = calls
        self.name = new_run_name()
        self.about = f"{stores.location} ({stores.about})"
        self.renewal = Renewal(self._renew)
        self._renew()
        self.renewal.start()

    def path(self, identity: Identity) -> str:
        """Where one version of an entry lies; a hash comes first, by which stores spread their load."""
        return self._inside(f"{identity.name}-{identity.generation}")

    def _inside(self, name: str) -> str:
        return f"{self.name}/{name}"

    def gives_ranges(self) -> bool:
        """Whether the store answers a request for a part of an object with that part."""
        return gives_ranges(self.calls, self._inside(PROBE))

    def _renew(self, *, over: bool = False) -> None:
        put(self.calls, self._inside(LEASE), lease_text(over=over))

    def remove(self) -> list[str]:
        """Remove all that the run stored; returns what stays, and why. Never raises."""
        self.renewal.stop()
        # The load is over, but what is left to do may be tried again.
        self.calls.over = False
        try:
            # From now on others may finish what is begun here.
            self._renew(over=True)
            return remove_run(self._stores, self.calls, self.name)
        except RequestError as failed:
            return [f"{self.name}/ ({failed})"]


@contextlib.contextmanager
def refused(stores: Stores) -> Iterator[None]:
    """What the first requests of a run meet is said in one line."""
    try:
        yield
    except RequestError as failed:
        kind = failed.failure.kind
        remedy = _REMEDIES.get(kind, _NO_ANSWER)
        problem = UsageError if kind in _REMEDIES else KvspillError
        words = str(failed) if kind in str(failed) else f"{failed} ({kind})"
        raise problem(f"--cache-dir {stores.location}: {words}; {remedy}") from failed


def put(calls: Calls, path: str, data: Any) -> None:
    """Store a small object."""
    import obstore

    calls.ask(PUT, lambda store: obstore.put(store, path, data, use_multipart=False))


def gives_ranges(calls: Calls, path: str) -> bool:
    """The same, found out with an object of that name."""
    import obstore

    data = secrets.token_bytes(2 * PROBE_BYTES)
    put(calls, path, data)

    def read(store: Any) -> bytes:
        wanted = {"range": (PROBE_BYTES, 2 * PROBE_BYTES)}
        return taken(obstore.get(store, path, options=wanted), PROBE_BYTES)

    try:
        return calls.ask(GET, read) == data[PROBE_BYTES:]
    except RequestError as failed:
        if NO_RANGE in str(failed):
            return False
        raise


def clean_address(address: str, options: Mapping[str, Any]) -> Cleaned:
    """Remove the runs below an address whose lease is over, and nothing else."""
    stores = open_stores(address, options)
    with refused(stores):
        return clean(stores, Calls(stores, Tally()))


def clean(stores: Stores, calls: Calls) -> Cleaned:
    """The same where the store is open already."""
    import obstore

    found = calls.ask(LIST, lambda store: obstore.list_with_delimiter(store)["common_prefixes"])
    names = sorted(name for name in map(_last, found) if is_run_name(name))
    if not names:
        return Cleaned()
    now = _time_there(calls)
    removed: list[str] = []
    running: list[str] = []
    kept: list[str] = []
    for name in names:
        lease = _lease(calls, name)
        if lease is None:
            # A run that has just ended has removed its lease last.
            if _page(calls, name, None):
                kept.append(f"{name}/ (it has no lease; look whose it is)")
        elif not is_over(lease[0], (now - lease[1]).total_seconds()):
            running.append(name)
        else:
            left = remove_run(stores, calls, name)
            kept += left
            removed += [] if left else [name]
    return Cleaned(tuple(removed), tuple(running), tuple(kept))


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _lease(calls: Calls, run: str) -> tuple[bytes, datetime] | None:
    """The text of a run's lease and when the store wrote it."""
    import obstore

    def read(store: Any) -> tuple[bytes, datetime]:
        answer = obstore.get(store, f"{run}/{LEASE}")
        return taken(answer, _LEASE_BYTES_MAX)[:_LEASE_BYTES_MAX], answer.meta["last_modified"]

    try:
        return calls.ask(GET, read)
    except RequestError as failed:
        if failed.failure.kind == NOT_FOUND:
            return None
        raise


def _time_there(calls: Calls) -> datetime:
    """The store's own time, by which it dates leases: no clock of ours is compared with it."""
    import obstore

    path = f"kvspill-clock-{secrets.token_hex(4)}"
    put(calls, path, b"removed at once")
    try:
        seen: datetime = calls.ask(GET, lambda store: obstore.head(store, path)["last_modified"])
    finally:
        calls.ask(DELETE, lambda store: obstore.delete(store, path))
    return seen.astimezone(UTC)


def remove_run(stores: Stores, calls: Calls, run: str) -> list[str]:
    """Remove a run's objects in bulk, its unfinished uploads, and its lease last; returns what stays."""
    import obstore

    kept: list[str] = []
    last = None
    while page := _page(calls, run, last):
        last = page[-1]
        paths = [path for path in page if _OBJECT_NAME.fullmatch(_inside(path, run))]
        kept += [f"{path} (it is not a run's)" for path in page if path not in (*paths, f"{run}/{LEASE}")]
        if paths:
            calls.ask(DELETE, partial(_delete, paths))
    if stores.uploads is not None:
        calls.tally.asked(DELETE, stores.uploads.abort(run))
    if not kept:
        calls.ask(DELETE, lambda store: obstore.delete(store, f"{run}/{LEASE}"))
    return kept


def _inside(path: str, run: str) -> str:
    return path.removeprefix(f"{run}/")


def _page(calls: Calls, run: str, after: str | None) -> list[str]:
    """The next objects of a run by name, at most as many as can be removed at once."""
    import obstore

    def read(store: Any) -> list[str]:
        stream = obstore.list(store, run, offset=after, chunk_size=_BULK)
        return sorted(meta["path"] for meta in next(iter(stream), ()))

    return calls.ask(LIST, read)


def _delete(paths: list[str], store: Any) -> None:
    import obstore

    obstore.delete(store, paths)
