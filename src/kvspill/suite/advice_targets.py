"""Which set-up to buy: by the targets of its users first, by throughput among those that keep them."""

from collections.abc import Iterator, Sequence

from kvspill.result.answer import Status
from kvspill.result.warnings.loads import OVERLOAD
from kvspill.suite.advice_doubts import fit, reservations
from kvspill.suite.facts import Figures, Found
from kvspill.texts import counted, duration, listed, target_time

Choice = tuple[Figures, str]
WORTH = 1.1
"""A tier must serve this many times as much to be worth its money; less is noise."""
_MEANT_TO_OVERLOAD = "storage-saturation"
SET_UPS = {
    "cpu-storage": "DRAM in front of the storage",
    "cpu-only": "DRAM alone",
    "gpu-cpu-storage": "GPU memory and DRAM in front of the storage",
    "gpu-only": "GPU memory alone",
    "gpu-cpu": "GPU memory and DRAM alone",
    "storage-only": "storage alone",
}
"""What each row of a set-up is, the cheaper ones first."""


def targets(found: Found) -> Iterator[str]:
    """Which rows keep the targets of their users and which miss them, as their results judge it (S11)."""
    rows = [row for row in found.values() if row.autoscaling is None and row.name != _MEANT_TO_OVERLOAD]
    for users in dict.fromkeys(row.users for row in rows):
        alike = [row for row in rows if row.users == users]
        kept = [_named(row) for row in alike if row.status == Status.YES]
        missed = [f"{_named(row)}{_classes(row)}" for row in alike if row.status == Status.NO]
        parts = [f"kept by {listed(kept)}"] if kept else []
        parts += [f"missed by {', '.join(missed)}"] if missed else []
        if parts:
            yield f"Targets of {counted(users, 'user')}: {'; '.join(parts)}."
    open_rows = [row for row in rows if row.status == Status.UNDECIDED]
    for why in dict.fromkeys(map(_why, open_rows)):
        names = [f"{_named(row)}{_seen(row)}" for row in open_rows if _why(row) == why]
        yield f"No verdict on the targets in {listed(names)}: {why}{_remedy(why, open_rows)}"


def too_short(found: Found) -> Iterator[str]:
    """That rows of this length judge no set-up by its targets, and which length would, where that is so."""
    rows = [row for row in found.values() if row.name in SET_UPS]
    if not rows or any(row.status in (Status.YES, Status.NO) for row in rows):
        return
    needed = max((row.enough_seconds or 0.0 for row in rows), default=0.0)
    lasted = min((row.seconds or 0.0 for row in rows), default=0.0)
    if needed > lasted > 0:
        yield (
            f"No advice by the targets is possible at {lasted:g} s a row: give --tier-seconds {needed:g}. "
            "What follows rests on throughput alone."
        )


def _remedy(why: str, rows: Sequence[Figures]) -> str:
    """Longer runs help where classes had too few requests, and not where the load is too much."""
    few = [row for row in rows if _why(row) == why and OVERLOAD.code not in row.warnings]
    return " Run longer." if any(item.met is None for row in few for item in row.classes.values()) else ""


def _why(row: Figures) -> str:
    """The reason of a row that has no verdict, without the word itself and what is of this row alone."""
    why = row.verdict.partition(": ")[2].removeprefix(_own(row))
    return why or "its result does not say why."


def _seen(row: Figures) -> str:
    """How many of its requests were late, where the reason begins with that."""
    return f" ({row.late})" if row.late and f": {_own(row)}" in row.verdict else ""


def _own(row: Figures) -> str:
    return f"{row.late}, but " if row.late else ""


def _named(row: Figures) -> str:
    return row.name if is_real(row) else f"{row.name} (modelled)"


def _classes(row: Figures) -> str:
    return f" ({listed(row.missed)})" if row.missed else ""


def purchase(choices: Sequence[Choice], normal: Figures | None) -> Iterator[str]:
    """What to buy, of storage alone (the first) and the set-ups beside it; the cheaper ones come first.

    normal: the row of a normal day, which speaks against what has no more memory where it misses its targets.
    """
    real = [choice for choice in choices if is_real(choice[0])]
    by_status = {status: [item for item in real if item[0].status == status] for status in Status}
    kept, missed = by_status[Status.YES], by_status[Status.NO]
    possible = kept or [item for item in real if item not in missed]
    refuted = [item for item in possible if normal is not None and _refutes(normal, item[0])]
    # Where targets are missed, throughput alone is no reason to buy what was not judged by them.
    left = [item for item in possible if item not in refuted and (kept or not refuted)]
    candidates = _before_memory_alone(left)
    enough = len(_with_storage(real)) > 1 or (bool(kept) and candidates != real[:1])
    if normal is not None and refuted:
        yield _refuted(normal, refuted, bool(candidates))
    if real and not possible:
        yield _nobody(missed, "set-up" if len(real) == len(choices) else "real set-up")
    elif real and not candidates:
        return
    elif enough:
        yield _first(candidates, choices[0], missed, by_throughput=not kept)
    else:
        yield "No real tier was measured in front of the storage, so no purchase can be advised."
    if len(real) < len(choices):
        yield (
            "Figures with GPU memory are modelled: measure on a machine that has a GPU before buying one for "
            "its memory."
        )


