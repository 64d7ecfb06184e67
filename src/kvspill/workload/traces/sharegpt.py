"""ShareGPT conversations: each pair of a human message and its answer is a turn of a chatbot user."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.plugins import Plugin
from kvspill.records import Request, SharedPrefix
from kvspill.workload.base import Workload
from kvspill.workload.draws import qos_of, think_ns, usual_think_ns
from kvspill.workload.history import past
from kvspill.workload.tokens import make_counter
from kvspill.workload.traces.files import RowError, RowLog, json_object, lines_of
from kvspill.workload.traces.format import SAMPLES, TraceContext
from kvspill.workload.traces.json_array import array_elements
from kvspill.workload.traces.packed import BROKEN_PACKING, open_bytes, unreadable
from kvspill.workload.traces.replay import replay_passes
from kvspill.world import World

PERSONA = "chatbot"
READ_AHEAD = 500
"""Conversations read and counted before the load, so that this does not delay arrivals later."""
_HUMAN = ("human", "user")
_MODEL = ("gpt", "assistant", "chatgpt", "bing", "bard")

Turn = tuple[int, int]
"""Context tokens of a message and generated tokens of its answer."""


class Conversations:
    """The conversations of a file, read as far as they are asked for; only their token counts are kept."""

    def __init__(self, config: Config, path: Path, flag: str):
        self._path = path
        self._limits = config.sharegpt
        self._counter = make_counter(config.sharegpt.token_counter, config.sharegpt.chars_per_token_estimate)
        self._log = RowLog(config.skip_bad_rows)
        self._read: list[Sequence[Turn]] = []
        self._entries = 0
        self._max_entries = config.max_conversations
        self._texts = _texts(path, flag, self._log)
        self._at_end = False

    def __getitem__(self, index: int) -> Sequence[Turn]:
        """The turns of a conversation; beyond the last one they begin again."""
        while index >= len(self._read) and not self._at_end:
            self._read_one()
        return self._read[index % len(self._read)]

    def passed(self, index: int, passes: int | None) -> bool:
        """True where so many passes over all conversations end before this index."""
        while index >= len(self._read) and not self._at_end:
            self._read_one()
        return passes is not None and self._at_end and index >= passes * len(self._read)

    def read_ahead(self) -> int:
        """Read what the load will need first; returns how many conversations are there."""
        while len(self._read) < READ_AHEAD and not self._at_end:
            self._read_one()
        return len(self._read)

    def facts(self) -> Mapping[str, Any]:
        """What was read so far, for the result."""
        return {
            "token_counter": self._counter.name,
            "conversations_read": len(self._read),
            "requests_read": sum(map(len, self._read)),
            "bad_rows_skipped": self._log.skipped,
            "bad_rows": list(self._log.examples),
            "empty_rows": self._log.empty,
        }

    def _read_one(self) -> None:
        found = next(self._texts, None) if self._entries < self._max_entries else None
        if found is None:
            self._at_end = True
            return
        self._entries += 1
        line, text = found
        try:
            turns = self._turns(json_object(text))
        except RowError as error:
            self._log.bad(self._path, line, error)
            return
        if turns:
            self._read.append(turns)
        else:
            self._log.empty += 1

    def _turns(self, record: Mapping[str, Any]) -> Sequence[Turn]:
        messages = record.get("conversations")
        if not isinstance(messages, list):
            raise RowError("conversations is missing or not a list")
        turns = []
        for asked, answered in pairwise(messages):
            if _role(asked) in _HUMAN and _role(answered) in _MODEL:
                context_tokens = min(self._tokens(asked), self._limits.max_context_tokens)
                turns.append(
                    (context_tokens, min(self._tokens(answered), self._limits.max_generation_tokens))
                )
        return turns

    def _tokens(self, message: Mapping[str, Any]) -> int:
        value = message.get("value")
        if not isinstance(value, str):
            raise RowError("the value of a message is not a text")
        return self._counter.count(value)


class ShareGptWorkload:
    """Users who hold these conversations: of N users, the n-th holds the n-th and every N-th from there."""

    elastic = True

    def __init__(self, config: Config, world: World, path: Path, flag: str):
        self._config = config
        self._world = world
        self._path = path
        self._passes = replay_passes(config)
        self._conversations = Conversations(config, path, flag)
        self._think_range = config.personas[PERSONA].think
        self.users = config.num_users
        if self._conversations.read_ahead() == 0:
            raise UsageError(f"{flag} {path}: holds no conversation with an answer; check the file")

    def session(self, user: int, start_ns: int = 0) -> Iterator[Request]:
        """All requests of a user in the order of their intended times."""
        chance = self._world.rng("sharegpt", user).random
        qos = qos_of(self._config, chance())
        usual_ns = usual_think_ns(self._think_range, chance())
        at_ns = start_ns + int(usual_ns * chance())
        number, index = 0, user
        while not self._conversations.passed(index, self._passes):
            turns = self._conversations[index]
            if self._config.disable_multi_turn:
                turns = turns[:1]
            history: list[int] = []
            answers: list[int] = []
            for turn, (context_tokens, generate_tokens) in enumerate(turns):
                pause_ns = think_ns(usual_ns, chance())
                yield Request(
                    user=user,
                    conversation=number,
                    turn=turn,
                    qos=qos,
                    intended_ns=at_ns,
                    think_ns=pause_ns,
                    context_tokens=context_tokens,
                    generate_tokens=generate_tokens,
                    history_tokens=past(history),
                    persona=PERSONA,
                    history_answers=past(answers),
                )
                history.append(context_tokens)
                answers.append(generate_tokens)
                at_ns += pause_ns
            number, index = number + 1, index + self.users

    def preload(self) -> Iterator[SharedPrefix]:
        """Nothing: conversations start empty."""
        return iter(())

    def facts(self) -> Mapping[str, Any]:
        """What was read, for the result."""
        return {"kind": "sharegpt", "path": str(self._path), **self._conversations.facts()}


def _texts(path: Path, flag: str, log: RowLog) -> Iterator[tuple[int, str | bytes]]:
    """The texts of the conversations: elements of one array, or one per line."""
    with open_bytes(path, flag) as file:
        try:
            # Of a pipe, what has been read cannot be read again.
            head = file.peek(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
        except BROKEN_PACKING:
            head = b""  # The reader will say what is wrong.
        except OSError as error:
            unreadable(path, flag, error)
        if head.startswith(b"{"):
            yield from lines_of(file, path, flag, log)
        else:
            yield from array_elements(file, path, flag, log)


def _role(message: object) -> str:
    if not isinstance(message, dict):
        raise RowError("a message is not an object with keys")
    return str(message.get("from", ""))


def make(context: TraceContext) -> Workload:
    """Users who hold the conversations of a file."""
    return ShareGptWorkload(context.config, context.world, context.path, context.flag)


PLUGIN = Plugin(
    "sharegpt",
    "ShareGPT: conversations as texts, without times",
    make,
    sample=SAMPLES / "sharegpt_500.json",
)
