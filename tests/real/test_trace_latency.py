"""--trace-latency on a real disk: the layers add up to the calls that this program timed itself."""

import json
import os
import shutil
from pathlib import Path

import pytest

from kvspill.cli.main import main

pytestmark = pytest.mark.real
RUN = (
    *("run", "--model", "tiny-1b", "--num-users", "2", "--duration", "2", "--warmup", "0.5", "--quiet"),
    *("--arrival", "closed", "--generation-mode", "none", "--cpu-mem-gb", "0", "--gpu-mem-gb", "0"),
    *("--storage-capacity-gb", "0.2", "--trace-latency"),
)


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("bpftrace") is None,
    reason="needs root and bpftrace, which are not here",
)
def test_the_layers_add_up_to_the_system_calls(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    cache = tmp_path / "cache"
    cache.mkdir()
    assert main([*RUN, "--cache-dir", str(cache), "--output", str(result)]) == 0
    found = json.loads(result.read_text())["latency_layers"]
    assert found["lost_lines"] == 0
    for verb in ("read", "write"):
        block = found[verb]
        assert sum(block["shares"].values()) == pytest.approx(1.0, abs=1e-6)
        assert block["calls"] == pytest.approx(block["own_clock_calls"], rel=0.02)
        assert block["layers_to_own_clock"] == pytest.approx(1.0, abs=0.05)
        assert block["requests"] >= block["calls"]
        # Which of the two is longer depends on what else the device does.
        assert block["layers"]["device"]["mean"] > 0
        assert block["layers"]["block_layer"]["mean"] > 0


def test_without_root_or_bpftrace_it_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main([*RUN, "--cache-dir", str(tmp_path)]) == 2
    assert "--trace-latency: needs root" in capsys.readouterr().err
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([*RUN, "--cache-dir", str(tmp_path)]) == 2
    assert "bpftrace is not installed; install it" in capsys.readouterr().err
