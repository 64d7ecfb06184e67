"""Metrics of the cache: lookups, hits by kind, entries, evictions (S5)."""

from kvspill.records import HitType, Outcome, Purpose, Tier
from kvspill.result.measured import TIER_NAMES, Measured, gib, ratio
from kvspill.result.metrics.metric import Area, Metric, Value, cache_stat, column, headline


def _arrivals_in(m: Measured, tier: str) -> Value:
    lane = m.lane(tier, "write")
    return lane.op_count if lane else None


def _entries(m: Measured, tier: str) -> Value:
    facts = m.tier(tier)
    return facts.entries if facts else None


def _used(m: Measured, tier: str) -> Value:
    facts = m.tier(tier)
    return gib(facts.used_bytes) if facts else None


def _dropped(m: Measured, tier: str) -> Value:
    return m.recorder.evictions[TIER_NAMES[tier], None] if m.tier(tier) else None


def _hits(hit_type: HitType) -> "Metric":
    names = {
        HitType.SYSTEM: "system_prompt_hits",
        HitType.COMMON: "common_phrase_hits",
        HitType.MULTI_TURN: "multi_turn_hits",
        HitType.USER: "user_cache_hits",
    }

    def count(m: Measured) -> Value:
        found = m.recorder.lookups.items()
        return sum(n for (outcome, _, kind, _), n in found if outcome is Outcome.HIT and kind is hit_type)

    return cache_stat(
        names[hit_type],
        "lookups",
        f"lookups of kind {hit_type.value} that found the entry resident and read it",
        "Which kind of reuse the cache serves.",
        "user counts decode re-reads, which always dominate.",
        count,
    )


def _hit_rate(m: Measured, without: tuple[Purpose, ...] = ()) -> Value:
    hits, misses, errors = (
        m.lookups(outcome, without=without) for outcome in (Outcome.HIT, Outcome.MISS, Outcome.ERROR)
    )
    return ratio(hits, hits + misses + errors)


CACHE_METRICS = (
    cache_stat(
        "cache_hit_rate",
        "ratio",
        "hits / all lookups, decode re-reads included; a failed read is an error, neither hit nor miss",
        "Compare with other results that count this way.",
        "Decode re-reads are hits by construction: see reuse_hit_rate.",
        _hit_rate,
        headline=True,
        better="higher",
        about=(Area.CACHE,),
        views=(
            column(20, "Cache Hit Rate", digits=4),
            headline(9, "Cache hit rate", digits=1),
        ),
    ),
    cache_stat(
        "reuse_hit_rate",
        "ratio",
        "hits / all lookups without decode re-reads",
        "Whether the cache is large enough for its history and prompts.",
        "Without conversations or prompts there is little to count.",
        lambda m: _hit_rate(m, (Purpose.DECODE,)),
    ),
    cache_stat(
        "cache_hits",
        "lookups",
        "lookups that found the entry and read it without error",
        "The count behind cache_hit_rate.",
        "Grows with the duration.",
        lambda m: m.lookups(Outcome.HIT),
    ),
    cache_stat(
        "cache_misses",
        "lookups",
        "lookups that did not find the entry",
        "What had to be rebuilt.",
        "First turns never look up a history.",
        lambda m: m.lookups(Outcome.MISS),
    ),
    cache_stat(
        "cache_errors",
        "lookups",
        "lookups whose read failed",
        "Anything but zero needs an explanation.",
        "Never counted as hits.",
        lambda m: m.lookups(Outcome.ERROR),
    ),
    *(_hits(hit_type) for hit_type in HitType),
    cache_stat(
        "system_prompt_reuse",
        "lookups",
        "lookups of a known system prompt that a request began with, found in the cache or not",
        "Next to system_prompt_hits: many seen and few hits means the prompt was evicted.",
        "Says nothing about the cache by itself.",
        lambda m: m.looked_up(HitType.SYSTEM),
    ),
    cache_stat(
        "{tier}_entries",
        "entries",
        "entries resident on that tier at the end",
        "How the working set spread over the tiers.",
        "A snapshot at the end of the run, not an average.",
        _entries,
    ),
    cache_stat(
        "{memory}_memory_used_gb",
        "GiB",
        "bytes held on that tier at the end, padding included",
        "Whether the budget was used.",
        "A snapshot at the end of the run.",
        lambda m, memory: _used(m, memory),
    ),
    cache_stat(
        "{tier}_used_gib",
        "GiB",
        "bytes held on that tier at the end, padding included",
        "Whether the capacity was used.",
        "A snapshot at the end of the run.",
        _used,
    ),
    cache_stat(
        "offloads_cpu",
        "operations",
        "entries written to the DRAM tier, placed there or demoted to it",
        "How much spilled out of the GPU tier.",
        "In a run without a GPU tier it is simply where entries start.",
        lambda m: _arrivals_in(m, "cpu"),
    ),
    cache_stat(
        "offloads_nvme",
        "operations",
        "entries written to the storage tier, placed there or demoted to it",
        "How much spilled out of memory.",
        "Overwrites count each time.",
        lambda m: _arrivals_in(m, Tier.STORAGE.value),
    ),
    cache_stat(
        "{tier}_evicted_entries",
        "entries",
        "entries dropped from that tier without being demoted, in the window",
        "Anything but zero on the last tier means that capacity bounds the result.",
        "Demotions are not in it.",
        _dropped,
    ),
)
