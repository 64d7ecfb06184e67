"""Which runs of two sides belong together: equal settings, whichever file they were read from."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kvspill.errors import UsageError
from kvspill.report.columns import PARAMETERS
from kvspill.report.compare.run import Run
from kvspill.report.settings import DEFAULT, canonical, planning

NAME = "name"
Pairs = list[tuple[list[Run], list[Run]]]


@dataclass(frozen=True, slots=True)
class Matching:
    """Runs of equal configuration side by side, and what could not be put there."""

    by: tuple[str, ...]
    pairs: Pairs
    unmatched: tuple[tuple[Run, ...], tuple[Run, ...]]
    ignored: tuple[str, ...]
    """Settings that vary on a side while the other side doesn't record them."""

    def side(self, index: int) -> list[Run]:
        """The runs of a side that have a counterpart."""
        return [run for pair in self.pairs for run in pair[index]]


def match_sides(first: Sequence[Run], second: Sequence[Run]) -> Matching:
    """Match by every setting that varies within a side.

    What is constant on each side but not the same is what is being compared. The seed is no part of a
    configuration: other seeds are repeats.
    """
    sides = (first, second)
    varying = [
        name for name in _names((*first, *second)) if any(len(values_of(side, name)) > 1 for side in sides)
    ]
    ignored = [name for name in varying if not all(recorded(side, name) for side in sides)]
    by = _needed([name for name in varying if name not in ignored], (*first, *second))
    keyed: list[dict[tuple[str, ...], list[Run]]] = [{}, {}]
    for found, runs in zip(keyed, sides, strict=True):
        for run in runs:
            found.setdefault(_key(run, by), []).append(run)
    common = sorted(keyed[0].keys() & keyed[1].keys())
    if not common:
        raise UsageError(
            f"no configuration appears on both sides (they vary in {', '.join(by)}); "
            "give runs with the same settings on either side of `--`"
        )
    unmatched = [
        tuple(run for key, runs in found.items() if key not in common for run in runs) for found in keyed
    ]
    pairs = [(keyed[0][key], keyed[1][key]) for key in common]
    return Matching(tuple(by), pairs, (unmatched[0], unmatched[1]), tuple(ignored))


def by_settings(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs of one name by what else tells them apart, as words; a single part where nothing does."""
    names = _needed(_names(runs), runs)
    found: dict[str, list[Run]] = {}
    for run in runs:
        words = ", ".join(f"{name} {_setting(run, name)}" for name in names if name != NAME)
        found.setdefault(words, []).append(run)
    return found


def settings_that(runs: Sequence[Run], differ: Callable[[str], bool]) -> list[str]:
    """The settings of these runs, the seed and the name apart, of which that is true."""
    return [name for name in _names(runs) if name != NAME and differ(name)]


def differing_plans(first: Sequence[Run], second: Sequence[Run]) -> list[str]:
    """The settings that make these sides plan other operations, the seed among them."""
    sides, known = (first, second), planning()
    return [
        name
        for name in (*_names((*first, *second)), "seed")
        if name in known
        and all(recorded(side, name) for side in sides)
        and values_of(first, name) != values_of(second, name)
    ]


def values_of(runs: Iterable[Run], name: str) -> set[str]:
    return {_setting(run, name) for run in runs}


def _names(runs: Iterable[Run]) -> list[str]:
    """Every setting that could tell configurations apart: the common ones first, whole blocks last."""
    others: dict[str, Any] = {}
    for run in runs:
        others.update(run.others or {})
    plain = sorted(others, key=lambda name: (isinstance(others[name], dict | list), name))
    return [*(parameter for parameter in PARAMETERS if parameter != "seed"), *plain, NAME]


def _setting(run: Run, name: str) -> str:
    if name == NAME:
        known = any(value is not None for value in run.config.values())
        return canonical(None if known else run.group)
    if name in run.config:
        return canonical(run.config[name])
    return canonical((run.others or {}).get(name, DEFAULT))


def recorded(side: Sequence[Run], name: str) -> bool:
    """Whether a run of this side says what the setting was, its default included."""
    if name == NAME:
        return True
    if name in PARAMETERS:
        return any(name in run.config for run in side)
    return any(run.others is not None for run in side)


def _key(run: Run, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(_setting(run, name) for name in names)


def _needed(names: Sequence[str], runs: Sequence[Run]) -> list[str]:
    """The same partition of the runs by fewer names: one that only follows from others says nothing."""
    kept: list[str] = []
    parts = 1
    for name in names:
        now = len({_key(run, [*kept, name]) for run in runs})
        if now > parts:
            kept.append(name)
            parts = now
    return kept
