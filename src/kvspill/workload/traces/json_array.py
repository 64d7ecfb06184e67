"""Reading a JSON array of any size element by element, so that a gigabyte starts at once."""

import codecs
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from kvspill.errors import UsageError
from kvspill.inputs import DEPTH_MAX, ROW_BYTES_MAX, VALUES_MAX
from kvspill.workload.traces.files import Idle, RowLog
from kvspill.workload.traces.packed import BROKEN_PACKING

CHUNK_BYTES = 1 << 20
ELEMENT_CHARS_MAX = ROW_BYTES_MAX
"""A longer element is a file that lost a bracket or a quote, not a conversation."""

_ENDS_AT_ONCE = 100_000
"""Elements that are found before the first of them is handed out."""

# A whole string, a bracket, a comma, or a quote whose string goes on beyond what has been read so far.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{},]|"', re.DOTALL)


def array_elements(file: IO[bytes], path: Path, flag: str, log: RowLog) -> Iterator[tuple[int, str]]:
    """The texts of the elements of a file's top-level array, each with the line where it begins."""
    read = _text(file, path, flag)
    text = read(CHUNK_BYTES).lstrip("\ufeff")
    head = text.lstrip()
    if not head.startswith("["):
        raise UsageError(f"{flag} {path}: is not a JSON array of conversations; check the file")
    line = 1 + text[: len(text) - len(head)].count("\n")
    yield from _elements(path, read, head[1:], line, Idle(path, log))


def _elements(
    path: Path, read: Callable[[int], str], rest: str, line: int, idle: Idle
) -> Iterator[tuple[int, str]]:
    position, depth, element, tokens = 0, 0, 0, 0
    while True:
        position, depth, seen, ends = _scan(rest, position, depth)
        tokens = seen if ends else tokens + seen
        unread = len(ends) < _ENDS_AT_ONCE
        for end, closes in ends:
            piece = rest[element:end]
            idle.read(len(piece))
            if piece.strip():
                yield line + _breaks_before(piece), piece.strip()
                idle.handed_out()
            line += piece.count("\n")
            element = end + 1
            if closes:
                return
        rest, position, element = rest[element:], position - element, 0
        if len(rest) > ELEMENT_CHARS_MAX or depth > DEPTH_MAX or tokens > VALUES_MAX:
            line += _breaks_before(rest)
            raise UsageError(
                f"{path}:{line}: an element is longer than {ELEMENT_CHARS_MAX >> 20} Mi characters or "
                f"{VALUES_MAX:,} values, or nested too deeply; a quote or a bracket is probably missing there"
            )
        if unread:
            # A string that has not ended yet is looked through again, so twice as much each time.
            more = read(max(CHUNK_BYTES, len(rest) - position))
            if not more:
                line += _breaks_before(rest)
                raise UsageError(f"{path}:{line}: the file ends inside the array; fetch it again or close it")
            rest += more


def _scan(text: str, position: int, depth: int) -> tuple[int, int, int, list[tuple[int, bool]]]:
    """Read on from a position: where elements end, and whether the array does.

    Returns where to read on, the depth there, and the tokens since the last end.
    """
    ends: list[tuple[int, bool]] = []
    tokens = 0
    for token in _TOKEN.finditer(text, position):
        tokens += 1
        first = text[token.start()]
        if first == '"':
            if token.end() - token.start() == 1:
                return token.start(), depth, tokens, ends
        elif first in "[{":
            depth += 1
        elif first in "]}":
            if depth == 0:
                ends.append((token.start(), True))
                return token.end(), depth, tokens, ends
            depth -= 1
        elif depth == 0:
            ends.append((token.start(), False))
            tokens = 0
            if len(ends) == _ENDS_AT_ONCE:
                return token.end(), depth, tokens, ends
    return len(text), depth, tokens, ends


def _breaks_before(text: str) -> int:
    """Line breaks before a text begins."""
    return text[: len(text) - len(text.lstrip())].count("\n")


def _text(file: IO[bytes], path: Path, flag: str) -> Callable[[int], str]:
    """A function that reads so many bytes as text, and nothing at the end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(nbytes: int) -> str:
        text, raw = "", b"-"
        # A part of a character is no text yet, and not the end either.
        while raw and not text:
            try:
                raw = file.read(nbytes)
            except (OSError, *BROKEN_PACKING) as error:
                raise UsageError(f"{flag} {path}: cannot be read ({error}); fetch it again") from error
            text = decoder.decode(raw)
        return text

    return read
