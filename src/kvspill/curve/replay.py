"""What caches of chosen sizes find: replays by eviction policy, and the optimum."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvspill.cache.policies import EvictionPolicy, PolicyContext
from kvspill.cache.policies.s3fifo import SMALL_SHARE
from kvspill.curve.accesses import Accesses
from kvspill.machine.processors import usable_processors
from kvspill.plugins import Kind, find_plugins
from kvspill.serving.bounds import belady_found_bytes, next_uses
from kvspill.serving.stack import Longs
from kvspill.workers import processes, workers_to_be_had

try:
    from kvspill.curve import _replay as _compiled
except ImportError:
    _compiled = None  # type: ignore[assignment]

_VERSION = 2
if _compiled is not None and getattr(_compiled, "VERSION", 0) != _VERSION:
    # Built from other sources than these: a checkout that was updated and not installed again.
    _compiled = None  # type: ignore[assignment]

COMPILED = frozenset({"fifo", "lfu", "s3-fifo", "optimum"}) if _compiled is not None else frozenset[str]()
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


class Window:
    """The measured part of a load: the requests after the warm-up, and what they ask for."""

    def __init__(self, accesses: Accesses, first_request: int):
        self.accesses = accesses
        self.first_request = first_request
        self.first_access = int(accesses.ends[first_request - 1]) if first_request else 0
        starts = np.concatenate(([0], accesses.ends[:-1]))[first_request:]
        self.requests = len(starts)
        self.openings: Longs = starts[starts < accesses.ends[first_request:]]
        """The first access of each measured request that has one."""
        self.context_tokens = int(accesses.context_tokens[first_request:].sum())
        self._tokens = accesses.tokens[self.first_access :]
        unit = accesses.unit_bytes
        measured = accesses.numbers[self.first_access :]
        self._sizes = np.int64(unit) if unit is not None else accesses.sizes[measured]
        self._bytes = int(np.broadcast_to(self._sizes, len(measured)).sum())

    def rates(self, found: NDArray[np.bool_]) -> Rates:
        """Found or not, for each access of the whole load; a block counts behind all those before it."""
        here = found[self.first_access :]
        nbytes = np.broadcast_to(self._sizes, len(here)).sum(where=here)
        return Rates(
            requests=int(np.count_nonzero(found[self.openings])) / max(1, self.requests),
            tokens=int(self._tokens.sum(where=here)) / max(1, self.context_tokens),
            bytes=int(nbytes) / max(1, self._bytes),
        )


class Replayer:
    """Replays one load at many capacities."""

    def __init__(self, window: Window):
        self._window = window
        self._listed: _Lists | None = None

    def rates(self, task: Task) -> Rates:
        return self._window.rates(self.found(*task))

    def found(self, policy: str, capacity_bytes: int, compiled: bool = True) -> NDArray[np.bool_]:
        """For each access, whether a cache of that size finds it."""
        if policy == OPTIMUM and (unit := self._window.accesses.unit_bytes) is not None:
            # Of blocks of one size no part is kept, as no cache could use it.
            capacity_bytes -= capacity_bytes % unit
        if compiled and policy in COMPILED:
            return self._compiled(policy, capacity_bytes)
        return self._optimum(capacity_bytes) if policy == OPTIMUM else self._replay(policy, capacity_bytes)

    def as_lists(self) -> "_Lists":
        """What replaying in Python needs, made once: it takes some hundred bytes per access."""
        if self._listed is None:
            self._listed = _Lists(self._window.accesses)
        return self._listed

    def _optimum(self, capacity_bytes: int) -> NDArray[np.bool_]:
        accesses = self._window.accesses
        numbers, sizes = self.as_lists().numbers, accesses.sizes.tolist()
        following = next_uses(numbers, len(sizes))
        kept = np.frombuffer(belady_found_bytes(numbers, sizes, capacity_bytes, following), np.int64)
        found: NDArray[np.bool_] = kept == accesses.sizes[accesses.numbers]
        return found

    def _compiled(self, policy: str, capacity_bytes: int) -> NDArray[np.bool_]:
        accesses, small_bytes = self._window.accesses, int(capacity_bytes * SMALL_SHARE)
        numbers = np.ascontiguousarray(accesses.numbers, np.int32)
        sizes, ends = (np.ascontiguousarray(part, np.int64) for part in (accesses.sizes, accesses.ends))
        found = _compiled.replay(policy, numbers, sizes, ends, capacity_bytes, small_bytes)
        return np.frombuffer(found, np.bool_)

    def _replay(self, policy: str, capacity_bytes: int) -> NDArray[np.bool_]:
        """A cache that gives up what the policy says, block by block, and keeps every new block that fits."""
        plugin = find_plugins(Kind.POLICY).get(policy, "--policies")
        context = PolicyContext(capacity_bytes, options=plugin.filled({}))
        order = plugin.start(context, EvictionPolicy)
        # Nothing is in use here, and `bool` says so of every name at the least cost.
        insert, remove, victim, touch = order.insert, order.remove, order.victim, order.touch
        listed = self.as_lists()
        keys, size_of = listed.keys, listed.size_of
        resident: set[str] = set()
        found = bytearray(len(keys))
        used, start = 0, 0
        for end in self._window.accesses.ends.tolist():
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


class _Lists:
    """A load as lists, which policies written in Python need."""

    def __init__(self, accesses: Accesses):
        self.numbers: list[int] = accesses.numbers.tolist()
        names = [str(number) for number in range(len(accesses.sizes))]
        self.size_of: dict[str, int] = dict(zip(names, accesses.sizes.tolist(), strict=True))
        self.keys = [names[number] for number in self.numbers]


def replay_all(window: Window, tasks: Sequence[Task]) -> Mapping[Task, Rates]:
    """Replay all tasks, on as many processors as there are."""
    workers = workers_to_be_had(usable_processors())
    replayer = Replayer(window)
    if workers == 1:
        return {task: replayer.rates(task) for task in tasks}
    quick = [task for task in tasks if task[0] in COMPILED]
    slow = [task for task in tasks if task[0] not in COMPILED]
    # The compiled helper runs beside other threads; what is written in Python needs processes of its own.
    with ThreadPoolExecutor(workers) as threads:
        rates = dict(zip(quick, threads.map(replayer.rates, quick), strict=True))
    if slow:
        replayer.as_lists()
        with processes(min(workers, len(slow)), _hold, (replayer,)) as pool:
            rates |= zip(slow, pool.map(_rates, slow), strict=True)
    return rates


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
            found.get(name, "--policies", OPTIMUM)
