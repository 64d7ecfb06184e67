"""A decode node's requests: their KV was stored elsewhere before the load, and they only read it."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from kvspill.config import Config
from kvspill.config.checks import last_tier
from kvspill.errors import UsageError
from kvspill.records import HitType, Request, SharedPrefix
from kvspill.texts import size_text
from kvspill.workload.base import Altered, Workload
from kvspill.workload.rate import in_arrival_order

FILL_SHARE = 0.8
"""Share of the last tier that stored entries may take, so that none of them is ever evicted."""


class DecodeNodeWorkload(Altered):
    """The inner workload, where each request reads one of the entries that were stored before the load.

    The entries have the sizes of the workload's own first requests. Which one a request reads follows from
    its key alone, so that the same requests read the same entries whatever the timing (S9).
    """

    def __init__(self, config: Config, inner: Workload, first: Workload, hold_bytes: int):
        super().__init__(inner)
        self._entries = stored_entries(config, first, hold_bytes)

    def session(self, user: int, start_ns: int = 0) -> Iterator[Request]:
        for request in self._inner.session(user, start_ns):
            entry = self._entry(request.key)
            # What the request would have read or written before its first token is done elsewhere.
            yield request._replace(
                context_tokens=entry.tokens,
                stored=entry,
                prefix=None,
                opening=None,
                chunks=(),
                blocks=(),
            )

    def preload(self) -> Iterator[SharedPrefix]:
        return iter(self._entries)

    def facts(self) -> Mapping[str, Any]:
        tokens = sum(entry.tokens for entry in self._entries)
        return {**self._inner.facts(), "stored_entries": len(self._entries), "stored_tokens": tokens}

    def _entry(self, key: str) -> SharedPrefix:
        hashed = hashlib.blake2b(key.encode(), digest_size=8).digest()
        return self._entries[int.from_bytes(hashed, "big") % len(self._entries)]


def stored_entries(config: Config, first: Workload, hold_bytes: int) -> Sequence[SharedPrefix]:
    """Entries of the workload's first requests, as many as asked for and as fit."""
    wanted = config.num_users if config.populate_entries is None else config.populate_entries
    room = int(hold_bytes * FILL_SHARE)
    entries: list[SharedPrefix] = []
    for number, request in enumerate(islice(in_arrival_order(first), wanted)):
        nbytes = config.kv.of(request.context_tokens)
        if nbytes > room:
            break
        room -= nbytes
        entries.append(SharedPrefix(f"stored_{number}", request.context_tokens, HitType.USER))
    if not entries:
        raise UsageError(
            f"--decode-only: the {last_tier(config)} tier can hold {size_text(hold_bytes)}, not one of the "
            "entries; give it more room or take a smaller --model"
        )
    if config.populate_entries is not None and len(entries) < wanted:
        raise UsageError(
            f"--populate-entries {wanted}: only {len(entries)} of them fit in {FILL_SHARE:.0%} of the "
            f"{last_tier(config)} tier's {size_text(hold_bytes)}; give --populate-entries "
            f"{len(entries)} or a larger tier"
        )
    return entries
