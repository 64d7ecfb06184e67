"""What is exported to fio is what fio does: the same bytes and calls, run here."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed"),
]
RUN = (
    *("run", "--model", "tiny-1b", "--num-users", "3", "--duration", "2", "--warmup", "0.5", "--quiet"),
    *("--arrival", "closed", "--generation-mode", "none", "--cpu-mem-gb", "0", "--gpu-mem-gb", "0"),
    *("--storage-capacity-gb", "0.2"),
)


def played(job: Path) -> list[dict[str, Any]]:
    command = ["fio", "--output-format=json", str(job)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, cwd=job.parent)
    jobs: list[dict[str, Any]] = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    return jobs


@pytest.mark.slow
def test_fio_does_what_the_result_and_the_log_say(tmp_path: Path) -> None:
    cache, log, result = tmp_path / "cache", tmp_path / "ops.parquet", tmp_path / "result.json"
    cache.mkdir()
    assert main([*RUN, "--cache-dir", str(cache), "--log-ops", str(log), "--output", str(result)]) == 0
    asked = json.loads(result.read_text())["honesty"]["bytes"]
    job = tmp_path / "job.fio"
    assert main(["export", "fio", str(result), "-o", str(job), "--directory", str(cache)]) == 0
    by_verb = {verb: sum(done[verb]["io_bytes"] for done in played(job)) for verb in ("read", "write")}
    assert by_verb["read"] == pytest.approx(asked["asked_read_bytes"], rel=0.005)
    assert by_verb["write"] == pytest.approx(asked["asked_written_bytes"], rel=0.005)
    replay = tmp_path / "replay.fio"
    wanted = ["export", "fio", str(log), "-o", str(replay), "--directory", str(cache), "--no-stall"]
    assert main(wanted) == 0
    rows = pytest.importorskip("pyarrow.parquet").read_table(log).to_pylist()
    done = played(replay)
    for verb in ("read", "write"):
        logged = [row for row in rows if row["verb"] == verb and row["error"] is None]
        assert sum(one[verb]["io_bytes"] for one in done) == sum(row["stored_bytes"] for row in logged)
        assert sum(one[verb]["total_ios"] for one in done) == sum(row["pieces"] for row in logged)
