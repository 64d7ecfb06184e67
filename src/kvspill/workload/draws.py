"""What users draw from their random streams: values in ranges, one of several by weight, a class."""

from collections.abc import Sequence

from kvspill.config import Config
from kvspill.records import NS_PER_SEC, QoS

THINK_SPREAD = 0.2
"""A request's pause differs from its user's by up to this share."""


def between(low: int, high: int, chance: float) -> int:
    return low + int(chance * (high - low + 1))


def weighted(weights: Sequence[float], chance: float) -> int:
    """The index that a chance in [0, 1) falls on."""
    target = chance * sum(weights)
    for index, weight in enumerate(weights):
        target -= weight
        if target < 0:
            return index
    return len(weights) - 1


def qos_of(config: Config, chance: float) -> QoS:
    """The class that a chance falls on by the configured shares."""
    shares = (config.qos.interactive.share, config.qos.responsive.share, config.qos.batch.share)
    return QoS(weighted(shares, chance))


def usual_think_ns(seconds: tuple[float, float], chance: float) -> int:
    """A user's own pause within its persona's range."""
    low, high = seconds
    return int((low + (high - low) * chance) * NS_PER_SEC)


def think_ns(usual_ns: int, chance: float) -> int:
    """The pause before one request."""
    return int(usual_ns * (1 + THINK_SPREAD * (2 * chance - 1)))
