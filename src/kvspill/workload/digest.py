"""The digest of the planned operations: equal for equal work, whatever the timing (S9)."""

import hashlib
from collections.abc import Iterable

from kvspill.records import PlannedOp, Request

_MODULUS = 1 << 256


class Digest:
    """SHA-256 over the planned operations of all requests, in whatever order they come.

    Each request is hashed by itself and the hashes are added up: a sum does not depend on the order, so
    nothing needs to be sorted or kept, however many users and requests there are.
    """

    def __init__(self) -> None:
        self._sum = 0
        self._requests = 0

    def add(self, request: Request, plan: Iterable[PlannedOp]) -> None:
        lines = [f"{request.user} {request.conversation} {request.turn}\n"]
        lines += sorted([f"{op.verb} {op.purpose} {op.key} {op.nbytes} {op.repeat}\n" for op in plan])
        hashed = hashlib.sha256("".join(lines).encode()).digest()
        self._sum = (self._sum + int.from_bytes(hashed, "big")) % _MODULUS
        self._requests += 1

    def hexdigest(self) -> str:
        return hashlib.sha256(f"{self._requests} {self._sum:064x}".encode()).hexdigest()
