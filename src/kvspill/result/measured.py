"""All that metrics are computed from: the recorder's window, the engine's facts and the settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvspill.config.groups import Qos
from kvspill.measure.histograms import Histogram
from kvspill.measure.lanes import Lane
from kvspill.measure.recorder import Recorder
from kvspill.measure.storage_speed import BUSY
from kvspill.records import GIB, NS_PER_SEC, HitType, Outcome, Purpose, Tier, Verb
from kvspill.result.facts import RunFacts, TierFacts
from kvspill.result.load import server_each

TIER_NAMES: Mapping[str, Tier] = {
    "gpu": Tier.GPU,
    "cpu": Tier.CPU,
    "storage": Tier.STORAGE,
    "nvme": Tier.STORAGE,
}
"""Names of tiers in metrics; kv-cache.py calls the storage tier nvme, whatever the device is."""

KEPT_BUSY = 0.95
"""Servers that are busy so much of the time without any storage leave a device nothing to change."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the report needs to know of the configuration."""

    seed: int | None = None
    num_users: int = 1
    servers: int = 1
    arrival: str = "open"
    performance_profile: str = "latency"
    min_tokens_per_sec: float | None = None
    device_bandwidth_gbps: float | None = None
    less: str = "fewer --num-users"
    """What to give for a lighter load."""
    lighter: str = "fewer --num-users"
    """The same where more was asked than the servers could do."""
    instead: str = "--arrival closed"
    """What else keeps requests from waiting for a server."""
    in_store: bool = False
    """Whether the storage tier is in a store, not in directories."""
    direct: str = "auto"
    io_slots: int = 32
    """How many I/Os the storage tier is given at once, by all ranks together."""
    qos: Qos = field(default_factory=Qos)

    @property
    def server_each(self) -> bool:
        """Whether nobody waits for a server."""
        return server_each(self.arrival, self.num_users, self.servers)


class Measured:
    """All that a metric may be computed from: the recorder's window, the engine's facts, the settings."""

    def __init__(self, recorder: Recorder, facts: RunFacts, settings: Settings):
        self.recorder = recorder
        self.facts = facts
        self.settings = settings
        self.wall_seconds = recorder.window_seconds
        self._tiers = {tier_facts.tier: tier_facts for tier_facts in facts.tiers}
        self._columns = recorder.timeline.columns(recorder.window_end_ns)
        self._statistics: dict[int, tuple[Histogram, dict[str, float] | None]] = {}

    def is_overload(self, load: float) -> bool:
        """Whether no device could have served what was offered.

        Users who wait for their answers offer no more than is served. Where they share servers that are
        busy without any storage, their waits are nevertheless those of the load.
        """
        if self.settings.arrival == "closed":
            return load >= KEPT_BUSY and not self.settings.server_each
        return load > 1

    def tier(self, name: str) -> TierFacts | None:
        """The tier's facts, or None where the run had no such tier: it was not measured."""
        return self._tiers.get(TIER_NAMES[name])

    def lane(self, name: str, verb: str) -> Lane | None:
        return self.recorder.lane(TIER_NAMES[name], Verb(verb)) if self.tier(name) else None

    def lanes(self, *verbs: Verb) -> list[Lane]:
        return [lane for lane in self.recorder.lanes() if lane.verb in verbs and lane.tier in self._tiers]

    def statistics_ms(self, histogram: Histogram) -> dict[str, float] | None:
        """A histogram's statistics, computed once."""
        key = id(histogram)
        if key not in self._statistics:
            # Kept with its statistics: the id of one that is gone could become another's.
            self._statistics[key] = (histogram, histogram.statistics_ms())
        return self._statistics[key][1]

    def request_ms(self, part: str) -> dict[str, float] | None:
        return self.statistics_ms(self.recorder.requests.parts[part])

    def seen(self, column: str) -> float | None:
        """Mean of a state over the looks at it; None where nobody looked."""
        values = self._columns.get(column)
        return sum(values) / len(values) if values else None

    def per_second(self, amount: float | None) -> float | None:
        return ratio(amount, self.wall_seconds)

    @property
    def storage_io_seconds(self) -> float:
        return self.recorder.cache_call_ns / NS_PER_SEC

    @property
    def room_wait_seconds(self) -> float:
        return self.recorder.room_wait_ns / NS_PER_SEC

    @property
    def room_wait_share(self) -> float:
        """The part of the cache's time in which requests waited for room in the last tier."""
        return min(1.0, ratio(self.recorder.room_wait_ns, self.recorder.cache_call_ns) or 0.0)

    @property
    def storage_busy_seconds(self) -> float:
        """Time in which the storage was at work on a read or a write."""
        return sum(self._columns.get(BUSY, ())) / NS_PER_SEC

    @property
    def storage_bytes(self) -> int:
        """Logical bytes read and written there."""
        lanes = self.lanes(Verb.READ, Verb.WRITE)
        return sum(lane.byte_count for lane in lanes if lane.tier is Tier.STORAGE)

    def bytes_moved(self, verb: Verb, *purposes: Purpose) -> int:
        """Logical bytes over all tiers, of these purposes or of all."""
        wanted = purposes or tuple(Purpose)
        return sum(lane.nbytes[purpose] for lane in self.lanes(verb) for purpose in wanted)

    def ops(self, verb: Verb, *purposes: Purpose) -> int:
        wanted = purposes or tuple(Purpose)
        return sum(lane.ops[purpose] for lane in self.lanes(verb) for purpose in wanted)

    def lookups(self, outcome: Outcome, *, without: tuple[Purpose, ...] = ()) -> int:
        counted = self.recorder.lookups.items()
        return sum(n for (found, purpose, _, _), n in counted if found is outcome and purpose not in without)

    def looked_up(self, hit_type: HitType) -> int:
        """Lookups of that kind, however they ended."""
        return sum(n for (_, _, kind, _), n in self.recorder.lookups.items() if kind is hit_type)


def ratio(amount: float | None, base: float | None) -> float | None:
    """amount / base, or None where either is missing or the base is zero: not measured is not zero."""
    if amount is None or not base:
        return None
    return amount / base


def gib(nbytes: int | None) -> float | None:
    return None if nbytes is None else nbytes / GIB
