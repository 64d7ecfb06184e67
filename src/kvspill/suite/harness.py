"""Runs as the MLPerf harness lays them out: reads its option, trial and rank folders, writes its summary."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from kvspill.errors import UsageError
from kvspill.result.reading import load_result, read_json
from kvspill.result.schema import Result
from kvspill.suite.places import Places, Spot

SUMMARY_FILE: Final = "kvcache_run_summary.json"
_SUMMARIES: Final = "kvcache_run_summary*.json"
_RESULTS: Final = "kvcache_results_*.json"
HARNESS_OPTIONS: Final = ("1", "2", "3")
_NUMBERED: Final = re.compile(r"(?:option|trial|rank)_(\d+)")
_SUMMED: Final[Mapping[str, str]] = {
    "aggregated_read_bandwidth_gbps": "tier_storage_read_bandwidth_gbps",
    "aggregated_write_bandwidth_gbps": "tier_storage_write_bandwidth_gbps",
    "aggregated_avg_throughput_tokens_per_sec": "avg_throughput_tokens_per_sec",
    "aggregated_storage_throughput_tokens_per_sec": "storage_throughput_tokens_per_sec",
}
_LARGEST: Final[Mapping[str, str]] = {
    "aggregated_device_read_p95_ms": "storage_read_device_p95_ms",
    "aggregated_device_write_p95_ms": "storage_write_device_p95_ms",
}
_SAME = 1e-9

Trials = Sequence[Sequence[Result]]


@dataclass(slots=True)
class HarnessRun:
    """What a run left: the results of every option by trial and rank, and what is missing of them."""

    options: dict[str, list[list[Result]]] = field(default_factory=dict)
    places: dict[str, Places] = field(default_factory=dict)
    summaries: list[Path] = field(default_factory=list)
    """The harness's own summaries of it."""

    @property
    def missing(self) -> dict[str, list[str]]:
        """Folders of ranks without a result, by option."""
        return {option: list(places.lost.values()) for option, places in self.places.items()}


def run_files(folder: Path) -> list[Path]:
    """Every file that a run's judgement is read from, and the summary that it may write."""
    ranks = folder.glob(f"option_*/trial_*/rank_*/{_RESULTS}")
    return [*ranks, *folder.glob(_SUMMARIES), folder / SUMMARY_FILE]


def read_run(folder: Path) -> HarnessRun:
    """Read a run's folder; every rank that any trial has is expected in each."""
    run = HarnessRun(summaries=sorted(folder.glob(_SUMMARIES)))
    for option, place in _numbered(folder, "option_*"):
        trials = {int(number): trial for number, trial in _numbered(place, "trial_*")}
        there = {number: dict(_numbered(trial, "rank_*")) for number, trial in trials.items()}
        ranks = sorted({rank for paths in there.values() for rank in paths}, key=int)
        spots: list[list[Spot]] = []
        lost: dict[Spot, str] = {}
        for number, trial in trials.items():
            found: dict[Spot, Result] = {}
            for rank in ranks:
                path = there[number].get(rank)
                result = None if path is None else _result(path)
                if result is None:
                    lost[number, int(rank)] = str(trial / f"rank_{rank}")
                else:
                    found[number, int(rank)] = result
            spots.append(list(found))
            run.options.setdefault(option, []).append(list(found.values()))
        if trials:
            run.places[option] = Places(spots, lost)
    if not run.options:
        raise UsageError(
            f"{folder}: has no option_N/trial_N/rank_N; give the folder of a run of mlpstorage, the one "
            "with kvcache_run_summary_*.json"
        )
    return run


def _numbered(folder: Path, pattern: str) -> Iterator[tuple[str, Path]]:
    """The numbered folders in a folder, by number."""
    found = {
        match[1]: path
        for path in folder.glob(pattern)
        if (match := _NUMBERED.fullmatch(path.name)) and path.is_dir()
    }
    yield from sorted(found.items(), key=lambda pair: int(pair[0]))


def _result(rank: Path) -> Result | None:
    files = sorted(rank.glob(_RESULTS))
    if len(files) > 1:
        raise UsageError(f"{rank}: holds {len(files)} results; keep the one that belongs to this trial")
    return load_result(files[0]) if files else None


def run_summary(
    options: Mapping[str, Trials], run_datetime: str, missing: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Any]:
    """The summary that the harness writes of such results; what was not measured counts as 0 there."""
    entries = {name: _option(name, trials, (missing or {}).get(name, ())) for name, trials in options.items()}
    ranks = max((entry["rank_count"] for entry in entries.values()), default=0)
    hosts = {
        str((result.environment or {}).get("hostname"))
        for trials in options.values()
        for trial in trials
        for result in trial
    }
    return {
        "schema_version": "1.0",
        "run_datetime": run_datetime,
        "npernode": ranks // max(1, len(hosts)),
        "host_count": len(hosts),
        "total_ranks": ranks,
        "trials_per_option": max((entry["trial_count"] for entry in entries.values()), default=0),
        "options": entries,
        "partial_failure": any(entry["partial_failure"] for entry in entries.values()),
    }


def _option(name: str, trials: Trials, missing: Sequence[str]) -> dict[str, Any]:
    figures: dict[str, float] = {}
    for key, metric in _SUMMED.items():
        figures[key] = fmean([sum(_values(ranks, metric)) for ranks in trials]) if trials else 0.0
    for key, metric in _LARGEST.items():
        figures[key] = max((value for ranks in trials for value in _values(ranks, metric)), default=0.0)
    served = [
        f"trial_{trial}/rank_{rank}"
        for trial, ranks in enumerate(trials)
        for rank, result in enumerate(ranks)
        if result.number("storage_entries") == 0
    ]
    return {
        "option": int(name),
        **figures,
        "rank_count": max(map(len, trials), default=0),
        "trial_count": len(trials),
        "partial_failure": bool(missing),
        "missing_files": list(missing),
        "cpu_tier_ranks": served,
    }


def _values(ranks: Sequence[Result], metric: str) -> list[float]:
    return [result.number(metric) or 0.0 for result in ranks]


def differences(path: Path, own: Mapping[str, Any]) -> list[str]:
    """Where a summary of the harness has other figures than the results themselves."""
    said = read_json(path)
    options = said.get("options") if isinstance(said, dict) else None
    if not isinstance(options, dict):
        raise UsageError(f"{path}: is no summary of the harness (it has no options); move it away")
    found = []
    for name, entry in own["options"].items():
        there = options.get(name)
        for key in (*_SUMMED, *_LARGEST):
            value = there.get(key) if isinstance(there, dict) else None
            bound = _SAME * max(1.0, abs(entry[key]))
            if not isinstance(value, int | float) or abs(value - entry[key]) > bound:
                found.append(f"option {name}: {key} is {value} there, {entry[key]} by the ranks' files")
    return found
