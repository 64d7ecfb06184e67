"""Runs kv-cache.py and kvspill in turns with one load in the memory of one GPU, and prints the ratios."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kvspill.machine.gpu import why_unusable
from lib.machine import end_orderly, say, skip, table

LOAD = (
    *("--model", "llama3.1-8b", "--cpu-mem-gb", "0", "--generation-mode", "none"),
    *("--disable-prefix-caching", "--seed", "42"),
)
"""Flags that both programs have, for entries that lie in the GPU's memory and nowhere else."""
PROGRAM = "kv-cache.py"
FIGURES = {
    "gpu_read_p50_ms": False,
    "gpu_read_p95_ms": False,
    "gpu_write_p50_ms": False,
    "gpu_write_p95_ms": False,
    "tier_gpu_read_bandwidth_gbps": True,
    "tier_gpu_write_bandwidth_gbps": True,
}
"""Whether more is better."""


def result_of(words: Sequence[str], flags: Sequence[str]) -> dict[str, Any]:
    """What a program wrote of its run."""
    with tempfile.TemporaryDirectory() as folder:
        output, cache = Path(folder) / "result.json", Path(folder) / "cache"
        cache.mkdir()
        whole = [*words, *flags, "--cache-dir", str(cache), "--output", str(output)]
        done = subprocess.run(whole, capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode or not output.exists():
            raise SystemExit(f"{' '.join(whole)}\n{done.stderr[-2000:]}{done.stdout[-2000:]}")
        document: dict[str, Any] = json.loads(output.read_text())
        return document


def theirs(document: dict[str, Any]) -> dict[str, float]:
    stats = document["summary"]["cache_stats"]
    if stats["tier_storage_kv_bytes_written_gb"]:
        raise SystemExit("kv-cache.py wrote to the drive: give more --gpu-mem-gb or fewer --requests")
    return {name: float(stats[name]) for name in FIGURES}


def ours(document: dict[str, Any]) -> dict[str, float]:
    metrics = document["metrics"]
    if metrics["tier_storage_kv_bytes_written_gb"]["value"]:
        raise SystemExit("kvspill wrote to the drive: give more --gpu-mem-gb or fewer --requests")
    return {name: float(metrics[name]["value"]) for name in FIGURES}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path, help=f"directory that holds {PROGRAM}; its Python needs torch")
    parser.add_argument("--users", type=int, default=10)
    parser.add_argument("--requests", type=int, default=80)
    parser.add_argument("--gpu-mem-gb", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    reason = why_unusable()
    if reason is not None:
        return skip(reason)
    flags = [*LOAD, "--num-users", str(args.users), "--gpu-mem-gb", str(args.gpu_mem_gb)]
    flags += ["--max-requests", str(args.requests), "--duration", "300"]
    existing = [sys.executable, str(args.program.resolve() / PROGRAM)]
    own = [sys.executable, "-m", "kvspill.cli.main", "run", "--gpu-tier", "real", "--quiet"]
    before, after = [], []
    for _ in range(args.rounds):
        before.append(theirs(result_of(existing, flags)))
        say(f"{PROGRAM}: {before[-1]}")
        after.append(ours(result_of(own, flags)))
        say(f"kvspill: {after[-1]}")
    rows = []
    for name, more in FIGURES.items():
        old, new = (median(run[name] for run in runs) for runs in (before, after))
        ratio = (new / old if more else old / new) if old and new else float("nan")
        rows.append((name, f"{old:,.2f}", f"{new:,.2f}", f"{ratio:.1f}"))
    print(table(("figure", PROGRAM, "kvspill", "times better"), rows))
    print(f"{PROGRAM} copies a hit to the host's memory; kvspill reads it where it lies, as an engine does")
    return 0


if __name__ == "__main__":
    end_orderly()
    sys.exit(main())
