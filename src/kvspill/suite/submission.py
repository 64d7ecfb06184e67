"""Submissions: fixed parameters by option, the closed/open check, and the aggregate figures of all trials."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kvspill.config import Config
from kvspill.config.config import warmup_of
from kvspill.config.fields import flag_of
from kvspill.result.ranking import FAULT_CODES, faults_text
from kvspill.result.schema import Result
from kvspill.result.trials import incomplete_reason
from kvspill.result.warnings.certainty import FEW_TRIALS
from kvspill.result.warnings.devices import SIMULATED
from kvspill.result.warnings.faults import INCOMPLETE
from kvspill.result.warnings.kind import Severity, Spoils
from kvspill.result.warnings.known import KINDS
from kvspill.suite.aggregates import aggregate
from kvspill.suite.mixture import mixture, workload_text
from kvspill.suite.places import Places, Spot
from kvspill.texts import counted

SUBMISSION: Final = "submission"
"""The kind of suite whose rows are the trials of a submission."""
SEED: Final = 42
TRIALS_MIN: Final = 3
WINDOW_SHARE_MIN: Final = 0.9
"""Of the duration less the warm-up: a trial that measured less is not complete."""

CLOSED_DIVISION: Final = {"workload_preset": "2026-02", "sync": "data"}
"""What the closed division's workload is beside its options: the personas that the harness prints, and writes
that end on the device."""
_STRESS: Final = {
    **CLOSED_DIVISION,
    "duration": 300.0,
    "gpu_mem_gb": 0.0,
    "generation_mode": "none",
    "seed": SEED,
}
_REALISTIC: Final = {
    "duration": 600.0,
    "gpu_mem_gb": 0.0,
    "generation_mode": "realistic",
    "performance_profile": "throughput",
    "seed": SEED,
    "sync": CLOSED_DIVISION["sync"],
}
FREE_FIELDS: Final = frozenset(
    {
        "cache_dir",
        "storage_capacity_gb",
        "output",
        "quiet",
        "debug",
        "log_ops",
        "log_level",
        "validation_trace",
        "prometheus",
        "xlsx_output",
        "trials",
        "ranks",
        "device_bandwidth_gbps",
        "min_tokens_per_sec",
        "sources",
        "ignored_keys",
    }
)
"""Settings that describe the system under test or the output, and may differ in a closed submission."""
SPOILERS: Final = frozenset(
    kind.code
    for kind in KINDS.values()
    if Spoils.SUBMISSION in kind.spoils and kind.severity is not Severity.INVALID
)
"""Warnings that say a trial measured something else than the device under the option's load."""
_SAID_ELSEWHERE: Final = SPOILERS | {INCOMPLETE.code, SIMULATED.code, FEW_TRIALS.code, *FAULT_CODES}
"""Warnings that stand among the deviations; how many trials there are is judged over all of them."""


@dataclass(frozen=True, slots=True)
class Option:
    """One kind of submission."""

    name: str
    title: str
    settings: Mapping[str, Any]
    allocs_allowed: tuple[int, ...] = ()
    """Values of --max-concurrent-allocs that all count as closed."""


OPTIONS: Final[Mapping[str, Option]] = {
    "1": Option(
        "1",
        "maximum storage stress",
        {**_STRESS, "model": "llama3.1-8b", "num_users": 200, "cpu_mem_gb": 0.0, "max_concurrent_allocs": 16},
    ),
    "2": Option(
        "2",
        "storage throughput",
        {**_STRESS, "model": "llama3.1-8b", "num_users": 100, "cpu_mem_gb": 4.0, "max_concurrent_allocs": 0},
        (0, 16),
    ),
    "3": Option(
        "3",
        "large model, maximum storage stress",
        {
            **_STRESS,
            "model": "llama3.1-70b-instruct",
            "num_users": 70,
            "cpu_mem_gb": 0.0,
            "max_concurrent_allocs": 4,
        },
    ),
    "8b": Option(
        "8b",
        "standard submission",
        {**_REALISTIC, "model": "llama3.1-8b", "num_users": 150, "cpu_mem_gb": 2.0},
    ),
    "70b": Option(
        "70b",
        "large-model submission",
        {**_REALISTIC, "model": "llama3.1-70b-instruct", "num_users": 40, "cpu_mem_gb": 4.0},
    ),
}


