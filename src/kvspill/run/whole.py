"""From what all ranks measured to one Result, with a table of the ranks where there are several (R3)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvspill.config import Config
from kvspill.records import GIB, NS_PER_MS, Tier, Verb
from kvspill.result.honesty import faults_of, honesty_block
from kvspill.result.io_model import io_model_cautions
from kvspill.result.measured import Measured, ratio
from kvspill.result.parts import Part, whole_of
from kvspill.result.ranking import has_failed, rank_faults
from kvspill.result.result import build_result, settings_of
from kvspill.result.schema import InFlight, RankRow, RankTable, Result
from kvspill.result.schema_honesty import Caution
from kvspill.result.warnings import loads
from kvspill.run.ranks.stragglers import relative_speeds
from kvspill.texts import duration

STRAGGLER_SHARE = 0.8
"""A rank slower than this share of the median is a straggler (R3)."""
SKEW_MS_MAX = 10.0


def whole_result(
    config: Config,
    parts: Sequence[Part],
    *,
    size: int = 1,
    missing: Mapping[int, str] | None = None,
    ended: str | None = None,
    steps: Sequence[Mapping[str, Any]] = (),
    search_cautions: Sequence[Caution] = (),
    users: int | None = None,
) -> Result:
    """The result of a load. Missing: ranks whose part ends early or is not there, and why.

    users: how many there were in the window, where a search changed their number.
    """
    table = None if size == 1 else rank_table(config, parts, size, missing or {})
    whole = whole_of(parts)
    if table is not None:
        users = whole.users
    facts = replace(whole.facts, interrupted=ended)
    result = build_result(
        config,
        facts,
        whole.recorder,
        whole.probes,
        [
            *whole.cautions,
            *([] if table is None else _rank_cautions(table)),
            *io_model_cautions(facts.io_model),
            *search_cautions,
        ],
        environment=whole.environment,
        ceiling=whole.ceiling,
        worst=whole.worst,
        autoscaling=steps,
        users=users,
        servers=None if table is None else whole.servers,
        trials=config.trials,
        in_flight=_in_flight(whole),
        ranks=table,
    )
    result.warnings += whole.later
    if table is not None and any(row.failed for row in table.rows):
        result.incomplete = True
    return result


def _in_flight(part: Part) -> list[InFlight]:
    return [
        InFlight(
            tier=lane.tier.value,
            verb=lane.verb.value,
            count=lane.in_flight_at_end,
            oldest_ms=lane.in_flight_oldest_ns / NS_PER_MS,
        )
        for lane in part.recorder.lanes()
        if lane.in_flight_at_end
    ]


def rank_table(config: Config, parts: Sequence[Part], size: int, missing: Mapping[int, str]) -> RankTable:
    """One row for each rank, those that are missing included."""
    rows = {part.rank: _row(config, part) for part in parts}
    # What fails may fail at once or late: its times say nothing of the speed.
    sound = [part for part in parts if not rows[part.rank].faulty]
    for rank, speed in relative_speeds({part.rank: part.recorder for part in sound}).items():
        rows[rank].relative_speed = speed
        rows[rank].straggler = speed < STRAGGLER_SHARE
    for rank, problem in missing.items():
        row = rows.setdefault(rank, RankRow(rank=rank, host=""))
        row.problem = f"{problem}; {row.problem}" if row.faulty else problem
    late_ms = [part.late_ns / NS_PER_MS for part in parts]
    return RankTable(
        size=size,
        per_rank=config.per_rank,
        start_skew_ms=max(late_ms) - min(late_ms),
        clock_uncertainty_ms=max(part.clock_error_ns for part in parts) / NS_PER_MS,
        stragglers=[rank for rank, row in sorted(rows.items()) if row.straggler],
        rows=[row for _rank, row in sorted(rows.items())],
    )


def _row(config: Config, part: Part) -> RankRow:
    recorder = part.recorder
    measured = Measured(recorder, part.facts, settings_of(config, part.users, part.servers))

    def speed(verb: Verb) -> float | None:
        if measured.tier("storage") is None:
            return None
        return measured.per_second(recorder.lane(Tier.STORAGE, verb).byte_count / GIB)

    moved = sum(lane.byte_count for lane in measured.lanes(Verb.READ, Verb.WRITE)) / GIB
    honesty = honesty_block(measured, part.probes, part.ceiling)
    faults = faults_of(measured, honesty)
    problem = rank_faults(faults, recorder)
    device = measured.statistics_ms(recorder.lane(Tier.STORAGE, Verb.READ).latencies.component("device"))
    return RankRow(
        rank=part.rank,
        host=part.host,
        users=part.users,
        started_late_ms=part.late_ns / NS_PER_MS,
        requests_completed=recorder.requests.completed,
        requests_failed=part.facts.failed,
        tokens_per_sec=measured.per_second(recorder.requests.tokens),
        storage_read_gib_per_sec=speed(Verb.READ),
        storage_write_gib_per_sec=speed(Verb.WRITE),
        gib_per_io_second=ratio(moved, measured.storage_io_seconds),
        storage_read_device_p95_ms=None if device is None else device["p95"],
        faulty=problem is not None,
        failed=has_failed(faults, recorder),
        problem=problem or part.facts.interrupted,
        honesty=honesty,
        environment=None if part.environment is None else dict(part.environment),
    )


def _rank_cautions(table: RankTable) -> Iterator[Caution]:
    if table.stragglers:
        slow = (row for row in table.rows if row.straggler)
        ranks = ", ".join(f"rank {row.rank} ({row.host}) {row.relative_speed:.2f}" for row in slow)
        yield loads.STRAGGLERS.of(ranks=ranks)
    if table.start_skew_ms is not None and table.start_skew_ms > SKEW_MS_MAX:
        yield loads.START_SKEW.of(skew=duration(table.start_skew_ms))
