"""The claims of docs/statistics.md, measured anew in virtual time; seeds are fixed, so that figures repeat.

    python benchmarks/claims.py intervals LOAD     coverage of the 95 % intervals, 500 windows of each length
    python benchmarks/claims.py drive LOAD         how often a drive that changes is called not steady
    python benchmarks/claims.py steady LOAD        false alarms of the steady state, and its power for rates
    python benchmarks/claims.py compare            power and false positives of what decides a comparison
    python benchmarks/claims.py little             Little's law on ten loads

LOAD is one of those in tests/sim/loads.py. --windows N takes fewer. Each takes minutes on two cores.
"""

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from kvspill.measure.statistics import series_interval  # noqa: E402
from kvspill.measure.steady import (  # noqa: E402
    CLOSED_SECONDS,
    NOT_STEADY,
    TOO_SHORT,
    judge,
    load_z,
    steady_state,
)
from kvspill.report.columns import PARAMETERS, figures  # noqa: E402
from kvspill.report.compare.comparison import compare  # noqa: E402
from kvspill.report.compare.ratios import BETTER, DIFFERS, WORSE  # noqa: E402
from kvspill.report.compare.run import KVSPILL, Run  # noqa: E402
from sim.loads import (  # noqa: E402
    LITTLE,
    LOADS,
    SET_UPS,
    Columns,
    changed_windows,
    columns,
    cut,
    drive,
    factors,
    rates,
    simulate,
)

LENGTHS = (60, 120, 300)
RUN_SECONDS = 3300
KINDS = ("step", "drift", "hump")
WINDOW = 120
TWO_RATES_Z = 2.807
"""Beyond this lies one in a hundred of two normal values."""
CHANGES = 20
"""Windows of a run in which the drive changes."""
PAIRS = 5
DRIVE = "device_profile"
Floats = NDArray[np.float64]


def _columns(job: tuple[str, int]) -> Columns:
    return columns(LOADS[job[0]], job[1], RUN_SECONDS)


