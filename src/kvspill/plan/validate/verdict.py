"""The table of a validation: each row with the engine's figure, ours, and whether they agree."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from kvspill.config.blocks import Preset
from kvspill.measure.statistics import median_interval
from kvspill.plan.validate.sides import Round
from kvspill.plan.validate.witness import HASHED, OTHERS, Seen
from kvspill.texts import counted

EQUAL: Final = "equal"
WITHIN: Final = "within 5 %"
NAMED: Final = "named difference"
DIFFERS: Final = "DIFFERS"
NOT_JUDGED: Final = "not judged"
TOLERANCE = 0.05
NAMED_TOLERANCE = 0.10
"""A difference of time that the preset names may be so large."""
_MIN_ROUNDS = 9


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    engine: Any
    ours: Any
    verdict: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Played:
    """One side: its watched round and the rounds that were timed."""

    watched: Round
    calls: Seen
    timed: Sequence[Round]


def rows_of(engine: Played, ours: Played, preset: Preset) -> list[Row]:
    """All rows; what the preset names as a difference is judged as such."""
    return [
        *_work(engine, ours, preset),
        *_calls(engine.calls, ours.calls, preset),
        *_times(engine, ours, preset),
    ]


def passed(rows: Sequence[Row]) -> bool:
    return all(row.verdict != DIFFERS for row in rows)


def _work(engine: Played, ours: Played, preset: Preset) -> Iterator[Row]:
    def pair(name: str, of: Any) -> Row:
        return _row(name, of(engine), of(ours), preset)

    yield pair("requests", lambda side: len(side.watched.found))
    found, stored = _texts(engine.watched.found), _texts(engine.watched.stored)
    yield pair("blocks found", lambda side: sum(side.watched.found))
    yield pair("blocks stored", lambda side: sum(side.watched.stored))
    same = (found, stored) == (_texts(ours.watched.found), _texts(ours.watched.stored))
    yield Row("found by each request", found, _texts(ours.watched.found), EQUAL if same else DIFFERS)


def _calls(engine: Seen, ours: Seen, preset: Preset) -> Iterator[Row]:
    for verb, name in (("reads", "read_sizes"), ("writes", "write_sizes")):
        theirs, own = getattr(engine, name), getattr(ours, name)
        yield _row(verb, theirs.total(), own.total(), preset)
        yield _row(f"{verb}: bytes each", _sizes(theirs), _sizes(own), preset)
        yield _row(f"{verb}: bytes", _bytes(theirs), _bytes(own), preset)
    for name in OTHERS:
        row = _row(name, engine.others[name], ours.others[name], preset)
        if row.name == HASHED and row.verdict == DIFFERS and _near(row.engine, row.ours):
            # Which blocks share a directory depends on their hashes, and those differ.
            row = replace(row, verdict=WITHIN, note="blocks have other hashes")
        yield row
    yield _row("opened with O_DIRECT", engine.direct, ours.direct, preset)


def _times(engine: Played, ours: Played, preset: Preset) -> Iterator[Row]:
    """Loads by the drivers' clocks, round against round; a median of few rounds is no verdict (V1)."""
    blocks = sum(engine.watched.found)
    loads = sum(1 for found in engine.watched.found if found)
    if not engine.timed or not loads:
        return
    for name, parts in (("load ms per block", blocks), ("load ms per request", loads)):
        theirs, own = (
            [1000 * sum(played.seconds) / parts for played in side.timed] for side in (engine, ours)
        )
        ratios = sorted(mine / their for mine, their in zip(own, theirs, strict=True))
        ratio = statistics.median(ratios)
        rounds = counted(len(ratios), "round")
        note = f"ratio {ratio:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}) of {rounds}"
        verdict, why = _judged_time(ratios, preset.differs.get(name))
        note = f"{note}; {why}" if why else note
        yield Row(name, round(statistics.median(theirs), 4), round(statistics.median(own), 4), verdict, note)


def _judged_time(ratios: Sequence[float], named: str | None) -> tuple[str, str]:
    """The verdict on load times whose rounds have these ratios, and why it is no other."""
    if len(ratios) < _MIN_ROUNDS:
        return NOT_JUDGED, f"{_MIN_ROUNDS} are needed"
    off = abs(statistics.median(ratios) - 1)
    if off <= TOLERANCE:
        return WITHIN, ""
    if named is not None and off <= NAMED_TOLERANCE:
        return NAMED, named
    low, high = median_interval(ratios)
    if low <= 1 + TOLERANCE and high >= 1 - TOLERANCE:
        return NOT_JUDGED, f"the median may be {low:.3f} to {high:.3f}; more --rounds would tell"
    return DIFFERS, ""


def _row(name: str, engine: Any, ours: Any, preset: Preset) -> Row:
    if engine == ours:
        return Row(name, engine, ours, EQUAL)
    named = preset.differs.get(name)
    return Row(name, engine, ours, DIFFERS if named is None else NAMED, named or "")


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= TOLERANCE * max(one, other)


def _sizes(sizes: Mapping[int, int]) -> str:
    return ", ".join(f"{count} x {nbytes}" for nbytes, count in sorted(sizes.items())) or "none"


def _bytes(sizes: Mapping[int, int]) -> int:
    return sum(nbytes * count for nbytes, count in sizes.items())


def _texts(counts: Sequence[int]) -> str:
    return " ".join(map(str, counts))


def document(rows: Sequence[Row], preset: Preset, about: Mapping[str, Any]) -> dict[str, Any]:
    """The result file."""
    return {
        "kvspill_validation": 1,
        "passed": passed(rows),
        "preset": asdict(preset),
        **about,
        "rows": [asdict(row) for row in rows],
        "differences": [f"{name}: {text}" for name, text in preset.differs.items()],
    }
