"""Plug-ins that break their contract amid a load: a counted fault, never a good result, never none."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from real.rig import wait_until

RUN = (
    *("run", "--model", "tiny-1b", "--num-users", "2", "--max-requests", "6", "--request-rate", "50"),
    *("--generation-mode", "none", "--cpu-mem-gb", "0", "--quiet", "--output", "result.json"),
)
PACKAGE = """
import time
from kvspill.cache.policies.lru import LruPolicy
from kvspill.plugins import Need, Plugin
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.profiles import NULL

class Shelf(ModelledBackend):
    def __init__(self, context):
        super().__init__("shelf", NULL, context.clock_ns)

    async def read(self, batch):
        READ

    async def close(self):
        CLOSE

class Leaving(LruPolicy):
    def touch(self, key):
        exit(0)

BACKEND = Plugin("shelf", "a shelf", make=Shelf, needs=frozenset({Need.ADDRESS}), schemes=("shelf",))
POLICY = Plugin("leaving", "leaves", make=lambda context: Leaving())
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    info = tmp_path / "site" / "shelf-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1.0\n")
    groups = ("backends", "shelf", "BACKEND"), ("policies", "leaving", "POLICY")
    lines = [f"[kvspill.{group}]\n{name} = shelf_package:{what}\n" for group, name, what in groups]
    (info / "entry_points.txt").write_text("".join(lines))
    return info.parent


def begun(site: Path, read: str, *more: str, close: str = "pass") -> "subprocess.Popen[str]":
    (site / "shelf_package.py").write_text(PACKAGE.replace("READ", read).replace("CLOSE", close))
    return subprocess.Popen(
        [sys.executable, "-m", "kvspill.cli.main", *RUN, "--cache-dir", "shelf://h/x", *more],
        cwd=site.parent,
        env={**os.environ, "PYTHONPATH": str(site)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(site: Path, read: str, *more: str, close: str = "pass") -> tuple[int, str, Any]:
    with begun(site, read, *more, close=close) as process:
        _out, err = process.communicate(timeout=60)
    output = site.parent / "result.json"
    return process.returncode, err, json.loads(output.read_text()) if output.exists() else None


@pytest.mark.parametrize(
    ("read", "why"),
    [
        ("exit(0)", "SystemExit: 0"),
        ("raise LookupError('no such shelf')", "LookupError: no such shelf"),
        ("return (await super().read(batch))[1:]", "0 answers to 1 items"),
    ],
)
def test_a_backend_that_answers_no_read_leaves_a_faulty_result(site: Path, read: str, why: str) -> None:
    code, err, result = ended(site, read)
    assert code == 1
    assert "storage read bad_answer" in err
    assert "internal error" not in err
    assert result["faulty"] is True
    messages = [item["message"] for item in result["warnings"] if item["code"] == "plugin_failed"]
    assert messages == [f"The plug-in shelf of shelf 1.0 failed in read: {why}."]


def test_times_that_cannot_be_make_no_better_result(site: Path) -> None:
    read = "done = await super().read(batch); done[0].finished_ns = done[0].submitted_ns - 1000; return done"
    code, _err, result = ended(site, read)
    assert (code, result["faulty"]) == (1, True)
    assert {row["kind"] for row in result["honesty"]["errors"]} == {"bad_answer"}


def test_a_policy_that_ends_the_program_is_no_success(site: Path) -> None:
    code, err, _result = ended(site, "return await super().read(batch)", "--eviction-policy", "leaving")
    assert code == 1
    assert "a plug-in ended the run (SystemExit: 0)" in err


@pytest.mark.real
@pytest.mark.parametrize("read", ["time.sleep(60)", "sum(range(20_000_000)); time.sleep(60)"])
def test_the_first_signal_ends_a_run_whose_loop_a_plug_in_blocks(site: Path, read: str) -> None:
    """What computes is given the time for that: it ends, and the signal is heard then."""
    reads = site.parent / "reads"
    with begun(site, f"open({str(reads)!r}, 'w').close(); {read}") as process:
        wait_until(reads.exists)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            _out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 130
    assert time.monotonic() - began < (3.0 if read.startswith("time") else 10.0)
    assert err.splitlines()[-1].startswith("kvspill: error: ended by SIGTERM: a call does not return")


def test_what_no_other_process_can_remove_is_said_to_stay(site: Path) -> None:
    """A removal in the background was promised, which the backend has not."""
    close = "import asyncio; await asyncio.Event().wait()"
    seconds = ("--duration", "1")
    code, err, result = ended(site, "return await super().read(batch)", *seconds, close=close)
    assert code == 1
    stays = "The run's objects at shelf://h/x may stay: the backend shelf has not closed."
    assert stays in err
    assert "in the background" not in err
    assert stays in [item["message"] for item in result["warnings"]]
