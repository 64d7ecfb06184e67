"""What a workload is: sessions of requests, each in the order of its intended times."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from kvspill.records import Request, SharedPrefix


class Workload(Protocol):
    """WHO asks WHAT and WHEN. Sessions are lazy: only each one's next request exists.

    A trace without sessions has one stream that all its users share: a free user takes the next row.
    """

    @property
    def users(self) -> int:
        """Sessions at the start of the load."""
        ...

    @property
    def elastic(self) -> bool:
        """True where further users can be started at any time."""
        ...

    def session(self, user: int, start_ns: int = 0) -> Iterator[Request]:
        """The requests of one user from start_ns on."""
        ...

    def preload(self) -> Iterator[SharedPrefix]:
        """Entries to store before the load begins, such as the chunks of ingested documents."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """What the result should say of it: its kind, what was read, what was skipped."""
        ...


class Altered(ABC):
    """A workload with other requests than the one inside it, of which all else is."""

    def __init__(self, inner: Workload):
        self._inner = inner
        self.users = inner.users
        self.elastic = inner.elastic

    @abstractmethod
    def session(self, user: int, start_ns: int = 0) -> Iterator[Request]: ...

    def preload(self) -> Iterator[SharedPrefix]:
        return self._inner.preload()

    def facts(self) -> Mapping[str, Any]:
        return self._inner.facts()
