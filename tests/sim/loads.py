"""Loads of virtual time for claims of statistics: unsaturated and saturated, open and closed."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from kvspill.config import Config
from kvspill.records import NS_PER_SEC, Tier, Verb
from kvspill.result.schema import Result
from kvspill.run import trial
from kvspill.run.backends import open_backends
from kvspill.run.progress import Progress
from kvspill.run.runner import make_plan, run_trials
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import Backend
from kvspill.storage.modelled.shared import SharedDevice
from kvspill.storage.modelled.transfers import Transfer
from kvspill.world import World

Load = dict[str, Any]

LOADS: dict[str, Load] = {
    "closed-saturated": {"num_users": 20, "arrival": "closed", "cpu_mem_gb": 0, "generation_mode": "none"},
    "closed-70b-dram": {
        **{"num_users": 8, "arrival": "closed", "cpu_mem_gb": 8, "generation_mode": "none"},
        "model": "llama3.1-70b-instruct",
    },
    "closed-generation": {
        **{"num_users": 20, "arrival": "closed", "cpu_mem_gb": 16, "generation_mode": "realistic"}
    },
    "open-poisson": {
        **{"num_users": 20, "request_rate": 2.0, "rate_process": "poisson"},
        **{"cpu_mem_gb": 8, "generation_mode": "fast"},
    },
}
"""Four stationary loads: intervals, false alarms and power are claimed on them."""

LITTLE: dict[str, Load] = {
    **LOADS,
    "open-overload": {"num_users": 20, "cpu_mem_gb": 8, "generation_mode": "fast"},
    "overload-no-dram": {"num_users": 50, "cpu_mem_gb": 0},
    "overload-sata": {
        **{"num_users": 30, "cpu_mem_gb": 4, "generation_mode": "fast", "device_profile": "sata-ssd"}
    },
    "prefix-open": {"num_users": 10, "io_model": "prefix", "cpu_mem_gb": 2, "generation_mode": "fast"},
    "few-allocations": {
        **{"num_users": 20, "request_rate": 4.0, "cpu_mem_gb": 2, "generation_mode": "fast"},
        "max_concurrent_allocs": 4,
    },
    "three-tiers": {
        **{"num_users": 20, "arrival": "closed", "gpu_mem_gb": 4, "cpu_mem_gb": 8, "generation_mode": "fast"}
    },
}
"""Ten loads, four of them saturated, on which Little's law must hold."""


def simulate(load: Load, seed: int = 1, **settings: Any) -> Result:
    config = Config(seed=seed, quiet=True, **{**load, **settings})
    return run_trials(make_plan(config, True), Progress(quiet=True))


SET_UPS: dict[str, Load] = {
    f"{model}, {dram} GiB DRAM, {generation}, {kind}": {
        **{"model": model, "num_users": users, "cpu_mem_gb": dram, "arrival": "closed"},
        "generation_mode": generation,
        **({"duration": 60.0} if kind == "timed" else {"max_requests": 300}),
    }
    for model, users in (("llama3.1-8b", 20), ("llama3.1-70b-instruct", 10), ("mistral-7b", 20))
    for dram, generation in ((0, "none"), (0, "fast"), (4, "none"))
    for kind in ("timed", "fixed")
}
"""With and without DRAM and generation, timed and fixed, three models, on a drive of 2 GiB/s."""


def drive(folder: Path, name: str, seed: int, side: str, loss: float) -> str:
    """A profile of that drive, slower by `loss`, as one run meets it: runs differ by half a percent."""
    factor = (1 - loss) * (1 + 0.005 * random.Random(f"{name}/{seed}/{side}").gauss(0, 1))
    path = folder / f"{seed}-{side}-{loss}.yaml"
    figures = f"read_gib_per_sec: {2.0 * factor}, write_gib_per_sec: {1.5 * factor}"
    path.write_text(f"storage: {{{figures}, read_latency_us: 100, write_latency_us: 50, concurrency: 64}}\n")
    return str(path)


