"""Published results side by side: kv-cache.py's tiers, vLLM and LMCache, and what a calibration predicts."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

KINDS = {
    "kvcache_gpu_only": "kv-cache.py, GPU",
    "kvcache_gpu_cpu": "kv-cache.py, GPU + CPU",
    "kvcache_gpu_cpu_nvme": "kv-cache.py, GPU + CPU + NVMe",
    "kvcache_nvme_only": "kv-cache.py, NVMe",
    "vllm_baseline": "vLLM",
    "lmcache_gpu_only": "LMCache, GPU",
    "lmcache_cpu_offload": "LMCache, CPU offload",
}
SERVERS = 246
"""Half of LMCache's prompts: two full waves."""


def main() -> int:
    """Print the table, then the prediction of LMCache's CPU set-up from its GPU set-up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="folder of the published result files")
    directory = parser.parse_args().directory
    found = {kind: [read(path) for path in sorted(directory.glob(f"{kind}_trial*.json"))] for kind in KINDS}
    print(f"{'set-up':<32}{'trials':>7}{'tokens/s':>12}{'+-':>8}{'counts':>24}")
    for kind, title in KINDS.items():
        speeds = [speed(document) for document in found[kind]]
        if speeds:
            counts = "per second of storage I/O" if kind.startswith("kvcache") else "per second of inference"
            spread = statistics.stdev(speeds)
            print(f"{title:<32}{len(speeds):>7}{statistics.mean(speeds):>12,.0f}{spread:>8,.0f}  {counts}")
    if found["lmcache_gpu_only"] and found["lmcache_cpu_offload"]:
        predict(directory, found)
    return 0


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def speed(document: dict[str, Any]) -> float:
    """Tokens per second of what the file measures: storage I/O, or inference."""
    if "total_storage_io_latency" in document:
        return float(document["total_tokens_generated"] / document["total_storage_io_latency"])
    return float(document["tokens_per_second"])


def predict(directory: Path, found: dict[str, list[dict[str, Any]]]) -> None:
    """Calibrate on LMCache's GPU set-up and hold its CPU set-up against the simulation."""
    first = sorted(directory.glob("lmcache_gpu_only_trial*.json"))[0]
    prompts = int(found["lmcache_gpu_only"][0]["num_prompts"])
    tokens = round(found["lmcache_gpu_only"][0]["total_tokens"] / prompts)
    with tempfile.TemporaryDirectory() as work:
        trace, result = Path(work) / "prompts.csv", Path(work) / "result.json"
        rows = [f"2023-11-16 18:00:00.000000,{60 + number % 440},{tokens}" for number in range(prompts)]
        trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n")
        command = [
            *(sys.executable, "-m", "kvspill.cli.main", "simulate", "--engine", "lmcache"),
            *(
                "--model",
                "mistral-7b",
                "--trace",
                f"azure:{trace}",
                "--servers",
                str(SERVERS),
                "--warmup",
                "0",
            ),
            *(
                "--calibrate-from",
                str(first),
                "--cpu-mem-gb",
                "32",
                "--gpu-tier",
                "off",
                "--storage-tier",
                "off",
            ),
            *("--quiet", "--output", str(result)),
        ]
        subprocess.run(command, check=True)
        predicted = float(read(result)["summary"]["avg_throughput_tokens_per_sec"])
    measured = statistics.mean(speed(document) for document in found["lmcache_cpu_offload"])
    print(
        f"\nCalibrated on {first.name}: CPU offload predicted {predicted:,.0f}, measured {measured:,.0f}",
        end="",
    )
    print(f" tokens/s, {predicted / measured - 1:+.1%}")


if __name__ == "__main__":
    sys.exit(main())
