"""Text as it is shown: made harmless for terminal, page or spreadsheet, aligned, counted."""

import contextlib
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

from kvspill.errors import KvspillError
from kvspill.records import GIB, MIB

if TYPE_CHECKING:
    from rich.console import Console

_TURNS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""What turns the direction of writing round, so that a name reads as another."""
_HIDDEN = f"\x00-\x08\x0e-\x1f\x7f-\x9f\u200b\u2060\ufeff{_TURNS}\ud800-\udfff\ufffe\uffff"
_ODD = re.compile(f"[{_HIDDEN}]")
_HALF = re.compile("[\ud800-\udfff]")
_BREAKS = re.compile(r"[\t\n\x0b\x0c\r\x85\u2028\u2029]+")
_BREAKS_WITHIN = re.compile(r"[\x0b\x0c\r\x85\u2028\u2029]")
_FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Characters with which a spreadsheet begins a formula, the wide ones of East Asian keyboards included."""

_WIDTH = 80
_DIGITS = 4
_PLACES_MAX = 4
"""No clock here tells apart times that differ by less than 0.1 us."""
_SHOWN_IN_GIB = 0.01
"""So many GiB/s have two digits in three places."""
_NEARLY_EQUAL = 1.05
"""A ratio below it is 1.0 when rounded."""
_FEW = 5
"""Of fewer a model gives a range."""
MODELLED = "* modelled: times come from a device model, no byte moved on that tier."
"""What a mark in a table means."""


def one_line(text: object) -> str:
    """For a terminal: no escape sequence, nothing that turns the writing round, no line end."""
    return _ODD.sub("?", _BREAKS.sub(" ", str(text)))


def plain(text: object) -> str:
    """For a terminal or a page: as one_line, but lines stay lines."""
    return _ODD.sub("?", _BREAKS_WITHIN.sub(" ", str(text)))


def without_half_characters(value: Any) -> Any:
    """The same data, with bytes that are no UTF-8 (as Python reads them in names) written as \\xNN."""
    if isinstance(value, str):
        return _HALF.sub(_byte, value)
    if isinstance(value, dict):
        return {without_half_characters(key): without_half_characters(item) for key, item in value.items()}
    return [without_half_characters(item) for item in value] if isinstance(value, list) else value


