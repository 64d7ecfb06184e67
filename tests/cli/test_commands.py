"""The smaller commands: quick's safety, clean's restraint, the drop-in script."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from html import unescape
from pathlib import Path

import pytest

from kvspill.cli.main import main
from kvspill.cli.quick import DEFAULTS, OWN_NOTES, capped, safe_capacity_gb
from kvspill.cli.run import measured
from kvspill.config import Config
from kvspill.config.load import load_config
from kvspill.errors import UsageError
from kvspill.records import GIB
from kvspill.report.console import render_summary
from kvspill.report.html import page as page_module
from kvspill.result.reading import load_result
from unit.report.html.pages import build_page

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("free_gib", "capacity"), [(1000, 4), (40, 4), (39, 3.9), (10, 1), (0.5, 0.05)])
def test_quick_takes_at_most_4_gib_and_a_tenth_of_the_free_space(free_gib: float, capacity: float) -> None:
    assert safe_capacity_gb(int(free_gib * GIB)) == pytest.approx(capacity)


@pytest.mark.parametrize(("free_gib", "model"), [(100, "llama3.1-8b"), (10, "tiny-1b")])
def test_quick_takes_a_small_model_where_there_is_little_space(
    free_gib: float, model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("kvspill.run.preflight.free_bytes", lambda _dirs: int(free_gib * GIB))
    flags = {"cache_dir": ("--cache-dir", [str(tmp_path)])}
    config = capped(load_config(flags, defaults=DEFAULTS))
    assert (config.model, config.num_users, config.duration, config.cpu_mem_gb) == (model, 4, 30, 0.5)


def test_quick_refuses_a_nearly_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("kvspill.run.preflight.free_bytes", lambda _dirs: GIB)
    flags = {"cache_dir": ("--cache-dir", [str(tmp_path)])}
    with pytest.raises(UsageError, match=r"a tenth of the free space is 0\.1 GiB, too little"):
        capped(load_config(flags, defaults=DEFAULTS))


@pytest.mark.parametrize("given", [(), ("--duration", "21")])
def test_quick_does_not_warn_of_what_it_chose_itself(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    given: tuple[str, ...],
) -> None:
    path = tmp_path / "r.json"
    words = ["--model", "tiny-1b", "--num-users", "2", *given, "--output", str(path)]
    defaults = {"duration": 20.0}
    assert measured(words, "x", "", "", simulated=True, defaults=defaults, own_notes=OWN_NOTES) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert ("Too short to tell whether throughput was steady" in shown) is bool(given)
    (found,) = (item for item in load_result(path).warnings if item.code == "too_short")
    assert found.chosen is not bool(given)
    plain = "can't show whether its rates were steady; --duration 300 would."
    assert shown.count(plain) == (0 if given else 1)
    monkeypatch.setattr(page_module, "_library", lambda: "")
    page = build_page([("quick", load_result(path))])
    assert ("doubt-0-too_short" in page) is bool(given), "no badge and no warning on its page"
    assert unescape(page).count("can't show whether its rates were steady") == (0 if given else 1)
    assert print_verbose(path).count(plain) == (0 if given else 1)


def print_verbose(path: Path) -> str:
    return " ".join(render_summary(load_result(path)).split())


OF_DURATION = {"half_done", "not_steady", "too_short"}


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ((), set(OWN_NOTES)),
        (("--max-requests", "9"), set(OWN_NOTES)),
        (("--duration", "61"), set(OWN_NOTES) - OF_DURATION),
        # As long as quick would take, and as any other run would.
        (("--duration", "30"), set(OWN_NOTES) - OF_DURATION),
        (("--duration", "60"), set(OWN_NOTES) - OF_DURATION),
        (("--trials", "1"), set(OWN_NOTES) - {"few_trials"}),
    ],
    ids=["nothing", "requests", "61 s", "30 s", "60 s", "trials"],
)
def test_what_the_user_gives_to_quick_counts_whatever_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], chosen: set[str]
) -> None:
    told: list[set[str]] = []

    def run_command(_config: Config, *, chosen: list[str], **_: object) -> int:
        told.append(set(chosen))
        return 0

    monkeypatch.setattr("kvspill.cli.measuring.run_command", run_command)
    monkeypatch.setattr("kvspill.run.preflight.free_bytes", lambda _dirs: 100 * GIB)
    assert main(["quick", "--cache-dir", str(tmp_path), *given]) == 0
    assert told == [chosen]


def test_quick_keeps_what_the_user_gives() -> None:
    flags = {"model": ("--model", "tiny-1b"), "storage_capacity_gb": ("--storage-capacity-gb", "9")}
    config = capped(load_config(flags, defaults=DEFAULTS))
    assert (config.model, config.storage_capacity_gb) == ("tiny-1b", 9)


@pytest.mark.real
def test_clean_removes_nothing_that_is_not_a_dead_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.npy").write_text("precious")
    (tmp_path / "kvspill-1-00000000").mkdir()
    (tmp_path / "kvspill-1-00000000" / "notes.txt").write_text("not a run's")
    assert main(["clean", str(tmp_path)]) == 0
    assert capsys.readouterr().out == (
        f"left alone {tmp_path}/kvspill-1-00000000 (0 B): it has no marker of a run, and notes.txt is "
        f"not a run's\n0 left-over runs removed from {tmp_path}\n"
    )
    assert {path.name for path in tmp_path.iterdir()} == {"mine.npy", "kvspill-1-00000000"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_clean_says_of_another_users_run_only_what_it_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It had not looked, and said that there was no marker."""
    theirs = tmp_path / "kvspill-1-00000000"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    assert main(["clean", str(tmp_path)]) == 0
    assert capsys.readouterr().out == (
        f"left alone {theirs}: it belongs to another user, who can remove it\n"
        f"0 left-over runs removed from {tmp_path}\n"
    )


