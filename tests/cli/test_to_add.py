"""To add a thing is to write one file or one object: each line of the design's table, shown.

Backend, eviction policy and trace format of another package are in tests/real/test_example_package.py.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kvspill
from kvspill.cli.main import main
from kvspill.config import Config
from kvspill.config.fields import flag_of
from kvspill.config.load import flag_fields
from kvspill.plugins import find_plugins
from kvspill.report import docs
from kvspill.result import result
from kvspill.result.metrics import catalog
from kvspill.result.metrics.catalog import METRICS, shown_at
from kvspill.result.metrics.metric import Metric, Place, column
from kvspill.result.warnings.kind import Kind, Severity
from kvspill.run import runner

SMALL = ["--model", "tiny-1b", "--num-users", "3", "--max-requests", "20", "--output", "result.json"]
IO_MODEL = """
from kvspill.plugins import Plugin
from kvspill.records import PlannedOp, Purpose, Verb
from kvspill.serving.io_models import InTheOpen
from kvspill.serving.io_models.whole_entry import serve_own

class ReadTwice(InTheOpen):
    def __init__(self, options):
        self.options = options

    def plan(self, request):
        nbytes = self.options.kv.of(request.context_tokens)
        write = PlannedOp(Verb.WRITE, Purpose.PREFILL, request.key, nbytes)
        return [write, PlannedOp(Verb.READ, Purpose.DECODE, request.key, nbytes, 2)]

    def stored_reads(self, request):
        return 2

    async def serve(self, service, cache):
        tokens = service.request.context_tokens
        await serve_own(service, cache, self.options.kv, tokens, 2, cache.discard)

PLUGIN = Plugin("read-twice", "reads every entry twice", ReadTwice)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    find_plugins.cache_clear()
    yield tmp_path
    find_plugins.cache_clear()


def simulated(*flags: str) -> dict[str, Any]:
    assert main(["simulate", *SMALL, *flags]) == 0
    found: dict[str, Any] = json.loads(Path("result.json").read_text())
    return found


def test_an_io_model_is_one_file_of_another_package(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = here / "site"
    info = site / "readtwice-3.1.dist-info"
    info.mkdir(parents=True)
    (site / "readtwice.py").write_text(IO_MODEL)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: readtwice\nVersion: 3.1\n")
    (info / "entry_points.txt").write_text("[kvspill.io_models]\nread-twice = readtwice:PLUGIN\n")
    monkeypatch.syspath_prepend(str(site))
    found = simulated("--io-model", "read-twice")
    assert found["config"]["packages"] == {"kvspill.io_models:read-twice": "readtwice 3.1"}
    assert found["io_model"]["name"] == "read-twice"
    counts = found["summary"]["cache_stats"]
    assert (counts["prefill_writes"], counts["decode_reads"]) == (20, 40)


def test_an_engine_preset_and_a_scenario_are_one_file_each(here: Path) -> None:
    source = Path(kvspill.__file__).parent
    copy = shutil.copytree(source, here / "src" / "kvspill", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "engines" / "brandnew.yaml").write_text("io_model: prefix\nblock_tokens: 48\n")
    (copy / "suite" / "scenarios" / "brandnew.yaml").write_text(
        "scenarios:\n  - {name: brandnew, title: Brand new, purpose: to see, config: {model: tiny-1b}}\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(here / "src")}
    kvspill_here = [sys.executable, "-m", "kvspill"]
    command = [*kvspill_here, "simulate", *SMALL, "--engine", "brandnew"]
    subprocess.run(command, env=environ, check=True, capture_output=True)
    config = json.loads((here / "result.json").read_text())["config"]
    assert (config["engine"], config["io_model"], config["block_tokens"]) == ("brandnew", "prefix", 48)
    listed = subprocess.run([*kvspill_here, "suite", "--list"], env=environ, check=True, capture_output=True)
    assert b"brandnew" in listed.stdout


def test_a_model_is_one_entry_of_a_file(here: Path) -> None:
    entry = "models:\n  mine: {layers: 2, attention: gqa, kv_heads: 2, head_dim: 16, dtype: float16}\n"
    (here / "models.yaml").write_text(entry)
    assert main(["simulate", *SMALL, "--config", "models.yaml", "--model", "mine"]) == 0
    assert json.loads((here / "result.json").read_text())["config"]["model"] == "mine"


def test_a_setting_is_its_declaration(capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "--help-all"])
    text = capsys.readouterr().out
    for name, info in flag_fields().items():
        # A switch with another name has a comma behind it.
        assert any(f"{flag_of(name)}{after}" in text for after in (" ", "\n", ", --"))
        assert info.description
    assert set(flag_fields()) <= set(Config.model_fields)


def test_a_metric_is_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = Metric(
        name="requests_squared",
        unit="requests",
        formula="completed requests, squared",
        use="to show that a metric is one object",
        misleads="always",
        function=lambda measured: measured.recorder.requests.completed**2,
        views=(column(10_000, "Requests Squared"),),
    )
    metrics = (*METRICS, metric)
    monkeypatch.setattr(catalog, "METRICS", metrics)
    monkeypatch.setattr(result, "METRICS", metrics)
    found = simulated()
    assert found["metrics"]["requests_squared"] == {"value": 400, "unit": "requests"}
    assert found["summary"]["requests_squared"] == 400
    assert shown_at(Place.COLUMN)[-1].title == "Requests Squared"
    monkeypatch.setattr(docs, "_SECTIONS", (("New", (metric,)),))
    assert "| `requests_squared` | requests | completed requests, squared |" in docs.metrics_page()


def test_a_warning_is_one_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    warning = Kind(
        "blue_moon",
        "the moon is blue",
        "The moon is {colour} tonight.",
        "Wait until it is {other} again.",
        Severity.SERIOUS,
    )
    caution = warning.of(colour="blue", other="white")
    monkeypatch.setattr(runner, "_unused", lambda _config: [caution])
    found = [item for item in simulated()["warnings"] if item["code"] == "blue_moon"]
    assert [item["message"] for item in found] == ["The moon is blue tonight."]
    assert found[0]["severity"] == "serious"
    assert "The moon is blue tonight." in capsys.readouterr().out
    assert main(["report", "result.json", "-o", "page.html"]) == 0
    page = (here / "page.html").read_text()
    assert "The moon is blue tonight." in page
    assert "Wait until it is white again." in page
    assert replace(warning, code="other").of(colour="x", other="y").code == "other"
