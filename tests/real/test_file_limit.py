"""`ulimit -f`: a run whose files would not be taken whole is refused before it, with the numbers."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real
MIB = 1 << 20
LOAD = (
    "--model",
    "tiny-1b",
    "--num-users",
    "1",
    "--max-requests",
    "2",
    "--generation-mode",
    "none",
    "--quiet",
)
RUN = ("run", *LOAD, "--cpu-mem-gb", "0", "--storage-capacity-gb", "0.25", "--cache-dir", ".")


def limited(where: Path, limit_bytes: int, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "kvspill", *words],
        cwd=where,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes)),
    )


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("simulate", *LOAD), "its result may take 2 MiB"),
        (("simulate", *LOAD, "--duration", "100000"), "its result may take 18 MiB"),
        (RUN, "the file of the largest entry may take 192 MiB"),
        ((*RUN, "--layout", "slots"), "the file of --layout slots may take 256 MiB"),
        ((*RUN, "--layout", "buckets"), "a file of --layout buckets may take 256 MiB"),
    ],
)
def test_a_run_whose_files_may_not_become_as_large_as_they_may_is_refused(
    tmp_path: Path, words: tuple[str, ...], what: str
) -> None:
    """The result was lost after the run: no place took it."""
    finished = limited(tmp_path, 64 << 10, *words)
    assert finished.returncode == 2
    assert finished.stderr == (
        f"kvspill: error: ulimit -f: no file may be larger than 64 KiB here, but {what}; "
        "raise the limit with `ulimit -f unlimited`\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("words", "limit_bytes"), [(("simulate", *LOAD), 2 * MIB), (RUN, 192 * MIB)])
def test_a_limit_that_holds_them_is_in_nobodys_way(
    tmp_path: Path, words: tuple[str, ...], limit_bytes: int
) -> None:
    finished = limited(tmp_path, limit_bytes, *words)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert len(list((tmp_path / "kvspill-results").iterdir())) == 1
