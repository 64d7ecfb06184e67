"""What a Redis or Valkey server says when it is asked before any run: memory, policy, times of answers."""

import secrets
from collections.abc import Iterator

from kvspill.dates import now_seconds
from kvspill.storage.findings import PROBE_BYTES, Finding, answer_time, clock
from kvspill.storage.redis.runs import PREFIX
from kvspill.storage.redis.server import Access, Said, Servers, refusals
from kvspill.texts import size_text


def ask_address(access: Access) -> list[Finding]:
    """All findings about the server at an address; what prevents a run is raised, in one line."""
    servers = Servers(access)
    try:
        with refusals(access.address):
            return list(_findings(servers))
    finally:
        servers.close()


def _findings(servers: Servers) -> Iterator[Finding]:
    said = servers.ask()
    yield Finding("answer", f"address and password are right ({said.describe()})")
    yield _memory(said)
    yield _policy(said)
    client, key, value = (
        servers.client,
        f"{PREFIX}:doctor:{secrets.token_hex(8)}",
        secrets.token_bytes(PROBE_BYTES),
    )
    try:
        yield answer_time("small write", lambda: client.set(key, value))
        yield answer_time("small read", lambda: client.get(key))
    finally:
        client.delete(key)
    before = now_seconds()
    there = servers.now_seconds()
    yield clock(there, before, now_seconds(), 0.0)
    if said.writes_log:
        text = "the server writes every value to its append-only file, too: its disk is measured with it"
        yield Finding("persistence", text, "for the memory alone: redis-cli config set appendonly no")


def _memory(said: Said) -> Finding:
    used, room = f"{size_text(said.used_bytes)} used", f"room for {size_text(said.room_bytes)}"
    if said.maxmemory_bytes:
        return Finding("memory", f"{used} of maxmemory {size_text(said.maxmemory_bytes)}: {room}")
    text = f"{used}, no maxmemory: the server may take all memory of its machine"
    return Finding(
        "memory", text, "set it (redis-cli config set maxmemory 20gb), or give --storage-capacity-gb"
    )


def _policy(said: Said) -> Finding:
    name = "eviction by the server"
    if not said.evicts:
        return Finding(name, f"{said.policy}: it drops nothing by itself")
    text = f"{said.policy}: beyond maxmemory the server drops entries by itself, which a run sees as misses"
    return Finding(
        name,
        text,
        "keep --storage-capacity-gb below the room, or: redis-cli config set maxmemory-policy noeviction",
    )
