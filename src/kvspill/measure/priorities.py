"""Service classes beside each other: how many requests bear a verdict, and whose wait is out of order."""

from collections.abc import Mapping

from kvspill.measure.statistics import wilson_interval
from kvspill.records import QoS
from kvspill.texts import duration

MIN_COMPLETIONS = 50
"""Requests of a class below which there is no verdict about it."""

SURE_COMPLETIONS = 20
"""Requests of a class below which nobody says that surely too many are late, not even where all are: requests
next to each other have the same neighbours, and are no independent witnesses."""

NOTABLE = 1.05
"""How many times as long the class served first must wait: a smaller difference is chance."""
NOTABLE_MS = 1.0
"""So long it must wait at least: below that nobody would notice, and the figures are of our own timers."""


def surely_late(late: int, total: int, allowed: float) -> bool:
    """Whether more of a class's requests are late than the share that is allowed, whatever chance did."""
    return total >= SURE_COMPLETIONS and wilson_interval(late, total)[0] > allowed


def priority_inversions(mean_waits_ms: Mapping[QoS, float]) -> list[str]:
    """Pairs of classes where the one served first waited longer on average; nothing where all is right."""
    return [
        f"{first.name.lower()} waited {duration(mean_waits_ms[first])} on average, "
        f"{later.name.lower()} {duration(mean_waits_ms[later])}"
        for first in mean_waits_ms
        for later in mean_waits_ms
        if first < later and mean_waits_ms[first] > max(NOTABLE_MS, NOTABLE * mean_waits_ms[later])
    ]
