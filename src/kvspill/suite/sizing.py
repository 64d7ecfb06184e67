"""From a machine and a model to user counts, budgets and durations that are meaningful and safe."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvspill.config import Config
from kvspill.config.checks import MEMORY_USABLE_SHARE, NO_LIMIT_BYTES
from kvspill.config.groups import Persona
from kvspill.machine.hardware import Hardware, Place
from kvspill.models import all_models
from kvspill.records import GIB
from kvspill.run.bandwidth import Bandwidth
from kvspill.suite.advice_doubts import REQUESTS_MIN
from kvspill.texts import counted, size_text, speed_text

STORAGE_SHARE_MAX = 0.5
GPU_SHARE_MAX = 0.8
MODELLED_GPU_GB = 16.0
USERS_MAX = 50
USERS_HIGH_MAX = 300
USERS_ROOM_MAX = 1_000_000
"""As many as a run takes; storage without a limit has room for more."""
OVERLOAD = 4
QUICK_CPU_GB = 4.0
QUICK_STORAGE_GB = 6.0
QUICK_DIVISOR = 4
QUICK_SECONDS_MIN, QUICK_SECONDS_MAX = 15.0, 75.0
SECONDS: Mapping[str, float] = {
    "tier_seconds": 120.0,
    "saturation_seconds": 180.0,
    "production_seconds": 180.0,
    "autoscale_seconds": 300.0,
}
_ADVISED: Mapping[str, str] = {"tier_seconds": "--tier-seconds", "production_seconds": "--production-seconds"}
"""The durations of rows that advice rests on, each with its flag."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user fixed; everything else is derived."""

    model: str = "llama3.1-8b"
    quick: bool = False
    users: int | None = None
    users_high: int | None = None
    gpu_gb: float | None = None
    cpu_gb: float | None = None
    storage_gb: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    rag_docs: int = 10


@dataclass(frozen=True, slots=True)
class Sizes:
    """The values behind the `${…}` of scenario files, and the sentences that say where they come from."""

    values: Mapping[str, Any]
    notes: tuple[str, ...]
    quick: bool
    cpu_gb_max: float
    storage_gb_max: float
    entry_tokens: float
    """Mean tokens of an entry."""
    bandwidth: Bandwidth
    """What the storage was seen or said to give before the first row."""

    def users_max(self, model: str) -> int | None:
        """With --quick: more users would not find room on the disk for their entries."""
        if not self.quick:
            return None
        spec = all_models().get(model)
        if spec is None:
            return None
        entry_bytes = self.entry_tokens * spec.kv().mean_bytes_per_token(self.entry_tokens)
        return max(2, int(self.storage_gb_max * GIB / 2 / entry_bytes))


@dataclass(frozen=True, slots=True)
class Appetite:
    """What the average user of a workload asks of a device."""

    entry_tokens: float
    """Mean tokens of an entry."""
    entry_bytes: float
    """Mean size of an entry."""
    request_bytes: float
    """Mean bytes that a request reads and writes."""
    busy_share: float
    """Share of a user's time that the device alone would work for it."""
    written_bytes_per_sec: float
    """What one user writes per second when the device is its own."""
    requests_per_sec: float
    """What one user asks per second then."""

    def served_per_sec(self, users: int) -> float:
        """Requests of so many users that the device completes per second, when it alone serves them."""
        return users * self.requests_per_sec / max(1.0, users * self.busy_share)


def appetite(config: Config, read_gib_per_sec: float) -> Appetite:
    """Estimate from the personas' mean values; good enough to choose a number of users."""
    tokens = entry = moved = busy = written = asked = 0.0
    for share, persona in config.people:
        entry_bytes, request_bytes, pause = _request(config, persona)
        device_seconds = request_bytes / (read_gib_per_sec * GIB)
        tokens += share * persona.mean_context_tokens
        entry += share * entry_bytes
        moved += share * request_bytes
        busy += share * device_seconds / (pause + device_seconds)
        written += share * entry_bytes / (pause + device_seconds)
        asked += share / (pause + device_seconds)
    return Appetite(tokens, entry, moved, busy, written, asked)


def _request(config: Config, persona: Persona) -> tuple[float, float, float]:
    """Bytes of the entry, bytes moved and seconds without I/O of this persona's mean request."""
    generated = persona.mean_generated_tokens
    tokens = persona.mean_context_tokens
    entry_bytes = tokens * config.kv.mean_bytes_per_token(tokens)
    decode_reads = 1 + math.ceil(generated / config.decode_batch_size)
    history_reads = 0.0 if config.disable_multi_turn else 1 - config.conversation_end_probability
    pause = sum(persona.think) / 2 + generated * config.generation_ms_per_token / 1000
    return entry_bytes, entry_bytes * (1 + decode_reads + history_reads), pause


