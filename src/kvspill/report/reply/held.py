"""How many users are held: as measured or simulated, and by the model beyond those that were asked about."""

import math
import re
from typing import Any

from kvspill.measure.priorities import MIN_COMPLETIONS
from kvspill.report.reply.evidence import decided, without_users, worst
from kvspill.result.answer import Status, in_memory
from kvspill.result.bottleneck import Binds, bottleneck, io_limited, others_used_device
from kvspill.result.classes import goes_towards, is_near
from kvspill.result.warnings.certainty import AUTOSCALING_INCONCLUSIVE
from kvspill.run.asking import SIMULATED_TIMES, Reply, beyond
from kvspill.run.verdict import at_the_limit
from kvspill.texts import about, counted, duration, listed, target_time

_RAISES = "Raise --storage-capacity-gb"
_RAISE = re.compile(rf"{_RAISES}, or (?P<rest>.*)")
_LONGER = 2.0
"""Windows of this many times the length, where those of an answer differ."""
_RESERVE = 1.25
"""How much longer than by the estimate: another run has other stages."""


def is_at_the_limit(reply: Reply) -> bool:
    """Whether there is no verdict because the windows of the users that were asked about differ."""
    return reply.status is Status.UNDECIDED and at_the_limit(reply.result, reply.users)


def near_limit(reply: Reply) -> str:
    """That another run may answer otherwise, where the class that decided is near its target; else empty."""
    found, name = decided(reply), (worst(reply) or (0.0, ""))[1]
    if found is None or not name or found["clear"] or found["level"] != reply.users:
        return ""
    block, other = found["classes"][name], {Status.YES: "no", Status.NO: "yes"}.get(reply.status)
    target_ms, actual_ms, windows_ms = block["target_ms"], block["actual_ms"], block.get("by_window_ms", ())
    if other is None or actual_ms is None or not is_near(target_ms, actual_ms, windows_ms):
        return ""
    rank, of = f"p{found['percentile']:g}", f"{duration(actual_ms)} of {target_time(target_ms)}"
    text = f"At the limit: the {rank} of {name} is {of}"
    if goes_towards(target_ms, windows_ms):
        known = [ms for ms in windows_ms if ms is not None]
        way = "rising" if known[-1] > known[0] else "falling"
        text += f", {way} from window to window ({', '.join(map(duration, known))})"
    return f"{text}; another run may say {other}."


def differ(reply: Reply) -> bool:
    """Whether the draw of the users decides: one seed says yes, another no."""
    return {Status.YES, Status.NO} <= set(reply.by_seed.values())


def model_is_refuted(reply: Reply) -> bool:
    """Whether the model said the opposite of what was measured with the same seed."""
    if reply.modelled_users is None:
        return False
    return (reply.modelled_users >= reply.users) is not (reply.status is Status.YES)


def against(reply: Reply) -> list[int]:
    """Other draws of the users of which the model says the opposite of what was measured."""
    other = {Status.YES: Status.NO, Status.NO: Status.YES}.get(reply.status)
    if other is None or model_is_refuted(reply):
        return []
    return [seed for seed, said in reply.modelled_by_seed.items() if said is other]


def enough_seconds(reply: Reply) -> int:
    """A --duration in which the search should end, and every class have its requests where one lacks them."""
    seconds, last = reply.config.duration or 1.0, (reply.result.autoscaling_stats or [{}])[-1]
    missing = (last.get("missing_seconds") or 0.0) / (SIMULATED_TIMES if reply.result.simulated else 1)
    levels: list[dict[str, Any]] = last.get("levels", [])
    most = max((level["level"] for level in levels), default=None)
    classes = [block for level in levels if level["level"] == most for block in level["classes"].values()]
    counts = [block["requests"] for block in classes if block["requests"]]
    # At the limit it is the length of the windows that makes an answer clear.
    least = _LONGER if is_at_the_limit(reply) else 1.0
    times = max(least, MIN_COMPLETIONS / min(counts, default=MIN_COMPLETIONS))
    if reply.status is not Status.UNDECIDED:
        times = 1.0
    return math.ceil(_RESERVE * max(seconds + missing, seconds * times) / 30) * 30


def limit(reply: Reply) -> str:
    """How many it holds, as measured; twice the speed, as modelled."""
    found = reply.bracket
    fewer_kept = found.passed is not None and found.passed < reply.users
    if reply.status is not Status.NO and not (fewer_kept and is_at_the_limit(reply)):
        return ""
    kind = "simulated" if reply.result.simulated else "measured"
    if others_used_device(reply.result) is not None:
        kind += " beside the others"
    elif bottleneck(reply.result).binds is Binds.PROCESSOR:
        kind += " with too few processors free"
    what, by, seed, range_ = _held_by(reply), "modelled", reply.result.seed, spread(reply)
    if differ(reply) or range_:
        by += f" with seed {seed}"
    if differ(reply) and not range_:
        # Beside a seed that says yes, the limit of another is no limit of the storage.
        what = f"With seed {seed}, {what[0].lower()}{what[1:]}"
    if range_ and found.about is not None:
        beyond = "" if found.failed is None else f", where {found.failed:,} do not keep the target"
        text = f"{what} holds {range_} ({kind}; {found.about or 'none'} with seed {seed}{beyond})."
    elif found.passed is not None:
        beyond = "" if found.failed is None else f"; {found.failed:,} do not keep the target"
        text = f"{what} holds about {counted(found.passed, 'user')} ({kind}{beyond})."
    elif found.about == 0:
        text = f"{what} does not hold a single user ({kind})."
    else:
        text = f"{what} holds fewer than {counted(found.failed or 0, 'user')} ({kind})."
        if reply.modelled_users is not None and reply.modelled_users < (found.failed or 0):
            tried, most = max(1, int(reply.modelled_users)), math.ceil(found.failed or 0) - 1
            measures = f"; --users {tried} would measure it" if tried < reply.users else ""
            text = f"{text[:-2]}; {about(int(reply.modelled_users), most)} by the model{measures})."
    if _is_open(reply):
        text = f"{text[:-1]}; the exact limit is open (--duration {enough_seconds(reply)} should find it)."
    faster = reply.modelled_users_at_twice
    if no_gain(reply):
        text += f" Twice the speed would hold no more ({by})."
    elif faster == 0:
        text += f" Twice the speed would hold none either ({by})."
    elif faster is not None:
        many = f"at least {faster:,}" if reply.at_twice_is_a_bound else about(faster)
        text += f" Twice the speed would hold {many} ({by})."
    return text


