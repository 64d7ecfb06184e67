"""What each rank of a run measured, and how the parts become one whole (R3)."""

import pickle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvspill.measure.recorder import Recorder
from kvspill.measure.storage_speed import BUSY, SLOW_DELETES
from kvspill.records import Tier
from kvspill.result.facts import COUNTS, RunFacts, TierFacts, added
from kvspill.result.honesty import Ceiling, Worst, own_worst, worst_of
from kvspill.result.measured import Measured, Settings, ratio
from kvspill.result.probed import probes_of
from kvspill.result.schema_honesty import Caution
from kvspill.serving.population import LATENESS_SAMPLES_MAX
from kvspill.storage.base import is_of_server
from kvspill.workload.digest import Digest

_UNFINISHED = ("under_way", "unfinished_stay_ns", "under_way_service_ns")
_OF_TIERS = (
    *("limit_bytes", "usable_bytes", "used_bytes", "peak_bytes", "entries"),
    *("files_opened_direct", "files_opened_buffered", "crowded_puts"),
)
DEVICE_PREFIX = "device_"
"""Columns of the timeline that are the device's, of all who use it."""


@dataclass(slots=True)
class Part:
    """What one rank measured. Times are of its own clock."""

    recorder: Recorder
    facts: RunFacts
    digest: Digest
    users: int
    """Its own; as many as there were in the window."""
    servers: int
    rank: int = 0
    host: str = ""
    origin_ns: int = 0
    """When all ranks began, by its clock."""
    late_ns: int = 0
    """How much later its load began."""
    clock_error_ns: int = 0
    probes: Mapping[str, Any] | None = None
    ceiling: Ceiling | None = None
    worst: Worst | None = None
    """Of the ranks of a whole."""
    cautions: Sequence[Caution] = ()
    later: Sequence[Caution] = ()
    """Warnings that stand after all others."""
    environment: Mapping[str, Any] | None = None
    problem: str | None = None
    """Why it ends early; None where it was whole."""
    device: tuple[str, ...] = ()
    """Machine, block devices and NFS mounts that its probes counted: with the same ones, the same bytes."""
    storage: tuple[str, ...] = ()
    """File systems or stores that its entries lie on, by names that all ranks have for them; empty where
    nobody else can use them."""

    @property
    def stored_at(self) -> tuple[str, ...]:
        """The same for ranks that store in the same place, and for no others."""
        return self.storage or (f"rank {self.rank}",)


def packed(part: Part) -> bytes:
    """A part as it travels, also one whose window is still open."""
    return pickle.dumps(part, pickle.HIGHEST_PROTOCOL)


def unpacked(raw: bytes) -> Part:
    """The inverse, with the window closed where the facts end."""
    part: Part = pickle.loads(raw)
    part.recorder.close_window(part.facts.window_end_ns)
    return part


def whole_of(parts: Sequence[Part]) -> Part:
    """All parts as if one process had measured them; a single one as it is."""
    if len(parts) == 1:
        return parts[0]
    moved = [_on_common_clock(part) for part in parts]
    worst = worst_of({part.rank: _own_worst(part) for part in moved})
    digest = Digest()
    counted: set[tuple[str, str]] = set()
    mates: dict[tuple[str, ...], list[Recorder]] = {}
    for part in moved:
        devices = {(part.device[0], name) for name in part.device[1:]}
        if devices <= counted:
            part.recorder.timeline.drop(DEVICE_PREFIX)
        counted |= devices
        mates.setdefault(part.stored_at, []).append(part.recorder)
        digest.merge(part.digest)
    recorder = _one_of(list(map(_of_one_place, mates.values())))
    facts = _facts([part.facts for part in moved], digest)
    facts = replace(facts, tiers=_tiers(moved))
    io_model = merged_io_facts([part.facts.io_model for part in moved])
    if io_model:
        io_model["storage_ttft_ms"] = recorder.storage_ttft.statistics_ms()
    return replace(
        moved[0],
        recorder=recorder,
        facts=replace(facts, io_model=io_model),
        digest=digest,
        users=sum(part.users for part in parts),
        servers=sum(part.servers for part in parts),
        probes=probes_of(moved),
        ceiling=_ceiling([part.ceiling for part in parts]),
        worst=worst,
        cautions=together((part.rank, part.cautions) for part in parts),
        later=together((part.rank, part.later) for part in parts),
    )


def _own_worst(part: Part) -> Worst:
    return own_worst(Measured(part.recorder, part.facts, Settings()), part.probes, part.ceiling)


