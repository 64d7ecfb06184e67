"""The state of a run at one moment, and how it reads: a block for a terminal, a line for a log."""

import textwrap
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kvspill.cache.cache import Cache
from kvspill.config import Config
from kvspill.measure.recorder import Recorder
from kvspill.records import GIB, NS_PER_SEC, Outcome, Tier, Verb
from kvspill.result.facts import added
from kvspill.serving.engine import Engine
from kvspill.texts import speed_text
from kvspill.workload.divided import ALL_USERS, Share
from kvspill.world import World

_BAR_CELLS = 20
_RECENT_SECONDS = 3.0
LOG_COLUMNS = 120
"""Lines of a search in a log are no longer."""
LABELS = {Tier.GPU: "GPU", Tier.CPU: "CPU", Tier.STORAGE: "storage"}


@dataclass(frozen=True, slots=True)
class TierStatus:
    """A tier's bytes since the window opened, and what it holds now."""

    tier: Tier
    modelled: bool
    read_bytes: int
    written_bytes: int
    used_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class LoadStatus:
    """Counters since the window opened."""

    elapsed_seconds: float
    duration_seconds: float | None
    warmup_seconds: float
    requests_max: int | None
    users: int
    in_service: int
    queued: int
    completed: int
    tokens: int
    hits: int
    misses: int
    errors: int
    failed: int
    """Requests, from the first on."""
    tiers: tuple[TierStatus, ...]

    @property
    def measured_seconds(self) -> float:
        return max(0.0, self.elapsed_seconds - self.warmup_seconds)

    @property
    def done_share(self) -> float | None:
        """How much of the run is over, where that can be told."""
        if self.duration_seconds:
            return min(1.0, self.elapsed_seconds / self.duration_seconds)
        return min(1.0, self.completed / self.requests_max) if self.requests_max else None

    @property
    def hit_rate(self) -> float | None:
        looked = self.hits + self.misses
        return self.hits / looked if looked else None


_ADDED = ("users", "in_service", "queued", "completed", "tokens", "hits", "misses", "errors", "failed")
_ADDED_OF_TIER = ("read_bytes", "written_bytes", "used_bytes", "limit_bytes")


def whole(own: LoadStatus, others: Sequence[LoadStatus], *, each_whole: bool) -> LoadStatus:
    """The state of all ranks, by the clock of this one. Each_whole: every rank has the whole load."""
    every = [own, *others]
    by_tier = zip(*(found.tiers for found in every), strict=True)
    tiers = tuple(replace(same[0], **added(same, *_ADDED_OF_TIER)) for same in by_tier)
    requests_max = own.requests_max
    if each_whole and requests_max is not None:
        requests_max *= len(every)
    return replace(own, requests_max=requests_max, tiers=tiers, **added(every, *_ADDED))


def look(
    world: World,
    start_ns: int,
    config: Config,
    engine: Engine,
    recorder: Recorder | None,
    cache: Cache,
    share: Share = ALL_USERS,
) -> LoadStatus:
    """Read the counters now; cheap enough to be done every second. Without a recorder nothing is measured.

    The users are those of the share.
    """
    now_ns = world.now_ns()
    if recorder is None:
        recorder = Recorder(now_ns, None)
    # Nothing is counted after the end of the window, so no time may pass either.
    now_ns = min(now_ns, recorder.window_end_ns)
    outcomes = dict.fromkeys(Outcome, 0)
    for (outcome, *_rest), count in recorder.lookups.items():
        outcomes[outcome] += count
    tiers = tuple(
        TierStatus(
            tier=tier.name,
            modelled=tier.backend.capabilities.modelled,
            read_bytes=sum(recorder.lane(tier.name, Verb.READ).nbytes.values()),
            written_bytes=sum(recorder.lane(tier.name, Verb.WRITE).nbytes.values()),
            used_bytes=tier.used_bytes,
            limit_bytes=tier.limit_bytes,
        )
        for tier in cache.tiers
    )
    return LoadStatus(
        elapsed_seconds=(now_ns - start_ns) / NS_PER_SEC,
        duration_seconds=config.duration,
        warmup_seconds=(recorder.window_start_ns - start_ns) / NS_PER_SEC,
        requests_max=config.max_requests,
        users=share.of(engine.users),
        in_service=engine.in_service,
        queued=engine.queued,
        completed=engine.completed,
        tokens=recorder.requests.tokens,
        hits=outcomes[Outcome.HIT],
        misses=outcomes[Outcome.MISS],
        errors=sum(sum(lane.errors.values()) for lane in recorder.lanes()),
        failed=engine.failed,
        tiers=tiers,
    )


class Recent:
    """The last few statuses, for rates that show what happens now and not since the beginning."""

    def __init__(self) -> None:
        self._statuses: deque[LoadStatus] = deque()

    def before(self, now: LoadStatus) -> LoadStatus | None:
        """Keep this one; returns the oldest that is still recent."""
        while self._statuses and now.elapsed_seconds - self._statuses[0].elapsed_seconds > _RECENT_SECONDS:
            self._statuses.popleft()
        oldest = self._statuses[0] if self._statuses else None
        self._statuses.append(now)
        return oldest


def block(now: LoadStatus, before: LoadStatus | None) -> list[str]:
    """The lines of the block: time, load, each tier, and what came of it."""
    return [_time_line(now), _load_line(now), *_tier_lines(now, before), _outcome_line(now, before)]


