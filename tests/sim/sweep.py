"""Whole runs in virtual time, each drawn from a seed: load, tiers, faults and the moment it is stopped.

`python tests/sim/sweep.py 17` replays seed 17; `python tests/sim/sweep.py 0:10000` runs many.
"""

import asyncio
import json
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kvspill.cache.cache import Cache
from kvspill.config import Config
from kvspill.records import GIB, MIB, NS_PER_SEC, Tier
from kvspill.result.facts import RunFacts
from kvspill.result.result import build_result
from kvspill.run import load, stages, trial, whole
from kvspill.run.build import build_cache as real_build_cache
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.profiles import DeviceModel
from kvspill.world import World
from sim.auditor import Auditor
from sim.harness import LEAF_FIRST_NAMES, POLICY_NAMES
from sim.hazards import HazardousDevice, Hazards, Outage

REPLAY = "python tests/sim/sweep.py {seed}"
WHOLE_RESULT_EVERY = 10
"""Building the whole result costs as much as the run; every so manieth seed does it."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What one seed stands for."""

    seed: int
    config: Config
    devices: dict[Tier, DeviceModel]
    hazards: dict[Tier, Hazards]
    stop_at_ns: int | None
    """When a signal ends the load, if it does."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one seed."""

    digest: str
    checks: int
    faults: Counter[str]
    hangs: int
    failed: int
    completed: int
    stopped: bool


class SeedFailed(AssertionError):  # noqa: N818 - names what happened
    """Names the seed and the command that replays it."""

    def __init__(self, seed: int, error: BaseException) -> None:
        super().__init__(f"seed {seed}: {type(error).__name__}: {error}\nreplay: {REPLAY.format(seed=seed)}")


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    rng = random.Random(seed)
    duration = rng.choice([0.7, 1.5, 3.0])
    config = _draw_config(seed, rng, duration)
    tiers = [
        tier
        for tier, given in (
            (Tier.GPU, config.gpu_bytes),
            (Tier.CPU, config.cpu_bytes),
            (Tier.STORAGE, config.storage_bytes),
        )
        if given
    ]
    span_ns = round(duration * NS_PER_SEC)
    healthy = rng.random() < 0.1
    hazards = {tier: Hazards() if healthy else _draw_hazards(rng, span_ns, config, tier) for tier in tiers}
    devices = {tier: _draw_device(rng, tier) for tier in tiers}
    stop_at_ns = rng.randrange(span_ns) if rng.random() < 0.15 else None
    return Scenario(seed, config, devices, hazards, stop_at_ns)


def _draw_config(seed: int, rng: random.Random, duration: float) -> Config:
    storage = rng.random() < 0.85
    counted = rng.random() < 0.3
    think = rng.choice([[0.02, 0.1], [0.1, 0.5]])
    largest = rng.choice([64, 128, 256])
    persona = {"context": [8, largest], "generate": [8, 90], "think": think}
    mib = MIB / GIB
    io_model = rng.choice(["mlperf", "mlperf", "mlperf", "prefix", "prefix", "stream"])
    policies = LEAF_FIRST_NAMES if io_model == "prefix" else POLICY_NAMES
    return Config(
        model="tiny-1b",
        seed=seed,
        num_users=rng.randint(1, 8),
        duration=None if counted else duration,
        max_requests=rng.randint(1, 60) if counted else None,
        warmup=rng.choice([0.0, 0.1]),
        arrival=rng.choice(["open", "closed"]),
        servers=rng.choice([None, None, 1, 3]),
        max_queue=rng.choice([1_000_000, 1_000_000, 3]),
        max_concurrent_allocs=rng.choice([0, 0, 1, 2]),
        history=rng.choice(["previous", "all"]),
        generation_mode=rng.choice(["none", "fast", "fast"]),
        prefill_only_tokens=rng.choice([10_000, 10_000, 100]),
        personas=dict.fromkeys(("chatbot", "coding", "document"), persona),
        gpu_mem_gb=rng.choice([0, 0, 4, 12]) * mib,
        cpu_mem_gb=(rng.choice([0, 8, 24]) if storage else 8 + rng.randint(0, 24)) * mib,
        storage_tier="on" if storage else "off",
        storage_capacity_gb=rng.choice([7, 16, 48]) * mib if storage else None,
        placement=rng.choice(["waterfall", "waterfall", "spill"]),
        eviction_policy=rng.choice(sorted(name for name in policies if name != "none")),
        storage_eviction_policy=rng.choice([None, None, None, "none"]),
        io_model=io_model,
        block_tokens=rng.choice([8, 32]),
        promote=rng.choice(["on", "off"]),
        write_policy=rng.choice(["back", "through"]),
        write_queue_blocks=rng.choice([16_384, 5]),
        admit_uses=rng.choice([1, 1, 2]),
        stream_tokens_per_read=rng.choice([8, 32]),
    )