def derive(wishes: Wishes, hardware: Hardware, bandwidth: Bandwidth, room_bytes: int | None = None) -> Sizes:
    """All parameters of a suite, each with the sentence that says how it was found.

    room_bytes: what a store without a directory has room for.
    """
    config = Config(model=wishes.model)
    place = hardware.places[0] if hardware.places else None
    free_bytes = place.free_bytes if place else room_bytes
    notes = [_machine(hardware, place)]
    cpu_max, storage_max = _limits(wishes, hardware, free_bytes)
    wants = appetite(config, bandwidth.read_gib_per_sec)
    knee = max(1, round(1 / wants.busy_share))
    room = max(1, int(storage_max * GIB / 2 / wants.entry_bytes))
    most = max(2, room) if wishes.quick else math.inf
    users = int(min(wishes.users or min(USERS_MAX, knee, room), most))
    users_high = int(min(wishes.users_high or max(users, min(USERS_HIGH_MAX, OVERLOAD * knee, room)), most))
    notes += _user_notes(wishes, bandwidth, wants, knee, room, users, users_high)
    seconds = _seconds(wishes, wants.served_per_sec(users))
    # A quarter of what the users write in the time lets every tier fill and spill.
    spill_gb = users * wants.written_bytes_per_sec * seconds["tier_seconds"] / 4 / GIB
    holds_gb = config.largest_entry_bytes / MEMORY_USABLE_SHARE / GIB
    cpu_gb = wishes.cpu_gb or _tidy(cpu_max)
    cpu_small_gb = _tidy(min(cpu_gb / 2, max(spill_gb, holds_gb)))
    notes += _cpu_notes(wishes, hardware, cpu_gb, cpu_small_gb)
    gpu_max, gpu_gb, gpu_note = _gpu(wishes, hardware)
    gpu_small_gb = min(gpu_gb, _tidy(max(spill_gb, holds_gb)))
    notes += [gpu_note, f"Small GPU budget {gpu_small_gb:g} GiB, so that three tiers spill within the time."]
    storage_gb = wishes.storage_gb or _tidy(storage_max)
    notes.append(_storage_note(wishes, free_bytes, storage_gb))
    notes += [_seconds_note(wishes, seconds), *_few_notes(seconds, wants.served_per_sec(users))]
    values = {
        "model": wishes.model,
        "users": users,
        "users_high": users_high,
        "users_start": max(1, users // 3),
        "users_room": max(users_high, min(room, USERS_ROOM_MAX)),
        "cpu_gb": cpu_gb,
        "cpu_small_gb": cpu_small_gb,
        "gpu_gb": gpu_gb,
        "gpu_small_gb": gpu_small_gb,
        "gpu_real_gb": gpu_gb if gpu_max else 0.0,
        "storage_gb": storage_gb,
        "rag_docs": wishes.rag_docs,
        **seconds,
    }
    return Sizes(
        values=values,
        notes=tuple(notes),
        quick=wishes.quick,
        cpu_gb_max=cpu_gb,
        storage_gb_max=storage_gb,
        entry_tokens=wants.entry_tokens,
        bandwidth=bandwidth,
    )


def _tidy(gib: float) -> float:
    """Rounded down to a tenth, so that it can be typed as a flag."""
    return max(0.1, math.floor(gib * 10) / 10)


def _limits(wishes: Wishes, hardware: Hardware, free_bytes: int | None) -> tuple[float, float]:
    """The largest DRAM and storage budgets that are safe here, in GiB."""
    cpu_max = hardware.safe_memory_bytes / GIB
    storage_max = (NO_LIMIT_BYTES if free_bytes is None else free_bytes * STORAGE_SHARE_MAX) / GIB
    if wishes.quick:
        cpu_max, storage_max = min(cpu_max, QUICK_CPU_GB), min(storage_max, QUICK_STORAGE_GB)
    return cpu_max, wishes.storage_gb or storage_max


def quick_seconds(seconds: float) -> float:
    """How long a scenario lasts with --quick."""
    if seconds <= QUICK_SECONDS_MIN:
        return seconds
    return min(QUICK_SECONDS_MAX, max(QUICK_SECONDS_MIN, seconds / QUICK_DIVISOR))


def _seconds(wishes: Wishes, served_per_sec: float) -> dict[str, float]:
    """Durations; with --quick long enough for advice, where its longest is."""
    usual = {name: quick_seconds(value) if wishes.quick else value for name, value in SECONDS.items()}
    for name in _ADVISED if wishes.quick else ():
        usual[name] = min(QUICK_SECONDS_MAX, max(usual[name], _seconds_to_advise(served_per_sec)))
    return {**usual, **wishes.seconds}


def _seconds_to_advise(served_per_sec: float) -> float:
    """How long a row takes to complete the requests that advice needs, by twice the estimate."""
    return math.ceil(2 * REQUESTS_MIN / served_per_sec / 5) * 5.0


def _few_notes(seconds: Mapping[str, float], served_per_sec: float) -> Iterator[str]:
    """That there will be no advice, where storage is too slow for it in these durations."""
    needed = _seconds_to_advise(served_per_sec)
    for name, flag in _ADVISED.items():
        few = round(served_per_sec * seconds[name])
        if few < REQUESTS_MIN:
            yield (
                f"Advice needs {REQUESTS_MIN} requests of a row, and storage alone completes about {few} in "
                f"{seconds[name]:g} s: give {flag} {needed:g}."
            )


def _machine(hardware: Hardware, place: Place | None) -> str:
    gpu = ", ".join(f"{gpu.name} ({size_text(gpu.memory_bytes)})" for gpu in hardware.gpus) or "no GPU"
    memory = size_text(hardware.memory_total_bytes) if hardware.memory_total_bytes else "unknown memory"
    at = f"; storage {place.path}: {place.describe()}, {size_text(place.free_bytes)} free" if place else ""
    return f"Machine: {hardware.cpu_count} processors, {memory}, {gpu}{at}."


def _user_notes(
    wishes: Wishes, bandwidth: Bandwidth, wants: Appetite, knee: int, room: int, users: int, users_high: int
) -> list[str]:
    how = (
        f"a request of {wishes.model} moves about {size_text(wants.request_bytes)}, {bandwidth.source} "
        f"gives {speed_text(bandwidth.read_gib_per_sec)}, so about {counted(knee, 'user')} can keep it busy"
    )
    if wishes.users:
        first = f"Users {users}: {_asked(wishes.users, users)} ({how})."
    elif users == room and users < knee:
        first = f"Users {users}: {how}, but there is room for the entries of {room} only."
    elif users < knee:
        first = f"Users {users}: {how}; {USERS_MAX} are enough for a comparison."
    else:
        first = f"Users {users}: {how}."
    if wishes.users_high:
        why = _asked(wishes.users_high, users_high)
    elif users_high > OVERLOAD * knee:
        why = "no fewer than in the other rows"
    elif users_high == OVERLOAD * knee:
        why = f"{OVERLOAD} times what keeps the storage busy"
    elif users_high == users:
        why = "as many as in the other rows"
    elif users_high == room:
        why = f"there is room for the entries of {room}"
    else:
        why = f"{USERS_HIGH_MAX} at most"
    return [first, f"High load {counted(users_high, 'user')}: {why}."]


def _asked(asked: int, got: int) -> str:
    if asked == got:
        return "as asked"
    return f"{asked} were asked, but with --quick there is room for the entries of {got} only"


def _cpu_notes(wishes: Wishes, hardware: Hardware, cpu_gb: float, cpu_small_gb: float) -> list[str]:
    available = hardware.memory_available
    if wishes.cpu_gb:
        why = "as asked"
    elif wishes.quick and cpu_gb >= QUICK_CPU_GB:
        why = "--quick takes no more, because every byte is touched before the run"
    elif available:
        why = f"half of the {size_text(available.nbytes)} that {available.limited_by} can give"
    else:
        why = "the machine does not tell how much memory it has"
    return [
        f"DRAM budget {cpu_gb:g} GiB: {why}.",
        f"Small DRAM budget {cpu_small_gb:g} GiB, so that entries spill to storage within the time.",
    ]


def _gpu(wishes: Wishes, hardware: Hardware) -> tuple[float, float, str]:
    """The room on a real card (0 where there is none), the budget, and why."""
    real_gb = hardware.gpu_bytes * GPU_SHARE_MAX / GIB
    if real_gb:
        budget = _tidy(wishes.gpu_gb or real_gb)
        free = f"80 % of what is free on {hardware.gpus[0].name}"
        return real_gb, budget, f"GPU budget {budget:g} GiB: {'as asked' if wishes.gpu_gb else free}."
    budget = wishes.gpu_gb or MODELLED_GPU_GB
    return 0.0, budget, f"GPU budget {budget:g} GiB, MODELLED: there is no GPU, so its times are computed."


def _storage_note(wishes: Wishes, free_bytes: int | None, storage_gb: float) -> str:
    if wishes.storage_gb:
        why = "as asked"
    elif wishes.quick and storage_gb >= QUICK_STORAGE_GB:
        why = "--quick holds no more on the disk at any time"
    elif free_bytes is None:
        return "Storage budget: unlimited, because the storage tells no limit."
    else:
        why = f"half of the {size_text(free_bytes)} that are free"
    return f"Storage budget {budget_text(storage_gb)}: {why}."


def budget_text(gib: float) -> str:
    """A budget of the storage, as a plan shows it; storage that tells no limit has exactly NO_LIMIT_BYTES."""
    return "unlimited" if gib * GIB == NO_LIMIT_BYTES else f"{gib:,.10g} GiB"


def _seconds_note(wishes: Wishes, seconds: Mapping[str, float]) -> str:
    listed = ", ".join(f"{name.removesuffix('_seconds')} {value:g} s" for name, value in seconds.items())
    return f"Durations: {listed}{' (--quick)' if wishes.quick else ''}."
