"""How numbers are written for a reader: ratios, shares, and figures with the digits that they need."""

import math

from kvspill.config.checks import NO_LIMIT_BYTES
from kvspill.result.schema import Result
from kvspill.texts import size_text, speed_text

NONE = "-"
"""What was not measured, in the cell of a table."""
UNMEASURED = "not measured"
"""The same where there is room for words."""


def times(value: float | None) -> str:
    """A ratio: 2.62x."""
    return NONE if value is None else f"{value:.2f}x"


def percent(value: float | None, digits: int = 0) -> str:
    return NONE if value is None else f"{value:.{digits}%}"


def figure(value: float | None, digits: int = 2) -> str:
    """A number a reader can take in: thousands separated, small ones with the digits that they need."""
    if value is None:
        return NONE
    if value and abs(value) < 10**-digits:
        digits = min(9, digits - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def counted(value: float, digits: int = 2) -> str:
    """A number that may be a count: 78, not 78.00."""
    return figure(value, 0 if float(value).is_integer() else digits)


def number(value: float | None, unit: str = "", digits: int = 2) -> str:
    """A figure with its unit; what was not measured says so."""
    return UNMEASURED if value is None else f"{value:,.{digits}f}{unit}"


def speed(gib_per_sec: float | None, *beside: float | None) -> str:
    return UNMEASURED if gib_per_sec is None else speed_text(gib_per_sec, *beside)


def share(value: float | None) -> str:
    return UNMEASURED if value is None else f"{value:.1%}"


def volume(nbytes: float | None) -> str:
    return UNMEASURED if nbytes is None else size_text(nbytes)


def limit(nbytes: float) -> str:
    """How much a tier may hold."""
    return "no limit" if nbytes >= NO_LIMIT_BYTES else volume(nbytes)


def yes_no(value: bool | None) -> str:
    return {True: "yes", False: "no", None: UNMEASURED}[value]


def entry_sizes(result: Result, tier: str, verb: str, p: str = "p") -> str:
    """The sizes that a tier's latencies are of (S15), the unit once where it is the same."""
    sizes = [result.number(f"{tier}_{verb}_entry_{size}_bytes") for size in ("p50", "p95")]
    middle, large = ("-" if nbytes is None else size_text(nbytes) for nbytes in sizes)
    unit = large.partition(" ")[2]
    return f"{p}50 {middle.removesuffix(f' {unit}') if unit else middle}, {p}95 {large}"