def is_real(row: Figures) -> bool:
    """Whether a purchase may rest on this row; in a simulation every tier is modelled, and that is said."""
    return row.simulated or not row.modelled


def _refutes(normal: Figures, row: Figures) -> bool:
    """Whether a normal day missed its targets with the same users and at least the memory of that row."""
    memory = [(name, tier.limit_gib) for name, tier in row.tiers.items() if name != "storage"]
    as_much = all(name in normal.tiers and normal.tiers[name].limit_gib >= gib for name, gib in memory)
    alike = normal.users == row.users and is_real(normal) and "storage" in row.tiers
    return normal.status == Status.NO and fit(normal) and alike and as_much


def _refuted(normal: Figures, refuted: Sequence[Choice], others: bool) -> str:
    """What is not advised because a normal day misses its targets with as much memory."""
    names = listed([what for _, what in refuted])
    text = (
        f"Not advised: {names}, because {normal.name} has at least as much memory and misses the targets of "
        f"{counted(normal.users, 'user')}{_classes(normal)}."
    )
    kept = [_named(row) for row, _ in refuted if row.status == Status.YES]
    if kept:
        text += f" {listed(kept)} kept them: run both again, longer."
    return text if others else f"{text} Fewer --users would show how many each set-up serves."


def _with_storage(choices: Sequence[Choice]) -> list[Choice]:
    return [choice for choice in choices if "storage" in choice[0].tiers]


def _before_memory_alone(choices: Sequence[Choice]) -> Sequence[Choice]:
    """Memory alone drops what does not fit, so it is chosen only where nothing else can be."""
    return _with_storage(choices) or choices


def _nobody(missed: Sequence[Choice], what_kind: str) -> str:
    """No set-up keeps the targets: say so, and which came nearest."""
    users = counted(missed[0][0].users, "user")
    # A class missed by requests that still waited has a p95 below its target: no measure of nearness.
    judged = [
        choice
        for choice in missed
        if choice[0].missed and all(_times(choice[0], name) > 1 for name in choice[0].missed)
    ]
    nearest = ""
    if judged:
        row, what = min(judged, key=lambda choice: _times(choice[0], _worst(choice[0])))
        item = row.classes[_worst(row)]
        nearest = (
            f" The closest was {what}, where queue and storage added {duration(item.added_p95_ms)} (p95) to "
            f"{_worst(row)} requests; the target is {target_time(item.target_p95_ms)}."
        )
    return (
        f"To buy first: nothing can be advised, because no {what_kind} that was run keeps the targets of "
        f"{users}.{nearest} Fewer --users would show how many each set-up serves."
    )


def _worst(row: Figures) -> str:
    return max(row.missed, key=lambda name: _times(row, name))


def _times(row: Figures, name: str) -> float:
    """How many times its target a class took."""
    item = row.classes[name]
    return (item.added_p95_ms or 0.0) / item.target_p95_ms if item.target_p95_ms else 0.0


def _first(candidates: Sequence[Choice], base: Choice, missed: Sequence[Choice], by_throughput: bool) -> str:
    """The cheapest candidate that serves about as much as the best of them."""
    best = max(row.tokens_per_sec or 0.0 for row, _ in candidates)
    row, what = next(item for item in candidates if (item[0].tokens_per_sec or 0.0) * WORTH >= best)
    served = ", ".join(f"{other.tokens_per_sec:,.0f} tok/s with {name}" for other, name in candidates)
    doubted = reservations(row for row, _ in candidates)
    head = "To buy first, provisionally (see the doubts below)" if doubted else "To buy first"
    is_base = row is base[0]
    chosen = "nothing in front of the storage" if is_base else what
    users = counted(row.users, "user")
    if by_throughput:
        why = "The targets could not be judged, so throughput decides"
    else:
        why = f"{'Storage alone' if is_base else 'It'} keeps the targets of {users}"
    if not is_base and base in missed:
        why += f", and storage alone misses {listed(base[0].missed) or 'its target'}"
    elif is_base and len(candidates) > 1:
        why += ", and memory in front of it serves about as much"
    text = f"{head}: {chosen}. {why} ({served})."
    if "cpu" in row.tiers and "storage" in row.tiers:
        text += f" {row.read_share.get('cpu', 0.0):.0%} of the bytes read came from DRAM."
    if "storage" not in row.tiers and row.hit_rate is not None:
        lost = f"{1 - row.hit_rate:.0%} of the lookups missed"
        text += f" Without storage below, what does not fit is lost: {lost}."
    return text
