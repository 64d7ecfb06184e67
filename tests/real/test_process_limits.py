"""`ulimit -n` and `ulimit -v`: too little for a command is refused in one line, whichever command it is."""

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real
MIB = 1 << 20
SIMULATE = "simulate --model tiny-1b --num-users 1 --max-requests 2 --quiet --output r.json"
COMMANDS = (
    SIMULATE,
    "can --model tiny-1b --users 2 --simulate",
    "plan --users 4 --option nvme-gen4",
    "suite --quick --simulate",
    "report r.json",
    "run --model tiny-1b --num-users 1 --max-requests 2 --cache-dir .",
)
ENOUGH = {resource.RLIMIT_NOFILE: 32, resource.RLIMIT_AS: 1024 * MIB}
FEW = "ulimit -n: no more than {} files may be open here, but a command needs 32"
SMALL = "ulimit -v: the address space is limited to {} here, but {} needs {}"


def crossed(*limits: int) -> list[Any]:
    """Every command with every limit. They are refused before a command is looked at: the quick tests try
    each limit once and the last one with all commands."""
    return [
        pytest.param(
            *(words, limit),
            id=f"{words.split()[0]}-{limit}",
            marks=() if limit == limits[-1] or place == turn % len(COMMANDS) else pytest.mark.slow,
        )
        for turn, limit in enumerate(limits)
        for place, words in enumerate(COMMANDS)
    ]


def limited(where: Path, kind: int, limit: int, words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "kvspill", *words.split()],
        cwd=where,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(kind, (limit, limit)),
    )


@pytest.mark.parametrize(("words", "files"), crossed(5, 6, 8, 16, 31))
def test_fewer_open_files_than_a_command_needs_are_refused(tmp_path: Path, files: int, words: str) -> None:
    """Some printed a traceback, an ignored exception or the panic of a library."""
    finished = limited(tmp_path, resource.RLIMIT_NOFILE, files, words)
    assert finished.returncode == 2
    assert finished.stderr == (
        f"kvspill: error: {FEW.format(files)}; raise the limit with `ulimit -n 1024`\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("words", "space_mib"), crossed(60, 300, 900))
def test_less_address_space_than_a_command_needs_is_refused(
    tmp_path: Path, space_mib: int, words: str
) -> None:
    """With 300 MB `suite` went on for ever and heard no signal; others were an internal error."""
    finished = limited(tmp_path, resource.RLIMIT_AS, space_mib * MIB, words)
    assert finished.returncode == 2
    assert finished.stderr == (
        f"kvspill: error: {SMALL.format(f'{space_mib} MiB', 'a command', '1.00 GiB')}; "
        "raise the limit with `ulimit -v unlimited`\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [resource.RLIMIT_NOFILE, resource.RLIMIT_AS], ids=["files", "space"])
def test_what_a_command_needs_is_enough(tmp_path: Path, kind: int) -> None:
    for words in (SIMULATE, "suite storage-only cpu-storage --model tiny-1b --quick --simulate --quiet"):
        finished = limited(tmp_path, kind, ENOUGH[kind], words)
        assert (finished.returncode, finished.stderr) == (0, ""), words


def test_an_address_space_in_which_no_plot_can_be_drawn_is_refused(tmp_path: Path) -> None:
    """The engine that draws printed the stack of a crash and ended the process."""
    pytest.importorskip("vl_convert")
    assert limited(tmp_path, resource.RLIMIT_NOFILE, 32, SIMULATE).returncode == 0
    finished = limited(tmp_path, resource.RLIMIT_AS, 2048 * MIB, "report r.json")
    assert finished.returncode == 2
    assert finished.stderr == (
        f"kvspill: error: {SMALL.format('2.00 GiB', 'drawing a plot', '72.00 GiB')}; "
        "raise the limit with `ulimit -v unlimited`\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
    for kind, limit in ((resource.RLIMIT_NOFILE, 32), (resource.RLIMIT_AS, 72 << 30)):
        assert limited(tmp_path, kind, limit, "report r.json").returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        "curve --num-users 2 --duration 5 --model tiny-1b --dram-gib 1 --output c.json --page c.html",
        "report r.json -o r.html --csv r.csv",
    ],
    ids=["curve", "report"],
)
def test_a_page_that_cannot_be_drawn_is_refused_before_anything_is_done_for_it(
    tmp_path: Path, words: str
) -> None:
    """The curve had been computed and the table written."""
    assert limited(tmp_path, resource.RLIMIT_NOFILE, 32, SIMULATE).returncode == 0
    finished = limited(tmp_path, resource.RLIMIT_AS, 2048 * MIB, words)
    assert (finished.returncode, finished.stdout) == (2, "")
    assert "drawing a plot needs 72.00 GiB" in finished.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
