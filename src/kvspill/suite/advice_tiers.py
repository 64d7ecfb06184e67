"""Which tier to buy: what each set-up adds to the throughput of the same users, where that can be told."""

from collections.abc import Iterator, Mapping

from kvspill.suite.advice_doubts import fit, reservations, why_unfit
from kvspill.suite.facts import Figures, mean
from kvspill.texts import counted, duration

Found = Mapping[str, Figures]
Choice = tuple[Figures, str]
_SET_UPS = {
    "cpu-storage": "DRAM in front of the storage",
    "cpu-only": "DRAM alone",
    "gpu-cpu-storage": "GPU memory and DRAM in front of the storage",
}
_WORTH = 1.1
"""A tier must serve this many times as much to be worth its money; less is noise."""
_SAME_HITS = 0.03
_TIER_FLAG = "--tier-seconds"


def tiers(found: Found) -> Iterator[str]:
    """What each set-up adds to storage alone, and which to buy first."""
    base = found.get("storage-only")
    if base is None or not base.tokens_per_sec:
        yield "Without a result of storage-only nothing can be said about which tier to buy."
        return
    choices = [(base, "storage alone")]
    for name, what in _SET_UPS.items():
        row = found.get(name)
        if row is not None and row.tokens_per_sec:
            choices.append((row, what))
            if fit(base) and fit(row):
                yield _gain(base, row, what)
    contradicted = list(_contradictions(found))
    yield from (text for text, _ in contradicted)
    unfit = list(why_unfit((row for row, _ in choices), _TIER_FLAG))
    yield from unfit
    if not unfit and all(explained for _, explained in contradicted):
        yield from _purchase(choices)


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
    if factor >= _WORTH:
        effect = f"serves {factor:.1f} times as much as storage alone"
    elif factor > 1 / _WORTH:
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
    if sizes[0] < sizes[1] or served[0] * _WORTH >= served[1]:
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


def _purchase(choices: list[Choice]) -> Iterator[str]:
    """The cheapest set-up of real tiers that is about as good as the best of them."""
    real = [(row, what) for row, what in choices if "storage" in row.tiers and _is_real(row)]
    if len(real) < 2:
        yield "No real tier was measured in front of the storage, so no purchase can be advised."
    else:
        yield _first(real)
    if any(not _is_real(row) for row, _ in choices):
        yield (
            "Figures with GPU memory are modelled: measure on a machine that has a GPU before buying one for "
            "its memory."
        )


def _first(real: list[Choice]) -> str:
    best = max(row.tokens_per_sec or 0.0 for row, _ in real)
    row, what = next(item for item in real if (item[0].tokens_per_sec or 0.0) * _WORTH >= best)
    served = ", ".join(f"{other.tokens_per_sec:,.0f} tok/s with {name}" for other, name in real)
    codes = reservations(row for row, _ in real)
    head = f"To buy first, provisionally ({', '.join(codes)}: see below)" if codes else "To buy first"
    if row is real[0][0]:
        return (
            f"{head}: nothing in front of the storage ({served}): with {counted(row.users, 'user')} "
            "memory is not what a request waits for."
        )
    share = row.read_share.get("cpu", 0.0)
    return f"{head}: {what} ({served}); {share:.0%} of the bytes read came from DRAM."


def _is_real(row: Figures) -> bool:
    return row.simulated or not row.modelled


def faster_drive(found: Found) -> Iterator[str]:
    """An upper bound on what a drive of twice the speed could do (Amdahl)."""
    row = found.get("production") or found.get("cpu-storage") or found.get("storage-only")
    tier = row.tiers.get("storage") if row is not None else None
    if row is None or tier is None or row.storage_io_ms is None or not row.served_ms:
        return
    if not tier.read_mean_ms or tier.read_device_mean_ms is None:
        return
    if not fit(row):
        if row.name == "production":
            yield from why_unfit([row], "--production-seconds")
        return
    if row.read_share.get("storage", 0.0) < 0.01:
        yield f"In {row.name} almost nothing was read from storage, so a faster drive would change nothing."
        return
    device_share = min(1.0, tier.read_device_mean_ms / tier.read_mean_ms)
    busy_ms = sum(other.busy_ms for other in row.tiers.values())
    part = tier.busy_ms / busy_ms if busy_ms > 0 else 1.0
    saved = mean(row.storage_io_ms) * part / 2 / row.served_ms
    yield (
        f"In {row.name} storage takes {part:.0%} of the tiers' time, and a storage read is "
        f"{device_share:.0%} device time; a drive of twice the speed would take about {saved:.0%} off a "
        "request's service at most."
    )
