"""What a suite's figures mean for this machine, in plain sentences made from measured numbers only."""

from collections.abc import Iterator, Mapping

from kvspill.suite.facts import Figures
from kvspill.suite.scenario import NINE

Found = Mapping[str, Figures]
_ENGINE = "engine-"
_SET_UPS = {
    "cpu-storage": "DRAM in front of the storage",
    "cpu-only": "DRAM alone",
    "gpu-cpu-storage": "GPU memory and DRAM in front of the storage",
}
_WORTH = 1.1
"""A tier must serve this many times as much to be worth its money; less is noise."""
_NOTABLE = 0.1
_FEW_REQUESTS = 100
_PRESSED = 0.5
"""A device that fills half of the service time or more is near its limit."""
_DOUBTS = {
    "client_bound": "this program was near its own ceiling, so a faster device would not have shown",
    "capacity_bound": "entries were dropped for lack of space, so more capacity alone would help",
    "overload": "more was asked than could be served, so its latencies describe the queue",
    "page_cache": "the page cache served reads, so the device looks faster than it is",
    "not_steady": "throughput had not settled, so a longer run may differ",
    "errors": "operations failed, so its figures are lower than they would be",
}


def advise(found: Found) -> list[str]:
    """The sentences, most important first; what was not measured is named instead of guessed."""
    if not found:
        return ["No scenario has a result yet, so nothing can be said."]
    if not any(name in NINE for name in found):
        plain = [_row(row) for name, row in found.items() if not name.startswith(_ENGINE)]
        return [*plain, *_engines(found), *_doubts(found)]
    lines = [*_drive(found), *_bottleneck(found), *_tiers(found), *_faster_drive(found), *_users(found)]
    return [*lines, *_engines(found), *_doubts(found)]


def _drive(found: Found) -> Iterator[str]:
    """What the storage gives at most."""
    rows = [found[name] for name in ("storage-saturation", "storage-only") if name in found]
    rows = [row for row in rows if "storage" in row.tiers]
    if not rows:
        yield "The storage was not run alone, so its limit is unknown; run storage-saturation."
        return
    best = max(rows, key=lambda row: row.tiers["storage"].read_gib_per_sec)
    tier = best.tiers["storage"]
    if not any(_pressed(row) for row in rows):
        yield (
            f"The storage was not pressed ({tier.read_gib_per_sec:.2f} GiB/s reading in {best.name}), so its "
            "limit is unknown; run storage-saturation."
        )
        return
    how = "would give" if best.simulated else "gave"
    text = (
        f"The storage {how} at most {tier.read_gib_per_sec:.2f} GiB/s reading and "
        f"{tier.write_gib_per_sec:.2f} GiB/s writing ({best.name}, {best.users} users)"
    )
    if tier.read_p95_ms is not None and tier.read_device_p95_ms is not None:
        text += (
            f"; 95 % of its reads took at most {_time(tier.read_p95_ms)}, "
            f"of which at most {_time(tier.read_device_p95_ms)} in the device"
        )
    yield text + "."


def _pressed(row: Figures) -> bool:
    """Whether a row shows the limit of its storage."""
    return row.name == "storage-saturation" or _mean(row.storage_io_ms) > _PRESSED * (row.served_ms or 0.0)


def _bottleneck(found: Found) -> Iterator[str]:
    """Where the time of a request goes on the tiers that the machine really has."""
    row = found.get("production") or found.get("cpu-storage") or found.get("storage-only")
    if row is None or row.end_to_end_ms is None or row.served_ms is None:
        yield "No realistic load completed a request, so the bottleneck is unknown; run production longer."
        return
    spent = _spent(row)
    if spent:
        yield f"Bottleneck with {row.users} users ({row.name}): {spent}."


def _spent(row: Figures) -> str:
    """Where the time of a request goes, and what that means; empty where it took none."""
    parts = {
        "waiting in the queue": _mean(row.queue_ms),
        "in the tiers' I/O": _mean(row.storage_io_ms),
        "generating tokens": _mean(row.generation_ms),
        "in this program itself": _mean(row.other_ms),
    }
    whole = sum(parts.values())
    if whole <= 0:
        return ""
    ranked = sorted(parts.items(), key=lambda part: -part[1])
    spent = " and ".join(
        f"{value / whole:.0%} {where}" for where, value in ranked if value >= _NOTABLE * whole
    )
    meaning = {
        "waiting in the queue": "more is asked than the servers can take",
        "in the tiers' I/O": "memory and storage set the pace",
        "generating tokens": "the GPU sets the pace",
        "in this program itself": "it, and not the device, sets the pace",
    }[ranked[0][0]]
    return f"a request of {_time(whole)} spends {spent}: {meaning}"


def _row(row: Figures) -> str:
    """A scenario of its own kind, in one sentence."""
    if row.autoscaling is not None:
        return f"{row.name}: ended at {row.autoscaling.get('users')} users. {row.autoscaling['reason']}"
    if not row.tokens_per_sec:
        return f"{row.name}: no request completed in the measured window; run it longer."
    return f"{row.name}: {row.tokens_per_sec:,.0f} tok/s with {row.users} users; {_spent(row)}."


def _tiers(found: Found) -> Iterator[str]:
    """Which tier to buy: what each one adds to the throughput of the same users."""
    base = found.get("storage-only")
    if base is None or not base.tokens_per_sec:
        yield "Without a result of storage-only nothing can be said about which tier to buy."
        return
    choices = [(base, "storage alone")]
    for name, what in _SET_UPS.items():
        row = found.get(name)
        if row is not None and row.tokens_per_sec:
            choices.append((row, what))
            yield _gain(base, row, what)
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
    waits = f"{_time(_mean(base.storage_io_ms))} -> {_time(_mean(row.storage_io_ms))}"
    return f"{what} ({sizes}) {effect}: {before:,.0f} -> {after:,.0f} tok/s, I/O of a request {waits}."


