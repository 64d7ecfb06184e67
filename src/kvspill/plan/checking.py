"""Runs the chosen point of a plan for real, and holds what was predicted of it against what it did."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvspill.config import Config
from kvspill.errors import KvspillError, UsageError
from kvspill.machine.hardware import MEMORY, look_at
from kvspill.machine.kernel import Kernel
from kvspill.plan.options import Choice
from kvspill.plan.planning import Asked, Row, point_config
from kvspill.plan.predict import Interval, figures, predict
from kvspill.records import GIB
from kvspill.result.schema import Result
from kvspill.run.calibrated import refuse_other_device
from kvspill.run.progress import Progress
from kvspill.run.runner import make_plan, run_trials, simulate_aside
from kvspill.storage.profiles import profile_file
from kvspill.texts import aligned

BARS = {
    "requests_per_second": 0.05,
    "avg_throughput_tokens_per_sec": 0.05,
    "tier_storage_read_bandwidth_gbps": 0.05,
    "storage_read_p50_ms": 0.10,
    "storage_read_p95_ms": 0.10,
    "end_to_end_p50_ms": 0.10,
    "end_to_end_p95_ms": 0.10,
    "cache_hit_rate": 0.01,
}
"""What the model promises beyond the interval of a prediction (P3): shares, of the hit rate points."""
_POINTS = "cache_hit_rate"


def check_places(dirs: Sequence[str]) -> None:
    """Refuse what no check can be made in, before anything is simulated."""
    for name in dirs:
        if not Path(name).is_dir():
            raise UsageError(f"--check {name}: no directory; name one on the drive that was planned with")
        place = look_at(Path(name), Kernel())
        if place.kind == MEMORY:
            raise UsageError(
                f"--check {name}: lies in memory ({place.describe()}), which says nothing about a drive; "
                "name a directory on the drive"
            )


def check_devices(choice: Choice, dirs: Sequence[str]) -> None:
    """Refuse directories that are not what was planned with."""
    if len(dirs) != choice.drives:
        raise UsageError(
            f"--check: the answer has {choice.drives} drives and {len(dirs)} directories are named; name one "
            "on each drive"
        )
    if choice.option.calibrated is not None:
        refuse_other_device(choice.option.name, choice.option.calibrated, [Path(name) for name in dirs])


def check(
    asked: Asked, row: Row, dirs: Sequence[str], seconds: float, progress: Progress
) -> tuple[dict[str, Any], Result]:
    """Predict a run of that length, then do it."""
    config = point_config(asked, row.choice, row.node_load).changed(
        duration=seconds, cache_dir=tuple(dirs), storage_capacity_gb=None, output=None
    )
    real = make_plan(config, simulated=False)
    alike = config.changed(cache_dir=None, storage_capacity_gb=real.storage_bytes / GIB)
    promised = _promised(alike, row.choice)
    progress.say(f"running {row.choice.label} under its load for {seconds:g} s in {', '.join(dirs)}")
    result = run_trials(real, progress)
    if result.incomplete:
        raise KeyboardInterrupt
    if result.faulty:
        raise KvspillError("the run of the check was faulty; see its warnings with `kvspill run`")
    return document(promised, figures(result), dirs, seconds), result


def _promised(config: Config, choice: Choice) -> dict[str, Interval]:
    with profile_file(choice.profile()) as path:
        config = config.changed(device_profile=str(path))
        result = simulate_aside(config)
        known = choice.option.calibrated
        if known is not None:
            return predict(config, result, known)
        return {name: Interval(value, value, value) for name, value in figures(result).items()}


def document(
    promised: Mapping[str, Interval], measured: Mapping[str, float], dirs: Sequence[str], seconds: float
) -> dict[str, Any]:
    """Every figure that is promised, predicted beside measured."""
    rows = list(_rows(promised, measured))
    return {
        "directories": list(dirs),
        "seconds": seconds,
        "figures": rows,
        "kept": all(row["kept"] for row in rows),
    }


def _rows(promised: Mapping[str, Interval], measured: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    for name, bar in BARS.items():
        if name not in promised or name not in measured:
            continue
        one, real = promised[name], measured[name]
        if name == _POINTS:
            low, high, error = one.low - bar, one.high + bar, one.value - real
        else:
            low, high = one.low * (1 - bar), one.high * (1 + bar)
            error = one.value / real - 1 if real else 0.0
        yield {
            "figure": name,
            "predicted": one.value,
            "promised": [low, high],
            "measured": real,
            "error": error,
            "kept": low <= real <= high,
        }


def text_of(check: Mapping[str, Any]) -> str:
    """For a person."""
    table = [["FIGURE", "PREDICTED", "MEASURED", "OFF BY", "PROMISED", ""]]
    for row in check["figures"]:
        low, high = row["promised"]
        off = f"{100 * row['error']:+.1f} points" if row["figure"] == _POINTS else f"{row['error']:+.1%}"
        values = [f"{row[name]:.4g}" for name in ("predicted", "measured")]
        verdict = "kept" if row["kept"] else "NOT KEPT"
        table.append([row["figure"], *values, off, f"{low:.4g} to {high:.4g}", verdict])
    missed = sum(not row["kept"] for row in check["figures"])
    said = "every figure is as promised" if not missed else f"{missed} figures are further off than promised"
    return f"Checked in {', '.join(check['directories'])} for {check['seconds']:g} s: {said}.\n" + aligned(
        table
    )
