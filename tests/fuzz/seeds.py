"""Well-formed inputs to begin from: recordings of ours, configurations, results, command lines."""

import json
import struct
import tempfile
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgpack

from kvspill.config import Config
from kvspill.config.load import to_yaml
from kvspill.report.tables import csv_text, row_of, write_xlsx
from kvspill.result.reading import our_result as load_whole
from kvspill.run import trial
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.suite.manifest import NAME, new_manifest, save
from kvspill.suite.scenario import Scenario

_SAMPLE_BYTES = 6000
PROFILE = b"storage: {read_gib_per_sec: 2, write_gib_per_sec: 1.5, read_latency_us: 100, concurrency: 8}\n"
HARNESS_YAML = b"""\
model_configs: {mine: {name: Mine, num_layers: 3, hidden_dim: 64, num_heads: 4, kv_heads: 2, dtype: float16}}
user_templates: {chatbot: {context_range: [1, 9], generation_range: [1, 9], think_time_range: [0.1, 0.5]}}
qos_distribution: {interactive_probability: 0.2, responsive_threshold: 0.5}
decode: {batch_size: 32}
"""


@cache
def result() -> bytes:
    """A whole result, the same every time."""
    config = Config(model="tiny-1b", num_users=2, max_requests=6, generation_mode="none")
    plan = Plan(config, simulated=True, storage_bytes=1 << 40)
    result = trial.run_trial(plan, Progress(quiet=True)).document()
    return json.dumps({**result, "created_at": "2026-01-01T00:00:00+00:00"}).encode()


@cache
def tables() -> list[bytes]:
    """The row of that result as CSV and as a workbook."""
    whole = load_whole(json.loads(result()), Path("r.json"))
    rows = [row_of("r", whole)]
    with tempfile.TemporaryDirectory() as folder:
        return [csv_text(rows).encode(), write_xlsx(Path(folder) / "t.xlsx", rows).read_bytes()]


def manifest() -> bytes:
    """A suite of one row that is still to run."""
    settings = {"model": "tiny-1b", "num_users": 1, "max_requests": 2}
    scenario = Scenario("a", "a", "", settings, "own.yaml")
    with tempfile.TemporaryDirectory() as folder:
        made = new_manifest("suite", [scenario], ["note"], simulated=True, quick=True)
        save(Path(folder), replace(made, created_at=""))
        return (Path(folder) / NAME).read_bytes()


def samples(kind: str) -> list[bytes]:
    """Beginnings of our own recordings of a format."""
    folder = Path(str(files("kvspill.workload") / "samples"))
    found = {
        "azure": ["azure.csv"],
        "bailian": ["bailian.jsonl"],
        "burstgpt": ["burstgpt.csv"],
        "kvcache": ["kvcache.jsonl"],
        "lmcache": ["lmcache.jsonl"],
        "mooncake": ["mooncake.jsonl"],
        "weka": sorted(f"weka/{path.name}" for path in (folder / "weka").glob("*.json"))[:2],
    }
    if kind == "sharegpt":
        some = json.loads((folder / "sharegpt_500.json").read_text())[:4]
        return [json.dumps(some).encode()]
    if kind == "lct":
        return [storage_trace()]
    raw = [(folder / name).read_bytes() for name in found[kind]]
    return [data if kind == "weka" else data[:_SAMPLE_BYTES].rsplit(b"\n", 1)[0] + b"\n" for data in raw]


def storage_trace() -> bytes:
    """Two lookups as LMCache records its calls, frame by frame."""
    records: list[dict[str, Any]] = [{"type": "header", "magic": b"LMCT", "format_version": 1}]
    for number in (1, 3):
        keys = [{"__t__": "ObjectKey", "v": {"chunk_hash": bytes([key]) * 4}} for key in range(number)]
        call = {"qualname": "a.submit_prefetch_task", "t_mono": number / 2, "args": {"spec": keys}}
        records.append(call)
    frames = [msgpack.packb(record) for record in records]
    return b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)


def scenarios() -> list[bytes]:
    folder = Path(str(files("kvspill.suite") / "scenarios"))
    return [(folder / name).read_bytes() for name in ("production.yaml", "smoke.yaml")]


def command_lines() -> list[bytes]:
    lines = (
        "run --model tiny-1b --num-users 3 --duration 5 --cache-dir . --output r.json",
        "simulate --max-requests 5 --device-profile nvme-gen4 --eviction-policy s3-fifo --seed 7",
        "quick --num-users 2 --io-size 1MiB",
        "suite storage-only --quick --dry-run --simulate --set num_users=3",
        "compare a.json -- b.json --fail-if-slower 5%",
        "report a.json -o b.html --title x",
        "models --tensor-parallel 2",
        "clean .",
    )
    return [line.replace(" ", "\0").encode() for line in lines]


def seeds(target: str) -> list[bytes]:
    """Where mutations of a target's input begin."""
    if target == "yaml":
        return [to_yaml(Config()).encode(), HARNESS_YAML]
    if target == "profile":
        return [PROFILE]
    if target == "scenario":
        return scenarios()
    if target == "result":
        return [result()]
    if target == "table":
        return tables()
    if target == "manifest":
        return [manifest()]
    if target == "words":
        return command_lines()
    return samples(target)
