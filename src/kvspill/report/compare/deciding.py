"""Which figures decide a comparison in which set-up, and how many runs they need."""

import math
from collections.abc import Iterator, Sequence
from statistics import stdev, variance

from kvspill.measure.statistics import runs_needed
from kvspill.report.columns import (
    COLUMN,
    DECODE_BYTES,
    NVME_THROUGHPUT,
    STORAGE_SPEED,
    STORAGE_THROUGHPUT,
    WALL_THROUGHPUT,
    finite,
)
from kvspill.report.compare.matching import Pairs
from kvspill.report.compare.run import INFERENCE, KVSPILL, Run, seed_of

LOSS = 0.05
"""The loss that runs are counted for."""
_LOG_LOSS = -math.log1p(-LOSS)
PAIRED_SEEDS = 3
"""With fewer seeds, pairing costs more in degrees of freedom than it gives."""
Logs = Sequence[tuple[str | None, float]]
"""Of each run its plan and the logarithm of its figure."""


def deciding(runs: Sequence[Run], known: set[str]) -> tuple[str, ...]:
    """The most sensitive figures that are valid for the set-up."""
    if all(run.kind == INFERENCE for run in runs):
        return tuple(name for name in (WALL_THROUGHPUT,) if name in known)
    for wanted in (_of_set_up(runs, known), _published(runs)):
        found = tuple(name for name in wanted if name in known)
        if found:
            return found
    return ()


def _of_set_up(runs: Sequence[Run], known: set[str]) -> tuple[str, ...]:
    """Of kvspill's own results, whose storage time counts requests that did not complete, too."""
    memory = _memory(runs)
    if (
        not all(run.kind == KVSPILL for run in runs)
        or None in memory
        or len(memory - {0}) not in (0, len(memory))
    ):
        return ()
    fixed = all(run.config.get("max_requests") is not None for run in runs)
    if memory != {0}:
        # Behind DRAM most requests never reach the drive: what it moved in its time tells, and where it waits
        # for the users, what it moved while it was at work.
        # Results of older versions do not have that; of fixed work their time spent in storage tells.
        older = fixed and STORAGE_SPEED not in known
        return (NVME_THROUGHPUT, STORAGE_THROUGHPUT if older else STORAGE_SPEED)
    if any(run.config.get("generation_mode") not in (None, "none") for run in runs):
        # Generation hides the drive from the wall clock, but not from the time spent in storage.
        return (STORAGE_THROUGHPUT,)
    # The same work moves the same bytes, whatever the drive: then time alone tells.
    return (WALL_THROUGHPUT,) if fixed else (DECODE_BYTES, WALL_THROUGHPUT)


def _published(runs: Sequence[Run]) -> tuple[str, ...]:
    """As the published analysis found it: bytes and the wall clock without CPU memory, else storage time."""
    memory = _memory(runs)
    if memory == {0}:
        return (DECODE_BYTES, WALL_THROUGHPUT)
    return (WALL_THROUGHPUT, STORAGE_THROUGHPUT) if None in memory or 0 in memory else (STORAGE_THROUGHPUT,)


def _memory(runs: Sequence[Run]) -> set[float | None]:
    return {finite(run.config.get("cpu_mem_gb")) for run in runs}


def power(pairs: Pairs, primary: Sequence[str], by_seed: bool) -> Iterator[str]:
    """How many runs would show a small loss in the deciding figures, as these runs scatter."""
    if len(pairs) != 1:
        return
    for name in primary:
        sides = [[(seed_of(run), run.values.get(name, 0.0)) for run in side] for side in pairs[0]]
        if all(len(side) > 1 and min(value for _, value in side) > 0 for side in sides):
            logs = [[(seed, math.log(value)) for seed, value in side] for side in sides]
            yield (_of_pairs if by_seed else _of_samples)(COLUMN[name].shown_title, logs[0], logs[1])


def _of_pairs(title: str, first: Logs, second: Logs) -> str:
    after = dict(second)
    deviation = stdev(after[seed] - value for seed, value in first)
    needed = runs_needed(deviation, _LOG_LOSS, paired=True)
    pairs = None if needed is None else max(PAIRED_SEEDS, needed)
    return f"As these pairs scatter, a loss of {LOSS:.0%} in {title} is found by {_counted(pairs, 'pair')}."


def _of_samples(title: str, first: Logs, second: Logs) -> str:
    spreads = [variance(value for _, value in side) for side in (first, second)]
    deviation = math.sqrt(sum(spreads) / 2)
    needed = _counted(runs_needed(deviation, _LOG_LOSS, paired=False), "run")
    text = f"a loss of {LOSS:.0%} in {title} is found by {needed} a side"
    if {seed for seed, _ in first} == {seed for seed, _ in second}:
        return f"As these runs scatter ({deviation:.1%}), {text}."
    return (
        f"The sides ran other seeds, which differ by {deviation:.1%}: {text}. Run {PAIRED_SEEDS} or more of "
        "the same seeds on both sides: these are compared as pairs, which need far fewer."
    )


def _counted(number: int | None, noun: str) -> str:
    return f"more than 1,000 {noun}s" if number is None else f"{number:,} {noun}s"
