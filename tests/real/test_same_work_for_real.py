"""Fixed work of one server on a real disk: a simulation foretells its hits, bytes and evictions (P3)."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main

pytestmark = pytest.mark.real
FIXED = [
    "--servers",
    "1",
    "--max-requests",
    "16",
    "--num-users",
    "4",
    "--model",
    "tiny-1b",
    "--generation-mode",
    "none",
    "--quiet",
]
SMALL = ["--arrival", "closed", "--storage-capacity-gb", "0.2", "--cpu-mem-gb", "0.05"]
SAME = (
    "cache_hits",
    "cache_misses",
    "storage_evicted_entries",
    "tier_storage_kv_bytes_read_gb",
    "tier_storage_kv_bytes_written_gb",
    "tier_cpu_kv_bytes_read_gb",
    "tier_cpu_kv_bytes_written_gb",
)


@pytest.mark.parametrize("model", ["prefix", pytest.param("mlperf", marks=pytest.mark.slow)])
def test_a_simulation_does_the_work_of_the_real_run(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    work: list[dict[str, Any]] = []
    for command in ("simulate", "run"):
        assert main([command, *FIXED, *SMALL, "--io-model", model, "--output", f"{command}.json"]) == 0
        result = json.loads(Path(f"{command}.json").read_text())
        counts = {name: result["metrics"][name]["value"] for name in SAME}
        work.append({"digest": result["digest"], **counts})
    assert work[0] == work[1]
    assert work[0]["storage_evicted_entries"] > 5
    assert work[0]["cache_hits"] > 10