def allocs_text(option: Option, allocs: int) -> str | None:
    """Which of two published values this submission takes, where there are two."""
    if not option.allocs_allowed:
        return None
    source = {
        0: "0, as in the published invocation of this option (the MLPerf harness passes 16: --allocs 16)",
        16: "16, as the MLPerf harness passes it (the published invocation of this option has 0: --allocs 0)",
    }
    return f"--max-concurrent-allocs {source.get(allocs, f'{allocs}, which neither source has')}."


@dataclass(frozen=True, slots=True)
class Choice:
    """Which figures tell drives apart at this DRAM budget."""

    primary: tuple[str, ...]
    secondary: tuple[str, ...]
    unfit: tuple[str, ...]
    reason: str


def metric_choice(cpu_gb: float, option: Option) -> Choice:
    """The metrics to compare by; the choice depends on the DRAM budget."""
    decode, wall, storage = (
        "decode_bytes_read_gb",
        "avg_throughput_tokens_per_sec",
        "storage_throughput_tokens_per_sec",
    )
    if cpu_gb == 0:
        return Choice(
            (decode, wall),
            (),
            (storage,),
            "without DRAM decode bytes (2.62x) and wall-clock throughput (2.43x) told a fast from a slow "
            "system in each of 111 published configurations, storage throughput in 62% of them",
        )
    if cpu_gb == 4:
        return Choice(
            (storage,),
            (decode, wall),
            (),
            "with 4 GB of DRAM storage throughput tells drives apart best: between a fast and a slow system "
            "it differed 2.23x, decode bytes 2.06x, wall-clock throughput 1.79x",
        )
    return Choice(
        (wall,),
        (decode, storage),
        (),
        f"no study of metrics was made at {cpu_gb:g} GB of DRAM (only at 0 and 4); "
        + (
            "this option's own rule is throughput as the sole criterion"
            if option.settings.get("performance_profile") == "throughput"
            else "throughput by the wall clock counts everything that a user waits for"
        ),
    )


def deviations(
    option: Option, config: Config, trials: Sequence[Sequence[Result]], places: Places | None = None
) -> list[str]:
    """Everything that keeps a submission from being closed, each named with both values."""
    places = places or Places.of(trials)
    reference = Config.model_validate(dict(option.settings))
    found = []
    for name in Config.model_fields:
        wanted, got = getattr(reference, name), getattr(config, name)
        if name in FREE_FIELDS or wanted == got:
            continue
        if name == "max_concurrent_allocs" and got in option.allocs_allowed:
            continue
        found.append(f"{flag_of(name)} {_shown(got)}: option {option.name} fixes {_shown(wanted)}")
    complete = complete_trials(trials, places)
    if len(complete) < TRIALS_MIN:
        found.append(f"{counted(len(complete), 'complete trial')}: at least {TRIALS_MIN} are required")
    found += faulty_trials(trials, places)
    remarks = ((spot, *flaw) for spot, result in places.each(trials) for flaw in _flaws(result))
    return found + [f"{where}: {text}" for where, _, text in places.gathered(remarks)]


def faulty_trials(trials: Sequence[Sequence[Result]], places: Places) -> list[str]:
    """What failed in which trial: a submission with a faulty trial has no figures."""
    remarks = (
        (spot, text, text)
        for spot, result in places.each(trials)
        if (text := faults_text(result)) is not None
    )
    return [f"{where} is faulty: {text}" for where, _, text in places.gathered(remarks)]


