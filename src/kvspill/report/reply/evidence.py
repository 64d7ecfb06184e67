"""What the answer to a question rests on: the load that decided, its classes, and the worst of them."""

import math
from collections.abc import Mapping
from typing import Any

from kvspill.measure.priorities import MIN_COMPLETIONS, surely_late
from kvspill.report.numbers import volume
from kvspill.result.answer import Status
from kvspill.result.classes import LATENCIES, promised_completed
from kvspill.run.asking import Reply, replays
from kvspill.run.drawn import classes_without_users
from kvspill.run.verdict import each_seed, rests_on
from kvspill.texts import counted, duration, listed, target_time

_SHARED = 0.25
"""Bytes of other runs beyond this share of those asked for here leave clearly less of the device."""


def not_judged(reply: Reply) -> dict[str, int]:
    """Classes with a target and too few requests to say that they keep it (S11), with their requests.

    The late requests of those that a NO rests on are its evidence, and are said to be few there.
    """
    decider = _decider(reply)
    return {
        name: int(block["requests"])
        for name, block in _classes(reply).items()
        if block["verdict"] not in ("met", "missed")
        and name != decider
        and not (reply.status is Status.NO and _surely_late(reply, block))
    }


def _decider(reply: Reply) -> str:
    """The class that a NO rests on first."""
    return (worst(reply) or (0.0, ""))[1] if reply.status is Status.NO else ""


def also_late(reply: Reply) -> list[str]:
    """What a NO rests on beside the class that decided: others that surely miss, too, by few requests."""
    if reply.status is not Status.NO:
        return []
    allowed, decider = f"{100 - reply.config.slo_percentile:g}%", _decider(reply)
    return [
        f"{name}: {_late_of(block)}, certainly more than the {allowed} allowed."
        for name, block in _classes(reply).items()
        if block["verdict"] == "no verdict" and name != decider and _surely_late(reply, block)
    ]


def _late_of(block: Mapping[str, Any]) -> str:
    return f"{block['violations']:,} of {block['requests']:,} late{_waiting(block)}"


def _waiting(block: Mapping[str, Any]) -> str:
    """How many of the late ones did not complete: a reader may add up those that did."""
    waiting = int(block.get("waiting") or 0)
    return f" ({waiting:,} of them still waiting at the end)" if waiting else ""


def without_users(reply: Reply) -> tuple[str, ...]:
    """Judged classes that have no user at all with the seed and the load that the answer rests on."""
    found, idle = decided(reply), [name for name, requests in not_judged(reply).items() if not requests]
    if found is None and reply.status is Status.UNDECIDED:
        # No time would give these their requests either.
        idle = list(reply.config.slo_classes)
    if not idle or replays(reply.config):
        return ()
    seed = reply.config.seed if reply.result.seed is None else reply.result.seed
    missing = classes_without_users(reply.config, _level(reply), seed)
    return tuple(name for name in missing if name in idle)


def _level(reply: Reply) -> int:
    """The users that the answer rests on; without one, those that were asked about."""
    found = decided(reply)
    return reply.users if found is None else int(found["level"])


def decided(reply: Reply) -> Mapping[str, Any] | None:
    """The level that the answer rests on, as all its windows together judge it."""
    return rests_on(reply.result, reply.bracket, reply.users, reply.status)


def _classes(reply: Reply) -> Mapping[str, Any]:
    found = decided(reply)
    return {} if found is None else found["classes"]


def few_requests(reply: Reply) -> dict[str, str]:
    """The classes that are not judged though they have users, each with its requests in words."""
    idle, blocks = without_users(reply), _classes(reply)
    return {
        name: _late_of(blocks[name]) if requests else "no requests"
        for name, requests in not_judged(reply).items()
        if name not in idle
    }


def each_answer(reply: Reply, seeds: Mapping[int, Status]) -> str:
    """What each of these seeds answers, and the judged classes of which it has nobody.

    Where all of them say no, a class more or less would change nothing.
    """
    answers = set(seeds.values())

    def lacks(seed: int, status: Status) -> str:
        told = status is Status.YES or (status is Status.NO and Status.YES in answers)
        missing = classes_without_users(reply.config, reply.users, seed) if told else ()
        return f" (no {listed(missing, 'or')} user)" if missing else ""

    return ", ".join(each_seed({seed: said}) + lacks(seed, said) for seed, said in seeds.items())


