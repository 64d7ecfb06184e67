"""Standard output and error that are closed or full: one line, and the result is kept."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kvspill.cli.main import main

LOAD = "--model tiny-1b --num-users 2 --duration 5 --cpu-mem-gb 0 --seed 1"


def simulate(folder: Path, redirected: str, output: str = "r.json") -> subprocess.CompletedProcess[str]:
    command = f"{shlex.quote(sys.executable)} -m kvspill simulate {LOAD} --output {output} {redirected}"
    return subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("redirected", ["2>&-", ">&-", "<&- >&- 2>&-"])
def test_a_closed_stream_leads_nowhere(tmp_path: Path, redirected: str) -> None:
    done = simulate(tmp_path, redirected)
    assert done.returncode == 0
    assert "error" not in done.stdout + done.stderr
    assert json.loads((tmp_path / "r.json").read_text())["simulated"]


@pytest.mark.parametrize(
    ("output", "redirected"),
    [("/dev/stdout", ">&-"), ("/dev/fd/0", "<&-"), ("/dev/fd/1", ">&-"), ("/dev/fd/3", "3>&-"), ("l", ">&-")],
)
def test_no_result_goes_to_a_closed_descriptor(tmp_path: Path, output: str, redirected: str) -> None:
    """It went to /dev/null or into a file of our own, with exit code 0."""
    (tmp_path / "l").symlink_to("/dev/stdout")
    done = simulate(tmp_path, redirected, output)
    assert done.returncode == 2
    assert f"--output {output}: is closed; name a file" in done.stderr


@pytest.mark.parametrize("output", ["/dev/stdout", "/dev/fd/3"])
def test_an_open_descriptor_takes_the_result(tmp_path: Path, output: str) -> None:
    done = simulate(tmp_path, "--quiet 3>three >one", output)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / ("three" if "3" in output else "one")).read_text())["simulated"]


def test_a_full_standard_output_is_named_and_the_result_kept(tmp_path: Path) -> None:
    done = simulate(tmp_path, ">/dev/full")
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith(
        "kvspill: error: standard output: No space left on device; send it where there is room"
    )
    assert json.loads((tmp_path / "r.json").read_text())["simulated"]


EVERY_COMMAND = """\
import json, sys
import kvspill.cli.main as m
lines = [[name, "--help"] for name in m.COMMANDS]
lines += [["--help"], ["models"], ["suite", "--list"], ["doctor", "--cache-dir", "."]]
lines += [["frobnicat\\u00e9\\u2026"]]
lines += [["simulate", *sys.argv[1:], "--output", name] for name in ("a.json", "b.json")]
lines += [["compare", "a.json", "--", "b.json"], ["report", "a.json", "-o", "a.html"]]
codes = {}
for line in lines:
    sys.argv[1:] = line
    try:
        codes[ascii(line)] = m.main()
    except SystemExit as end:
        codes[ascii(line)] = end.code
json.dump(codes, open("codes.json", "w"))
"""


@pytest.mark.parametrize(
    "encoding",
    [
        {"PYTHONIOENCODING": "ascii"},
        pytest.param({"PYTHONIOENCODING": "latin-1"}, marks=pytest.mark.slow),
        pytest.param({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, marks=pytest.mark.slow),
    ],
    ids=["ascii", "latin-1", "C"],
)
def test_letters_that_a_terminal_does_not_have_fail_no_command(
    tmp_path: Path, encoding: dict[str, str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EVERY_COMMAND, *LOAD.split()],
        cwd=tmp_path,
        env={**os.environ, **encoding},
        capture_output=True,
        encoding="latin-1",
        check=True,
    )
    codes = json.loads((tmp_path / "codes.json").read_text())
    assert [line for line, code in codes.items() if code != 0] == [r"['frobnicat\xe9\u2026']"]
    assert done.stderr.count("error") == 1
    assert "usage: kvspill suite [SCENARIO?] [FLAGS]" in done.stdout


@pytest.mark.parametrize("tokens", ["1e308", "1" + "0" * 20])
def test_numbers_that_no_service_has_are_refused(
    tmp_path: Path, tokens: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.json"
    rows.write_text(f'[{{"context_tokens": {tokens}}}, {{"context_tokens": {tokens}}}]')
    words = ["--validation-trace", str(rows), "--output", str(tmp_path / "r.json"), "--quiet"]
    assert main(["simulate", *LOAD.split(), *words]) == 2
    assert "row 1: context_tokens is" in capsys.readouterr().err