def _one_of(recorders: Sequence[Recorder]) -> Recorder:
    """All that they counted."""
    recorder = Recorder(
        min(part.window_start_ns for part in recorders), max(part.window_end_ns for part in recorders)
    )
    for part in recorders:
        recorder.merge(part)
    return recorder


def _of_one_place(recorders: Sequence[Recorder]) -> Recorder:
    """What ranks counted that store in the same place: it was at work for all of them at once (R5)."""
    if len(recorders) == 1:
        return recorders[0]
    recorder = _one_of(recorders)
    for column in (BUSY, SLOW_DELETES):
        recorder.timeline.bound(column, recorder.window_end_ns)
    return recorder


def _on_common_clock(part: Part) -> Part:
    """The part with times since the agreed start. The recorder is moved itself: nobody else has it."""
    by_ns = -part.origin_ns
    part.recorder.move(by_ns)
    facts = part.facts
    end_ns = facts.arrivals_end_ns
    facts = replace(
        facts,
        window_start_ns=facts.window_start_ns + by_ns,
        window_end_ns=facts.window_end_ns + by_ns,
        load_start_ns=facts.load_start_ns + by_ns,
        finished_ns=facts.finished_ns + by_ns,
        arrivals_end_ns=None if end_ns is None else end_ns + by_ns,
    )
    return replace(part, facts=facts, origin_ns=0)


def _facts(parts: Sequence[RunFacts], digest: Digest) -> RunFacts:
    errors: Counter[Any] = Counter()
    for facts in parts:
        errors.update(facts.errors)
    ends_ns = [facts.arrivals_end_ns for facts in parts if facts.arrivals_end_ns is not None]
    known = all(len(facts.unfinished_qos) == len(facts.unfinished_ages_ns) for facts in parts)
    return replace(
        parts[0],
        window_start_ns=min(facts.window_start_ns for facts in parts),
        window_end_ns=max(facts.window_end_ns for facts in parts),
        load_start_ns=min(facts.load_start_ns for facts in parts),
        finished_ns=max(facts.finished_ns for facts in parts),
        digest=digest.hexdigest(),
        **added(parts, *COUNTS, *_UNFINISHED),
        unfinished_ages_ns=_chained(facts.unfinished_ages_ns for facts in parts),
        unfinished_qos=_chained(facts.unfinished_qos for facts in parts) if known else (),
        unfinished_added_ns=_chained(facts.unfinished_added_ns for facts in parts) if known else (),
        lateness_ns=_sampled([facts.lateness_ns for facts in parts]),
        arrivals_end_ns=max(ends_ns) if len(ends_ns) == len(parts) else None,
        workload=_same_reading([facts.workload for facts in parts]),
        errors=dict(errors),
        stuck_ages_ns=tuple(sorted(_chained(facts.stuck_ages_ns for facts in parts), reverse=True)),
        stuck_in=tuple(dict.fromkeys(_chained(facts.stuck_in for facts in parts))),
    )


def _chained(rows: Iterable[Sequence[Any]]) -> tuple[Any, ...]:
    return tuple(item for row in rows for item in row)


