"""What the answer to a question rests on: the load that decided, its classes, and the worst of them."""

from collections.abc import Mapping
from typing import Any

from kvspill.measure.priorities import MIN_COMPLETIONS
from kvspill.measure.statistics import wilson_interval
from kvspill.result.answer import Status
from kvspill.result.classes import LATENCIES, promised_completed
from kvspill.run.asking import Reply, replays
from kvspill.run.verdict import level_of, rests_on
from kvspill.texts import counted, duration, target_time


def not_judged(reply: Reply) -> dict[str, int]:
    """Classes with a target and too few requests to say that they keep it (S11), with their requests.

    The late requests of the class that a NO rests on are its evidence, and are said to be few there.
    """
    decider = (worst(reply) or (0.0, ""))[1] if reply.status is Status.NO else ""
    return {
        name: int(block["requests"])
        for name, block in _classes(reply).items()
        if block["verdict"] not in ("met", "missed") and name != decider
    }


def decided(reply: Reply) -> Mapping[str, Any] | None:
    """The level that the answer rests on, as all its windows together judge it."""
    return rests_on(reply.result, reply.bracket, reply.users, reply.status)


def _classes(reply: Reply) -> Mapping[str, Any]:
    found = decided(reply)
    return {} if found is None else found["classes"]


def with_requests(classes: Mapping[str, int]) -> str:
    """These classes, each with its requests."""
    return ", ".join(f"{name} ({counted(requests, 'request')})" for name, requests in classes.items())


def evidence(reply: Reply) -> str:
    """What came of the class that decided, beside its target."""
    found, classes = worst(reply), _classes(reply)
    if found is None:
        return ""
    name = found[1]
    block, users = classes[name], with_load(reply).strip().capitalize()
    requests, actual_ms, limit_ms = block["requests"], block["actual_ms"], block["target_ms"]
    target, rank = f"the target is {target_time(limit_ms)}", f"p{reply.config.slo_percentile:g}"
    is_late = reply.status is Status.NO
    if requests < MIN_COMPLETIONS or actual_ms is None or (is_late and actual_ms <= limit_ms):
        were = "was" if block["violations"] == 1 else "were"
        late = f"{block['violations']:,} of {counted(requests, f'{name} request')} {were} late"
        allowed = f"{100 - reply.config.slo_percentile:g}%"
        if is_late and requests < MIN_COMPLETIONS and _surely_late(reply, block):
            few = f"too few for a verdict on the class's latency, but surely more than the {allowed} allowed"
            return f"{users}, {late}: {few}; {target}."
        return f"{users}, {late} ({allowed} allowed); {target}."
    if reply.config.slo_latency == "added":
        what = f"queue and storage added {duration(actual_ms)} to {name} requests"
    else:
        what = f"{name} requests took {duration(actual_ms)}, {LATENCIES[reply.config.slo_latency]}"
    return f"{users}, {what} ({rank} of {promised_completed(block):,}); {target}."


def fewer_decided(reply: Reply) -> str:
    """Where a NO rests on fewer users than were asked about, that those themselves were not tried."""
    found = decided(reply)
    if reply.status is not Status.NO or found is None or replays(reply.config):
        return ""
    if found["level"] >= reply.users or level_of(reply.result.autoscaling_stats, reply.users):
        return ""
    how = "simulated" if reply.result.simulated else "measured"
    already = f"{found['level']:g} {'misses' if found['level'] == 1 else 'miss'} the target already"
    enough = f"what helps {'that one' if found['level'] == 1 else 'these'} may not be enough for"
    return f"{counted(reply.users, 'user')} were not {how}: {already}, and {enough} {reply.users:,}."


def with_load(reply: Reply) -> str:
    """The load that the answer rests on, as a clause."""
    found = decided(reply)
    if found is None:
        return ""
    level = found["level"]
    return f" at {level:g} times the speed" if replays(reply.config) else f" with {counted(level, 'user')}"


def worst(reply: Reply) -> tuple[float, str] | None:
    """The class that decided: the furthest beyond its target or nearest to it, latency by the target."""
    classes = {name: block for name, block in _classes(reply).items() if block["actual_ms"] is not None}
    wanted = {Status.NO: "missed", Status.YES: "met"}.get(reply.status)
    chosen = {name: block for name, block in classes.items() if block["verdict"] == wanted}
    if reply.status is Status.NO and not chosen:
        chosen = {name: block for name, block in classes.items() if _surely_late(reply, block)}
    shares = ((block["actual_ms"] / block["target_ms"], name) for name, block in (chosen or classes).items())
    return max(shares, default=None)


def _surely_late(reply: Reply, block: Mapping[str, Any]) -> bool:
    """Whether more of a class was late than its target allows, whatever chance did."""
    low, _high = wilson_interval(block["violations"], block["requests"])
    return low > 1 - reply.config.slo_percentile / 100
