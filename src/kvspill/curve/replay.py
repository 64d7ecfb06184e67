"""What caches of chosen sizes find: replays by eviction policy, and the optimum."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from kvspill.cache.policies import EvictionPolicy, PolicyContext
from kvspill.cache.policies.s3fifo import SMALL_SHARE
from kvspill.curve.accesses import Accesses
from kvspill.machine.processors import usable_processors
from kvspill.plugins import Kind, find_plugins
from kvspill.serving.bounds import belady_found_bytes, next_uses

try:
    from kvspill.curve import _replay as _compiled
except ImportError:
    _compiled = None  # type: ignore[assignment]

_VERSION = 1
if _compiled is not None and getattr(_compiled, "VERSION", 0) != _VERSION:
    # Built from other sources than these: a checkout that was updated and not installed again.
    _compiled = None  # type: ignore[assignment]

COMPILED = frozenset({"fifo", "lfu", "s3-fifo"}) if _compiled is not None else frozenset[str]()
"""Policies that the compiled helper replays; it decides as they do."""

OPTIMUM = "optimum"
"""Perfect foresight: what is needed furthest in the future goes first, or is not kept at all."""

Task = tuple[str, int]
"""A policy and the bytes of its cache."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of what was asked for in the measured part that was found."""

    requests: float
    """Requests that found at least their first block."""
    tokens: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Window:
    """The measured part of a load: the requests after the warm-up, and what they ask for."""

    accesses: Accesses
    first_request: int

    @property
    def first_access(self) -> int:
        return int(self.accesses.ends[self.first_request - 1]) if self.first_request else 0

    def rates(self, found: NDArray[np.bool_]) -> Rates:
        """Found or not, for each access of the whole load; a block counts behind all those before it."""
        accesses, first = self.accesses, self.first_access
        sizes = accesses.sizes[accesses.numbers[first:]]
        starts = np.concatenate(([0], accesses.ends[:-1]))[self.first_request :]
        asking = starts < accesses.ends[self.first_request :]
        asked = int(accesses.context_tokens[self.first_request :].sum())
        return Rates(
            requests=float(found[starts[asking]].sum()) / max(1, len(starts)),
            tokens=int(accesses.tokens[first:][found[first:]].sum()) / max(1, asked),
            bytes=int(sizes[found[first:]].sum()) / max(1, int(sizes.sum())),
        )


class Replayer:
    """Replays one load at many capacities; what they share is made once."""

    def __init__(self, window: Window):
        accesses = window.accesses
        self._window = window
        self._numbers, self._sizes = accesses.numbers.tolist(), accesses.sizes.tolist()
        names = [str(number) for number in range(len(self._sizes))]
        self._size_of = dict(zip(names, self._sizes, strict=True))
        self._keys = [names[number] for number in self._numbers]
        self._ends = accesses.ends.tolist()
        self._next_uses = next_uses(self._numbers, len(self._sizes))

    def rates(self, task: Task) -> Rates:
        return self._window.rates(self.found(*task))

    def found(self, policy: str, capacity_bytes: int, compiled: bool = True) -> NDArray[np.bool_]:
        """For each access, whether a cache of that size finds it."""
        if policy == OPTIMUM:
            return self._optimum(capacity_bytes)
        if compiled and policy in COMPILED:
            return self._compiled(policy, capacity_bytes)
        return self._replay(policy, capacity_bytes)

    def _optimum(self, capacity_bytes: int) -> NDArray[np.bool_]:
        sizes = self._sizes
        # Of blocks of one size no part is kept, as no cache could use it.
        whole = capacity_bytes - capacity_bytes % sizes[0]
        kept = np.frombuffer(belady_found_bytes(self._numbers, sizes, whole, self._next_uses), np.int64)
        accesses = self._window.accesses
        found: NDArray[np.bool_] = kept == accesses.sizes[accesses.numbers]
        return found

    def _compiled(self, policy: str, capacity_bytes: int) -> NDArray[np.bool_]:
        accesses, small_bytes = self._window.accesses, int(capacity_bytes * SMALL_SHARE)
        numbers, sizes, ends = (
            np.ascontiguousarray(part, np.int64) for part in (accesses.numbers, accesses.sizes, accesses.ends)
        )
        found = _compiled.replay(policy, numbers, sizes, ends, capacity_bytes, small_bytes)
        return np.frombuffer(found, np.bool_)

    def _replay(self, policy: str, capacity_bytes: int) -> NDArray[np.bool_]:
        """A cache that gives up what the policy says, block by block, and keeps every new block that fits."""
        order = (
            find_plugins(Kind.POLICY)
            .get(policy, "--policies")
            .start(PolicyContext(capacity_bytes), EvictionPolicy)
        )
        # Nothing is in use here, and `bool` says so of every name at the least cost.
        insert, remove, victim, touch = order.insert, order.remove, order.victim, order.touch
        keys, size_of = self._keys, self._size_of
        resident: set[str] = set()
        found = bytearray(len(keys))
        used, start = 0, 0
        for end in self._ends:
            place = start
            while place < end and keys[place] in resident:
                touch(keys[place])
                place += 1
            found[start:place] = b"\1" * (place - start)
            parent = keys[place - 1] if place > start else None
            for key in keys[place:end]:
                size = size_of[key]
                if key not in resident and size <= capacity_bytes:
                    while used + size > capacity_bytes and (gone := victim(bool)) is not None:
                        remove(gone, True)
                        resident.remove(gone)
                        used -= size_of[gone]
                    if used + size <= capacity_bytes:
                        insert(key, size, parent)
                        resident.add(key)
                        used += size
                parent = key
            start = end
        return np.frombuffer(found, np.bool_)


def replay_all(window: Window, tasks: Sequence[Task]) -> Mapping[Task, Rates]:
    """Replay all tasks, on as many processors as there are."""
    workers = min(usable_processors(), len(tasks))
    if not tasks:
        return {}
    replayer = Replayer(window)
    if workers < 2:
        return {task: replayer.rates(task) for task in tasks}
    with ProcessPoolExecutor(workers, get_context("fork"), _hold, (replayer,)) as pool:
        return dict(zip(tasks, pool.map(_rates, tasks), strict=True))


_held: list[Replayer] = []
"""In a worker: what it replays. It came with the fork, for it is too large to be sent."""


def _hold(replayer: Replayer) -> None:
    _held[:] = [replayer]


def _rates(task: Task) -> Rates:
    return _held[0].rates(task)


def replayable(names: Iterable[str]) -> None:
    """Raise a UsageError where one of the policies is not known."""
    found = find_plugins(Kind.POLICY)
    for name in names:
        if name != OPTIMUM:
            found.get(name, "--policies")