def _sampled(rows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Samples of the ranks as one, every n-th where they are too many."""
    stride = -(-sum(map(len, rows)) // LATENESS_SAMPLES_MAX) or 1
    return _chained(rows)[::stride]


def _tiers(parts: Sequence[Part]) -> tuple[TierFacts, ...]:
    """Capacities and contents added; a property only where all ranks have it."""
    found: list[TierFacts] = []
    for tier in Tier:
        rows = [(part.stored_at, facts) for part in parts for facts in part.facts.tiers if facts.tier is tier]
        same = [facts for _where, facts in rows]
        if not same:
            continue
        names = dict.fromkeys(facts.description for facts in same)
        found.append(
            TierFacts(
                tier=tier,
                backend=same[0].backend,
                modelled=any(facts.modelled for facts in same),
                description="; ".join(names),
                **added(same, *_OF_TIERS),
                direct_io=all(facts.direct_io for facts in same),
                verifies=all(facts.verifies for facts in same),
                counters=_counters([(where, facts.counters) for where, facts in rows]),
            )
        )
    return tuple(found)


def _counters(rows: Sequence[tuple[tuple[str, ...], Mapping[str, Any]]]) -> dict[str, Any]:
    """Numbers added, those of a server once however many ranks asked it; of a text the first."""
    total: dict[str, Any] = {}
    of_servers: dict[str, dict[tuple[str, ...], Any]] = {}
    for where, row in rows:
        for name, value in row.items():
            adds = name in total and not isinstance(value, (str, bool))
            total[name] = total[name] + value if adds else total.get(name, value)
            if is_of_server(name):
                seen = of_servers.setdefault(name, {})
                # Whoever looked last saw most.
                seen[where] = max(value, seen.get(where, value))
    return total | {name: sum(seen.values()) for name, seen in of_servers.items()}


def _same_reading(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every rank reads the whole recording; the one that came furthest says how much was read."""
    total = dict(rows[0])
    for row in rows[1:]:
        for name, value in row.items():
            if isinstance(value, int) and isinstance(total.get(name), int):
                total[name] = max(total[name], value)
            elif not total.get(name):
                total[name] = value
    return total


def merged_io_facts(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The accounts of the ranks' I/O models as one: counts added, shares computed anew from their counts.

    The most of something (`_max`) is that of the rank that had most.
    """
    total = dict(blocks[0])
    for name, value in total.items():
        if isinstance(value, int) and not isinstance(value, bool):
            values = [block.get(name) or 0 for block in blocks]
            total[name] = max(values) if name.endswith("_max") else sum(values)
    if "read_bytes" not in total:
        return total
    bounds = [block["hit_rate_bounds"] for block in blocks if block.get("hit_rate_bounds")]
    looked_up = sum(bound["looked_up_bytes"] for bound in bounds)
    return total | {
        "read_inflation": ratio(total["read_bytes_of_ideal"], total["least_read_bytes"]),
        "byte_hit_rate": ratio(total["reused_bytes"], looked_up),
        "hit_rate_bounds": _bounds(bounds, looked_up) if bounds else None,
        "break_even": _break_even([block["break_even"] for block in blocks if block.get("break_even")]),
    }


def _bounds(bounds: Sequence[Mapping[str, Any]], looked_up: int) -> dict[str, Any]:
    """Each rank has a cache of its own: the bounds of all are theirs by the bytes looked up."""

    def weighted(name: str) -> float:
        found: float = sum(bound[name] * bound["looked_up_bytes"] for bound in bounds)
        return found / looked_up

    return {
        **bounds[0],
        **{name: weighted(name) for name in ("infinite", "belady", "lru")},
        "belady_exact": all(bound["belady_exact"] for bound in bounds),
        "requests": sum(bound["requests"] for bound in bounds),
        "looked_up_bytes": looked_up,
        "truncated": any(bound["truncated"] for bound in bounds),
    }


def _break_even(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Counts and times added; loads of different ranks overlap, yet each rank knows its own alone."""
    if not rows:
        return None
    same = {"recompute_us_per_token", "recompute_source", "break_even_gib_per_sec"}
    total = {name: value if name in same else _sum(name, rows) for name, value in rows[0].items()}
    loaded = sum((row["load_gib_per_sec"] or 0.0) * row["load_seconds"] for row in rows)
    speed = ratio(loaded, total["load_seconds"])
    return total | {
        "load_gib_per_sec": speed,
        "storage_may_be_slower_by": ratio(speed, total["break_even_gib_per_sec"]),
        "span_seconds": max(row["span_seconds"] for row in rows),
    }


def _sum(name: str, rows: Sequence[Mapping[str, Any]]) -> Any:
    return sum(row[name] or 0 for row in rows)


def _ceiling(rows: Sequence[Ceiling | None]) -> Ceiling | None:
    """What all ranks can do at once; unknown where it is for one of them."""
    if any(row is None for row in rows):
        return None

    def added(name: str) -> float | None:
        values = [getattr(row, name) for row in rows]
        return None if any(value is None for value in values) else sum(values)

    return Ceiling(added("requests_per_sec"), added("operations_per_sec"), added("gib_per_sec"))


def together(by_rank: Iterable[tuple[int, Sequence[Caution]]]) -> list[Caution]:
    """Warnings of all ranks: what all of them say once, the others with their ranks."""
    said: dict[str, tuple[Caution, list[int]]] = {}
    ranks = []
    for rank, cautions in by_rank:
        ranks.append(rank)
        for item in cautions:
            said.setdefault(item.model_dump_json(), (item, []))[1].append(rank)
    found = []
    for item, whose in said.values():
        if whose != ranks:
            names = f"Rank{'' if len(whose) == 1 else 's'} {', '.join(map(str, whose))}"
            item = item.model_copy(update={"message": f"{names}: {item.message}"})
        found.append(item)
    return found