def _time_line(now: LoadStatus) -> str:
    share = now.done_share
    bar = "" if share is None else f"[{'#' * round(share * _BAR_CELLS):.<{_BAR_CELLS}}] {share:4.0%}  "
    text = f"{bar}{clock(now.elapsed_seconds)}"
    if now.duration_seconds is not None:
        left_seconds = max(0.0, now.duration_seconds - now.elapsed_seconds)
        text += f" of {clock(now.duration_seconds)}, {clock(left_seconds)} left"
    elif now.requests_max is not None:
        text += f", {now.completed:,} of {now.requests_max:,} requests"
    return text + ("  (warming up)" if now.elapsed_seconds < now.warmup_seconds else "")


def _load_line(now: LoadStatus) -> str:
    return (
        f"users {now.users:,}   in service {now.in_service:,}   queued {now.queued:,}   "
        f"completed {now.completed:,}"
    )


def search_lines(now: LoadStatus, status: str, measuring: bool) -> list[str]:
    """The block of a search; rates are those of its present stage."""
    time_text = _time_of(now)
    if now.duration_seconds is not None:
        # A search ends as soon as it has its answer.
        time_text += f", at most {clock(max(0.0, now.duration_seconds - now.elapsed_seconds))} left"
    seen = ["between two stages, not measured"]
    if measuring:
        seen = [*_tier_lines(now, None), _outcome_line(now, None)]
    seen[-1] += f"   failed requests {now.failed:,}"
    return [f"{time_text}   {status}", _load_line(now), *seen]


def search_line(now: LoadStatus, status: str, measuring: bool) -> str:
    """The same in one line of a log: the state, whether anything failed, and the rest as there is room."""
    state = f"{_time_of(now)} {status}"
    failures = f", {now.errors:,} errors" + (f", {now.failed:,} failed requests" if now.failed else "")
    while ", " in state and len(state + failures) > LOG_COLUMNS:
        state = state.rpartition(", ")[0]
    text = state + failures
    for part in (*(_speeds(now) if measuring else ()), f"{now.completed:,} done"):
        if len(f"{text}, {part}") > LOG_COLUMNS:
            break
        text = f"{text}, {part}"
    return text


def _time_of(now: LoadStatus) -> str:
    whole = "" if now.duration_seconds is None else f" of {clock(now.duration_seconds)}"
    return f"{clock(now.elapsed_seconds)}{whole}"


def _tier_lines(now: LoadStatus, before: LoadStatus | None) -> Iterator[str]:
    for number, tier in enumerate(now.tiers):
        read, written = rates(number, now, before)
        label = LABELS[tier.tier] + (" (modelled)" if tier.modelled else "")
        limit = f" of {tier.limit_bytes / GIB:.1f}" if tier.limit_bytes < 1 << 50 else ""
        yield (
            f"{label:<18} read {speed_text(read, written):>10}   write {speed_text(written, read):>10}   "
            f"holds {tier.used_bytes / GIB:.1f}{limit} GiB"
        )


def rates(number: int, now: LoadStatus, before: LoadStatus | None) -> tuple[float, float]:
    """GiB/s read and written by a tier since `before`, or since the window opened."""
    tier = now.tiers[number]
    if before is None:
        seconds, read, written = now.measured_seconds, tier.read_bytes, tier.written_bytes
    else:
        earlier = before.tiers[number]
        seconds = now.elapsed_seconds - before.elapsed_seconds
        read, written = tier.read_bytes - earlier.read_bytes, tier.written_bytes - earlier.written_bytes
    return (read / GIB / seconds, written / GIB / seconds) if seconds > 0 else (0.0, 0.0)


def _outcome_line(now: LoadStatus, before: LoadStatus | None) -> str:
    hits = "-" if now.hit_rate is None else f"{now.hit_rate:.0%}"
    earlier_tokens, seconds = (0, now.measured_seconds)
    if before is not None:
        earlier_tokens, seconds = before.tokens, now.elapsed_seconds - before.elapsed_seconds
    tokens = (now.tokens - earlier_tokens) / seconds if seconds > 0 else 0.0
    return f"hits {hits}   {tokens:,.0f} tok/s   errors {now.errors:,}"


def line(now: LoadStatus) -> str:
    """The same in one line, with rates since the window opened."""
    whole = f"/{now.duration_seconds:.0f}" if now.duration_seconds is not None else ""
    parts = [
        f"{now.elapsed_seconds:5.0f}{whole} s",
        f"{now.users} users",
        f"{now.in_service} in service",
        f"{now.queued} queued",
        f"{now.completed} done",
    ]
    if now.measured_seconds <= 0:
        return "  ".join([*parts, "warming up"])
    parts += _speeds(now)
    if now.hit_rate is not None:
        parts.append(f"{now.hit_rate:.0%} hits")
    parts.append(f"{now.tokens / now.measured_seconds:,.0f} tok/s")
    parts.append(f"{now.errors} errors")
    return "  ".join(parts)


def _speeds(now: LoadStatus) -> Iterator[str]:
    """What each tier read and wrote since the window opened."""
    for number, tier in enumerate(now.tiers):
        read, written = rates(number, now, None)
        modelled = " (modelled)" if tier.modelled else ""
        speeds = f"r {speed_text(read, written)} w {speed_text(written, read)}"
        yield f"{LABELS[tier.tier].lower()}{modelled} {speeds}"


def clock(seconds: float) -> str:
    """1:05 or 1:02:03."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


def fitted(lines: Sequence[str], columns: int) -> str:
    """Lines broken between words at the terminal's width: nothing is cut off, and the terminal wraps none."""
    width = max(8, columns - 1)
    broken = (textwrap.wrap(text, width, subsequent_indent="  ") or [""] for text in lines)
    return "\n".join(line for piece in broken for line in piece)
