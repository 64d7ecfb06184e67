"""What is read of a foreign interpreter is bounded, and what is wrong with it is said in one line."""

import dataclasses
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from kvspill.errors import KvspillError, UsageError
from kvspill.plan.validate import sides
from kvspill.plan.validate.sides import ENGINES, Side, engine_command, our_command

TASK = {"requests": [["a"], ["b"]]}
ANSWER = '{"version": "1", "requests": [{"found": 1, "stored": 0, "seconds": 0.5}%s]}'
TWO = ANSWER % ', {"found": 0, "stored": 1, "seconds": 0}'
SAYS = "while read line; do echo '%s'; done"


def played(script: str, root: Path) -> sides.Round:
    with Side("engine", ["bash", "-c", script], root, TASK) as side:
        return side.play()[0]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (SAYS % "hello", "engine: its driver answered 'hello', which is no answer; check that"),
        (SAYS % (ANSWER % ""), "engine: its driver answered 1 of 2 requests, which is no answer"),
        (SAYS % TWO.replace("0.5", '"x"'), 'engine: its driver answered \'{"version"'),
        ("read line; tr '\\0' x </dev/zero", "engine: its driver answered more than 1,050,624 bytes"),
        ("exec >&- <&-; sleep 60", "engine: its driver closed its pipes without an answer; check that"),
        ("head -c 50000000 /dev/zero | tr '\\0' e >&2; exit 3", "engine: its driver ended with 3: eee"),
    ],
    ids=["no-json", "too-few", "no-number", "endless", "closed", "loud"],
)
def test_a_driver_that_answers_nonsense_is_refused_in_few_words(
    tmp_path: Path, script: str, said: str
) -> None:
    tracemalloc.start()
    with pytest.raises(KvspillError, match=re.escape(said)) as caught:
        played(script, tmp_path)
    assert len(str(caught.value)) < 1500
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    assert list(tmp_path.iterdir()) == []


def test_a_driver_may_be_loud_and_slow_to_listen(tmp_path: Path) -> None:
    loud = "head -c 3000000 /dev/zero >&2; " + SAYS % TWO
    assert played(loud, tmp_path).stored == (0, 1)


def interpreter(tmp_path: Path, script: str) -> str:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o700)
    return str(path)


def test_an_interpreter_that_does_not_say_what_it_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "_LOOK_SECONDS_MAX", 0.5)
    with pytest.raises(UsageError, match=r"did not say within 0\.5 s whether it has lmcache; name a Python"):
        engine_command(ENGINES["lmcache"], interpreter(tmp_path, "exec yes"))


def test_a_child_of_an_interpreter_that_keeps_its_output_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "_LOOK_SECONDS_MAX", 5)
    path = interpreter(tmp_path, "sleep 20 &")
    assert engine_command(ENGINES["lmcache"], path)[0] == path


def test_neither_side_takes_a_module_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What anybody had put there ran with the rights of who validated."""
    planted = "from pathlib import Path; Path('ran').touch(); raise ImportError"
    for name in ("asyncio", "contextlib", "json", "types", "warnings"):
        (tmp_path / f"{name}.py").write_text(planted)
    monkeypatch.chdir(tmp_path)
    engine = dataclasses.replace(ENGINES["lmcache"], module="pytest")
    assert engine_command(engine, sys.executable)[0] == sys.executable
    done = subprocess.run(
        our_command(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "ran").exists()
