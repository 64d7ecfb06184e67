"""What each set-up of tiers, and a faster drive, would change for the same users, where that can be told."""

from collections.abc import Iterator

from kvspill.suite.advice_doubts import fit, why_unfit
from kvspill.suite.advice_targets import SET_UPS, WORTH, purchase
from kvspill.suite.facts import Figures, Found, mean
from kvspill.texts import duration

_SAME_HITS = 0.03
_TIER_FLAG = "--tier-seconds"
_LITTLE = 0.01


def tiers(found: Found) -> Iterator[str]:
    """What each set-up adds to storage alone, and which to buy first."""
    base = found.get("storage-only")
    if base is None or not base.tokens_per_sec:
        yield "Without a result of storage-only nothing can be said about which tier to buy."
        return
    rows = [(found[name], what) for name, what in SET_UPS.items() if name in found and name != base.name]
    rows = [(row, what) for row, what in rows if row.tokens_per_sec]
    contradicted = list(_contradictions(found))
    unfit = list(why_unfit((row for row, _ in [(base, ""), *rows]), _TIER_FLAG))
    if not unfit and all(explained for _, explained in contradicted):
        yield from purchase([(base, SET_UPS[base.name]), *rows], found.get("production"))
    yield from unfit
    yield from (text for text, _ in contradicted)
    yield from (_gain(base, row, what) for row, what in rows if fit(base) and fit(row))


def _gain(base: Figures, row: Figures, what: str) -> str:
    """One set-up against storage alone. Users wait for answers, so time saved shows as throughput."""
    labels = {"gpu": "GPU memory", "cpu": "DRAM"}
    sizes = " and ".join(
        f"{tier.limit_gib:.1f} GiB {labels[name]}"
        + (" (modelled)" if tier.modelled and not row.simulated else "")
        for name, tier in row.tiers.items()
        if name in labels
    )
    before, after = base.tokens_per_sec or 0.0, row.tokens_per_sec or 0.0
    factor = after / before
    if factor >= WORTH:
        effect = f"serves {factor:.1f} times as much as storage alone"
    elif factor > 1 / WORTH:
        effect = "serves about as much as storage alone"
    else:
        effect = "serves less than storage alone"
    waits = f"{duration(mean(base.storage_io_ms))} -> {duration(mean(row.storage_io_ms))}"
    return f"{what} ({sizes}) {effect}: {before:,.0f} -> {after:,.0f} tok/s, I/O of a request {waits}."


def _contradictions(found: Found) -> Iterator[tuple[str, bool]]:
    """More DRAM that serves less: named, with whether the rows themselves explain it."""
    large, small = found.get("cpu-only"), found.get("cpu-storage")
    if large is None or small is None or "cpu" not in large.tiers or "cpu" not in small.tiers:
        return
    sizes = [row.tiers["cpu"].limit_gib for row in (large, small)]
    served = [row.tokens_per_sec or 0.0 for row in (large, small)]
    if sizes[0] < sizes[1] or served[0] * WORTH >= served[1]:
        return
    text = (
        f"cpu-only with {sizes[0]:.1f} GiB DRAM serves less than cpu-storage with {sizes[1]:.1f} GiB "
        f"({served[0]:,.0f} and {served[1]:,.0f} tok/s)"
    )
    hits = large.hit_rate, small.hit_rate
    if hits[0] is not None and hits[1] is not None and hits[0] + _SAME_HITS < hits[1]:
        # What memory alone drops is gone; storage below it keeps it.
        yield f"{text}: {hits[0]:.0%} and {hits[1]:.0%} of their lookups were hits.", True
        return
    yield (
        f"{text}, so these rows contradict each other and no purchase is advised; run both again with "
        f"--trials 3 and longer {_TIER_FLAG}.",
        False,
    )


def faster_drive(found: Found) -> Iterator[str]:
    """An upper bound on what a drive of twice the speed could do (Amdahl)."""
    row = found.get("production") or found.get("cpu-storage") or found.get("storage-only")
    tier = row.tiers.get("storage") if row is not None else None
    if row is None or tier is None or row.storage_io_ms is None or not row.served_ms:
        return
    if not fit(row):
        if row.name == "production":
            yield from why_unfit([row], "--production-seconds")
        return
    busy_ms = sum(other.busy_ms for other in row.tiers.values())
    part = tier.busy_ms / busy_ms if busy_ms > 0 else 0.0
    if part < _LITTLE:
        little = "storage takes almost none of the tiers' time"
        yield f"In {row.name} {little}: a faster drive would change nothing."
        return
    how = "almost all of it for writing"
    if tier.read_busy_ms >= _LITTLE * tier.busy_ms and tier.read_mean_ms:
        share = min(1.0, (tier.read_device_mean_ms or 0.0) / tier.read_mean_ms)
        how = f"and a storage read is {share:.0%} device time"
    io_saved = part / 2
    saved = mean(row.storage_io_ms) * io_saved / row.served_ms
    yield (
        f"In {row.name} storage takes {part:.0%} of the tiers' time, {how}; a drive of twice the speed would "
        f"take about {io_saved:.0%} off the I/O of a request and {saved:.0%} off its whole service at most."
    )
