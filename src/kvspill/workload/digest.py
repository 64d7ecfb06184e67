"""The digest of the planned operations: equal for equal work, whatever the timing (S9)."""

import hashlib
from collections.abc import Iterable

from kvspill.records import PlannedOp, Request

_MODULUS = 1 << 256
_OP_LINE = "%s %s %s %d %d\n"
"""Verb, purpose, key, bytes, repeats: the fields of a PlannedOp in their order."""


class Digest:
    """SHA-256 over the planned operations of all requests, in whatever order they come.

    Each request is hashed by itself and the hashes are added up: a sum does not depend on the order, so
    nothing needs to be sorted or kept, however many users and requests there are.
    """

    def __init__(self) -> None:
        self._sum = 0
        self._requests = 0

    def add(self, request: Request, plan: Iterable[PlannedOp]) -> None:
        lines = sorted([_OP_LINE % op for op in plan])
        text = f"{request.user} {request.conversation} {request.turn}\n" + "".join(lines)
        hashed = hashlib.sha256(text.encode()).digest()
        self._sum = (self._sum + int.from_bytes(hashed, "big")) % _MODULUS
        self._requests += 1

    def merge(self, other: "Digest") -> None:
        """Take in the requests of another part of the load: all parts make the digest of the whole."""
        self._sum = (self._sum + other._sum) % _MODULUS
        self._requests += other._requests

    def hexdigest(self) -> str:
        return hashlib.sha256(f"{self._requests} {self._sum:064x}".encode()).hexdigest()