def run_drop_in(*argv: str, python: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [*(python or [sys.executable]), str(ROOT / "kv-cache.py"), *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_drop_in_command_is_run_under_its_own_name() -> None:
    done = run_drop_in("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: kv-cache.py [FLAGS]\n")


def test_the_drop_in_command_refuses_as_run_does() -> None:
    done = run_drop_in("--users", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "kvspill: error: --users 0: out of range; give 1 to 1,000,000\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in which nothing is installed yet."""
    shutil.copy(ROOT / "kv-cache.py", tmp_path)
    (tmp_path / "src").symlink_to(ROOT / "src")
    return tmp_path


def bare(checkout: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """The drop-in command by an interpreter that knows no package."""
    command = [sys.executable, "-S", str(checkout / "kv-cache.py"), *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": os.defpath})


def test_the_drop_in_command_says_what_is_not_installed(checkout: Path) -> None:
    done = bare(checkout, "--users", "5")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "kvspill: error: hdrhistogram, numpy, pydantic, rich, scipy, PyYAML not installed"
    )
    assert f"{checkout}/.venv/bin/pip install -e {checkout}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_drop_in_command_goes_on_in_the_environment_beside_it(checkout: Path) -> None:
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = bare(checkout, "--users", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "kvspill: error: --users 0: out of range; give 1 to 1,000,000\n"


def test_an_environment_that_lacks_them_too_is_not_tried_twice(checkout: Path) -> None:
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    done = bare(checkout, "--users", "5")
    assert done.returncode == 2
    assert "hdrhistogram, numpy, pydantic, rich, scipy, PyYAML not installed" in done.stderr


def test_the_drop_in_command_looks_for_every_dependency() -> None:
    with open(ROOT / "pyproject.toml", "rb") as file:
        declared = tomllib.load(file)["project"]["dependencies"]
    names = {re.split(r"[<>=!~;\[ ]", text)[0] for text in declared}
    assert names | {"kvspill"} == set(runpy.run_path(str(ROOT / "kv-cache.py"))["NEEDED"].values())


def test_make_run_installs_what_the_readme_shows_next() -> None:
    assert "kvspill report " in (ROOT / "README.md").read_text()
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "run"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "pip install --quiet --editable '.[report]'" in done.stdout
