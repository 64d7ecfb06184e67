"""A preset compared with an engine that runs: what the kernel saw of both; what an altered preset does."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.config import Config
from kvspill.machine.kernel import process_exists
from kvspill.plan.validate.sides import Engine
from kvspill.plan.validate.validate import validate
from kvspill.plan.validate.verdict import DIFFERS, EQUAL
from kvspill.plan.validate.view import text_of
from real.rig import wait_until

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]
PLAIN = Engine("lmcache", str(Path(__file__).with_name("plain_engine.py")), "json", ())


def held(tmp_path: Path, rounds: int, **altered: Any) -> dict[str, Any]:
    config = Config(engine="lmcache", model="tiny-1b", verify="off", **altered)
    found = validate(config, PLAIN, sys.executable, tmp_path, rounds, lambda _text: None)
    assert list(tmp_path.iterdir()) == []
    return found


def test_the_preset_of_a_file_per_chunk_makes_the_calls_of_a_plain_engine(tmp_path: Path) -> None:
    found = held(tmp_path, 0)
    rows = {row["name"]: row for row in found["rows"]}
    assert {row["verdict"] for row in rows.values()} == {EQUAL}, found["rows"]
    chunk = 256 * 24_576
    assert rows["reads: bytes each"]["ours"] == f"60 x {chunk}"
    assert rows["writes: bytes each"]["ours"] == f"40 x {chunk}"
    assert found["passed"]


@pytest.mark.slow
def test_rounds_are_timed_in_alternation(tmp_path: Path) -> None:
    rows = {row["name"]: row for row in held(tmp_path, 2)["rows"]}
    assert rows["load ms per block"]["verdict"] == "not judged"
    assert rows["load ms per block"]["engine"] > 0
    assert rows["load ms per block"]["ours"] > 0


def test_an_altered_preset_fails_with_the_rows_that_changed(tmp_path: Path) -> None:
    found = held(tmp_path, 0, rename="on", preallocate="on", io_size="2MiB", max_requests=6)
    differing = [row["name"] for row in found["rows"] if row["verdict"] == DIFFERS]
    assert {"renamed", "reserved", "reads", "writes"} <= set(differing)
    assert "reads: bytes" not in differing
    assert not found["passed"]
    assert "The preset lmcache differs from the engine: reads" in text_of(found)


INTERRUPTED = """\
import sys
from kvspill.cli.start import main
from kvspill.plan.validate import sides
sides.ENGINES["lmcache"] = sides.Engine("lmcache", sys.argv.pop(), "json", ())
sys.exit(main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_validation_with_the_engine_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    """It waited for the engine, which went on to write into the directory that was being removed."""
    cache_dir = tmp_path / "cache"
    cache_dir.mkdir()
    words = ("validate", "lmcache", "--engine-python", sys.executable, "--model", "tiny-1b", "--quiet")
    slow = str(Path(__file__).with_name("slow_engine.py"))
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, *words, "--cache-dir", str(cache_dir), slow],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    try:
        wait_until(lambda: [*cache_dir.glob("*/**/10")])
        process.send_signal(number)
        began = time.monotonic()
        _, said = process.communicate(timeout=30)
        took = time.monotonic() - began
    finally:
        process.kill()
    assert (process.returncode, said) == (130, "kvspill: error: interrupted\n")
    assert took < 3
    time.sleep(0.2)
    assert [*cache_dir.iterdir()] == []
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


@pytest.mark.parametrize("by", ["clean", "the next validation"])
def test_what_a_killed_validation_left_is_removed(tmp_path: Path, by: str) -> None:
    """It stayed for ever: nothing told that it was ours."""
    task = {"requests": [], "directory": ""}
    engine = [sys.executable, str(Path(__file__).with_name("slow_engine.py"))]
    script = "import sys; from pathlib import Path; from kvspill.plan.validate.sides import Side\n"
    script += f"side = Side('x', {engine}, Path(sys.argv[1]), {task})\n"
    script += "print(side._process.pid, flush=True); side.play()"
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=-1, text=True) as process:
        assert process.stdout is not None
        engine_pid = int(process.stdout.readline())
        wait_until(lambda: [*tmp_path.glob("*/**/10")])
        assert main(["clean", "--yes", str(tmp_path)]) == 0
        assert [*tmp_path.glob("*/**/10")], "it goes on"
        process.kill()
        os.killpg(engine_pid, signal.SIGKILL)
    (folder,) = (path.parent for path in tmp_path.glob("*/**/10"))
    (folder / "a" / "b" / "c").mkdir(parents=True)
    (folder / "a" / "b" / "model@1.data").write_text("an engine's names are its own")
    wait_until(lambda: not process_exists(engine_pid))
    if by == "clean":
        assert main(["clean", str(tmp_path)]) == 0
    else:
        held(tmp_path, 0, max_requests=2)
    assert list(tmp_path.iterdir()) == []
