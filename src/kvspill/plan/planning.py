"""Answers how many users each option holds, which to choose, the bottleneck, and the assumptions (P4)."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.plan.options import DAYS_PER_YEAR, HOURS, Choice, Price
from kvspill.plan.predict import slower_and_faster
from kvspill.plan.simulations import Facts, Pool, Simulation
from kvspill.plan.variations import Variation, off_by_some, twice
from kvspill.records import GIB
from kvspill.result.answer import Status
from kvspill.run.asking import beyond, question, replays
from kvspill.run.calibrated import extrapolations
from kvspill.run.draws import next_seeds
from kvspill.run.verdict import ABOVE, Level
from kvspill.storage.profiles import PRESETS, Profile

_USERS_WITHOUT_DELAY = 12
_SECONDS_PER_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Asked:
    """The question of a plan."""

    config: Config
    """The load, with the users that are asked for."""
    choices: Sequence[Choice]
    nodes_max: int = 1
    years: float = 5.0
    currency: str | None = None
    node_price: Price | None = None
    dram_price: Price | None = None
    """Of one GiB."""
    quick: bool = False
    """Without limits by other seeds and with figures that are off."""

    @property
    def level(self) -> Level:
        """What is asked for: users, or the speed of a recording."""
        return self.config.trace_speedup if self.by_speed else self.config.num_users

    @property
    def by_speed(self) -> bool:
        return replays(self.config)

    def share(self, nodes: int) -> Level:
        """What one of so many nodes must hold."""
        return self.level / nodes if self.by_speed else math.ceil(self.level / nodes)


@dataclass(frozen=True, slots=True)
class Row:
    """A choice, what it holds, and what it does at the load that it would have."""

    choice: Choice
    limit: Facts
    nodes: int | None
    """Nodes that hold what is asked for; None where no number of them does."""
    point: Facts | None = None
    node_load: Level = 0
    told: Facts | None = None
    """What the users themselves get, where they were asked about."""
    told_load: Level = 0

    @property
    def answer(self) -> Status | None:
        return None if self.told is None else Status(self.told["answer"])

    @property
    def holds(self) -> Level | None:
        """By one node; 0 where it does not hold anybody, None where the search did not find out."""
        if self.limit["passed"] is not None:
            return self.limit["passed"]  # type: ignore[no-any-return]
        return 0 if self.limit["failed"] is not None and self.limit["concluded"] else None


@dataclass(frozen=True, slots=True)
class Found:
    """The answer, with what it rests on."""

    asked: Asked
    rows: Sequence[Row]
    chosen: Row
    holds: bool | None
    """Whether the chosen one holds what is asked for; None where no option has a verdict."""
    others: Sequence[tuple[str, Facts]]
    """The chosen one with other seeds, and on a device faster and slower by its calibration's spread."""
    sensitivity: Sequence[tuple[Variation, Facts]]
    helps: Sequence[tuple[Variation, Facts]]
    simulations: int

    def interval(self) -> tuple[Level, Level] | None:
        """Between what the limit of the chosen one lies."""
        values = [
            facts["passed"] or 0 for _name, facts in self.others if facts["passed"] or facts["concluded"]
        ]
        own = self.chosen.holds
        return None if own is None else (min([own, *values]), max([own, *values]))


def digest(asked: Asked) -> str:
    """A short name of the question: that of the simulations of its options."""
    keys = [_search(asked, _config(asked, one), one.profile()).key for one in asked.choices]
    return hashlib.sha256("".join(keys).encode()).hexdigest()[:10]


def simulations_at_least(asked: Asked) -> int:
    """How many simulations a plan makes, whatever they find."""
    count = 1 + len(asked.choices)
    if asked.quick:
        return count
    choice = asked.choices[0]
    config, profile = _config(asked, choice), choice.profile()
    varied = (_others(config, profile, choice), off_by_some(config, profile), twice(config, profile))
    return count + sum(len(list(each)) for each in varied)