def uncovered(reply: Reply) -> tuple[str, ...]:
    """Judged classes that a yes is not of, by none of the seeds that it counts."""
    if not reply.by_seed:
        return without_users(reply)
    lacking = list(_missing_by_seed(reply).values())
    return tuple(name for name in reply.config.slo_classes if lacking and all(name in one for one in lacking))


def partly_covered(reply: Reply) -> dict[str, list[int]]:
    """Judged classes of which only some of the seeds that a yes counts have users, with these seeds."""
    missing = _missing_by_seed(reply)
    having = {
        name: [seed for seed, lacking in missing.items() if name not in lacking]
        for name in reply.config.slo_classes
    }
    return {name: seeds for name, seeds in having.items() if 0 < len(seeds) < len(missing)}


def _missing_by_seed(reply: Reply) -> dict[int, tuple[str, ...]]:
    """The judged classes that each seed lacks which says yes."""
    yes = [seed for seed, said in reply.by_seed.items() if said is Status.YES]
    return {seed: classes_without_users(reply.config, reply.users, seed) for seed in yes}


def no_user(reply: Reply) -> str:
    """The classes of which the seed draws no user, and what draws some; empty where each has one.

    Where fewer users than were asked about missed the target, the others may well be of such a class.
    """
    is_yes = reply.status is Status.YES
    level, names = _level(reply), uncovered(reply) if is_yes else without_users(reply)
    fewer = level < reply.users
    if not names or (fewer and reply.status is Status.NO):
        return ""
    more = "" if fewer else " or more --users"
    lacks = "this class is not covered" if len(names) == 1 else "these classes are not covered"
    if is_yes and reply.by_seed:
        few = f"no seed that says yes draws any {listed(names, 'or')} user among {level:,}"
    else:
        few = f"seed {reply.result.seed} draws no {listed(names, 'or')} user among {level:,}"
    return f"{few[0].upper()}{few[1:]}, so {lacks}; give another --seed{more}."


def unjudged_text(reply: Reply) -> str:
    """The classes that are not judged, each with the reason."""
    why = dict.fromkeys(without_users(reply), f"no user with seed {reply.result.seed}")
    return ", ".join(f"{name} ({text})" for name, text in {**why, **few_requests(reply)}.items())


def remedy_of_unjudged(reply: Reply) -> str:
    """What gives the classes that are not judged their requests: time does where they have users."""
    seed = ["another --seed"] if without_users(reply) else []
    longer = ["a longer --duration"] if few_requests(reply) else []
    return f"Give {listed([*seed, *longer, 'more --users'], 'or')}, or leave the class out of --slo-classes."


def evidence(reply: Reply) -> str:
    """What came of the class that decided, beside its target."""
    found, classes = worst(reply), _classes(reply)
    if found is None:
        return ""
    name = found[1]
    block, users = classes[name], with_load(reply).strip().capitalize()
    requests, actual_ms, limit_ms = block["requests"], block["actual_ms"], block["target_ms"]
    target, rank = f"the target is {target_time(limit_ms)}", f"p{reply.config.slo_percentile:g}"
    is_late, completed = reply.status is Status.NO, promised_completed(block)
    # Of few that completed no percentile is shown, and of no lateness one that those who wait are not in.
    if completed < MIN_COMPLETIONS or actual_ms is None or (is_late and actual_ms <= limit_ms):
        were = "was" if block["violations"] == 1 else "were"
        late = f"{block['violations']:,} of {counted(requests, f'{name} request')} {were} late"
        few = is_late and requests < MIN_COMPLETIONS and _surely_late(reply, block)
        allowed = f"{100 - reply.config.slo_percentile:g}%"
        allowed = f"certainly more than the {allowed} allowed" if few else f"{allowed} are allowed"
        return f"{users}, {late}{_waiting(block)}, {allowed}; {target}."
    if reply.config.slo_latency == "added":
        what = f"queue and storage added {duration(actual_ms)} to {name} requests"
    else:
        what = f"{name} requests took {duration(actual_ms)}, {LATENCIES[reply.config.slo_latency]}"
    return f"{users}, {what} ({rank} of {counted(completed, 'request')}{_of_windows(reply)}); {target}."


