"""The example package: installed beside kvspill it appears everywhere, runs and passes the contracts."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "kvspill-mystore"
PACKAGE = "kvspill-mystore 0.1.0"
SMALL = ("--model", "tiny-1b", "--quiet", "--max-requests", "10", "--generation-mode", "none")


class Installed:
    """kvspill with the example beside it, in a directory of its own."""

    def __init__(self, site: Path, here: Path) -> None:
        self.here = here
        self._environ = {**os.environ, "PYTHONPATH": str(site)}

    def python(self, *arguments: str, code: int = 0) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=self.here, env=self._environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout + done.stderr

    def kvspill(self, *arguments: str, code: int = 0) -> str:
        return self.python("-m", "kvspill", *arguments, code=code)

    def result(self, *arguments: str) -> dict[str, Any]:
        self.kvspill(*arguments, *SMALL, "--output", "result.json")
        found: dict[str, Any] = json.loads((self.here / "result.json").read_text())
        return found


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    site, here = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("here")
    # A copy, so that the build leaves nothing in the tree.
    source = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("source") / "example")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(site), str(source)], check=True, capture_output=True)
    return Installed(site, here)


def test_help_lists_the_names_and_the_options(installed: Installed) -> None:
    text = " ".join(installed.kvspill("run", "--help-all").split())
    assert "|mystore" in text.split("--storage-backend ")[1].split(" ")[0]
    assert "|mru" in text.split("--eviction-policy ")[1].split(" ")[0]
    assert "|read-twice" in text.split("--io-model ")[1].split(" ")[0]
    assert "simplecsv" in text.split("--trace FORMAT:PATH")[1][:200]
    assert f"Plug-in mystore, from {PACKAGE}: one log file with an index and checksums" in text
    assert "--mystore-threads N I/O threads [8]" in text


def test_doctor_lists_them_with_their_package(installed: Installed) -> None:
    answer = json.loads(installed.kvspill("doctor", "--json", "--cache-dir", str(ROOT)))
    found = {check["name"]: check["finding"] for check in answer["checks"] if check["group"] == "plug-ins"}
    names = ("backend mystore", "eviction policy mru", "trace format simplecsv", "I/O model read-twice")
    for name in names:
        assert found[name].startswith(f"ready, from {PACKAGE}")


def test_a_run_stores_through_the_backend_and_the_result_and_page_name_it(installed: Installed) -> None:
    place = ["--cache-dir", str(installed.here), "--cpu-mem-gb", "0.1", "--storage-capacity-gb", "1"]
    place += ["--request-rate", "100"]
    result = installed.result("run", "--storage-backend", "mystore", "--mystore-threads", "3", *place)
    assert result["config"]["storage_backend"] == "mystore"
    assert result["config"]["plugins"] == {"mystore": {"threads": 3}}
    assert result["config"]["packages"] == {"kvspill.backends:mystore": PACKAGE}
    assert [tier["backend"] for tier in result["tiers"]] == ["dram", "mystore"]
    assert sum(result["honesty"]["files_opened"].values()) == 1
    assert result["summary"]["requests_completed"] == 10
    assert list(installed.here.glob("kvspill-[0-9]*")) == []
    installed.kvspill("report", "result.json", "-o", "page.html")
    page = (installed.here / "page.html").read_text()
    assert "mystore; one log file" in page
    assert PACKAGE in page


def test_a_policy_and_a_trace_format_work_and_are_named(installed: Installed) -> None:
    capacity = ["--cpu-mem-gb", "0.1", "--storage-capacity-gb", "1"]
    result = installed.result(
        "simulate", "--eviction-policy", "mru", "--trace", "simplecsv:sample", *capacity
    )
    assert result["workload"]["kind"] == "simplecsv"
    assert result["config"]["eviction_policy"] == "mru"
    assert result["config"]["packages"] == {
        "kvspill.policies:mru": PACKAGE,
        "kvspill.traces:simplecsv": PACKAGE,
    }


def test_an_i_o_model_works_as_its_page_has_it(installed: Installed) -> None:
    capacity = ["--cpu-mem-gb", "0.1", "--storage-capacity-gb", "1"]
    result = installed.result("simulate", "--io-model", "read-twice", *capacity)
    assert result["config"]["packages"] == {"kvspill.io_models:read-twice": PACKAGE}
    assert result["summary"]["requests_completed"] == 10
    assert result["metrics"]["cache_hits"]["value"] == 20
    _, code = (EXAMPLE / "src" / "kvspill_mystore" / "io_model.py").read_text().split("\n\n", 1)
    assert code in (ROOT / "docs" / "plugins.md").read_text()


def test_a_wrong_option_and_a_wrong_name_are_refused_with_the_remedy(installed: Installed) -> None:
    said = installed.kvspill("run", "--storage-backend", "mystor", code=2)
    assert "--storage-backend mystor: unknown; did you mean mystore?" in said
    said = installed.kvspill("run", "--storage-backend", "mystore", "--mystore-threads", "0", code=2)
    assert "--mystore-threads 0: out of range; give 1 to 256" in said


def test_the_contract_suites_pass(installed: Installed) -> None:
    said = installed.python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests"))
    assert " passed" in said
    assert "failed" not in said
