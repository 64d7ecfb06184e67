"""What a suite's figures mean for this machine, in plain sentences made from measured numbers only."""

from collections.abc import Iterator, Mapping

from kvspill.suite.facts import Figures

Found = Mapping[str, Figures]
_SET_UPS = {
    "cpu-storage": "DRAM in front of the storage",
    "cpu-only": "DRAM alone",
    "gpu-cpu-storage": "GPU memory and DRAM in front of the storage",
}
_PRESSED = 0.5
"""A device that fills half of the service time or more is near its limit."""
_AS_GOOD = 1.05
"""Within 5 % of the best service time the cheaper set-up is the better buy."""
_WORTH = 1.25
"""A tier that makes I/O this many times faster is worth its money; less is noise or habit."""
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
    lines = [*_drive(found), *_bottleneck(found), *_tiers(found), *_faster_drive(found), *_users(found)]
    return [*lines, *_doubts(found)]


def _drive(found: Found) -> Iterator[str]:
    """What the storage gives at most."""
    rows = [found[name] for name in ("storage-saturation", "storage-only") if name in found]
    rows = [row for row in rows if "storage" in row.tiers]
    if not rows:
        yield "The storage was not run alone, so its limit is unknown; run storage-saturation."
        return
    best = max(rows, key=lambda row: row.tiers["storage"].read_gib_per_sec)
    tier = best.tiers["storage"]
    pressed = best.name == "storage-saturation" or _mean(best.storage_io_ms) > _PRESSED * (
        best.served_ms or 0.0
    )
    if not pressed:
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


def _bottleneck(found: Found) -> Iterator[str]:
    """Where the time of a request goes on the tiers that the machine really has."""
    row = found.get("production") or found.get("cpu-storage") or found.get("storage-only")
    if row is None or row.end_to_end_ms is None or row.served_ms is None:
        yield "No realistic load completed a request, so the bottleneck is unknown; run production longer."
        return
    parts = {
        "in the queue: more is asked than the servers can take": _mean(row.queue_ms),
        "in the tiers' I/O: memory and storage set the pace": _mean(row.storage_io_ms),
        "generating tokens: the GPU sets the pace, and the tiers keep up": _mean(row.generation_ms),
        "in this program: it, and not the device, sets the pace": _mean(row.other_ms),
    }
    whole = sum(parts.values())
    if whole <= 0:
        return
    where, largest = max(parts.items(), key=lambda part: part[1])
    yield (
        f"Bottleneck with {row.users} users ({row.name}): a request of {_time(whole)} spends "
        f"{largest / whole:.0%} {where}."
    )


def _tiers(found: Found) -> Iterator[str]:
    """Which tier to buy: what each one takes off the I/O and off the whole service of a request."""
    base = found.get("storage-only")
    if base is None or not base.served_ms:
        yield "Without a result of storage-only nothing can be said about which tier to buy."
        return
    choices = [(base, "storage alone")]
    for name, what in _SET_UPS.items():
        row = found.get(name)
        if row is not None and row.served_ms:
            choices.append((row, what))
            yield _gain(base, row, what)
    yield from _purchase(choices)


def _gain(base: Figures, row: Figures, what: str) -> str:
    """One set-up against storage alone."""
    labels = {"gpu": "GPU memory", "cpu": "DRAM"}
    sizes = " and ".join(
        f"{tier.limit_gib:.1f} GiB {labels[name]}"
        + (" (modelled)" if tier.modelled and not row.simulated else "")
        for name, tier in row.tiers.items()
        if name in labels
    )
    before, after = _mean(base.storage_io_ms), _mean(row.storage_io_ms)
    change = f"{_time(before)} -> {_time(after)} of I/O per request"
    factor = before / after if after > 0 else float("inf")
    if factor >= _WORTH:
        effect = f"makes I/O {factor:.1f} times faster"
    elif factor > 1 / _WORTH:
        effect = "hardly changes I/O"
    else:
        effect = "makes I/O slower"
    return f"{what} ({sizes}) {effect}: {change}."


def _purchase(choices: list[tuple[Figures, str]]) -> Iterator[str]:
    """The cheapest set-up of real tiers that is about as good as the best of them."""
    real = [(row, what) for row, what in choices if "storage" in row.tiers and _is_real(row)]
    best_ms = min(row.served_ms or 0.0 for row, _ in real)
    row, what = next(item for item in real if (item[0].served_ms or 0.0) <= best_ms * _AS_GOOD)
    served = ", ".join(f"{_time(other.served_ms or 0.0)} with {name}" for other, name in real)
    served = f"a request takes {served}"
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
    saved = _mean(row.storage_io_ms) / 2 / row.served_ms
    yield (
        f"In {row.name} a storage read is {device_share:.0%} device time, the rest waits in the host; "
        f"a drive of twice the speed could take at most {saved:.0%} off a request's service."
    )


def _users(found: Found) -> Iterator[str]:
    row = found.get("autoscale")
    if row is None or row.autoscaling is None:
        yield "How many users this machine can serve was not searched for; run autoscale."
        return
    users = row.autoscaling.get("users")
    reason = row.autoscaling.get("reason", "")
    yield f"The search for the most users ended at {users} ({reason})."


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
    if any(row.simulated for row in found.values()):
        yield "All of this is simulated: it holds for the modelled devices, not for this machine's."


def _mean(statistics: Mapping[str, float] | None) -> float:
    return 0.0 if statistics is None else statistics["mean"]


def _time(value_ms: float) -> str:
    return f"{value_ms / 1000:,.2f} s" if value_ms >= 1000 else f"{value_ms:,.1f} ms"
