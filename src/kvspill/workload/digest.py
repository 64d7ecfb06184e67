"""The digest of the planned operations: equal for equal work, whatever the timing (S9)."""

import hashlib
from collections.abc import Iterable

from kvspill.records import PlannedOp, Request


class Digest:
    """SHA-256 over the planned operations, sorted by user and turn.

    A user's requests always come in the order of their turns, so each user has a running hash and
    the whole is the hash of these in the order of users: memory grows with users, not with requests.
    """

    def __init__(self) -> None:
        self._by_user: dict[int, hashlib._Hash] = {}

    def add(self, request: Request, plan: Iterable[PlannedOp]) -> None:
        lines = [
            f"{request.user} {request.conversation} {request.turn} {op.verb} {op.purpose} "
            f"{op.key} {op.nbytes} {op.repeat}\n"
            for op in plan
        ]
        running = self._by_user.get(request.user)
        if running is None:
            running = self._by_user[request.user] = hashlib.sha256()
        running.update("".join(sorted(lines)).encode())

    def hexdigest(self) -> str:
        whole = hashlib.sha256()
        for user in sorted(self._by_user):
            whole.update(f"{user} {self._by_user[user].hexdigest()}\n".encode())
        return whole.hexdigest()