def plan(asked: Asked, pool: Pool) -> Found:
    """Search for the limit of every option, choose one, and try how far the answer can be trusted."""
    _refuse_hopeless(asked, pool)
    searches = [_search(asked, _config(asked, choice), choice.profile()) for choice in asked.choices]
    limits = pool.all(searches, "what each option holds")
    rows = [_row(asked, *pair) for pair in zip(asked.choices, limits, strict=True)]
    rows = list(_with_points(asked, rows, pool))
    if not asked.by_speed:
        rows = list(_with_points(asked, _told(asked, rows, pool), pool))
    chosen = _choose(asked, rows)
    config, profile = _config(asked, chosen.choice), chosen.choice.profile()
    others = [] if asked.quick else list(_others(config, profile, chosen.choice))
    varied = [] if asked.quick else list(off_by_some(config, profile))
    more = [] if asked.quick else list(twice(config, profile))
    every = [*((config, profile) for _name, config, profile in others)]
    every += [(one.config, one.profile) for one in (*varied, *more)]
    facts = pool.all([_search(asked, *pair) for pair in every], "what the answer depends on")
    named = [name for name, _config, _profile in others]
    first, second = len(named), len(named) + len(varied)
    return Found(
        asked=asked,
        rows=rows,
        chosen=chosen,
        holds=_verdict(asked, chosen),
        others=list(zip(named, facts[:first], strict=True)),
        sensitivity=list(zip(varied, facts[first:second], strict=True)),
        helps=list(zip(more, facts[second:], strict=True)),
        simulations=pool.done,
    )


def enough(asked: Asked, row: Row) -> bool:
    """Whether it holds what is asked for."""
    return row.nodes is not None and row.nodes <= asked.nodes_max


def nodes_for(asked: Asked, holds: Level | None) -> int | None:
    """Nodes that hold what is asked for, where one holds so much."""
    return math.ceil(asked.level / holds) if holds else None


def _config(asked: Asked, choice: Choice, users: int | None = None) -> Config:
    """The load on a node of that choice, with so many users where not all are on one."""
    capacity = choice.option.capacity_bytes
    gib = asked.config.storage_capacity_gb if capacity is None else choice.drives * capacity / GIB
    users = asked.config.num_users if users is None else users
    changed = asked.config.changed(cpu_mem_gb=choice.dram_gib, storage_capacity_gb=gib, num_users=users)
    return question(changed)


def _search(asked: Asked, config: Config, profile: Profile) -> Simulation:
    if asked.by_speed:
        slowed = config.changed(trace_speedup=asked.share(asked.nodes_max))
        return Simulation(slowed, profile, config.num_users, config.num_users)
    return Simulation(config, profile, beyond(asked.config.num_users), int(asked.share(asked.nodes_max)))


def _refuse_hopeless(asked: Asked, pool: Pool) -> None:
    """A target that is missed without any delay of storage says nothing of options."""
    if asked.by_speed:
        return
    users = min(asked.config.num_users, _USERS_WITHOUT_DELAY)
    config = question(asked.config.changed(num_users=users, cpu_mem_gb=0.0, storage_capacity_gb=None))
    (facts,) = pool.all([Simulation(config, PRESETS["null"], users, users)], "a device without delay")
    if facts["passed"] is None and facts["failed"] is not None:
        target = config.slo_target_ms
        said = "the targets of the classes" if target is None else f"--slo-target-ms {target:g}"
        raise UsageError(
            f"{said}: no storage can keep it, for p{config.slo_percentile:g} of {config.slo_latency} misses "
            "it on a device without delay; give a larger target, more --servers, or --slo-latency added"
        )


def _row(asked: Asked, choice: Choice, limit: Facts) -> Row:
    row = Row(choice, limit, None)
    return replace(row, nodes=nodes_for(asked, row.holds))


