"""What a store answers to a few small requests, as `kvspill doctor` shows it."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

PROBE_BYTES: Final = 4096
_TIMES = 5
_CLOCK_SECONDS_GOOD = 60.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found out; what is not as it should be has a remedy."""

    name: str
    text: str
    remedy: str = ""


def answer_time(name: str, request: Callable[[], object]) -> Finding:
    """How long a store takes for a small request, made a few times."""
    took_ms = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        request()
        took_ms.append((time.perf_counter() - began) * 1e3)
    median, slowest = statistics.median(took_ms), max(took_ms)
    return Finding(
        name, f"{PROBE_BYTES:,} bytes in {median:.2f} ms (median of {_TIMES}; slowest {slowest:.2f} ms)"
    )


def clock(there_seconds: float, before_seconds: float, after_seconds: float, resolution: float) -> Finding:
    """How far the store's clock is from ours, as far as its answer and the way there can tell."""
    early, late = before_seconds - resolution - there_seconds, there_seconds - after_seconds
    apart = max(early, late, 0.0)
    if apart <= _CLOCK_SECONDS_GOOD:
        return Finding(
            "clock", f"within {max(apart, resolution):.0f} s of ours" if apart or resolution else "as ours"
        )
    side = "behind" if early > late else "ahead of"
    return Finding(
        "clock",
        f"{apart:,.0f} s {side} ours",
        "set both by NTP: S3 refuses requests that are 15 minutes off, and times of logs don't match",
    )