def spread(reply: Reply) -> str:
    """How many users the seeds hold, from the fewest to the most; empty where they agree or say too little.

    Of a seed that says yes it is known how many it holds at least, unless the model looked for more.
    """
    known, looked = dict(reply.held_by_seed), reply.status is Status.YES and reply.modelled_users
    if looked and reply.result.seed in known:
        known[reply.result.seed] = max(reply.users, reply.modelled_users or 0)
    ended = [seed for seed in known if reply.by_seed.get(seed) is not Status.YES]
    fewest, most = min(known.values(), default=0), max(known.values(), default=0)
    if not ended or fewest == most:
        return ""
    sure = looked and int(looked) < beyond(reply.users) and len(known) - len(ended) == 1
    more = "" if len(ended) == len(known) or sure else " or more"
    return f"{fewest:,} to {most:,} users{more}, by seed"


def _is_open(reply: Reply) -> bool:
    """Whether the search behind a no ended before it had found how many users are held."""
    codes = {item.code for item in reply.result.warnings}
    return reply.status is Status.NO and reply.bracket.about != 0 and AUTOSCALING_INCONCLUSIVE.code in codes


def headroom(reply: Reply) -> str:
    """How many a yes is known to hold: as measured, and by the model, which looks for more of them."""
    if reply.status is not Status.YES:
        return ""
    users, modelled = reply.users, reply.modelled_users
    what, how = _held_by(reply), "simulated" if reply.result.simulated else "measured"
    mine = f" that seed {reply.result.seed} draws" if against(reply) or without_users(reply) else ""
    if modelled is None or modelled < users:
        # Without a model, or where the measurement has refuted it.
        return f"{what} holds at least {counted(users, 'user')}{mine} ({how}); more were not tried."
    seed = f" with seed {reply.result.seed}" if reply.by_seed else ""
    if modelled >= beyond(users):
        most = f"at least {counted(modelled, 'user')}"
    elif modelled > users:
        most = f"{about(int(modelled))} users"
    else:
        most = "few more or none"
    range_ = spread(reply)
    if range_:
        return f"{what} holds {range_} (simulated; {most}{seed})."
    if how == "simulated":
        held = most if modelled > users else f"about {counted(users, 'user')}"
        return f"{what} holds {held} (simulated{seed})."
    such = most.replace(" user", " such user") if mine else most
    return f"{what} holds at least {counted(users, 'user')}{mine} (measured); {such} by the model."


def _held_by(reply: Reply) -> str:
    """What holds the users: the storage alone, memory, or memory in front of storage with its share."""
    if in_memory(reply.result) or reply.config.storage_tier == "off":
        return "This memory"
    if bottleneck(reply.result).binds in (Binds.GENERATION, Binds.CLIENT):
        return "This set-up"
    storage = "This storage" + (" within that limit" if io_limited(reply.result) else "")
    names = {"gpu": "GPU memory", "cpu": "DRAM", "storage": ""}
    read = {tier: reply.result.number(f"tier_{tier}_kv_bytes_read_gb") or 0.0 for tier in names}
    front = [names[tier] for tier in ("gpu", "cpu") if read[tier]]
    if not front:
        return storage
    share = 1 - read["storage"] / sum(read.values())
    return f"{storage} behind {listed(front)}, which served {share:.0%} of the bytes read,"


def no_gain(reply: Reply) -> bool:
    """True where even an idle device of twice the speed is too slow for the next user's entries."""
    passed, at_twice = reply.bracket.passed, reply.modelled_users_at_twice
    # Where the search found no load that passes, the model says what this device holds.
    holds = reply.modelled_users if passed is None else passed
    return bool(holds) and at_twice is not None and at_twice <= (holds or 0)


def of_capacity(reply: Reply, helps: str) -> str:
    """What would help, with what the model says of more capacity where writes waited for room."""
    with_room, passed = reply.modelled_users_with_room, reply.bracket.about
    holds = reply.modelled_users if passed is None else passed
    if with_room is None or holds is None:
        return helps
    raises = _RAISE.match(helps)
    if with_room <= holds:
        instead = f"Use a faster device or {raises.group('rest').removeprefix('use ')}" if raises else helps
        return f"{instead.rstrip('.')}; more capacity would not help (modelled)."
    more = f"{_RAISES}: with more capacity it would hold {about(with_room)} (modelled)"
    return f"{more}; or {raises.group('rest')}" if raises else f"{more}; or {helps[:1].lower()}{helps[1:]}"
