"""Several draws of the same number of users: what most of them answer, and how many each of them holds."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from kvspill.config import Config
from kvspill.result.answer import Status
from kvspill.result.schema import Result
from kvspill.run.runner import simulate_aside
from kvspill.run.verdict import Level, at_the_limit, by_most, judge, read_bracket

LARGE_SEED = 1 << 62
"""Beyond it the next seeds are looked for downwards: the largest has none above it."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What simulated users get by most of several seeds, each of which draws other users."""

    status: Status
    result: Result
    """Of a seed that answers so."""
    by_seed: Mapping[int, Status]
    """What each seed answers, the one asked with first; empty where only that one was asked."""
    held_by_seed: Mapping[int, Level] = field(default_factory=dict)
    """How many users each of these holds as far as it is known; of a seed that says yes, at least so many."""


def by_seeds(config: Config, first: Result, *, alone: bool, say: Callable[[str], None]) -> Drawn:
    """What most seeds answer, where the first one has an answer; with `alone` what that one does."""
    users = config.num_users
    status = judge(first, read_bracket(first.autoscaling_stats), users)
    if alone or not (status in (Status.YES, Status.NO) or at_the_limit(first, users)):
        return Drawn(status, first, {})
    # However many users there are, a few heavy ones among them can decide near the limit.
    drawn = {config.seed: first, **_other_seeds(config, say)}
    brackets = {seed: read_bracket(one.autoscaling_stats) for seed, one in drawn.items()}
    seeds = {seed: judge(one, brackets[seed], users) for seed, one in drawn.items()}
    status = by_most(seeds)
    # The figures must be of a draw that gives the answer, or they would speak against it.
    chosen = next((one for seed, one in drawn.items() if seeds[seed] is status), first)
    held = {seed: found.about for seed, found in brackets.items() if found.about is not None}
    return Drawn(status, chosen, seeds, held)


def next_seeds(seed: int) -> tuple[int, int]:
    """Those of two other draws of the users."""
    step = 1 if seed < LARGE_SEED else -1
    return seed + step, seed + 2 * step


def _other_seeds(config: Config, say: Callable[[str], None]) -> dict[int, Result]:
    """Two other draws of the users; a signal ends the wait for them."""
    found: dict[int, Result] = {}
    with suppress(KeyboardInterrupt):
        for seed in next_seeds(config.seed):
            say(f"searching in virtual time with seed {seed}")
            found[seed] = simulate_aside(config.changed(seed=seed), config.num_users)
    return found