def _told(option: Option, config: Config) -> set[str]:
    """Settings that a submission names: what its option fixes, and what was set differently."""
    reference = Config.model_validate(dict(option.settings))
    changed = {name for name in Config.model_fields if getattr(reference, name) != getattr(config, name)}
    return (changed - {"sources", "ignored_keys"}) | set(option.settings) | {"cache_dir"}


def complete_trials(trials: Sequence[Sequence[Result]], places: Places) -> list[Sequence[Result]]:
    """Trials of which every rank left a result and ran to the end."""
    broken = {trial for trial, _ in incomplete_spots(trials, places)}
    return [
        ranks
        for spots, ranks in zip(places.found, trials, strict=True)
        if ranks and broken.isdisjoint(trial for trial, _ in spots)
    ]


def incomplete_spots(trials: Sequence[Sequence[Result]], places: Places) -> list[Spot]:
    """Which ranks of which trials left no result, or one that ended early."""
    early = (spot for spot, result in places.each(trials) if _incomplete(result) is not None)
    return sorted([*places.lost, *early])


def _incomplete(result: Result) -> str | None:
    """Why a trial counts as incomplete: it ended early, or measured far less than its duration."""
    duration, warmup = result.config.get("duration"), result.config.get("warmup")
    if not isinstance(duration, int | float) or result.config.get("max_requests") is not None:
        return incomplete_reason(result)
    asked = duration - (warmup if isinstance(warmup, int | float) else warmup_of(duration))
    measured = result.window.measured_seconds
    short = f"measured {measured:g} of {asked:g} seconds" if measured < WINDOW_SHARE_MIN * asked else None
    return incomplete_reason(result) or short


def _flaws(result: Result) -> Iterator[tuple[str, str]]:
    """What keeps a result from being closed: the kind of flaw, and its text."""
    modelled = result.honesty.modelled_tiers
    for text in (
        "simulated, no byte moved" if result.simulated else None,
        _incomplete(result),
        f"modelled tiers: {', '.join(modelled)}" if modelled and not result.simulated else None,
    ):
        if text is not None:
            yield text, text
    for item in result.warnings:
        if item.code in SPOILERS:
            yield item.code, f"{item.code}: {item.message}"


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def summarize(
    option: Option,
    config: Config,
    trials: Sequence[Sequence[Result]],
    copies: Sequence[str] = (),
    places: Places | None = None,
) -> dict[str, Any]:
    """The whole submission as plain data; copies: results that are no runs of their own, as lines."""
    places = places or Places.of(trials)
    faulty = faulty_trials(trials, places)
    mixed = mixture(trials, FREE_FIELDS, places)
    whole = complete_trials(trials, places)
    complete = [] if faulty or mixed or copies or places.lost else whole
    found = deviations(option, config, trials, places)
    choice = metric_choice(config.cpu_mem_gb, option)
    digests = {result.digest for ranks in complete for result in ranks}
    return {
        "schema_version": 1,
        "option": option.name,
        "title": option.title,
        "division": "invalid" if not complete else "open" if found else "closed",
        "deviations": found,
        "faulty": faulty,
        "mixed": mixed,
        "copies": list(copies),
        "missing": list(places.lost.values()),
        "workload": sorted({workload_text(result) for ranks in trials for result in ranks}),
        "sync": sorted({str(result.config.get("sync")) for ranks in trials for result in ranks}),
        "allocs": allocs_text(option, config.max_concurrent_allocs),
        "trials": {
            "run": len(trials),
            "complete": len(whole),
            "ranks": max(map(len, trials), default=0),
        },
        "incomplete": places.where(incomplete_spots(trials, places)),
        "same_work": len(digests) == 1 if digests else None,
        "digests": sorted(filter(None, digests)),
        "compare_by": {
            "primary": list(choice.primary),
            "secondary": list(choice.secondary),
            "not_recommended": list(choice.unfit),
            "reason": choice.reason,
        },
        "figures": aggregate(complete) if complete else {},
        "parameters": config.model_dump(mode="json", include=_told(option, config)),
        "environment": complete[0][0].environment if complete else None,
        "warnings": _warnings(trials, places),
    }


