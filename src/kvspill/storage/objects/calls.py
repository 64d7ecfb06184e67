"""Requests to an object store: made once and, where that may help, again; all of it counted."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kvspill.records import GIB
from kvspill.storage.objects.failures import (
    PANICKED,
    SERVER_ERROR,
    THROTTLED,
    Failure,
    RequestError,
    failure_of,
)
from kvspill.storage.objects.stores import BACKOFF_MIN_SECONDS, Stores

T = TypeVar("T")
GET, PUT, PART, DELETE, LIST = "get", "put", "part", "delete", "list"
_AROUND_PARTS = 2
"""An upload in parts begins and ends with a request of its own."""
_PANIC = "PanicException"
"""What Rust's panics are called here; the class cannot be imported, and is no Exception."""


@dataclass(slots=True)
class Tally:
    """What was asked of the store and what came of it, counted by the threads that asked."""

    requests: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)
    """Requests that failed and were made again, by the kind of failure."""
    sent_bytes: int = 0
    received_bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def asked(self, verb: str, times: int = 1) -> None:
        with self._lock:
            self.requests[verb] += times

    def moved(self, sent: int = 0, received: int = 0) -> None:
        with self._lock:
            self.sent_bytes += sent
            self.received_bytes += received

    def repeats(self, kind: str) -> None:
        with self._lock:
            self.repeated[kind] += 1

    def facts(self, prices: Mapping[str, float | None]) -> dict[str, int | float | str]:
        """Counts over the whole run, and their cost where prices are given."""
        asked = self.requests
        puts = asked[PUT] + asked[PART]
        found: dict[str, int | float | str] = {
            "get_requests": asked[GET],
            "put_requests": puts,
            "delete_requests": asked[DELETE],
            "list_requests": asked[LIST],
            "sent_bytes": self.sent_bytes,
            "received_bytes": self.received_bytes,
            "repeated_requests": sum(self.repeated.values()),
            "throttled_requests": self.repeated[THROTTLED],
        }
        found |= {f"repeated_{kind}": count for kind, count in sorted(self.repeated.items())}
        per_1000_put, per_1000_get, per_gib = (prices.get(f"price-{name}") for name in ("put", "get", "gib"))
        if any(price is not None for price in (per_1000_put, per_1000_get, per_gib)):
            found["cost"] = (
                (puts + asked[LIST]) / 1000 * (per_1000_put or 0)
                + asked[GET] / 1000 * (per_1000_get or 0)
                + self.received_bytes / GIB * (per_gib or 0)
            )
        return found


class Calls:
    """The store as threads use it."""

    def __init__(self, stores: Stores, tally: Tally):
        self._stores = stores
        self.tally = tally
        self.over = False
        """Once True, nothing is asked a second time: the run has ended."""
        self._answered = False

    def ask(self, verb: str, request: Callable[[Any], T]) -> T:
        """Make a request; raises RequestError where it fails for good.

        The first attempt fails at once, so that every failure is seen; the second tries again for as long as
        it may. Its time is that of the request (S13).
        """
        try:
            answer = request(self._stores.strict)
        except BaseException as error:
            failure = _known(error)
            self.tally.asked(verb)
            self._answered |= failure.kind in (THROTTLED, SERVER_ERROR)
            # Nobody waits long for a server that was never there.
            if not failure.may_pass or self.over or not self._answered:
                raise RequestError(failure) from error
            self.tally.repeats(failure.kind)
        else:
            self._answered = True
            self.tally.asked(verb)
            return answer
        return self._ask_again(verb, request)

    def _ask_again(self, verb: str, request: Callable[[Any], T]) -> T:
        """In rounds, between which the end of the run is seen."""
        left, until = self._stores.retries, time.monotonic() + self._stores.retry_seconds
        while True:
            try:
                answer = request(self._stores.patient)
            except BaseException as error:
                failure = _known(error)
                self.tally.asked(verb, 1 + failure.retries)
                left -= failure.retries
                if not failure.may_pass or self.over or left <= 0 or time.monotonic() >= until:
                    raise RequestError(failure) from error
            else:
                self.tally.asked(verb)
                return answer
            left -= 1
            time.sleep(BACKOFF_MIN_SECONDS)

    def ask_in_parts(self, parts: int, request: Callable[[Any], T]) -> T:
        """An upload in parts, made again as a whole where it fails."""
        answer = self.ask(PART, request)
        self.tally.asked(PART, parts + _AROUND_PARTS - 1)
        return answer


def taken(answer: Any, nbytes: int) -> bytes:
    """What is wanted of an answer, and no more than one part of the network beyond it.

    Asked for all of it at once, the client takes memory for whatever length the server says, and aborts.
    """
    return bytes(next(iter(answer.stream(min_chunk_size=nbytes + 1)), b""))


def _known(error: BaseException) -> Failure:
    """What the client raised; a defect of ours is raised again as it is."""
    from obstore.exceptions import BaseError

    if isinstance(error, BaseError | OSError):
        return failure_of(error)
    if type(error).__name__ == _PANIC:
        return Failure(PANICKED, f"the client gave up ({' '.join(str(error).split())})", may_pass=False)
    raise error