def _runs(name: str, windows: int, first_seed: int) -> list[Columns]:
    """As many long runs as hold so many of the longest windows."""
    seeds = -(-windows * LENGTHS[-1] // RUN_SECONDS)
    with Pool(os.cpu_count()) as pool:
        return pool.map(_columns, [(name, first_seed + number) for number in range(seeds)], chunksize=1)


def windows_of(values: Floats, seconds: int) -> Floats:
    return values[: len(values) // seconds * seconds].reshape(-1, seconds)


def coverage(runs: list[Floats], seconds: int) -> tuple[int, float, float]:
    """Windows, share whose interval holds the run's mean, and how much wider intervals are than need be.

    The mean of the run is known from the windows themselves: its share of their error is taken off.
    """
    held, widths, errors = [], [], []
    for values in runs:
        mean = float(values.mean())
        known = np.sqrt(1 - seconds / len(values))
        for window in windows_of(values, seconds):
            interval = series_interval(window.tolist())
            assert interval is not None
            error = float(window.mean()) - mean
            held.append(abs(error) <= (interval.high - interval.low) / 2 * known)
            # 2.571 is Student's quantile of the interval: what is left is the error that it reckons with.
            widths.append(((interval.high - interval.low) / 2 / 2.571 / mean) ** 2)
            errors.append((error / known / mean) ** 2)
    return len(held), float(np.mean(held)), float(np.sqrt(np.mean(widths) / np.mean(errors)))


def intervals(name: str, windows: int, first_seed: int) -> None:
    runs = _runs(name, windows, first_seed)
    closed = LOADS[name].get("arrival") == "closed"
    for rate in ("tokens", "bytes"):
        series = [np.array(rates(run)[rate]) for run in runs]
        for seconds in LENGTHS:
            count, share, wider = coverage(series, seconds)
            said = f" (said: at most {1 + CLOSED_SECONDS / seconds:.2f})" if closed else ""
            text = f"{name}, {rate}, {seconds} s: {share:.1%} of {count} windows"
            print(f"{text}, {wider:.2f} times as wide as need be{said}")


def _not_steady(job: tuple[str, str, int]) -> list[bool]:
    """Of each window of a run in which the drive changes, whether that was found."""
    name, kind, seed = job
    windows = changed_windows(LOADS[name], kind, seed, CHANGES)
    return [steady_state(window, WINDOW)["verdict"] == NOT_STEADY for window in windows]


def changing(name: str, windows: int, first_seed: int) -> None:
    seeds = range(first_seed, first_seed - (-windows // CHANGES))
    for kind in KINDS:
        with Pool(os.cpu_count()) as pool:
            found = pool.map(_not_steady, [(name, kind, seed) for seed in seeds], chunksize=1)
        each = [one for run in found for one in run]
        text = f"{name}, {WINDOW} s, {len(each)} windows: a {kind} of the drive's speed is found"
        print(f"{text} in {np.mean(each):.1%}", flush=True)


def steady(name: str, windows: int, first_seed: int) -> None:
    runs, chance = _runs(name, windows, first_seed), random.Random(1)
    for seconds in LENGTHS:
        places = [(run, start) for run in runs for start in range(0, RUN_SECONDS - seconds + 1, seconds)]
        whole = [cut(run, start, seconds) for run, start in chance.sample(places, min(windows, len(places)))]
        found = [str(steady_state(window, seconds)["verdict"]) for window in whole]
        alarms, short = (found.count(verdict) / len(found) for verdict in (NOT_STEADY, TOO_SHORT))
        text = f"{name}, {seconds} s, {len(whole)} windows: {alarms:.1%} false alarms"
        print(f"{text}, {short:.1%} too short to tell")
    rates_that_change(name, runs, chance)


def rates_that_change(name: str, runs: list[Columns], chance: random.Random) -> None:
    """How often a change of both rates is found in them alone, and how often it could be at best."""
    for kind in KINDS:
        found: list[bool] = []
        at_best: list[bool] = []
        for run in runs:
            cuts = [windows_of(np.array(values), WINDOW) for values in rates(run).values()]
            for place in range(len(cuts[0])):
                factor = np.array(factors(kind, WINDOW, chance))
                judged = (judge((cut[place] * factor).tolist(), shift_z=load_z(WINDOW)) for cut in cuts)
                found.append(any(item["verdict"] == NOT_STEADY for item in judged))
                at_best.append(any(_could_be_found(cut, place, factor) for cut in cuts))
        text = f"{name}, {WINDOW} s, {len(found)} windows: a {kind} of both rates is found"
        print(f"{text} in {np.mean(found):.1%}, at best in {np.mean(at_best):.1%}")


def _could_be_found(windows: Floats, place: int, factor: Floats) -> bool:
    """By a test that knows what to look for, and where, and the noise of the whole run; 1 % false alarms."""
    shape = factor - factor.mean()
    noise = np.sqrt(np.mean((windows @ shape / windows.mean(axis=1)) ** 2))
    changed = windows[place] * factor
    return bool(abs(changed @ shape / changed.mean()) > TWO_RATES_Z * noise)


def _one_run(job: tuple[str, int, str, float]) -> Run:
    name, seed, side, loss = job
    with tempfile.TemporaryDirectory() as folder:
        result = simulate(SET_UPS[name], seed, device_profile=drive(Path(folder), name, seed, side, loss))
    return Run(
        name=f"{side} {seed}",
        group=side,
        kind=KVSPILL,
        # The drive is what is compared, and every run meets another one.
        config={name: result.config.get(name) for name in PARAMETERS if name != DRIVE},
        values=figures(result),
        simulated=True,
        seconds=result.window.measured_seconds,
        digest=result.digest,
    )


def told(first: list[Run], second: list[Run]) -> Counter[str]:
    """In how many groups of five pairs the sides are told apart: by what decides, and by any line at all."""
    counts: Counter[str] = Counter()
    for start in range(0, len(first) - PAIRS + 1, PAIRS):
        group = slice(start, start + PAIRS)
        found = compare(first[group], second[group])
        sure = [line for line in found.lines if line.verdict in (BETTER, WORSE, DIFFERS)]
        counts["groups"] += 1
        counts["decides"] += any(line.metric in found.primary for line in sure)
        counts["any line"] += bool(sure)
    return counts


def comparisons(seeds: int, only: str, first_seed: int) -> None:
    sides = {"A": 0.0, "equal": 0.0, "slower": 0.1}
    for name in (name for name in SET_UPS if only in name):
        numbers = range(first_seed, first_seed + seeds)
        jobs = [(name, seed, side, loss) for side, loss in sides.items() for seed in numbers]
        with Pool(os.cpu_count()) as pool:
            runs = pool.map(_one_run, jobs, chunksize=2)
        base, equal, slower = (runs[start : start + seeds] for start in range(0, 3 * seeds, seeds))
        power, false = told(base, slower), told(base, equal)
        groups = power["groups"]
        print(
            f"{name}: by {', '.join(compare(base, slower).primary)}: a loss of 10 % is found in "
            f"{power['decides']} of {groups} groups; without a loss one is seen in {false['decides']} "
            f"(in any line: {false['any line']})",
            flush=True,
        )


def little() -> None:
    for name, load in LITTLE.items():
        for row in simulate(load, duration=300.0).honesty.littles_law:
            counted = f"N {row.in_system:.3f}, seen {row.in_system_seen}, X {row.rate_per_sec:.3f}/s"
            means = f"R {row.mean_seconds:.4f} s, by the law {row.mean_seconds_by_law:.4f} s"
            print(f"{name}, {row.what}: {counted}, {means}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("claim", choices=("intervals", "drive", "steady", "compare", "little"))
    parser.add_argument("load", nargs="?", choices=tuple(LOADS), default="open-poisson")
    parser.add_argument(
        "--windows", type=int, default=500, help="of 300 s; those of 60 s are five times as many"
    )
    parser.add_argument("--seeds", type=int, default=20, help="pairs of a set-up, in groups of five")
    parser.add_argument("--only", default="", metavar="TEXT", help="set-ups whose name has this in it")
    parser.add_argument(
        "--first-seed", type=int, default=1, metavar="N", help="other runs of the same loads [1]"
    )
    asked = parser.parse_args()
    work: dict[str, Any] = {
        "intervals": lambda: intervals(asked.load, asked.windows, asked.first_seed),
        "drive": lambda: changing(asked.load, asked.windows, asked.first_seed),
        "steady": lambda: steady(asked.load, asked.windows, asked.first_seed),
        "compare": lambda: comparisons(asked.seeds, asked.only, asked.first_seed),
        "little": little,
    }
    work[asked.claim]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
