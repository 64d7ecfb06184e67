"""What an object store says when it is asked before any run: who it is, how fast, and what it can do."""

import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC
from typing import Any

from kvspill.dates import now_seconds
from kvspill.storage.findings import PROBE_BYTES, Finding, answer_time, clock
from kvspill.storage.objects.calls import DELETE, GET, LIST, Calls, Tally, taken
from kvspill.storage.objects.prefix import gives_ranges, put, refused
from kvspill.storage.objects.stores import Stores, open_stores

_DATE_SECONDS = 1.0
"""Stores date their objects in whole seconds."""


def ask_address(address: str, options: Mapping[str, Any]) -> list[Finding]:
    """All findings about the store at an address; what prevents a run is raised, in one line."""
    stores = open_stores(address, options)
    calls = Calls(stores, Tally())
    # What fails is what is looked for: it is not tried again.
    calls.over = True
    with refused(stores):
        return list(_findings(stores, calls))


def _findings(stores: Stores, calls: Calls) -> Iterator[Finding]:
    import obstore

    calls.ask(LIST, lambda store: obstore.list_with_delimiter(store))
    yield Finding("answer", f"credentials and bucket are right ({stores.about}{_server(stores)})")
    path, data = f"kvspill-doctor-{secrets.token_hex(8)}", secrets.token_bytes(PROBE_BYTES)
    try:
        yield answer_time("small write", lambda: put(calls, path, data))
        yield answer_time("small read", lambda: _get(calls, path))
        yield _clock(calls, path, data)
        if gives_ranges(calls, path):
            yield Finding("ranged reads", "work: an entry is read in several parts at once")
        else:
            text = "the store sends whole objects where a part is asked for, so every entry is read whole"
            yield Finding("ranged reads", text, "compare it only with stores that are read in the same way")
    finally:
        calls.ask(DELETE, lambda store: obstore.delete(store, path))


def _get(calls: Calls, path: str) -> bytes:
    import obstore

    return calls.ask(GET, lambda store: taken(obstore.get(store, path), PROBE_BYTES))


def _clock(calls: Calls, path: str, data: bytes) -> Finding:
    import obstore

    before = now_seconds()
    put(calls, path, data)
    after = now_seconds()
    there = calls.ask(GET, lambda store: obstore.head(store, path)["last_modified"])
    return clock(there.astimezone(UTC).timestamp(), before, after, _DATE_SECONDS)


def _server(stores: Stores) -> str:
    """What the store calls itself, where it says so."""
    from botocore.exceptions import BotoCoreError, ClientError

    if stores.uploads is None:
        return ""
    try:
        answer = stores.uploads.client.head_bucket(Bucket=stores.location.bucket)
    except (BotoCoreError, ClientError):
        return ""
    name = answer["ResponseMetadata"]["HTTPHeaders"].get("server", "")
    return f"; server {name}" if name else ""