def measured_time(reply: Reply) -> str:
    """For how long the load that the answer rests on was measured, and why no longer."""
    found = decided(reply)
    if found is None or not found.get("measured_seconds"):
        return ""
    how = "simulated" if reply.result.simulated else "measured"
    text = f"That was {how} for {found['measured_seconds']:,.0f} s"
    if not found.get("certain"):
        return f"{text}."
    return f"{text}, and no longer: so many were late that more time would change nothing."


def operations(reply: Reply) -> str:
    """How many reads and writes of storage make up what it adds to a request; empty where there were none."""
    result, requests = reply.result, reply.result.requests_completed
    each = {verb: (result.number(f"storage_{verb}_ops") or 0) / requests for verb in ("read", "write")}
    if max(each.values()) <= 1 or reply.config.slo_latency not in ("added", "end-to-end"):
        return ""
    made = [
        counted(round(count), verb) if round(count) else f"{count:.1f} {verb}s"
        for verb, count in each.items()
    ]
    return f"A request makes about {listed(made)} of entries on the storage: what these take adds up."


def unjudged(reply: Reply, name: str, requests: str) -> str:
    """What is to be said of a class with too few requests."""
    block = _classes(reply)[name]
    if not block["requests"]:
        return f"{name}: no requests{with_load(reply)}, not judged; give a longer --duration."
    return f"{name}: {requests}, not judged ({MIN_COMPLETIONS} needed)."


def shared_device(reply: Reply) -> str:
    """That other runs of this program had a good part of the device, whose bytes hold theirs; else empty."""
    seen = reply.result.honesty.bytes
    asked = (seen.asked_read_bytes or 0) + (seen.asked_written_bytes or 0)
    others = (seen.neighbours_read_bytes or 0) + (seen.neighbours_written_bytes or 0)
    if not seen.neighbours or others <= _SHARED * asked:
        return ""
    moved = f"read {volume(seen.neighbours_read_bytes)} and wrote {volume(seen.neighbours_written_bytes)}"
    runs = counted(seen.neighbours, "other run")
    return f"{runs} of kvspill used the device in the last window ({moved}): the figures are of both."


def written_bytes(reply: Reply) -> int | None:
    """What the whole load wrote to the storage; None where it is simulated or nobody counted."""
    written: int | None = reply.result.io_model.get("storage_written_bytes")
    return None if reply.result.simulated or reply.config.storage_tier == "off" else written


def _of_windows(reply: Reply) -> str:
    """How many windows the figure is of; the result's own figures are of the last of them."""
    windows = int((decided(reply) or {}).get("windows") or 1)
    return f" in {windows} windows" if windows > 1 else ""


def with_load(reply: Reply) -> str:
    """The load that the answer rests on, as a clause."""
    found = decided(reply)
    if found is None:
        return ""
    level = found["level"]
    return f" at {level:g} times the speed" if replays(reply.config) else f" with {counted(level, 'user')}"


def worst(reply: Reply) -> tuple[float, str] | None:
    """The class that decided: the furthest beyond its target or nearest to it, latency by the target.

    A class of which nobody was answered is further beyond it than any other.
    """
    classes = {name: block for name, block in _classes(reply).items() if block["requests"]}
    wanted = {Status.NO: "missed", Status.YES: "met"}.get(reply.status)
    chosen = {name: block for name, block in classes.items() if block["verdict"] == wanted}
    if reply.status is Status.NO and not chosen:
        chosen = {name: block for name, block in classes.items() if _surely_late(reply, block)}
    return max(((_beyond(block), name) for name, block in (chosen or classes).items()), default=None)


def _beyond(block: Mapping[str, Any]) -> float:
    return math.inf if block["actual_ms"] is None else block["actual_ms"] / block["target_ms"]


def _surely_late(reply: Reply, block: Mapping[str, Any]) -> bool:
    """Whether more of a class was late than its target allows, whatever chance did."""
    return surely_late(block["violations"], block["requests"], 1 - reply.config.slo_percentile / 100)