def _warnings(trials: Sequence[Sequence[Result]], places: Places) -> list[str]:
    """Each kind of warning that is no deviation, once, with its trials and the first one's words."""
    remarks = (
        (spot, item.code, item.message)
        for spot, result in places.each(trials)
        for item in result.warnings
        if item.code not in _SAID_ELSEWHERE
    )
    return [f"{code} ({where}): {text}" for where, code, text in places.gathered(remarks)]


def render(summary: Mapping[str, Any]) -> str:
    """The submission as text."""
    lines = [
        "=" * 72,
        f"KV CACHE SUBMISSION, OPTION {summary['option']}: {summary['title']}",
        f"Division: {str(summary['division']).upper()}",
        _trials_text(summary),
        "=" * 72,
        "",
    ]
    lines += [f"option {summary['option']}: no result in {path}" for path in summary["missing"]]
    if summary["missing"]:
        lines.append("A submission that lacks a rank's result has no figures: run it again.")
    lines += [f"deviation: {text}" for text in summary["deviations"]]
    if summary["faulty"]:
        lines.append("A submission with a faulty trial has no figures: find the cause and run it again.")
    lines += [f"mixture: {text}" for text in summary["mixed"]]
    if summary["mixed"]:
        lines.append("Trials of different workloads have no figures together: run them all again.")
    lines += [f"copy: {text}" for text in summary["copies"]]
    if summary["copies"]:
        lines.append("A copy is no second run: put every rank's own result in its place, or run again.")
    if summary["workload"]:
        workload, sync = (" and ".join(summary[key]) for key in ("workload", "sync"))
        lines.append(f"Workload: {workload}, --sync {sync}.")
    if summary["allocs"]:
        lines.append(summary["allocs"])
    lines += _figures(summary) if summary["figures"] else []
    if summary["warnings"]:
        lines += ["", "Warnings:", *(f"  {text}" for text in summary["warnings"])]
    return "\n".join(lines) + "\n"


def _figures(summary: Mapping[str, Any]) -> list[str]:
    compare = summary["compare_by"]
    lines = ["", f"Compare by: {', '.join(compare['primary'])} (primary)"]
    if compare["secondary"]:
        lines.append(f"            {', '.join(compare['secondary'])} (secondary)")
    if compare["not_recommended"]:
        lines.append(f"Not by:     {', '.join(compare['not_recommended'])}")
    lines += [f"because {compare['reason']}.", ""]
    lines.append(f"   {'':<34} {'all trials':>18}  median, p95, CV")
    for name, figure in summary["figures"].items():
        lines.append(_figure_line(name, figure, name in compare["primary"]))
    return [*lines, "", "All trials: sum over ranks, mean over trials; device p95: the maximum."]


def _trials_text(summary: Mapping[str, Any]) -> str:
    trials = summary["trials"]
    ranks = trials["ranks"]
    clients = "one client (rank) each" if ranks <= 1 else f"{ranks} clients (ranks) each"
    lacking = f"; incomplete: {summary['incomplete']}" if summary["incomplete"] else ""
    return f"{trials['complete']} of {counted(trials['run'], 'trial')} complete, {clients}{lacking}"


def _figure_line(name: str, figure: Mapping[str, Any], primary: bool) -> str:
    mark = "->" if primary else "  "
    value = "not measured" if figure["value"] is None else f"{figure['value']:,.2f} {figure['unit']}"
    spread = ""
    if figure.get("median") is not None:
        spread = f"  {figure['median']:,.2f}, {figure['p95']:,.2f}"
        spread += "" if figure["cv"] is None else f", {figure['cv']:.1%}"
    return f"{mark} {name:<34} {value:>18}{spread}"
