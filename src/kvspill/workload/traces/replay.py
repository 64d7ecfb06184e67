"""Replaying a trace: rows become requests in the order of their times, as often and as fast as asked."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappushpop
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.records import QoS, Request, SharedPrefix
from kvspill.workload.draws import qos_of
from kvspill.workload.history import past
from kvspill.workload.traces.files import RowLog

SPAN_NS_MAX = 10 * 366 * 86_400 * 1_000_000_000
"""A recording of more than ten years has its times in another unit, or a slip in one of them."""
REORDER_ROWS = 1_000
"""Rows that may stand out of order: as many are held back before the earliest is taken."""
_PASS_NS_MIN = 10_000_000
"""A pass of a recording takes this long at least."""
OPEN_CONVERSATIONS_MAX = 100_000
"""Conversations that may still go on; the ones unheard of for longest are forgotten beyond it."""


class Row(NamedTuple):
    """One request as a trace without users of its own describes it."""

    at_ns: int
    context_tokens: int
    generate_tokens: int
    blocks: tuple[str, ...] = ()
    block_tokens: int = 0
    block_fill: tuple[int, ...] = ()
    """Tokens in each block, where the trace says so."""
    name: Hashable = None
    """By what a later row may say that it goes on from this one; None where none can."""
    continues: Hashable = None
    """The name of the row that this one goes on from."""


Source = Callable[[RowLog], Iterator[Sequence[Request]]]
"""One pass over a trace, users numbered from 0, in portions: what a closed user takes at a time."""


RowReader = Callable[[Path, str, RowLog], Iterator[Row]]
"""What a format is: the rows of a file in its own order, given the flag that named it."""


_Thread = tuple[int, list[int], list[int]]
"""A conversation so far: its user, the context tokens of its turns and those of their answers."""


@dataclass(slots=True)
class _Threads:
    """Finds the conversation that a row belongs to. A row that goes on from none begins its own (L5)."""

    log: RowLog
    users: int = 0

    def requests(self, rows: Iterator[Row]) -> Iterator[tuple[Request]]:
        """The rows as turns of conversations; every conversation has a user of its own."""
        known: OrderedDict[Hashable, _Thread] = OrderedDict()
        for row in rows:
            user, contexts, answers = self._thread(known, row)
            request = Request(
                user=user,
                conversation=0,
                turn=len(contexts),
                qos=QoS.BATCH,
                intended_ns=row.at_ns,
                think_ns=0,
                context_tokens=row.context_tokens,
                generate_tokens=row.generate_tokens,
                history_tokens=past(contexts),
                blocks=row.blocks,
                block_tokens=row.block_tokens,
                block_fill=row.block_fill,
                history_answers=past(answers),
            )
            if row.name is not None:
                contexts.append(row.context_tokens)
                answers.append(row.generate_tokens)
                known[row.name] = (user, contexts, answers)
                known.move_to_end(row.name)
                if len(known) > OPEN_CONVERSATIONS_MAX:
                    known.popitem(last=False)
            yield (request,)

    def _thread(self, known: OrderedDict[Hashable, _Thread], row: Row) -> _Thread:
        if row.continues is not None:
            # Taken out: a second row that goes on from the same one is a conversation of its own.
            found = known.pop(row.continues, None)
            if found is not None:
                return found
            self.log.orphans += row.continues != row.name
        self.users += 1
        return self.users - 1, [], []


def row_source(rows: RowReader, path: Path, flag: str, ordered: bool) -> Source:
    """One pass over a file of rows; where the times are ignored, rows come as they stand in the file."""

    def source(log: RowLog) -> Iterator[Sequence[Request]]:
        found = rows(path, flag, log)
        return _Threads(log).requests(in_order(found, path, log) if ordered else found)

    return source


def in_order(rows: Iterator[Row], path: Path, log: RowLog) -> Iterator[Row]:
    """The rows by time, where none stands further out of order than REORDER_ROWS rows."""
    first_ns: int | None = None
    last_ns = 0
    for line, row in _earliest_first(rows, log):
        if first_ns is None:
            first_ns = last_ns = row.at_ns
        if row.at_ns < last_ns:
            raise UsageError(
                f"{path}:{line}: the row is more than {REORDER_ROWS:,} rows out of order by its time; "
                "sort the file by time, or give --arrival closed to ignore the times"
            )
        if row.at_ns - first_ns > SPAN_NS_MAX:
            log.bad(
                path, line, "the row lies more than ten years after the first (is its time in that unit?)"
            )
            continue
        last_ns = row.at_ns
        yield row


def _earliest_first(rows: Iterator[Row], log: RowLog) -> Iterator[tuple[int, Row]]:
    """The rows with their lines, each the earliest of REORDER_ROWS that are held back."""
    heap = [(row.at_ns, index, log.line, row) for index, row in enumerate(islice(rows, REORDER_ROWS))]
    heapify(heap)
    for index, row in enumerate(rows, REORDER_ROWS):
        _at_ns, _index, line, earliest = heappushpop(heap, (row.at_ns, index, log.line, row))
        yield line, earliest
    while heap:
        _at_ns, _index, line, earliest = heappop(heap)
        yield line, earliest


class TraceWorkload:
    """A trace as users who share its rows: by their times, or closed, where a free user takes the next.

    A request keeps the number of its own conversation as its user, so that the same work
    is done whatever the timing (S9).
    """

    elastic = False

    def __init__(self, config: Config, source: Source, name: str, path: Path):
        self._source = source
        self._closed = config.arrival == "closed"
        self._speedup = config.trace_speedup
        self._passes = replay_passes(config)
        self._qos = qos_by_user(config)
        self._log = RowLog(config.skip_bad_rows)
        self._name = name
        self._path = path
        self._rows = 0
        self._passes_begun = 0
        self.users = config.num_users
        self._portions = self._all_passes()
        # A file that cannot be read or holds nothing must be known before anything is prepared.
        first = next(self._portions, None)
        if first is None:
            raise UsageError(
                f"{path}: holds no request of a trace of the format {name}; check the file and its format"
            )
        self._portions = chain((first,), self._portions)

    def session(self, user: int, start_ns: int = 0) -> Iterator[Request]:
        """What a user asks: all users share the portions that are left."""
        del user, start_ns
        return chain.from_iterable(self._portions)

    def preload(self) -> Iterator[SharedPrefix]:
        """Nothing: a trace starts with an empty cache."""
        return iter(())

    def facts(self) -> Mapping[str, Any]:
        """What was read, for the result."""
        return {
            "kind": self._name,
            "path": str(self._path),
            "requests_read": self._rows,
            "passes_begun": self._passes_begun,
            "bad_rows_skipped": self._log.skipped,
            "bad_rows": list(self._log.examples),
            "empty_rows": self._log.empty,
            "orphan_rows": self._log.orphans,
        }

    def _all_passes(self) -> Iterator[Sequence[Request]]:
        """All passes: each begins a mean gap after the last request of the one before, with new users.

        A recording whose rows all have one time would begin anew for ever at the same moment.
        """
        base_ns = users = 0
        while self._passes is None or self._passes_begun < self._passes:
            self._passes_begun += 1
            # Later passes find the same rows; they are counted once.
            log = self._log if self._passes_begun == 1 else RowLog(self._log.skip)
            origin_ns: int | None = None
            count, last_ns, next_user = 0, base_ns, users
            for portion in self._source(log):
                if origin_ns is None:
                    origin_ns = portion[0].intended_ns
                moved = [self._moved(request, base_ns, origin_ns, users) for request in portion]
                count += len(moved)
                last_ns = max(last_ns, moved[-1].intended_ns)
                next_user = max(next_user, moved[-1].user + 1)
                yield moved
            if count == 0:
                if self._passes_begun > 1:
                    raise UsageError(
                        f"{self._path}: can be read only once; name a file, or give --replay-cycles 1"
                    )
                return
            base_ns = max(last_ns + (last_ns - base_ns) // max(1, count - 1), base_ns + _PASS_NS_MIN)
            users = next_user

    def _moved(self, request: Request, base_ns: int, origin_ns: int, users: int) -> Request:
        """A request of the source on this run's clock and under this run's user numbers."""
        self._rows += 1
        user = users + request.user
        at_ns = 0 if self._closed else base_ns + round((request.intended_ns - origin_ns) / self._speedup)
        think_ns = round(request.think_ns / self._speedup)
        return request._replace(user=user, qos=self._qos(user), intended_ns=at_ns, think_ns=think_ns)


def replay_passes(config: Config) -> int | None:
    """How often a recording is played; None for as long as the load lasts."""
    if config.replay_cycles:
        return config.replay_cycles
    return 1 if config.duration is None and config.max_requests is None else None


def qos_by_user(config: Config) -> Callable[[int], QoS]:
    """The class of each user by the configured shares: the same for the same seed and user (L1)."""

    def qos(user: int) -> QoS:
        # A generator per user would cost more than the row itself in a trace of millions.
        hashed = hashlib.blake2b(f"{config.seed} qos {user}".encode(), digest_size=8).digest()
        return qos_of(config, (int.from_bytes(hashed, "big") >> 11) / 2**53)

    return qos
