"""The question "can N users be served?": what is run for it, in which order, and what comes out."""

import math
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from kvspill.config import Config
from kvspill.config.effects import CONVERSATIONS
from kvspill.config.origins import was_given
from kvspill.records import GIB, SERVERS_MAX, Tier
from kvspill.result.answer import Status
from kvspill.result.bottleneck import Binds, bottleneck, others_used_device
from kvspill.result.schema import Result
from kvspill.run.bandwidth import Bandwidth, measure_bandwidth
from kvspill.run.calibrated import refuse_other_device
from kvspill.run.changes import TWICE, agrees, by_ratio, faster, may_want_room, roomy
from kvspill.run.draws import Drawn, by_seeds, next_seeds
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.run.runner import run_trials, simulate_aside
from kvspill.run.signals import cut_off
from kvspill.run.verdict import Bracket, Level, judge, read_bracket
from kvspill.storage.profiles import (
    DEFAULT_PRESET,
    PRESETS,
    Calibrated,
    DeviceModel,
    Profile,
    load_calibration,
    load_profile,
    profile_file,
)
from kvspill.texts import about, counted
from kvspill.workers import processes, workers_to_be_had

SIMULATED_TIMES = 12
"""A simulated search may take so many times --duration: virtual time costs little."""
FIRST_USERS = 8
"""Where a simulated search begins: few users are simulated fast."""
BEYOND = 2
"""Up to so many times the users that are asked about, the model looks for how many are held."""
USERS_MAX = 1_000_000
T = TypeVar("T")
MODEL_SECONDS_MAX = 12.0
"""So long a search with a device is held up by the model, before the load and again after it."""
FAR = 2
"""Beyond so many times the limit by the model, that limit is not looked for with the device."""
HEADROOM = 4
"""How far above the known limit that of a faster device is looked for."""
FIRST_SEED_SECONDS_MAX = 20.0
"""Where the simulation of one draw of users took longer than this, no other draws are waited for."""
_SERVERS_OF_QUESTION_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to the question, with what it rests on."""

    status: Status
    users: int
    config: Config
    result: Result
    """Of the search on the device, or of the simulated one."""
    bracket: Bracket
    probe: Bandwidth | None
    """How fast the device was just before; None where it is a model."""
    modelled_users: Level | None
    """The limit by a simulation with the speeds of the probe, or on a calibrated profile; see `beyond`."""
    modelled_users_at_twice: int | None
    """The limit on a device of twice the speed, by simulation and scaled to what was measured."""
    at_twice_is_a_bound: bool = False
    """More users than that were not simulated: it may hold more."""
    calibrated: Calibrated | None = None
    """What the model was fitted on, where that is a calibration."""
    by_seed: Mapping[int, Status] = field(default_factory=dict)
    """What each seed answers, the one asked with first, where several were asked: most of them decide."""
    modelled_by_seed: Mapping[int, Status] = field(default_factory=dict)
    """What the model says of other draws of the users, where one draw was measured."""
    seeds_not_modelled: int = 0
    """Other draws that the model did not get to in its time."""
    held_by_seed: Mapping[int, Level] = field(default_factory=dict)
    """How many users each of several seeds holds; one that says yes holds at least so many."""
    modelled_users_with_room: int | None = None
    """The limit with more capacity; None where no write waited for room, or it was not modelled."""


def question(config: Config) -> Config:
    """The configuration that answers: closed users, a server for each, a search for the latency target.

    A recording has no users to add: there the search turns its speed, with open arrivals.
    """
    if replays(config):
        return config.changed(enable_autoscaling=True, autoscaler_mode="slo")
    users = config.num_users
    return config.changed(
        enable_autoscaling=True,
        autoscaler_mode="slo",
        arrival="closed",
        max_users=users,
        servers=_a_server_each(users) if config.servers is None else config.servers,
    )


def _a_server_each(users: int) -> int | None:
    """The number of servers, where it is more than the usual ones."""
    return min(users, _SERVERS_OF_QUESTION_MAX) if users > SERVERS_MAX else None


def replays(config: Config) -> bool:
    """Whether a search turns the speed of a recording."""
    return config.recording is not None and config.recording[0] != CONVERSATIONS


def ask(plan: Plan, progress: Progress) -> Reply:
    """Run what it takes; the plan has the configuration of `question`, with the users that are asked for."""
    plan = replace(plan, asked_users=plan.config.num_users)
    return _ask_model(plan, progress) if plan.simulated else _ask_device(plan, progress)


def _ask_device(plan: Plan, progress: Progress) -> Reply:
    """Look at the device before the load or take its calibration, model the limit, measure the users.

    Where the model holds far fewer, these users alone are measured: how many are held is the model's to say.
    """
    config, users = plan.config, plan.config.num_users
    with cut_off():
        known, probe, profile = _profiled(plan, progress)
        # The model has the room that the directory has; without a directory nothing is modelled.
        bounded = profile is not None and plan.storage_bytes
        alike = config.changed(storage_capacity_gb=plan.storage_bytes / GIB) if bounded else config
        modelled = None
        if profile is not None:
            progress.say("modelling how many users it holds")
            modelled = _soon(_limit, alike, profile, beyond(users), FIRST_USERS)
    if probe is not None:
        read, write = probe.texts
        progress.say(f"it reads {read} and writes {write}{held_text(modelled, users)}")
    alone = modelled is not None and modelled * FAR < users and not replays(config)
    if alone:
        progress.say(
            f"measuring {counted(users, 'user')}; the time is cut short if they certainly miss the target"
        )
    held = config.changed(min_users=users) if alone else config
    result = run_trials(replace(plan, config=held), progress)
    bracket = read_bracket(result.autoscaling_stats)
    status = judge(result, bracket, users)
    at_twice, bound, with_room = None, False, None
    may_model = status is Status.NO and _device_binds(result)
    if may_model and profile is not None and modelled and agrees(bracket, modelled):
        progress.say("modelling a storage of twice the speed")
        most, twice, until = HEADROOM * modelled, None, time.monotonic() + MODEL_SECONDS_MAX
        with suppress(KeyboardInterrupt):
            twice = _soon(_at_twice, alike, profile, modelled, most)
        at_twice, bound = by_ratio(twice, modelled, bracket.about), twice == most
        if may_want_room(result):
            progress.say("modelling a storage with more capacity")
            left_seconds = max(0.0, until - time.monotonic())
            with suppress(KeyboardInterrupt):
                more = _soon(_with_room, alike, profile, modelled, most, seconds=left_seconds)
                with_room = by_ratio(more, modelled, bracket.about)
    others: dict[int, Status] = {}
    unknown = 0
    # So far from the limit of the model no draw of the users says anything else.
    if profile is not None and not alone and status in (Status.YES, Status.NO) and not replays(config):
        progress.say("modelling other draws of the users")
        others = _seeds_by_model(alike, profile)
        unknown = len(next_seeds(config.seed)) - len(others)
    reply = Reply(status, users, config, result, bracket, probe, modelled, at_twice, bound, known)
    return replace(
        reply, modelled_users_with_room=with_room, modelled_by_seed=others, seeds_not_modelled=unknown
    )


def held_text(modelled: int | None, users: int) -> str:
    """What the model holds, as far as it looked."""
    if modelled is None:
        return f"; how many users that holds could not be modelled within {MODEL_SECONDS_MAX:.0f} s"
    most = f"at least {modelled:,}" if modelled >= beyond(users) else about(modelled)
    return f"; by a model of that it holds {most} such users"


def beyond(users: int) -> int:
    """How many users the model looks at, at most, where it is asked about so many."""
    return min(BEYOND * users, USERS_MAX)


def _profiled(plan: Plan, progress: Progress) -> tuple[Calibrated | None, Bandwidth | None, Profile | None]:
    """The calibration that the user names, or what is seen of the directory; and the profile of either."""
    config = plan.config
    known = load_calibration(config.device_profile)
    if known is not None and config.device_profile is not None:
        refuse_other_device(config.device_profile, known, plan.cache_dirs)
        progress.say(f"predicting by the calibration of {known.device}, {known.date}")
        return known, None, load_profile(config.device_profile)
    if config.storage_tier == "on" and config.storage_backend == "files":
        progress.say("measuring how fast the directory reads and writes")
        probe = measure_bandwidth(plan.cache_dirs)
        return known, probe, measured_profile(probe, config)
    return known, None, None


def _ask_model(plan: Plan, progress: Progress) -> Reply:
    """The same on a device profile, where every search is simulated."""
    config, users = plan.config, plan.config.num_users
    progress.say(f"searching in virtual time with seed {config.seed}")
    longer, began = config.changed(duration=virtual_seconds(config)), time.monotonic()
    first = run_trials(replace(plan, config=longer), Progress(quiet=True))
    soon = time.monotonic() - began <= FIRST_SEED_SECONDS_MAX
    drawn = by_seeds(longer, first, alone=not soon, say=progress.say)
    status, seeds = drawn.status, drawn.by_seed
    given = [item for item in plan.warnings if item not in drawn.result.warnings]
    result = drawn.result.model_copy(update={"warnings": [*given, *drawn.result.warnings]})
    bracket = read_bracket(result.autoscaling_stats)
    limit = bracket.about
    at_twice, bound, with_room = None, False, None
    if status is Status.NO and _device_binds(result):
        profile = load_profile(config.device_profile or DEFAULT_PRESET)
        known = max(1, int(limit or 1))
        most = HEADROOM * known
        progress.say("searching with a storage of twice the speed")
        drew = config.changed(seed=result.seed)
        at_twice = _at_twice(drew, profile, known, most)
        bound = at_twice == most
        if may_want_room(result):
            progress.say("searching with a storage of more capacity")
            with_room = _with_room(drew, profile, known, most)
    elif status is Status.YES:
        limit = _more_held(config.changed(seed=result.seed), progress) if soon else None
    fitted = load_calibration(config.device_profile)
    reply = Reply(status, users, config, result, bracket, None, limit, at_twice, bound, fitted, seeds)
    return replace(reply, modelled_users_with_room=with_room, held_by_seed=drawn.held_by_seed)


def ask_seeds(config: Config) -> Drawn:
    """What `kvspill can --simulate` says of the users of this question, whatever time it takes."""
    longer = config.changed(duration=virtual_seconds(config))
    return by_seeds(longer, simulate_aside(longer, config.num_users), alone=False, say=lambda _text: None)


def _seeds_by_model(config: Config, profile: Profile) -> dict[int, Status]:
    """What the model says of two other draws of the users, as far as its time goes; a signal ends it."""
    found: dict[int, Status] = {}
    until = time.monotonic() + MODEL_SECONDS_MAX
    with suppress(KeyboardInterrupt):
        for seed in next_seeds(config.seed):
            left_seconds = max(0.0, until - time.monotonic())
            said = _soon(_said, config.changed(seed=seed), profile, seconds=left_seconds)
            if said is None:
                break
            found[seed] = said
    return found


def _said(config: Config, profile: Profile) -> Status:
    """Whether so many users keep the target on that profile, without a search for how many do."""
    users = config.num_users
    with profile_file(profile) as path:
        seconds = virtual_seconds(config)
        result = simulate_aside(config.changed(device_profile=str(path), min_users=users, duration=seconds))
    return judge(result, read_bracket(result.autoscaling_stats), users)


def _device_binds(result: Result) -> bool:
    """Whether a faster device may be felt at all, and it was this device alone that was measured.

    Room is free the sooner, the faster those are served who hold it: the model has the same capacity.
    """
    binds = (Binds.DEVICE, Binds.DEPTH, Binds.ROOM)
    return others_used_device(result) is None and bottleneck(result).binds in binds


def virtual_seconds(config: Config) -> float:
    """How long the users of one simulation are followed at most."""
    return SIMULATED_TIMES * (config.duration or 1.0)


def _more_held(config: Config, progress: Progress) -> int | None:
    """How many are held where the users are, as far as the model looks; a signal ends the wait for it."""
    users = config.num_users
    progress.say(f"searching with up to {beyond(users):,} users")
    profile = load_profile(config.device_profile or DEFAULT_PRESET)
    try:
        found = _limit(config, profile, beyond(users), beyond(users))
    except KeyboardInterrupt:
        return None
    return None if found is None else max(users, found)


def _soon(search: Callable[..., T | None], *given: Any, seconds: float | None = None) -> T | None:
    """What the model finds beside a load on a device; None where it takes longer than is announced for it.

    The more users a device holds, the longer their simulation takes. A process of its own can be ended.
    """
    if workers_to_be_had(2) < 2:
        return None
    with cut_off(), suppress(TimeoutError), processes(1, _ends_with_parent) as pool:
        return pool.submit(search, *given).result(MODEL_SECONDS_MAX if seconds is None else seconds)
    return None


def _ends_with_parent() -> None:
    """Ctrl-C reaches both: the parent decides, and ends this process."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)