def _with_points(asked: Asked, rows: Sequence[Row], pool: Pool) -> Iterator[Row]:
    """Every option that holds anybody, with the load that it would have."""
    loads: list[Level] = []
    for row in rows:
        limit = row.holds or 0
        fits = row.nodes is not None and enough(asked, row)
        loads.append(asked.share(row.nodes or 1) if fits else limit)
    held = [place for place, load in enumerate(loads) if load]
    points = pool.all(
        [point(asked, rows[place].choice, loads[place]) for place in held], "the load of each option"
    )
    found = dict(zip(held, points, strict=True))
    for place, row in enumerate(rows):
        yield replace(row, point=found.get(place), node_load=loads[place])


def point(asked: Asked, choice: Choice, load: Level) -> Simulation:
    """One node of that choice under that load."""
    config = point_config(asked, choice, load)
    return Simulation(config, choice.profile())


def point_config(asked: Asked, choice: Choice, load: Level) -> Config:
    """The run that would show it."""
    config = _config(asked, choice).changed(enable_autoscaling=False)
    return config.changed(trace_speedup=load) if asked.by_speed else config.changed(num_users=int(load))


def _told(asked: Asked, rows: Sequence[Row], pool: Pool) -> list[Row]:
    """Ask of one option after the other, the best first, about the users themselves until one holds them.

    The search for its limit goes by one seed, the answer by most of three.
    """
    told = list(rows)
    while open_rows := [row for row in told if _is_open(asked, row)]:
        row = _choose(asked, open_rows)
        load = _load_to_ask(asked, row)
        config = _config(asked, row.choice, int(load))
        wanted = Simulation(config, row.choice.profile(), asks=True)
        (facts,) = pool.all([wanted], f"{load} users on {row.choice.label}")
        told[told.index(row)] = answered = _answered(asked, row, facts, load)
        if answered.answer is Status.YES:
            break
    return told


def _is_open(asked: Asked, row: Row) -> bool:
    """Whether the users, or fewer of them on more nodes, may be held and were not asked about."""
    if row.told is not None:
        return row.answer is Status.NO and enough(asked, row) and _load_to_ask(asked, row) < row.told_load
    failed = row.limit["failed"]
    return enough(asked, row) or failed is None or ABOVE * failed > _load_to_ask(asked, row)


def _load_to_ask(asked: Asked, row: Row) -> Level:
    """The users of one of as few nodes as hold them, or of as many as there may be."""
    return asked.share(row.nodes if row.nodes and enough(asked, row) else asked.nodes_max)


def _answered(asked: Asked, row: Row, facts: Facts, load: Level) -> Row:
    """The row with the answer; a limit that speaks against it gives way to that of a seed that answers so."""
    kept, answer, limit = (row.holds or 0) >= load, Status(facts["answer"]), row.limit
    if answer is Status.YES and not kept:
        limit = {**facts, "passed": load, "failed": None}
    elif answer is Status.NO and kept:
        limit = facts
    row = replace(row, limit=limit, told=facts, told_load=load)
    return replace(row, nodes=nodes_for(asked, row.holds))


def _verdict(asked: Asked, chosen: Row) -> bool | None:
    """Whether the chosen one holds what is asked for; a recording has no users to ask about."""
    if chosen.answer is not None:
        return {Status.YES: True, Status.NO: False}.get(chosen.answer)
    return None if chosen.holds is None else enough(asked, chosen)


def _choose(asked: Asked, rows: Sequence[Row]) -> Row:
    """One that was answered with yes, else one without a verdict; of several the best.

    That is the cheapest that holds them and does not wear out, or the smallest; else the one that holds most.
    """
    yes = [row for row in rows if row.answer is Status.YES]
    rows = yes or [row for row in rows if row.answer not in (None, Status.NO)] or rows
    good = [row for row in rows if enough(asked, row)]
    if not good:
        return max(rows, key=lambda row: row.holds or 0)
    return min(good, key=lambda row: (_worn_out(asked, row), cost_per_hour(asked, row) or 0.0, *_size(row)))


