"""Where no further thread can be started, a command does without or ends in one line, and leaves nothing."""

import json
import os
from itertools import count
from pathlib import Path

import pytest

from real.faulting import compiler, faults, faulty

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(compiler() is None, reason="no C compiler to build the library that makes the faults"),
]
MAIN = ("-m", "kvspill.cli.main")
NO_THREAD = "thread:fail:1"
LOAD = ("--num-users", "2", "--model", "tiny-1b", "--generation-mode", "none", "--quiet")
RUN = (
    *("run", *LOAD, "--duration", "0.7", "--cpu-mem-gb", "0.3", "--storage-capacity-gb", "0.25"),
    *("--cache-dir", "o", "--output", "r.json", "--io-threads", "3"),
)
SIMULATE = ("simulate", *LOAD, "--max-requests", "3", "--output", "r.json")
PREPARE = "kvspill: error: kvspill-"


def said_by(where: Path, *words: str) -> tuple[int, str]:
    """Exit code and errors of a command whose threads meet the rule; never a word for a programmer."""
    with faulty(where, NO_THREAD, *MAIN, *words) as process:
        _, err = process.communicate(timeout=60)
    for word in ("Traceback", "internal error", "Exception ignored", "interrupted", "never retrieved"):
        assert word not in err, err
    assert os.listdir(where / "o") == []
    return process.returncode, err


@pytest.mark.parametrize(
    ("words", "code", "starts"),
    [
        (RUN, 1, PREPARE),
        (("calibrate", "--quick", "--quiet", "--cache-dir", "o", "--output", "p.yaml"), 1, PREPARE),
        ((*RUN, "--prometheus", "127.0.0.1:0"), 1, "kvspill: error: --prometheus 127.0.0.1:0: can't start"),
        (SIMULATE, 0, ""),
        ((*SIMULATE, "--log-ops", "x.parquet"), 1, "kvspill: error: --log-ops x.parquet: rows are missing"),
        (("curve", *LOAD, "--max-requests", "3"), 0, ""),
        (("curve", *LOAD, "--max-requests", "3", "--page", "p.html"), 1, "kvspill: error: no further thread"),
    ],
    ids=["run", "calibrate", "prometheus", "simulate", "log", "curve", "page"],
)
def test_without_any_thread_a_command_does_without_or_ends_in_one_line(
    tmp_path: Path, words: tuple[str, ...], code: int, starts: str
) -> None:
    """OpenBLAS sent SIGINT to the program, which then said that it had been interrupted."""
    if "x.parquet" in words:
        pytest.importorskip("pyarrow")
    if "--prometheus" in words:
        pytest.importorskip("prometheus_client")
    found, err = said_by(tmp_path, *words)
    assert faults(tmp_path)
    assert found == code, err
    lines = [line for line in err.splitlines() if line.startswith("kvspill")]
    assert "".join(lines).startswith(starts)
    assert len(lines) == (code != 0)
    if words[0] == "simulate":
        # What a log has lost costs no result.
        assert json.loads((tmp_path / "r.json").read_text())["requests_completed"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("words", [RUN, (*RUN, "--log-ops", "x.parquet")], ids=["run", "log"])
def test_any_one_thread_that_cannot_be_started_is_done_without_or_said_in_one_line(
    tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them in a run of its own, until there are no more."""
    pytest.importorskip("pyarrow")
    for number in count(1):
        monkeypatch.setenv("KVSPILL_SHIM_NTH", str(number))
        where = tmp_path / str(number)
        where.mkdir()
        code, err = said_by(where, *words)
        if not faults(where):
            break
        assert (code, err.count("kvspill: error: ")) in ((0, 0), (1, 1)), (number, err)
        if code == 0:
            result = json.loads((where / "r.json").read_text())
            assert (result["faulty"], result["requests_completed"] > 0) == (False, True)
    assert number > 5