def _byte(half: re.Match[str]) -> str:
    code = ord(half[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def aligned(rows: Sequence[Sequence[str]], names: int = 1) -> str:
    """A table of text: so many columns of names to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            f"{cell:<{width}}" if column < names else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def near(word: str, known: Iterable[str], count: int = 1, cutoff: float = 0.5) -> list[str]:
    """Known names that a mistyped one may mean, the likeliest first: those that begin with it."""
    from difflib import get_close_matches

    lowered, names = word.lower(), list(known)
    # Llama-3.1-70B begins llama3.1-70b-instruct: names differ in how they divide their parts.
    bare = _undivided(lowered)
    begun = [name for name in names if bare and _undivided(name.lower()).startswith(bare)]
    alike = get_close_matches(lowered, names, n=count, cutoff=cutoff)
    return list(dict.fromkeys([*sorted(begun, key=len), *alike]))[:count]


def _undivided(name: str) -> str:
    return name.replace("-", "").replace("_", "").replace(" ", "")


def hint(word: str, known: Iterable[str], otherwise: str, cutoff: float = 0.6) -> str:
    """Which known word may be meant, as a question; what to do instead where none is near."""
    found = near(word, known, cutoff=cutoff)
    return f"did you mean {found[0]}?" if found else otherwise


def cell(text: str) -> str:
    """For a spreadsheet: never a formula, also where blanks or line ends stand before it."""
    harmless = plain(text)
    bare = harmless.lstrip(" \t\n\xa0?'")
    if harmless[:1].isspace() or (bare.startswith(_FORMULA_STARTS) and not harmless.startswith("'")):
        return f"'{harmless}"
    return harmless


def wrapped(line: str, width: int = _WIDTH) -> str:
    """A sentence for a screen of so many columns; flags, names and paths stay whole."""
    import textwrap

    return textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def put(text: object, file: IO[str] | None = None) -> None:
    """Print lines in which names from elsewhere may stand."""
    print(plain(text), file=sys.stdout if file is None else file, flush=True)


def mute(stream: IO[str]) -> None:
    """Send what a stream still holds, and all that follows, nowhere: its reader is gone."""
    try:
        fd = stream.fileno()
    except ValueError:
        # Closed, or without a descriptor: it keeps nothing that could fail later.
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, fd)
    finally:
        os.close(nowhere)


@contextlib.contextmanager
def printing(problems: Sequence[str]) -> Iterator[None]:
    """What is printed here may find no room or no reader: what has gone wrong before is said all the same."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if not problems:
            raise
        mute(sys.stdout)
        raise KvspillError("; ".join(problems)) from error


def print_answer(problems: Sequence[str], say: Callable[[], object], *, quiet: bool = False) -> None:
    """The last act of a command: print its answer, then raise what went wrong in keeping it."""
    if not quiet:
        with printing(problems):
            say()
    if problems:
        raise KvspillError("; ".join(problems))


def make_console(file: IO[str], **options: Any) -> "Console":
    """A console of rich that sends colours of ours to the terminal, and no control character of others."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Harmless(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(plain(segment.text), segment.style)

    return Harmless(file=file, highlight=False, **options)


def about(number: int, most: int | None = None) -> str:
    """A number that a model gives: of few, one more or less is a large part, and no model is that exact."""
    if number >= _FEW:
        return f"about {number:,}"
    above = number + 1 if most is None else max(number, min(most, number + 1))
    return f"{max(0, number - 1)} to {above}"


def counted(number: float, one: str, many: str = "") -> str:
    """A number with its noun: 1 request, 2 requests."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(words: Sequence[str], last: str = "and") -> str:
    """Words as a sentence has them: a, b and c."""
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else "".join(words)


def ended_by(reason: str) -> str:
    """Why a run ended early, as a person calls it: in a result a signal has its own name."""
    return reason.replace("stopped by SIGINT", "interrupted by Ctrl-C")


def significant(value: float | None, thousands: str = ",") -> str:
    """A number with the four digits that histograms keep: 7,471, 223.9, 0.1253; none beyond four places."""
    if not value:
        return "-" if value is None else "0"
    places = _places(value)
    # Rounding up may make a digit too many: 9.9996 is 10.00.
    places = _places(round(value, places) or value)
    return f"{round(value, places):{thousands}.{min(max(0, places), _PLACES_MAX)}f}"


def _places(value: float) -> int:
    return _DIGITS - 1 - math.floor(math.log10(abs(value)))


def duration(value_ms: float | None) -> str:
    """A time for a reader: 1.250 s, 12.50 ms, 0.1250 ms."""
    if value_ms is None:
        return "-"
    in_seconds = round(value_ms, 1) >= 1000
    return f"{significant(value_ms / 1000)} s" if in_seconds else f"{significant(value_ms)} ms"


def target_time(value_ms: float) -> str:
    """A time that was given, without digits that nobody gave: 50 ms, 3 s, 1.5 s."""
    return f"{value_ms / 1000:,.10g} s" if value_ms >= 1000 else f"{value_ms:,.10g} ms"


def rough_time(seconds: float) -> str:
    """A time that is known roughly: 40 s, 3 min, 1.5 h."""
    if seconds < 90:
        return f"{max(1.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def as_fast(ratio: float, digits: int = 1) -> str:
    """How fast one is beside another: "4.0 times as fast as", "1.3% faster than" where that would be 1.0."""
    if not 1 / _NEARLY_EQUAL <= ratio <= _NEARLY_EQUAL:
        return f"{ratio:.{digits}f} times as fast as"
    difference = f"{abs(ratio - 1):.1%}"
    if difference == "0.0%":
        return "as fast as"
    return f"{difference} {'faster' if ratio > 1 else 'slower'} than"


def size_text(nbytes: float) -> str:
    """Bytes for a reader: 1.00 GiB, 192 MiB, 1.5 MiB, 64 KiB, 512 B."""
    if nbytes >= GIB:
        return f"{nbytes / GIB:,.2f} GiB"
    for unit, name in ((MIB, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit:
            amount = nbytes / unit
            return f"{amount:,.0f} {name}" if amount >= 10 else f"{amount:.3g} {name}"
    return f"{nbytes:,.0f} B"


def rough_size_text(nbytes: float) -> str:
    """A bound that is known roughly, to three digits: 1,080 GiB, 10.0 GiB."""
    if nbytes < GIB:
        return size_text(nbytes)
    amount = float(f"{nbytes / GIB:.3g}")
    return f"{amount:,.{2 if amount < 10 else 1 if amount < 100 else 0}f} GiB"


def speed_text(gib_per_sec: float, *beside: float | None) -> str:
    """A bandwidth in the unit of a larger one beside it, or that shows two digits: 1.11 GiB/s, 25 MiB/s."""
    if any((other or 0.0) >= 1 for other in beside) and gib_per_sec >= _SHOWN_IN_GIB:
        return f"{gib_per_sec:,.{2 if gib_per_sec >= 10 * _SHOWN_IN_GIB else 3}f} GiB/s"
    return f"{size_text(gib_per_sec * GIB)}/s"