def _worn_out(asked: Asked, row: Row) -> bool:
    """Whether more is written than the drives may be written."""
    worn = wear(asked, row)
    return worn is not None and worn.get("share_of_endurance", 0.0) > 1


def _size(row: Row) -> tuple[float, ...]:
    nodes = row.nodes or 1
    return nodes, nodes * row.choice.drives, nodes * row.choice.dram_gib


def _others(config: Config, profile: Profile, choice: Choice) -> Iterator[tuple[str, Config, Profile]]:
    for seed in next_seeds(config.seed):
        yield f"seed {seed}", config.changed(seed=seed), profile
    if choice.option.calibrated is not None:
        for name, other in slower_and_faster(profile, choice.option.calibrated):
            yield name, config, other


def cost_per_hour(asked: Asked, row: Row) -> float | None:
    """Of all nodes; None without prices."""
    if asked.currency is None:
        return None
    choice = row.choice
    drive, node, dram = choice.option.price, asked.node_price, asked.dram_price
    parts = ((drive, choice.drives), (node, 1), (dram, choice.dram_gib))
    hourly = sum(count * price.per_hour(asked.years) for price, count in parts if price is not None)
    return hourly * (row.nodes or 1)


def costs(asked: Asked, row: Row) -> dict[str, Any] | None:
    """Money for the users that are asked for, or, where the choice does not hold them, for those it holds."""
    hourly = cost_per_hour(asked, row)
    if hourly is None or not row.holds or row.point is None:
        return None
    fits = enough(asked, row)
    hourly = hourly if fits else hourly / (row.nodes or 1)
    nodes = row.nodes or 1
    users = asked.level if fits else row.holds
    tokens = row.point["figures"].get("avg_throughput_tokens_per_sec", 0.0) * (nodes if fits else 1)
    monthly = hourly * HOURS["month"]
    return {
        "currency": asked.currency,
        "per_month": monthly,
        "per_user_per_month": None if asked.by_speed else monthly / users,
        "per_million_tokens": hourly / (tokens * 3600 / 1e6) if tokens else None,
        "years": asked.years,
        "lacks_price_of_drives": row.choice.option.price is None,
    }


def wear(asked: Asked, row: Row) -> dict[str, Any] | None:
    """What is written to each drive, compared with what it may be written."""
    if row.point is None:
        return None
    option = row.choice.option
    speed = row.point["figures"].get("tier_storage_write_bandwidth_gbps", 0.0) * GIB / row.choice.drives
    daily = speed * _SECONDS_PER_DAY
    found: dict[str, Any] = {"written_bytes_per_day_per_drive": daily}
    if option.capacity_bytes is None and option.written_bytes_max is None:
        return found
    if option.capacity_bytes is not None:
        found["drive_writes_per_day"] = daily / option.capacity_bytes
    allowed = option.written_bytes_max
    if allowed is not None:
        found["allowed_bytes_per_day"] = allowed / (asked.years * DAYS_PER_YEAR)
    elif option.dwpd is not None and option.capacity_bytes is not None:
        found["allowed_bytes_per_day"] = option.dwpd * option.capacity_bytes
    if "allowed_bytes_per_day" in found:
        found["share_of_endurance"] = daily / found["allowed_bytes_per_day"]
    return found


def doubts(asked: Asked, row: Row) -> list[str]:
    """Where the prediction leaves what was measured, and what the calibration doubted (P2)."""
    choice = row.choice
    known = choice.option.calibrated
    if known is None:
        return [f"{choice.option.name} was not calibrated: its speeds are a profile's, not measured"]
    found = [f"{choice.drives} drives (calibrated with one)"] if choice.drives > 1 else []
    sizes = {} if row.point is None else row.point["sizes"]
    found += extrapolations(_config(asked, choice), sizes, known)
    outside = [f"extrapolates: {text}" for text in found]
    return [*outside, *(f"calibration: {text}" for text in known.warnings)]