def _at_twice(config: Config, profile: Profile, limit: int, most: int) -> int | None:
    """The limit of a device of twice the speed; a signal ends the wait for it."""
    try:
        return _limit(config, faster(profile), most, round(TWICE * limit))
    except KeyboardInterrupt:
        return None


def _with_room(config: Config, profile: Profile, limit: int, most: int) -> int | None:
    """The limit of the same device with more capacity; a signal ends the wait for it."""
    try:
        return _limit(roomy(config), profile, most, limit)
    except KeyboardInterrupt:
        return None


def _limit(config: Config, profile: Profile, most: int, start: int) -> int | None:
    """The most users that keep the target on that profile, by simulation; None where it did not find out."""
    with profile_file(profile) as path:
        result = search_limit(config.changed(device_profile=str(path)), most, start)
    found = read_bracket(result.autoscaling_stats)
    if found.about is None:
        # All were tried: fewer than the fewest that failed, of which none is clear, as they are at the limit.
        tried = found.concluded and found.failed is not None
        return math.ceil(found.failed or 0) - 1 if tried else None
    return int(found.about)


def search_limit(config: Config, most: int, start: int) -> Result:
    """Search in virtual time for the most users that keep the target on the configuration's profile."""
    changed = config.changed(
        num_users=min(most, max(1, start)),
        max_users=most,
        servers=config.servers if was_given(config, "servers") else _a_server_each(most),
        duration=virtual_seconds(config),
    )
    return simulate_aside(changed)


def measured_profile(probe: Bandwidth, config: Config) -> Profile:
    """A device as fast as the probe saw it, behind the usual memory."""
    device = DeviceModel(
        probe.read_gib_per_sec, probe.write_gib_per_sec, concurrency=config.io_threads, read_latency_us=100
    )
    return {**PRESETS[DEFAULT_PRESET], Tier.STORAGE: device}
