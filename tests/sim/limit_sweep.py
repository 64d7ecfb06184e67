"""Devices of known speed and the brute-force answers about them: fixed user counts, one long run each."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kvspill.config import Config
from kvspill.records import (
    GIB,
    NS_PER_SEC,
    UNLIMITED_BYTES,
    Observer,
    OpRecord,
    QoS,
    RequestRecord,
    Tier,
    Verb,
)
from kvspill.run.build import build_cache, build_engine, build_workload
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.run.trial import run_trial
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.profiles import DeviceModel
from kvspill.world import World, run_virtual

LATENCY_US = 0
WRITE_SHARE = 0.7
SPEEDS_GIB_PER_SEC = {
    "tiny-1b": (0.5, 0.8, 1.2, 1.8, 2.7),
    "llama3.1-8b": (2.0, 3.5, 5.0, 8.0, 12.0),
    "llama3.1-70b-instruct": (6.0, 9.0, 14.0, 22.0, 36.0),
}
"""Each model's own speeds, so that the limits lie between about ten and a hundred users."""
CASES = [(model, speed) for model, speeds in SPEEDS_GIB_PER_SEC.items() for speed in speeds]
REQUESTS_PER_INTERVAL = 30
TOKENS_PER_REQUEST = 2750
"""KV tokens that a mean request of the sweep moves."""
SLO_CLASSES = {"responsive": QoS.RESPONSIVE, "batch": QoS.BATCH}
"""Classes that have users at every limit of the sweep."""
PERSONAS = {
    "chatbot": {"context": (512, 2048), "generate": (50, 150), "think": (2.0, 6.0)},
    "coding": {"weight": 0.0},
    "document": {"weight": 0.0},
}


def device(speed_gib_per_sec: float) -> DeviceModel:
    return DeviceModel(speed_gib_per_sec, speed_gib_per_sec * WRITE_SHARE, LATENCY_US, LATENCY_US, LATENCY_US)


def profile_file(directory: Path, speed_gib_per_sec: float) -> str:
    """The device as a profile that a configuration can name."""
    model = device(speed_gib_per_sec)
    path = directory / f"device-{speed_gib_per_sec:g}.yaml"
    figures = (
        f"read_gib_per_sec: {model.read_gib_per_sec}, write_gib_per_sec: {model.write_gib_per_sec}, "
        f"read_latency_us: {LATENCY_US}, write_latency_us: {LATENCY_US}, delete_latency_us: {LATENCY_US}"
    )
    path.write_text(f"storage: {{{figures}}}\n")
    return str(path)


def sweep_config(model: str, **changes: Any) -> Config:
    """A light workload: few reads per request, so that virtual time is cheap."""
    values: dict[str, Any] = {
        "model": model,
        "personas": PERSONAS,
        "decode_batch_size": 1000,
        "disable_multi_turn": True,
        "disable_prefix_caching": True,
        "generation_mode": "none",
        "cpu_mem_gb": 0,
        "duration": 3000.0,
        "quiet": True,
        **changes,
    }
    return Config(**values)


def pace_seconds(config: Config, speed_gib_per_sec: float) -> float:
    """An interval in which the saturated device completes so many requests."""
    request_seconds = TOKENS_PER_REQUEST * config.kv.bytes_per_token / (speed_gib_per_sec * GIB)
    return REQUESTS_PER_INTERVAL * request_seconds


def slo_ms(config: Config, speed_gib_per_sec: float) -> float:
    """A promise of twelve times what a mean request takes on the idle device: there latency rises steeply."""
    return 12000 * TOKENS_PER_REQUEST * config.kv.bytes_per_token / (speed_gib_per_sec * GIB)


def search_config(directory: Path, model: str, speed_gib_per_sec: float, mode: str, **changes: Any) -> Config:
    """The configuration of a search on that device."""
    plain = sweep_config(model)
    values: dict[str, Any] = {
        "enable_autoscaling": True,
        "autoscaler_mode": mode,
        "arrival": "closed",
        "device_profile": profile_file(directory, speed_gib_per_sec),
        "num_users": 16,
        "autoscaler_interval": pace_seconds(plain, speed_gib_per_sec),
        "slo_target_ms": slo_ms(plain, speed_gib_per_sec),
        **changes,
    }
    return sweep_config(model, **values)


