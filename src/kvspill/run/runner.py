"""From a configuration to a combined result: check the machine, run the trials."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from kvspill.config import Config
from kvspill.config.checks import check_fit
from kvspill.config.messages import shown
from kvspill.config.origins import by_hand
from kvspill.config.plugged import usable_plugins
from kvspill.config.unused import unused_settings
from kvspill.errors import KvspillError
from kvspill.machine.bpf import check_tracing
from kvspill.machine.cgroups import cpu_limit, io_limits
from kvspill.machine.hardware import MEMORY, look_at
from kvspill.machine.kernel import Kernel
from kvspill.machine.processors import usable_processors
from kvspill.plugins import VIRTUAL, Kind
from kvspill.records import UNLIMITED_BYTES, Tier
from kvspill.result.schema import Result
from kvspill.result.schema_honesty import Caution
from kvspill.result.trials import combine
from kvspill.result.validation import held_against, read_service
from kvspill.result.warnings import devices, settings
from kvspill.result.warnings.devices import IO_LIMITED
from kvspill.result.warnings.loads import CPU_LIMITED
from kvspill.run.calibrated import calibration_cautions
from kvspill.run.file_limit import check_file_limit
from kvspill.run.plan import Plan
from kvspill.run.preflight import check_load, check_machine
from kvspill.run.progress import Progress
from kvspill.run.ranks import Ranks, for_rank
from kvspill.run.ranks.meeting import Company, meet, raise_first
from kvspill.run.settle import counts_prompts, settled
from kvspill.run.signals import Interrupts, cut_off
from kvspill.run.stores import addresses
from kvspill.run.trial import run_trial
from kvspill.storage.neighbours import OvertakenError
from kvspill.storage.profiles import DEFAULT_PRESET, load_calibration, load_profile
from kvspill.texts import listed


def make_plan(config: Config, simulated: bool, company: Company | None = None) -> Plan:
    """Check that the run can be done here, before anything is written, beside the ranks that are there."""
    config = settled(config, simulated)
    if config.trace_latency and not simulated:
        check_tracing()
    if simulated:
        given = config.storage_bytes
        storage_bytes = UNLIMITED_BYTES if given is None else given
        check_fit(config, storage_bytes)
        check_load(config)
        check_file_limit(config)
        warnings = [*_unused(config), *_unwatched(config), *_not_modelled(config), *_not_stored(config)]
        return Plan(config, True, storage_bytes, warnings=warnings)
    if company is None:
        machine = check_machine(config)
    else:
        machine = check_machine(config, memory=company.memory(), sharing=company.sharing)
    check_file_limit(config, machine.storage_bytes, len(machine.cache_dirs))
    kernel = Kernel()
    warnings = [
        *in_memory(machine.cache_dirs, kernel),
        *limited(machine.cache_dirs, kernel),
        *_unused(config),
    ]
    said, rank = machine.statement, None
    if company is not None:
        said, rank = said.replace("This run", f"Each of the {company.size} ranks", 1), company.rank
    return Plan(config, False, machine.storage_bytes, machine.cache_dirs, warnings, (said,), rank=rank)


def plan_together(
    config: Config,
    ranks: Ranks,
    make: Callable[[Config, Company | None], Plan],
    error: KvspillError | None = None,
) -> Plan:
    """The plan of this rank, once every rank has one: what is wrong on any ends all of them.

    error: what went wrong on this rank before.
    """
    plan = None
    company = meet(config, ranks)
    if error is None:
        try:
            plan = make(for_rank(config, ranks), company)
        except KvspillError as caught:
            error = caught
    ranks.agree(error, lambda errors: raise_first(dict(enumerate(errors)), ranks))
    assert plan is not None, "an error of its own was raised"
    return plan


def in_memory(cache_dirs: Iterable[Path], kernel: Kernel) -> Iterator[Caution]:
    """Directories without a device behind them: on tmpfs, on a RAM disk, on a loop device in one of them."""
    for path in cache_dirs:
        if look_at(path, kernel).kind == MEMORY:
            yield devices.MEMORY_DIRECTORY.of(path=path)


def limited(cache_dirs: Iterable[Path], kernel: Kernel) -> Iterator[Caution]:
    """What control groups allow this process on the devices of these directories, and of processors."""
    found = dict.fromkeys(
        limit.describe() for path in cache_dirs for limit in io_limits(look_at(path, kernel).devices, kernel)
    )
    if found:
        yield IO_LIMITED.of(limits=listed(list(found)))
    processors, usable = cpu_limit(kernel), usable_processors()
    if processors is not None and processors < usable:
        yield CPU_LIMITED.of(processors=processors, usable=usable)


def _unwatched(config: Config) -> Iterator[Caution]:
    """Virtual time is over before anybody could look."""
    if config.trace_latency:
        reason = "nothing reaches the kernel in virtual time"
        yield settings.UNUSED_SETTING.of(said="--trace-latency", reason=reason, remedy="Leave it out.")
    if config.prometheus is not None:
        yield settings.UNUSED_SETTING.of(
            said="--prometheus", reason="a simulation is over in a moment", remedy="Leave it out."
        )


_NOT_MODELLED = ("io_engine", "sync", "layout", "direct", "verify", "preallocate", "rename", "page_cache")
_OF_LANES = ("io_threads", "write_threads", "io_size")


def _not_modelled(config: Config) -> Iterator[Caution]:
    """Flags of real I/O that a device model does not know; a calibration may have been made with them."""
    known = load_calibration(config.device_profile)
    measured = {} if known is None else known.settings
    profile = load_profile(config.device_profile or DEFAULT_PRESET)
    of_lanes = () if profile[Tier.STORAGE].lanes or config.engine is not None else _OF_LANES
    of_memory = () if profile[Tier.CPU].lanes or not config.cpu_bytes else ("dram_threads",)
    remedy = "Name a profile that `kvspill calibrate` wrote with it, or leave it out."
    for name in (*_NOT_MODELLED, *of_lanes, *of_memory):
        value, label = getattr(config, name), by_hand(config, name)
        if label and measured.get(name) != value:
            reason = "the device profile does not know it"
            yield settings.UNUSED_SETTING.of(said=_said(label, value), reason=reason, remedy=remedy)


def _not_stored(config: Config) -> Iterator[Caution]:
    """A backend or an address in whose place a device is modelled."""
    backend = usable_plugins()[Kind.BACKEND].get(config.storage_backend, "--storage-backend")
    reason = "a device profile is simulated in its place"
    remedy = "Leave it out, or use `kvspill run`."
    place, named = (by_hand(config, name) for name in ("cache_dir", "storage_backend"))
    if place and (texts := addresses(config)):
        said = _said(place, " ".join(texts))
        yield settings.UNUSED_SETTING.of(said=said, reason=reason, remedy=remedy)
    if named and named != place and VIRTUAL not in backend.can:
        said = _said(named, config.storage_backend)
        yield settings.UNUSED_SETTING.of(said=said, reason=reason, remedy=remedy)


def _said(label: str, value: object) -> str:
    return f"{label}{' ' if label.startswith('--') else '='}{shown(value)}"


def _unused(config: Config) -> list[Caution]:
    """What was given and changes nothing: nothing of that may pass in silence."""
    warnings = [
        settings.UNUSED_SETTING.of(said=item.said, reason=item.reason, remedy=item.remedy)
        for item in unused_settings(config, usable_plugins())
    ]
    if config.use_burst_trace and config.burst_trace_path is None:
        warnings.append(settings.SAMPLE_RECORDING.of(flag="--use-burst-trace"))
    if config.calibrate_from and config.generation_mode == "deterministic":
        path = Path(config.calibrate_from)
        if counts_prompts(path):
            warnings.append(settings.PROMPTS_COUNTED.of(path=path))
    if config.ignored_keys:
        warnings.append(settings.IGNORED_KEYS.of(keys=", ".join(config.ignored_keys)))
    return warnings


def run_trials(
    plan: Plan, progress: Progress, closing_seconds_max: float | None = None, ranks: Ranks | None = None
) -> Result:
    """All trials of a plan, compared with the rows of a service where there are some."""
    rows = plan.config.validation_trace
    service = None if rows is None else read_service(rows)
    try:
        result = _run_trials(plan, progress, closing_seconds_max, ranks)
    finally:
        progress.end_block()
    if plan.simulated:
        result.warnings += calibration_cautions(plan.config, result)
    if service is not None:
        result.validation = held_against(service, result)
    return result


def simulate_aside(config: Config, asked_users: int | None = None) -> Result:
    """Simulate on the way to something else: a signal ends that, too, and not the simulation alone."""
    with cut_off():
        plan = replace(make_plan(config, simulated=True), asked_users=asked_users)
        result = run_trials(plan, Progress(quiet=True))
    if result.incomplete:
        raise KeyboardInterrupt
    return result


def _run_trials(
    plan: Plan, progress: Progress, closing_seconds_max: float | None, ranks: Ranks | None
) -> Result:
    """A trial that is interrupted or fails ends them and is set aside, those before it are kept."""
    results: list[Result] = []
    failure: str | None = None
    interrupts, trials = Interrupts(), plan.config.trials
    with interrupts.handled():
        for number in range(trials):
            if trials > 1:
                first = plan.announced if number == 0 else ()
                said = (*first, f"trial {number + 1} of {trials}")
                plan = replace(plan, announced=said, trial=number + 1)
            if number + 1 == trials:
                plan = replace(plan, closing_seconds_max=closing_seconds_max)
            try:
                results.append(_run_trial(plan, progress, interrupts, ranks))
            except KeyboardInterrupt:
                if not results:
                    raise
                break
            except KvspillError as error:
                if not results or (ranks is not None and ranks.size > 1):
                    raise
                failure = f"trial {number + 1} of {trials}: {error}"
                break
            if results[-1].incomplete or interrupts.reason is not None:
                break
    if trials == 1:
        return results[0]
    whole = combine(results, trials)
    if len(results) < trials:
        whole.incomplete = True
    if whole.incomplete:
        whole.interrupted = whole.interrupted or results[-1].interrupted or interrupts.stopped_by or failure
    return whole


def _run_trial(plan: Plan, progress: Progress, interrupts: Interrupts, ranks: Ranks | None) -> Result:
    """Run once; planned again where a run that started at the same moment claimed the room first (R5)."""
    try:
        return run_trial(plan, progress, interrupts, ranks)
    except OvertakenError as error:
        if ranks is not None and ranks.size > 1:
            raise
        progress.say(f"planned again: {error}")
    again = make_plan(plan.config, plan.simulated)
    plan = replace(plan, storage_bytes=again.storage_bytes, announced=again.announced)
    return run_trial(plan, progress, interrupts, ranks)