def _purchase(choices: list[tuple[Figures, str]]) -> Iterator[str]:
    """The cheapest set-up of real tiers that is about as good as the best of them."""
    real = [(row, what) for row, what in choices if "storage" in row.tiers and _is_real(row)]
    best = max(row.tokens_per_sec or 0.0 for row, _ in real)
    row, what = next(item for item in real if (item[0].tokens_per_sec or 0.0) * _WORTH >= best)
    served = ", ".join(f"{other.tokens_per_sec:,.0f} tok/s with {name}" for other, name in real)
    if len(real) == 1:
        yield "No real tier was measured in front of the storage, so no purchase can be advised."
    elif row is real[0][0]:
        yield (
            f"To buy first: nothing in front of the storage ({served}): with {row.users} users memory is not "
            "what a request waits for."
        )
    else:
        share = row.read_share.get("cpu", 0.0)
        yield f"To buy first: {what} ({served}); {share:.0%} of the bytes read came from DRAM."
    if any(not _is_real(row) for row, _ in choices):
        yield (
            "Figures with GPU memory are modelled: measure on a machine that has a GPU before buying one for "
            "its memory."
        )


def _is_real(row: Figures) -> bool:
    return row.simulated or not row.modelled


def _faster_drive(found: Found) -> Iterator[str]:
    """An upper bound on what a drive of twice the speed could do (Amdahl)."""
    row = found.get("production") or found.get("cpu-storage") or found.get("storage-only")
    tier = row.tiers.get("storage") if row is not None else None
    if row is None or tier is None or row.storage_io_ms is None or not row.served_ms:
        return
    if not tier.read_mean_ms or tier.read_device_mean_ms is None:
        return
    if row.read_share.get("storage", 0.0) < 0.01:
        yield f"In {row.name} hardly a byte was read from storage, so a faster drive would change nothing."
        return
    device_share = min(1.0, tier.read_device_mean_ms / tier.read_mean_ms)
    busy_ms = sum(other.busy_ms for other in row.tiers.values())
    part = tier.busy_ms / busy_ms if busy_ms > 0 else 1.0
    saved = _mean(row.storage_io_ms) * part / 2 / row.served_ms
    yield (
        f"In {row.name} storage takes {part:.0%} of the tiers' time, and a storage read is "
        f"{device_share:.0%} device time; a drive of twice the speed would take about {saved:.0%} off a "
        "request's service at most."
    )


def _users(found: Found) -> Iterator[str]:
    """The answers of the searches."""
    row = found.get("autoscale")
    answer = row.autoscaling if row is not None else None
    if answer is None:
        yield "How many users this machine can serve was not searched for; run autoscale."
    elif answer["concluded"]:
        least = "at least " if "highest load allowed" in answer["reason"] else ""
        yield f"Users that this machine can serve: {least}{answer.get('users')} ({answer['reason']})."
    else:
        yield f"Users that this machine can serve: no answer yet. {answer['reason']}"
    peak = found["capacity-autoscale"].autoscaling if "capacity-autoscale" in found else None
    if peak is not None and peak.get("peak_throughput") is not None:
        yield (
            f"Peak throughput of the storage: {peak['peak_throughput']:,.0f} tokens' worth of KV per second "
            f"with {peak.get('users')} users ({peak['reason']})."
        )


def _engines(found: Found) -> Iterator[str]:
    """Engines by what the same users get through their way of doing I/O."""
    rows = [row for name, row in found.items() if name.startswith(_ENGINE) and row.tokens_per_sec]
    if len(rows) < 2:
        return
    ranked = sorted(rows, key=lambda row: -(row.tokens_per_sec or 0.0))
    yield "Engines on this storage by what the same users get, best first:"
    for place, row in enumerate(ranked, start=1):
        saved = row.net_gpu_seconds_saved
        worth = (
            "" if saved is None else f", loading {'saved' if saved >= 0 else 'cost'} {abs(saved):,.1f} GPU s"
        )
        hits = "" if row.hit_rate is None else f", {row.hit_rate:.0%} of the blocks found"
        yield f"{place}. {row.name.removeprefix(_ENGINE)}: {row.tokens_per_sec:,.0f} tok/s{hits}{worth}."


def _doubts(found: Found) -> Iterator[str]:
    for code, meaning in _DOUBTS.items():
        rows = [row.name for row in found.values() if code in row.warnings]
        if code == "overload":
            # That scenario overloads on purpose.
            rows = [name for name in rows if name != "storage-saturation"]
        elif code == "capacity_bound":
            # Memory without storage below it drops entries by design.
            rows = [name for name in rows if "storage" in found[name].tiers]
        if rows:
            yield f"Doubt about {', '.join(rows)}: {meaning}."
    few = [row.name for row in found.values() if row.completed < _FEW_REQUESTS]
    if few:
        yield f"Doubt about {', '.join(few)}: fewer than {_FEW_REQUESTS} requests completed; run longer."
    if any(row.simulated for row in found.values()):
        yield "All of this is simulated: it holds for the modelled devices, not for this machine's."


def _mean(statistics: Mapping[str, float] | None) -> float:
    return 0.0 if statistics is None else statistics["mean"]


def _time(value_ms: float) -> str:
    return f"{value_ms / 1000:,.2f} s" if value_ms >= 1000 else f"{value_ms:,.1f} ms"