def search(config: Config) -> dict[str, Any]:
    """The result of a simulated run."""
    return run_trial(Plan(config, True, UNLIMITED_BYTES), Progress(True)).document()


@dataclass
class Rows(Observer):
    """Rows of a run with a fixed number of users, from from_ns on."""

    from_ns: int
    reads: list[tuple[int, int]] = field(default_factory=list)
    moved_bytes: int = 0
    requests: list[RequestRecord] = field(default_factory=list)

    def op(self, record: OpRecord) -> None:
        completion = record.completion
        if record.verb is Verb.DELETE or completion.error or completion.finished_ns < self.from_ns:
            return
        self.moved_bytes += record.times * record.nbytes
        if record.verb is Verb.READ:
            self.reads += [(completion.finished_ns - completion.submitted_ns, record.nbytes)] * record.times

    def request(self, record: RequestRecord) -> None:
        if record.finished_ns >= self.from_ns:
            self.requests.append(record)


@dataclass(frozen=True)
class Fixed:
    """What brute force knows of one user count."""

    saturation: float
    kv_tokens_per_sec: float
    tokens_per_sec: float
    rows: Rows
    unfinished: list[tuple[QoS, int]]

    def late_share(self, limit_ms: float, qos: QoS) -> float:
        found = [record.end_to_end_ns for record in self.rows.requests if record.request.qos is qos]
        return sum(value > limit_ms * 1e6 for value in found) / len(found) if found else math.nan


def fixed_users(config: Config, speed_gib_per_sec: float, users: int, seconds: float, warm: float) -> Fixed:
    """Run so many users for so long on the device; the warm seconds at the start don't count."""
    config = config.changed(num_users=users, duration=seconds, enable_autoscaling=False)
    model = device(speed_gib_per_sec)

    async def main(world: World) -> Fixed:
        rows = Rows(round(warm * NS_PER_SEC))
        limits = {Tier.STORAGE: UNLIMITED_BYTES}
        backend = ModelledBackend("modelled", model, world.now_ns)
        cache = build_cache(config, world, rows, {Tier.STORAGE: backend}, limits)
        engine = build_engine(config, world, rows, cache, 0, build_workload(config, world, limits))
        unfinished: list[Any] = []
        await engine.run(lambda: unfinished.extend(zip(*engine.unfinished(world.now_ns())[:2], strict=True)))
        return summarise(config, model, rows, seconds - warm, unfinished)

    return run_virtual(main, config.seed)


def summarise(config: Config, model: DeviceModel, rows: Rows, seconds: float, unfinished: Any) -> Fixed:
    """Saturation by the definition: the p95 that these reads would have had alone over the one they had."""
    taken_ns = np.array([taken for taken, _ in rows.reads] or [1])
    alone_ns = np.array([LATENCY_US * 1000 + model.read_ns(nbytes) for _, nbytes in rows.reads] or [1])
    p95_alone, p95 = (np.percentile(values, 95, method="inverted_cdf") for values in (alone_ns, taken_ns))
    return Fixed(
        saturation=1 - p95_alone / p95,
        kv_tokens_per_sec=rows.moved_bytes / config.kv.bytes_per_token / seconds,
        tokens_per_sec=sum(record.generated_tokens for record in rows.requests) / seconds,
        rows=rows,
        unfinished=unfinished,
    )


def peak_kv_tokens_per_sec(config: Config, speed_gib_per_sec: float, read: float, written: float) -> float:
    """What the device can do at most with this mix of reads and writes: it never rests."""
    model = device(speed_gib_per_sec)
    busy_seconds = (model.read_ns(read) + model.write_ns(written)) / 1e9
    return (read + written) / busy_seconds / config.kv.bytes_per_token
