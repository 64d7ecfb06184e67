"""Predicted figures beside measured ones: how far each is off, and the table of all."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from kvspill.plan.checking import BARS as PROMISES
from kvspill.plan.predict import figures as predicted_figures
from kvspill.result.schema import Result
from lib.machine import table

SHARE_WITHIN = 0.95
NAMES = {
    "requests_per_second": "requests/s",
    "avg_throughput_tokens_per_sec": "tokens/s",
    "tier_storage_read_bandwidth_gbps": "read bandwidth",
    "storage_read_p50_ms": "read p50",
    "storage_read_p95_ms": "read p95",
    "end_to_end_p50_ms": "e2e p50",
    "end_to_end_p95_ms": "e2e p95",
    "cache_hit_rate": "hit rate",
}
BARS = {NAMES[name]: bar for name, bar in PROMISES.items()}
"""How far a prediction may be off."""
COUNTED = {"read bandwidth": "storage reads", "read p50": "storage reads", "read p95": "storage reads"}
"""What a figure is made of; the others of requests."""
ENOUGH = 50
"""Of fewer operations a percentile or a rate is chance, whatever predicts it; such cells are told apart."""


@dataclass(slots=True)
class Case:
    """One load on one device."""

    speeds: tuple[float, float]
    load: str
    predicted: dict[str, float] = field(default_factory=dict)
    measured: list[dict[str, float]] = field(default_factory=list)
    raw: bool = False
    """On the bare disk, where runs differ from each other as well."""
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """What the prediction itself says of its uncertainty."""
    counts: dict[str, int] = field(default_factory=dict)
    """Requests and storage reads of the shortest run."""

    @property
    def device(self) -> str:
        return "raw disk" if self.raw else f"{self.speeds[0]:g}/{self.speeds[1]:g} MiB/s"

    def middle(self, name: str) -> float:
        return median(one[name] for one in self.measured)

    def error(self, name: str) -> float:
        """How far the prediction is off; of the hit rate in points."""
        return off(name, self.predicted[name], self.middle(name))

    def spread(self, name: str) -> float:
        """How far runs lie from their middle."""
        values = [one[name] for one in self.measured]
        half = (max(values) - min(values)) / 2
        return half if name == "hit rate" else half / (median(values) or 1.0)

    def bar(self, name: str) -> float:
        """How far it may be off: on a bare disk by the runs' own spread as well (P3)."""
        return BARS[name] + (self.spread(name) if self.raw else 0.0)

    def within(self, name: str) -> bool:
        return abs(self.error(name)) <= self.bar(name)

    def repeated(self, name: str) -> list[bool]:
        """Whether each run would have been a prediction within the tolerance of the run after it."""
        values = [one[name] for one in self.measured]
        pairs = zip(values, values[1:] + values[:1], strict=True)
        return [abs(off(name, one, other)) <= BARS[name] for one, other in pairs] if len(values) > 1 else []

    def alone(self, name: str) -> list[bool]:
        """Whether the prediction is within its tolerance of each run."""
        return [abs(off(name, self.predicted[name], one[name])) <= BARS[name] for one in self.measured]

    def few(self, name: str) -> bool:
        """Whether the figure is of too few operations to be held against anything."""
        return self.counts.get(COUNTED.get(name, "requests"), ENOUGH) < ENOUGH

    def add(self, result: Result) -> None:
        """Take in one more real run."""
        self.measured.append(named(predicted_figures(result)))
        reads = result.document()["summary"]["cache_stats"].get("storage_read_ops", 0)
        found = {"requests": result.requests_completed, "storage reads": reads}
        self.counts = {name: min(count, self.counts.get(name, count)) for name, count in found.items()}

    def announced(self, name: str) -> str:
        """Whether the measured value lies in the interval that the prediction gives, where it gives one."""
        if name not in self.intervals:
            return ""
        low, high = self.intervals[name]
        inside = low <= self.middle(name) <= high
        return f", {'inside' if inside else 'outside'} its interval of {low:.4g} to {high:.4g}"


def off(name: str, predicted: float, real: float) -> float:
    """How far one value is from the other; of the hit rate in points."""
    if name == "hit rate":
        return predicted - real
    return predicted / real - 1 if real else (0.0 if not predicted else math.inf)


def named(figures: Mapping[str, float]) -> dict[str, float]:
    return {NAMES[name]: figures.get(name, 0.0) for name in NAMES}


def as_data(case: Case) -> dict[str, Any]:
    figures = {"predicted": case.predicted, "measured": case.measured, "counts": case.counts}
    return {"speeds": case.speeds, "load": case.load, **figures}


def show_cases(cases: Sequence[Case]) -> bool:
    """Print the table of errors; True where enough of them are within their bars."""
    rows, missed, count, few, few_missed = [], [], 0, 0, 0
    for case in cases:
        words = [case.device, case.load]
        for name in BARS:
            error = case.error(name)
            count += 1
            good = case.within(name)
            few += case.few(name)
            few_missed += case.few(name) and not good
            words.append(f"{error:+.1%}{'' if good else ' ?' if case.few(name) else ' !'}")
            if not good:
                spread = f", {case.spread(name):.1%} between runs" if len(case.measured) > 1 else ""
                at = f"{case.predicted[name]:.4g} predicted, {case.middle(name):.4g} measured{spread}"
                at += case.announced(name)
                at += f", of fewer than {ENOUGH} {COUNTED.get(name, 'requests')}" if case.few(name) else ""
                missed.append(f"{case.device}, {case.load}: {name} off by {error:+.1%} ({at})")
        rows.append(words)
    print(table(("device", "load", *BARS), rows))
    share = 1 - len(missed) / max(1, count)
    good = share >= SHARE_WITHIN
    print(
        f"{share:.1%} of {count} cells within their bars: {'PASS' if good else 'MISS'} ({SHARE_WITHIN:.0%})"
    )
    if few:
        among = 1 - (len(missed) - few_missed) / max(1, count - few)
        print(f"{among:.1%} of the {count - few} cells of at least {ENOUGH} operations; {few} are chance")
    show_repeated(cases)
    for text in missed:
        print(f"  {text}")
    return good


def show_repeated(cases: Sequence[Case]) -> None:
    """How well a real run predicts the next one, which no prediction can exceed by more than chance."""
    again = [fine for case in cases for name in BARS for fine in case.repeated(name)]
    alone = [fine for case in cases for name in BARS for fine in case.alone(name)]
    if again:
        print(
            f"single runs: the prediction is within these bars of {sum(alone) / len(alone):.1%} of their"
            f" figures, another run of the same load of {sum(again) / len(again):.1%}"
        )
