"""Reading a JSON array of any size element by element, so that a gigabyte starts at once."""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from kvspill.errors import UsageError
from kvspill.workload.traces.files import BROKEN_PACKING, open_bytes

CHUNK_BYTES = 1 << 20
ELEMENT_CHARS_MAX = 64 << 20
"""A longer element is a file that lost a bracket or a quote, not a conversation."""

# A whole string, a bracket, a comma, or a quote whose string goes on beyond what has been read so far.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{},]|"', re.DOTALL)


def array_elements(path: Path, flag: str) -> Iterator[tuple[int, str]]:
    """The texts of the elements of a file's top-level array, each with the line where it begins."""
    chunks = _text(path, flag)
    text = next(chunks, "").lstrip("\ufeff")
    head = text.lstrip()
    if not head.startswith("["):
        raise UsageError(f"{flag} {path}: is not a JSON array of conversations; check the file")
    line = 1 + text[: len(text) - len(head)].count("\n")
    rest, position, depth, element = head[1:], 0, 0, 0
    while True:
        position, depth, ends = _scan(rest, position, depth)
        for end, closes in ends:
            piece = rest[element:end]
            if piece.strip():
                yield line + _breaks_before(piece), piece.strip()
            line += piece.count("\n")
            element = end + 1
            if closes:
                return
        rest, position, element = rest[element:], position - element, 0
        if len(rest) > ELEMENT_CHARS_MAX:
            line += _breaks_before(rest)
            raise UsageError(
                f"{path}:{line}: an element is longer than {ELEMENT_CHARS_MAX >> 20} Mi characters; "
                "a quote or a bracket is probably missing there"
            )
        more = next(chunks, None)
        if more is None:
            line += _breaks_before(rest)
            raise UsageError(f"{path}:{line}: the file ends inside the array; fetch it again or close it")
        rest += more


def _scan(text: str, position: int, depth: int) -> tuple[int, int, list[tuple[int, bool]]]:
    """Read on from a position: where elements end, and whether the array does; returns where to read on."""
    ends: list[tuple[int, bool]] = []
    for token in _TOKEN.finditer(text, position):
        first = text[token.start()]
        if first == '"':
            if token.end() - token.start() == 1:
                return token.start(), depth, ends
        elif first in "[{":
            depth += 1
        elif first in "]}":
            if depth == 0:
                ends.append((token.start(), True))
                return token.end(), depth, ends
            depth -= 1
        elif depth == 0:
            ends.append((token.start(), False))
        position = token.end()
    return max(position, 0), depth, ends


def _breaks_before(text: str) -> int:
    """Line breaks before a text begins."""
    return text[: len(text) - len(text.lstrip())].count("\n")


def _text(path: Path, flag: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    size = CHUNK_BYTES
    with open_bytes(path, flag) as file:
        while True:
            try:
                raw = file.read(size)
            except (OSError, *BROKEN_PACKING) as error:
                raise UsageError(f"{flag} {path}: cannot be read ({error}); fetch it again") from error
            if not raw:
                return
            yield decoder.decode(raw)