Columns = dict[str, list[float]]


def columns(load: Load, seed: int, seconds: float, warmup: float = 100.0) -> Columns:
    """What each second of a long run saw."""
    found = simulate(load, seed, duration=seconds + warmup, warmup=warmup).timeline.columns
    return {name: [float(value or 0) for value in values] for name, values in found.items()}


def rates(seen: Columns) -> Columns:
    """Tokens and bytes of every second."""
    byte_columns = [values for name, values in seen.items() if name.endswith("_bytes")]
    return {"tokens": seen["tokens"], "bytes": [sum(step) for step in zip(*byte_columns, strict=True)]}


def cut(seen: Columns, start: int, seconds: int) -> Columns:
    """A window of them."""
    return {name: values[start : start + seconds] for name, values in seen.items()}


def factors(kind: str, seconds: int, chance: random.Random) -> list[float]:
    """A 10 % step between the quarters of a window, a 10 % drift, or a 20 % hump of a fifth to a third."""
    if kind == "drift":
        return [1 - 0.1 * (place + 0.5) / seconds for place in range(seconds)]
    if kind == "step":
        start, stop, factor = chance.randrange(seconds // 4, 3 * seconds // 4), seconds, 0.9
    else:
        length, factor = chance.randrange(seconds // 5, seconds // 3), 1.2
        start = chance.randrange(0, seconds - length)
        stop = start + length
    return [factor if start <= place < stop else 1.0 for place in range(seconds)]


PAUSE_SECONDS = 30


def changed_windows(
    load: Load, kind: str, seed: int, count: int, seconds: int = 120, warmup: int = 100
) -> Iterator[Columns]:
    """So many windows of one run, in each of which the drive changes; between them it is as before."""
    chance = random.Random(f"{kind}/{seed}")
    speeds = [1.0] * warmup
    for _ in range(count):
        speeds += [1.0] * PAUSE_SECONDS + factors(kind, seconds, chance)
    with changing_drive(lambda at: speeds[min(int(at), len(speeds) - 1)]):
        seen = columns(load, seed, len(speeds) - warmup, warmup)
    for number in range(count):
        yield cut(seen, number * (PAUSE_SECONDS + seconds) + PAUSE_SECONDS, seconds)


class ChangingDevice(SharedDevice):
    """A modelled drive whose speed changes: `speed` gives it for a time, 1.0 as the profile says."""

    def __init__(self, concurrency: int, clock_ns: Callable[[], int], speed: Callable[[float], float]):
        super().__init__(concurrency, clock_ns)
        self._speed_at = speed
        self._speed = 1.0

    def submit(self, transfer: Transfer, verb: Verb) -> None:
        now_ns = transfer.submitted_ns
        speed = self._speed_at(now_ns / NS_PER_SEC)
        if speed != self._speed:
            # What is under way has as many bytes to go as before, at another speed.
            self._advance(now_ns)
            work_ns, slower = self._work_ns, self._speed / speed
            for _tag, _sequence, moving in self._active:
                moving.tag = work_ns + (moving.tag - work_ns) * slower
            self._active = [(moving.tag, sequence, moving) for _tag, sequence, moving in self._active]
            self._speed = speed
            self._arm()
        transfer.work_ns /= speed
        super().submit(transfer, verb)


@contextmanager
def changing_drive(speed: Callable[[float], float]) -> Iterator[None]:
    """Runs meanwhile meet a drive whose speed changes so."""

    def opened(config: Config, world: World, *rest: Any) -> dict[Tier, Backend]:
        backends = open_backends(config, world, *rest)
        drive = backends[Tier.STORAGE]
        assert isinstance(drive, ModelledBackend)
        drive._device = ChangingDevice(drive._model.concurrency, world.now_ns, speed)
        return backends

    with patch.object(trial, "open_backends", opened):
        yield
