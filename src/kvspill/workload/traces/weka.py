"""WEKA agent traces: a JSON object per session, with sub-agents nested in it and block ids of its own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from kvspill.errors import UsageError, reason_of
from kvspill.inputs import SESSION, read_bounded
from kvspill.plugins import LISTS_BLOCKS, OWN_PAUSES, Plugin
from kvspill.records import NS_PER_SEC, QoS, Request
from kvspill.workload.base import Workload
from kvspill.workload.history import past
from kvspill.workload.traces.files import (
    RowError,
    RowLog,
    id_list_of,
    json_object,
    lines,
    time_ns_of,
    tokens_of,
)
from kvspill.workload.traces.format import SAMPLES, TraceContext
from kvspill.workload.traces.packed import BROKEN_PACKING, open_bytes
from kvspill.workload.traces.replay import Source, TraceWorkload

_NESTING_MAX = 20
_LINE_SUFFIXES = (".jsonl", ".ndjson")


@dataclass(frozen=True, slots=True)
class _Session:
    requests: Sequence[Request]
    length_ns: int
    """From its first request to the answer to its last."""


class _BlockNames(dict[int | str, str]):
    """Block ids as strings, each made once; local ids carry the number of their session."""

    def __init__(self, scope: str):
        super().__init__()
        self._scope = scope

    def __missing__(self, block: int | str) -> str:
        name = self[block] = f"{self._scope}{block}"
        return name


def source(path: Path, flag: str, lanes: int, closed: bool) -> Source:
    """One pass over a directory of sessions, or a file of one or of one per line.

    Closed users take whole sessions. In an open replay, `lanes` sessions run at the same time, and the
    next one begins where one ends; within a session the recorded times are kept.
    """

    def portions(log: RowLog) -> Iterator[Sequence[Request]]:
        sessions = _sessions(path, flag, log)
        if closed:
            return (session.requests for session in sessions)
        return _side_by_side(sessions, lanes)

    return portions


def _side_by_side(sessions: Iterator[_Session], lanes: int) -> Iterator[Sequence[Request]]:
    heap: list[tuple[int, int, int, int, _Session]] = []

    def begin(start_ns: int) -> None:
        session = next(sessions, None)
        if session is not None:
            first = session.requests[0]
            heappush(heap, (start_ns + first.intended_ns, first.user, 0, start_ns, session))

    for _ in range(lanes):
        begin(0)
    while heap:
        at_ns, user, index, start_ns, session = heappop(heap)
        yield (session.requests[index]._replace(intended_ns=at_ns),)
        if index + 1 < len(session.requests):
            following_ns = start_ns + session.requests[index + 1].intended_ns
            heappush(heap, (following_ns, user, index + 1, start_ns, session))
        else:
            begin(start_ns + session.length_ns)


def _sessions(path: Path, flag: str, log: RowLog) -> Iterator[_Session]:
    number = 0
    for file, where, text in _documents(path, flag, log):
        try:
            session = _session(json_object(text), number, file, where, log)
        except RowError as error:
            log.bad(file, where, error)
            continue
        if session.requests:
            number += 1
            yield session


def _documents(path: Path, flag: str, log: RowLog) -> Iterator[tuple[Path, int, bytes]]:
    """The texts of the sessions, with the file and the line where each begins."""
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if ".json" in file.suffixes)
        if not files:
            raise UsageError(f"{flag} {path}: holds no .json file; name the directory of the sessions")
    for file in files:
        if any(suffix in _LINE_SUFFIXES for suffix in file.suffixes):
            for number, line in lines(file, flag, log):
                yield file, number, line
        else:
            try:
                with open_bytes(file, flag) as opened:
                    text = read_bounded(opened, SESSION)
            except (OSError, *BROKEN_PACKING) as error:
                log.bad(file, 1, f"cannot be read ({reason_of(error)})")
                continue
            yield file, 1, text


def _session(record: Mapping[str, Any], number: int, file: Path, where: int, log: RowLog) -> _Session:
    block_tokens = tokens_of(record, "block_size") if "block_size" in record else 64
    if block_tokens == 0:
        raise RowError("block_size 0: blocks must hold tokens")
    entries = record.get("requests")
    if not isinstance(entries, list):
        raise RowError("requests is missing or not a list; is it a session of an agent trace?")
    if not entries:
        log.empty += 1
    local = record.get("hash_id_scope", "local") != "global"
    names = _BlockNames(f"s{number}:" if local else "")
    found: list[Request] = []
    ends_ns = [0]
    conversations = 0
    for place, agent, entry in _flat(entries):
        conversations = max(conversations, agent + 1)
        try:
            request = _request(entry, number, agent, names, block_tokens)
            ends_ns.append(request.intended_ns + _seconds_ns(entry, "api_time"))
        except RowError as error:
            log.bad(file, where, f"requests[{place}]: {error}")
            continue
        if request.context_tokens:
            found.append(request)
        else:
            log.empty += 1
    found.sort(key=lambda request: request.intended_ns)
    return _Session(_as_turns(found, conversations), max(ends_ns))


def _flat(entries: Sequence[Any]) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """All requests with their place and the number of their agent; the session's own agent is 0."""
    agents = 0
    stack = [(str(index), 0, 0, entry) for index, entry in reversed(list(enumerate(entries)))]
    while stack:
        place, agent, depth, entry = stack.pop()
        nested = entry.get("requests") if isinstance(entry, dict) else None
        if not isinstance(nested, list) or depth >= _NESTING_MAX:
            yield place, agent, entry
            continue
        agents += 1
        inner = [(f"{place}.{index}", agents, depth + 1, item) for index, item in enumerate(nested)]
        stack += reversed(inner)


def _request(entry: object, user: int, agent: int, names: _BlockNames, block_tokens: int) -> Request:
    if not isinstance(entry, dict):
        raise RowError(f"is a {type(entry).__name__}, not an object with keys")
    return Request(
        user=user,
        conversation=agent,
        turn=0,
        qos=QoS.BATCH,
        intended_ns=max(0, time_ns_of(entry, "t", NS_PER_SEC)),
        think_ns=_seconds_ns(entry, "think_time"),
        context_tokens=tokens_of(entry, "in"),
        generate_tokens=tokens_of(entry, "out"),
        blocks=tuple([names[item] for item in id_list_of(entry)]),
        block_tokens=block_tokens,
    )


def _seconds_ns(entry: Mapping[str, Any], name: str) -> int:
    """A duration that not every recording has."""
    return 0 if entry.get(name) is None else max(0, time_ns_of(entry, name, NS_PER_SEC))


def _as_turns(requests: Sequence[Request], conversations: int) -> Sequence[Request]:
    """The requests with their turn and history in the conversation of their agent."""
    histories: list[list[int]] = [[] for _ in range(conversations)]
    turns = []
    for request in requests:
        history = histories[request.conversation]
        turns.append(request._replace(turn=len(history), history_tokens=past(history)))
        history.append(request.context_tokens)
    return turns


def make(context: TraceContext) -> Workload:
    """The sessions as a workload."""
    portions = source(context.path, context.flag, context.config.num_users, context.closed)
    return TraceWorkload(context.config, portions, "weka", context.path)


PLUGIN = Plugin(
    "weka",
    "WEKA agents: a JSON object per session, with sub-agents and blocks",
    make,
    sample=SAMPLES / "weka",
    can=frozenset({LISTS_BLOCKS, OWN_PAUSES}),
)
