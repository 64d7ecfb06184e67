"""The date of the wall clock, for names and results: whatever year it has, no command ends with it."""

import calendar
import time

UNKNOWN = "unknown-date"


def now_text() -> str:
    """Now in UTC to the second, as ISO 8601 writes it."""
    return _text("{:04d}-{:02d}-{:02d}T{:02d}:{:02d}:{:02d}+00:00", local=False)


def now_name() -> str:
    """Now in local time, as a part of a file's name."""
    return _text("{:04d}{:02d}{:02d}-{:02d}{:02d}{:02d}", local=True)


def now_seconds() -> float:
    """Seconds since 1970; whole ones where Python cannot hold the time any finer."""
    try:
        return time.time()
    except OverflowError:
        return float(calendar.timegm(time.gmtime()))


def _text(pattern: str, *, local: bool) -> str:
    # Neither datetime nor time.time: they end at the years 9999 and 2262.
    try:
        return pattern.format(*(time.localtime() if local else time.gmtime())[:6])
    except (OSError, OverflowError):
        return UNKNOWN