def _draw_hazards(rng: random.Random, span_ns: int, config: Config, tier: Tier) -> Hazards:
    """One device's dangers: most often one or two kinds, each with a chance of its own."""
    fail = {verb: rng.choice([0.01, 0.1, 0.5]) for verb in ("read", "write", "delete") if rng.random() < 0.4}
    outages = []
    if rng.random() < 0.25:
        from_ns = rng.randrange(span_ns)
        verbs, kind = rng.choice(
            [
                (("read", "write", "delete"), "ESTALE"),
                (("write", "delete"), "EROFS"),
                (("read", "write"), "EIO"),
                (("write",), "ENOSPC"),
            ]
        )
        outages.append(Outage(from_ns, from_ns + rng.randrange(1, 2 * span_ns), kind, verbs))
    whole = config.storage_bytes or 0
    small_disk = tier is Tier.STORAGE and rng.random() < 0.2
    may_hang = config.duration is not None and rng.random() < 0.15
    return Hazards(
        fail=fail,
        rot=rng.choice([0.0, 0.0, 0.02, 0.3]),
        slow=rng.choice([0.0, 0.0, 0.05]),
        slow_ns=rng.choice([NS_PER_SEC // 100, NS_PER_SEC]),
        hang=0.01 if may_hang else 0.0,
        stubborn=rng.random() < 0.5,
        disk_bytes=rng.randrange(whole) if small_disk else None,
        outages=tuple(outages),
    )


def _draw_device(rng: random.Random, tier: Tier) -> DeviceModel:
    speed = {Tier.GPU: 20.0, Tier.CPU: 4.0, Tier.STORAGE: 1.0}[tier] * rng.choice([0.2, 1.0, 4.0])
    latency_us = rng.choice([0, 20, 500])
    return DeviceModel(speed, speed / 2, latency_us, latency_us, 50, concurrency=rng.choice([0, 1, 8]))


def run_seed(seed: int) -> Outcome:
    """Run a seed and check it; raises SeedFailed with the command that replays it."""
    try:
        return run_scenario(draw(seed))
    except Exception as error:
        raise SeedFailed(seed, error) from error


def run_scenario(scenario: Scenario) -> Outcome:
    """Run it with an auditor at its side; raises where something does not hold."""
    auditors: list[Auditor] = []
    caches: list[Cache] = []
    devices: dict[Tier, HazardousDevice] = {}

    def open_devices(_config: Config, world: World, limits: dict[Tier, int], *_rest: Any) -> Any:
        if scenario.stop_at_ns is not None:
            asyncio.get_running_loop().call_later(
                scenario.stop_at_ns / NS_PER_SEC, signal.raise_signal, signal.SIGINT
            )
        for tier in limits:
            inner = ModelledBackend("modelled", scenario.devices[tier], world.now_ns)
            rng = random.Random(f"{scenario.seed} {tier}")
            devices[tier] = HazardousDevice(inner, scenario.hazards[tier], rng, world.now_ns)
        return dict(devices)

    def make_auditor(*arguments: Any) -> Auditor:
        auditor = Auditor(*arguments)
        auditor.config, auditor.cache = scenario.config, caches[-1]
        auditors.append(auditor)
        return auditor

    def build_cache(*arguments: Any) -> Any:
        caches.append(real_build_cache(*arguments))
        return caches[-1]

    def judge(config: Config, facts: RunFacts, recorder: Auditor, *rest: Any, **more: Any) -> SimpleNamespace:
        end_ns = None
        if config.duration is not None:
            end_ns = facts.load_start_ns + round(config.duration * NS_PER_SEC)
        recorder.check_end(facts, end_ns)
        if scenario.seed % WHOLE_RESULT_EVERY == 0:
            json.dumps(build_result(config, facts, recorder, *rest, **more).document(), allow_nan=False)
        return SimpleNamespace(
            failed=facts.failed, completed=facts.completed, interrupted=facts.interrupted, warnings=[]
        )

    plan = Plan(scenario.config, simulated=True, storage_bytes=scenario.config.storage_bytes or 0)
    with (
        mock.patch.object(trial, "open_backends", open_devices),
        mock.patch.object(load, "build_cache", build_cache),
        mock.patch.object(whole, "build_result", judge),
        mock.patch.object(stages, "Recorder", make_auditor),
    ):
        try:
            result: Any = trial.run_trial(plan, Progress(quiet=True))
        except KeyboardInterrupt:
            result = SimpleNamespace(failed=0, completed=0, interrupted="before the load")
    return Outcome(
        digest=auditors[-1].digest if auditors else "",
        checks=sum(auditor.checks for auditor in auditors),
        faults=Counter(fault.kind for device in devices.values() for fault in device.faults),
        hangs=sum(device.hangs for device in devices.values()),
        failed=result.failed,
        completed=result.completed,
        stopped=result.interrupted is not None,
    )


def main(argv: list[str]) -> int:
    """Run the seeds of a command line such as `17` or `0:1000` and print what was survived."""
    first, _, last = argv[0].partition(":")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    totals: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    started = time.monotonic()
    for seed in seeds:
        outcome = run_seed(seed)
        faults += outcome.faults
        totals.update(
            checks=outcome.checks,
            hangs=outcome.hangs,
            failed=outcome.failed,
            completed=outcome.completed,
            stopped=outcome.stopped,
        )
        if len(seeds) == 1:
            print(f"digest {outcome.digest}")
    print(f"{len(seeds)} seeds in {time.monotonic() - started:.1f} s: {dict(totals)}")
    print(f"faults survived: {sum(faults.values())}: {dict(faults.most_common())}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
